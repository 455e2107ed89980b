/* One request under way, from its head to its answer. Every handler is
 *     parse -> (call_ready) -> act -> reply
 * and all of them share the rules here.
 *
 * Life: a call is counted. The exchange holds one reference, until the answer is complete or the
 * client is gone; code that gives `call` to the domain as callback data holds another until that
 * callback came. `exchange` becomes NULL when there is no client to answer any more: a callback
 * then only releases and returns.
 *
 * If the client disconnects first, `on_gone` is called once (exchange is NULL by then): it cancels
 * the operations under way and drops their references. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/work.h"
#include "core/sandbox/sandbox.h"
#include "core/account/token.h"
#include "core/account/access.h"
#include "edge/edge.h"
#include "edge/fields/fields.h"
#include "edge/json/json.h"
#include "edge/route.h"
#include "http/http.h"

#define CALL_PARAMETERS_MAX 2
#define CALL_PARAMETER_MAX 128
#define CALL_ALLOW_MAX 64

struct call {
	struct edge *edge;
	struct core *core;
	struct http_exchange *exchange; /* NULL: answered, or the client is gone */
	const struct route *route;
	int64_t began; /* clock_monotonic() */
	unsigned references;
	struct principal principal;
	bool authenticated;
	struct token_watcher watcher; /* its token, while the call is open */
	struct work work;             /* its handler, while that waits for its turn */
	struct work_share *share; /* the share of the loop's time that is charged: its token's */
	char request_id[HTTP_REQUEST_ID_SIZE];
	char allow[CALL_ALLOW_MAX]; /* the methods of the path, after METHOD_NOT_ALLOWED */
	char parameters[CALL_PARAMETERS_MAX][CALL_PARAMETER_MAX];
	struct id sandbox;
	struct buffer raw; /* the received part of the JSON body */
	json_t *body;
	void (*act)(struct call *call, struct sandbox *sandbox);
	char *query; /* decoded text of its parameters */
	void *state; /* the handler's own */
	void (*state_free)(void *state);
	void (*on_gone)(struct call *call);
	struct {
		void (*on_data)(struct call *call, const char *data, size_t size);
		void (*on_end)(struct call *call);
		void (*on_drain)(struct call *call);
	} stream; /* for handlers that stream */
};

/* --- call.c --- */
struct call *call_new(struct edge *edge, struct http_exchange *exchange);
struct call *call_hold(struct call *call);
void call_release(struct call *call);
/* The answer is complete: the exchange must not be used any more. */
void call_answered(struct call *call);
/* Reads the fields of the JSON body by the route's table; on failure the caller replies. */
NODISCARD int call_fields(struct call *call, void *into, struct error *error);
/* The query by the route's table, once; its text is borrowed from the call. On failure the caller
 * replies. */
NODISCARD int call_query(struct call *call, void *into, struct error *error);
/* The sandbox of this call, or NULL after an error reply (it has ended by now). */
struct sandbox *call_sandbox(struct call *call);
/* Makes the sandbox ready (a caller that may write also wakes it), then calls act; replies on
 * failure. */
void call_ready(struct call *call, void (*act)(struct call *call, struct sandbox *sandbox));

/* Continues a long answer in another turn of the loop, so that other requests are handled in
 * between; not called if the client, or the store, is gone by then. */
void call_next_turn(struct call *call, void (*go)(struct call *call));

/* Does the Accept header name that type? Does the client request an upgrade to exactly that
 * protocol? */
bool call_accepts(const struct call *call, const char *type);
bool call_upgrades(const struct call *call, const char *protocol);
/* Does the client request events, or lines of JSON? */
bool call_wants_events(const struct call *call);
/* The Idempotency-Key of this request, or NULL (edge/idempotency.h). */
const char *call_idempotency_key(const struct call *call);

/* "http://HOST:PORT" as in the client's request; over the Unix socket that of the TCP port, or ""
 * without one. */
void call_server_url(const struct call *call, char url[SERVER_URL_MAX]);

/* --- authentication.c --- */
/* Does nothing if it was done before. */
NODISCARD int call_authenticate(struct call *call, struct error *error);
/* From then on the time of the call, and of its connection, is charged to its token, or to its
 * local user. */
void call_find_share(struct call *call);
/* The call ends with the principal's token, and at that time (0: none). */
void call_watch_token(struct call *call, int64_t until_wall);

#define REPLY_MAX (60 * MIB) /* one JSON answer in memory */
/* Answers with the written JSON (and frees the buffer). */
void reply_json(struct call *call, int status, struct json_writer *writer);
void reply_error(struct call *call, const struct error *error);
void reply_empty(struct call *call, int status); /* 204 and the like */
void put_error(struct json_writer *writer, const struct error *error, const char *request_id);
