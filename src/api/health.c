/* Requests about the daemon itself: its health, its version, the abilities of this host, the
 * description of the API. Answers from memory; nothing blocks. */
#include "api/routes.h"

#include <stdlib.h>
#include <string.h>

#include "api/openapi.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/statistics.h"
#include "core/spawner_client.h"
#include "proto/init_messages.h"
#include "proto/tiers.h"

/* A healthy spawner answers such a request in less than a millisecond. */
#define SPAWNER_PATIENCE (5 * NSEC_PER_SEC)

/* For monitoring: 503 while the daemon runs but cannot do its work. The reasons tell strangers
 * nothing about the host. */
static void health_get(struct call *call)
{
	struct core *core = call->core;
	bool store = core_store_works(core);
	bool spawner = core->spawner && spawner_client_waiting(core->spawner) < SPAWNER_PATIENCE;
	bool well = store && spawner;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "status", well ? "ok" : "degraded");
	if (!well) {
		put_array(&writer, "reasons");
		if (!store)
			put_text(&writer, NULL, "the store cannot be written");
		if (!spawner)
			put_text(&writer, NULL, "the spawner does not answer");
		put_array_end(&writer);
		/* Also in the form of an ordinary error. */
		enum error_kind kind = store ? ERROR_SPAWNER_GONE : ERROR_STORE;
		put_text(&writer, "error", "the daemon cannot do its work");
		put_text(&writer, "code", error_info(kind)->code);
		put_text(&writer, "request_id", call->request_id);
		put_bool(&writer, "retryable", true);
		put_text(&writer, "detail", "the daemon cannot do its work");
	}
	put_object_end(&writer);
	reply_json(call, well ? 200 : 503, &writer);
}

static void put_tier(struct json_writer *writer, const struct spawn_probe *probe, enum tier tier)
{
	put_object(writer, NULL);
	put_text(writer, "name", tier_name(tier));
	put_bool(writer, "available", probe->available);
	put_bool(writer, "by_name_only", probe->by_name);
	put_text(writer, "missing", probe->missing[0] ? probe->missing : NULL);
	put_object(writer, "limits");
	for (int kind = 0; kind < LIMIT_COUNT && probe->available; kind++) {
		enum limit_reason reason = (enum limit_reason)probe->limit_reasons[kind];
		put_object(writer, limit_name((enum limit_kind)kind));
		put_bool(writer, "enforced", reason == LIMIT_ENFORCED);
		put_text(writer, "reason",
			 reason == LIMIT_ENFORCED ? NULL : limit_reason_text(reason));
		put_object_end(writer);
	}
	put_object_end(writer);
	put_object_end(writer);
}

static void version_get(struct call *call)
{
	const struct core *core = call->core;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "version", CAISSON_VERSION);
	put_text(&writer, "api", "v1");
	put_uint(&writer, "init_protocol", INIT_PROTOCOL_VERSION);
	put_text(&writer, "url", call->edge->url[0] ? call->edge->url : NULL);
	put_array(&writer, "isolation");
	for (int tier = TIER_AUTO + 1; tier < TIER_COUNT; tier++)
		put_tier(&writer, &core->probes[tier], (enum tier)tier);
	put_array_end(&writer);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

/* The file has the usual address; it is replaced by the address of the request. */
static void openapi_get(struct call *call)
{
	static const char usual[] = "\"http://" CONFIG_LISTEN_DEFAULT "\"";
	const char *place = strstr(openapi_json, usual);
	char server[SERVER_URL_MAX];
	struct buffer head = BUFFER(64 * KIB);
	call_server_url(call, server);
	if (!place || buffer_append(&head, openapi_json, (size_t)(place - openapi_json)) < 0 ||
	    buffer_printf(&head, "\"%s\"", server[0] ? server : "http://localhost") < 0)
		abort(); /* a test of the document would have failed first */
	place += sizeof(usual) - 1;
	const struct http_text first = {head.data, head.size};
	const struct http_text rest = {place, openapi_json_size - (size_t)(place - openapi_json)};
	http_respond_in_two(call->exchange, 200, "application/json", NULL, 0, &first, &rest);
	buffer_done(&head);
	call_answered(call);
}

const struct route service_routes[] = {
    {"GET", "/healthz", READ, ROUTE_OPEN, health_get},
    {"GET", "/v1/openapi.json", READ, ROUTE_OPEN, openapi_get},
    {"GET", "/v1/version", READ, 0, version_get},
    {0},
};
