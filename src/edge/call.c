/* The life of one request (call.h has the rules), functions for every handler, and its answer:
 * JSON, the one error shape, headers that belong to a status. Every error of the API goes through
 * reply_error(), and only the table maps it. Called by the router and the handlers, on the loop;
 * nothing blocks. */
#include "edge/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"

static void call_gone(struct http_exchange *exchange)
{
	struct call *call = http_data(exchange);
	call->exchange = NULL;
	work_cancel(&call->work);
	token_unwatch(&call->watcher);
	if (call->on_gone)
		call->on_gone(call);
	call_release(call);
}

static void call_data_came(struct http_exchange *exchange, const char *bytes, size_t size)
{
	struct call *call = http_data(exchange);
	if (call->stream.on_data)
		call->stream.on_data(call, bytes, size);
}

static void call_data_ended(struct http_exchange *exchange)
{
	struct call *call = http_data(exchange);
	if (call->stream.on_end)
		call->stream.on_end(call);
}

static void call_drained(struct http_exchange *exchange)
{
	struct call *call = http_data(exchange);
	if (call->stream.on_drain)
		call->stream.on_drain(call);
}

static const struct http_callbacks callbacks = {
    .on_data = call_data_came,
    .on_end = call_data_ended,
    .on_drain = call_drained,
    .on_gone = call_gone,
};

struct call *call_new(struct edge *edge, struct http_exchange *exchange)
{
	struct call *call = calloc(1, sizeof(*call));
	if (!call)
		abort();
	call->edge = edge;
	call->core = edge->core;
	call->exchange = exchange;
	call->began = clock_monotonic();
	call->references = 1;
	list_init(&call->watcher.link);
	memcpy(call->request_id, http_request(exchange)->id, sizeof(call->request_id));
	http_set_data(exchange, call);
	http_set_callbacks(exchange, &callbacks);
	return call;
}

struct call *call_hold(struct call *call)
{
	call->references++;
	return call;
}

void call_release(struct call *call)
{
	if (--call->references > 0)
		return;
	if (call->state_free)
		call->state_free(call->state);
	buffer_done(&call->raw);
	free(call->query);
	json_release(call->body, call->share);
	work_share_release(call->share);
	free(call);
}

void call_answered(struct call *call)
{
	token_unwatch(&call->watcher);
	call->exchange = NULL;
	call_release(call);
}

struct sandbox *call_sandbox(struct call *call)
{
	struct sandbox *sandbox = sandbox_by_id(call->core, &call->sandbox);
	if (sandbox)
		return sandbox;
	struct error error;
	error_set(&error, ERROR_SANDBOX_ENDED, "sandbox %s ended during the request",
		  call->sandbox.text);
	reply_error(call, &error);
	return NULL;
}

struct call_turn {
	struct work work;
	struct call *call;
	void (*go)(struct call *call);
};

static void call_turn_come(struct work *work)
{
	struct call_turn *turn = container_of(work, struct call_turn, work);
	struct call *call = turn->call;
	void (*go)(struct call *) = turn->go;
	free(turn);
	if (call->exchange && core_running(call->core))
		go(call);
	call_release(call);
}

void call_next_turn(struct call *call, void (*go)(struct call *call))
{
	struct call_turn *turn = calloc(1, sizeof(*turn));
	if (!turn)
		abort();
	*turn = (struct call_turn){.work.run = call_turn_come, .call = call_hold(call), .go = go};
	work_wait(&turn->work, call->share);
}

static void call_sandbox_ready(void *context, const struct error *error)
{
	struct call *call = context;
	if (call->exchange && error) {
		reply_error(call, error);
	} else if (call->exchange) {
		struct sandbox *sandbox = call_sandbox(call);
		if (sandbox)
			call->act(call, sandbox);
	}
	call_release(call);
}

void call_ready(struct call *call, void (*act)(struct call *call, struct sandbox *sandbox))
{
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (sandbox_ready_now(sandbox)) {
		act(call, sandbox);
		return;
	}
	struct error error;
	struct sandbox_readying *readying;
	call->act = act;
	call_hold(call);
	if (sandbox_ready_for(sandbox, &call->principal, call_sandbox_ready, call, &readying,
			      &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

bool call_accepts(const struct call *call, const char *type)
{
	const char *accept = http_header(call->exchange, "accept");
	return accept && strstr(accept, type);
}

bool call_upgrades(const struct call *call, const char *protocol)
{
	const char *upgrade = http_header(call->exchange, "upgrade");
	return upgrade && strcasecmp(upgrade, protocol) == 0;
}

bool call_wants_events(const struct call *call)
{
	/* A client that also accepts JSON gets JSON. */
	return (call_accepts(call, "text/event-stream") ||
		call_accepts(call, "application/x-ndjson")) &&
	       !call_accepts(call, "application/json");
}

const char *call_idempotency_key(const struct call *call)
{
	return http_header(call->exchange, "idempotency-key");
}

void call_server_url(const struct call *call, char url[SERVER_URL_MAX])
{
	const struct http_peer *peer = &http_request(call->exchange)->peer;
	const char *host = http_header(call->exchange, "host");
	snprintf(url, SERVER_URL_MAX, "%s", call->edge->url);
	/* The parser has checked its form and its length. */
	if (!peer->is_unix && host && host[0] != '\0')
		snprintf(url, SERVER_URL_MAX, "%s://%s", peer->is_tls ? "https" : "http", host);
}

int call_fields(struct call *call, void *into, struct error *error)
{
	if (!call->route->body)
		abort(); /* the row in the table of routes lacks it */
	return fields_parse(call->body, call->route->body, FIELDS_REST, &call->core->config, into,
			    error);
}

int call_query(struct call *call, void *into, struct error *error)
{
	const char *query = http_request(call->exchange)->query;
	if (!call->route->query || call->query)
		abort(); /* its row in the table of routes lacks it, or it is asked for twice */
	call->query = malloc(strlen(query) + 1);
	if (!call->query)
		abort();
	return fields_parse_query(query, call->route->query, call->query, into, error);
}

/* --- answers --- */

void put_error(struct json_writer *writer, const struct error *error, const char *request_id)
{
	const struct error_info *info = error_info(error->kind);
	put_object(writer, NULL);
	put_text(writer, "error", error->message);
	put_text(writer, "code", info->code);
	put_text(writer, "request_id", request_id);
	put_bool(writer, "retryable", info->retryable);
	put_text(writer, "detail", error->message);
	if (error->limit[0] != '\0')
		put_text(writer, "limit", error->limit);
	if (error->retry_after_ms != 0)
		put_uint(writer, "retry_after_ms", error->retry_after_ms);
	if (error->queue_position != 0)
		put_uint(writer, "queue_position", error->queue_position);
	if (info->advice[0] != '\0')
		put_text(writer, "advice", info->advice);
	put_object_end(writer);
}

/* Headers for errors that a client can handle by header alone. Returns their number. */
static size_t error_headers(const struct call *call, const struct error *error,
			    struct http_header headers[1], char text[128])
{
	const struct error_info *info = error_info(error->kind);
	if (info->http_status == 401) {
		/* RFC 6750: no error code if no token was sent. */
		bool sent = http_header(call->exchange, "authorization") != NULL;
		headers[0] = (struct http_header){
		    "WWW-Authenticate", sent ? "Bearer realm=\"caisson\", error=\"invalid_token\""
					     : "Bearer realm=\"caisson\""};
		return 1;
	}
	if (info == error_info(ERROR_FORBIDDEN) && call->route &&
	    !principal_may(&call->principal, call->route->scope)) {
		snprintf(text, 128,
			 "Bearer realm=\"caisson\", error=\"insufficient_scope\", scope=\"%s\"",
			 scope_name(call->route->scope));
		headers[0] = (struct http_header){"WWW-Authenticate", text};
		return 1;
	}
	if (info->http_status == 405) {
		headers[0] = (struct http_header){"Allow", call->allow};
		return 1;
	}
	if (info->retryable && (info->http_status == 429 || info->http_status == 503)) {
		snprintf(text, 128, "%u", MAX((error->retry_after_ms + 999) / 1000, 1u));
		headers[0] = (struct http_header){"Retry-After", text};
		return 1;
	}
	return 0;
}

void reply_error(struct call *call, const struct error *error)
{
	if (!call->exchange)
		return;
	const struct error_info *info = error_info(error->kind);
	statistics.errors[error->kind]++;
	const struct http_request *request = http_request(call->exchange);
	/* 501 is due to the client's request, not to a failure here. */
	if (info->http_status >= 500 && info->http_status != 501)
		log_warning("request %s: %s %s: %d %s: %s", call->request_id, request->method,
			    call->route ? call->route->pattern : "", info->http_status, info->code,
			    error->message);
	else
		log_debug("request %s: %s %s: %d %s: %s", call->request_id, request->method,
			  call->route ? call->route->pattern : "", info->http_status, info->code,
			  error->message);

	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_error(&writer, error, call->request_id);
	struct http_header headers[1];
	char text[128];
	size_t count = error_headers(call, error, headers, text);
	http_respond(call->exchange, info->http_status, "application/json", headers, count,
		     buffer.data, buffer.size);
	call_answered(call);
}

void reply_json(struct call *call, int status, struct json_writer *writer)
{
	if (call->exchange && writer->full) {
		struct error error;
		error_set(&error, ERROR_TOO_LARGE,
			  "the answer would be larger than %llu MiB; ask for less",
			  (unsigned long long)(writer->buffer->maximum / MIB));
		reply_error(call, &error);
	} else if (call->exchange) {
		log_debug("request %s: %s: %d", call->request_id, call->route->pattern, status);
		http_respond(call->exchange, status, "application/json", NULL, 0,
			     writer->buffer->data, writer->buffer->size);
		call_answered(call);
	}
	buffer_done(writer->buffer);
}

void reply_empty(struct call *call, int status)
{
	if (!call->exchange)
		return;
	http_respond(call->exchange, status, NULL, NULL, 0, NULL, 0);
	call_answered(call);
}
