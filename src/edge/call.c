/* The life of one request (call.h says the rules) and what every handler asks of it. Called by the
 * router and the handlers, on the loop; nothing blocks. */
#include "edge/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"

static void gone(struct http_exchange *exchange)
{
	struct call *call = http_data(exchange);
	call->exchange = NULL;
	work_cancel(&call->work);
	token_unwatch(&call->watcher);
	if (call->on_gone)
		call->on_gone(call);
	call_release(call);
}

static void data(struct http_exchange *exchange, const char *bytes, size_t size)
{
	struct call *call = http_data(exchange);
	if (call->stream.on_data)
		call->stream.on_data(call, bytes, size);
}

static void end(struct http_exchange *exchange)
{
	struct call *call = http_data(exchange);
	if (call->stream.on_end)
		call->stream.on_end(call);
}

static void drain(struct http_exchange *exchange)
{
	struct call *call = http_data(exchange);
	if (call->stream.on_drain)
		call->stream.on_drain(call);
}

static const struct http_callbacks callbacks = {
    .on_data = data,
    .on_end = end,
    .on_drain = drain,
    .on_gone = gone,
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

struct turn {
	struct work work;
	struct call *call;
	void (*go)(struct call *call);
};

static void on_turn(struct work *work)
{
	struct turn *turn = container_of(work, struct turn, work);
	struct call *call = turn->call;
	void (*go)(struct call *) = turn->go;
	free(turn);
	if (call->exchange && call->core->store)
		go(call);
	call_release(call);
}

void call_next_turn(struct call *call, void (*go)(struct call *call))
{
	struct turn *turn = calloc(1, sizeof(*turn));
	if (!turn)
		abort();
	*turn = (struct turn){.work.run = on_turn, .call = call_hold(call), .go = go};
	work_wait(&turn->work, call->share);
}

static void ready(void *context, const struct error *error)
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
	if (sandbox_ready_for(sandbox, &call->principal, ready, call, &readying, &error) < 0) {
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

void call_server_url(const struct call *call, char url[SERVER_URL_MAX])
{
	const struct http_peer *peer = &http_request(call->exchange)->peer;
	const char *host = http_header(call->exchange, "host");
	snprintf(url, SERVER_URL_MAX, "%s", call->edge->url);
	/* The parser has checked its form and its length. */
	if (!peer->is_unix && host && host[0] != '\0')
		snprintf(url, SERVER_URL_MAX, "%s://%s", peer->is_tls ? "https" : "http", host);
}
