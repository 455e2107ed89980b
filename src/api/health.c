/* What is asked of the daemon itself: is it there, which version, what can this host do, how is the
 * API described. Answers from memory; nothing blocks. */
#include "api/call.h"

#include "api/openapi.h"
#include "proto/init_messages.h"
#include "tier/driver.h"

void health_get(struct call *call)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "status", "ok");
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void put_tier(struct json_writer *writer, const struct spawn_probe *probe, enum tier tier)
{
	put_object(writer, NULL);
	put_text(writer, "name", tier_name(tier));
	put_bool(writer, "available", probe->available);
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

void version_get(struct call *call)
{
	const struct core *core = call->api->core;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "version", CAISSON_VERSION);
	put_text(&writer, "api", "v1");
	put_uint(&writer, "init_protocol", INIT_PROTOCOL_VERSION);
	put_array(&writer, "isolation");
	for (int tier = TIER_NAMESPACE; tier < TIER_COUNT; tier++)
		put_tier(&writer, &core->probes[tier], (enum tier)tier);
	put_array_end(&writer);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

void openapi_get(struct call *call)
{
	http_respond(call->exchange, 200, "application/json", NULL, 0, openapi_json,
		     openapi_json_size);
	call_answered(call);
}

void mcp_unsupported(struct call *call)
{
	struct error error;
	error_set(&error, ERROR_UNSUPPORTED,
		  "this version has no MCP server yet; /v1/openapi.json describes the API it has");
	reply_error(call, &error);
}
