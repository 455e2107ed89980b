/* One request of a client, from its message to its answer, for every method and every tool. Every
 * handler is
 *     parse -> (target.h: find and ready the sandbox) -> act -> answer, exactly once
 *
 * Life: counted. The carrier holds one reference until the request is answered or cancelled; code
 * that gives `request` to the domain as callback data holds another until that callback came.
 * `open` becomes false when nothing waits for the answer any more: a callback then only releases
 * and returns. When a request is cancelled (notifications/cancelled, or a disconnect where the era
 * says that this cancels, or the end of its token), `open` becomes false and then `on_cancel` is
 * called once: it ends the operations under way and drops their references. */
#pragma once

#include <jansson.h>

#include "base/buffer.h"
#include "core/core.h"
#include "core/account/token.h"
#include "edge/json/json.h"
#include "mcp/face.h"
#include "mcp/transport/revision.h"

struct mcp_server;
struct mcp_request;
struct mcp_task;
struct sandbox;
struct sandbox_readying;
struct mcp_session;
struct question_rounds;
struct memory;

/* JSON-RPC and MCP error codes. */
enum mcp_code {
	MCP_PARSE_ERROR = -32700,
	MCP_INVALID_REQUEST = -32600,
	MCP_METHOD_NOT_FOUND = -32601,
	MCP_INVALID_PARAMS = -32602,
	MCP_INTERNAL_ERROR = -32603,
	MCP_RESOURCE_NOT_FOUND = -32002, /* only in the legacy era */
	MCP_HEADER_MISMATCH = -32020,
	MCP_MISSING_CAPABILITY = -32021,
	MCP_UNSUPPORTED_VERSION = -32022,
};

/* The client's capabilities, from initialize or from this request's _meta. */
enum mcp_client_capability {
	CLIENT_SAMPLING = 1 << 0,
	CLIENT_ELICITATION = 1 << 1,
	CLIENT_ROOTS = 1 << 2,
	CLIENT_TASKS = 1 << 3, /* the extension io.modelcontextprotocol/tasks */
};

/* RFC 5424's names; higher is more severe. LOG_OFF: nothing is sent. */
enum mcp_log_level {
	MCP_DEBUG,
	MCP_INFO,
	MCP_NOTICE,
	MCP_WARNING,
	MCP_ERROR,
	MCP_CRITICAL,
	MCP_ALERT,
	MCP_EMERGENCY,
	MCP_LOG_OFF
};
/* -1: no such level. */
int mcp_level_parse(const char *name);
const char *mcp_level_name(enum mcp_log_level level);

/* Where the messages of one request go: an HTTP answer of the modern era, a stream of a legacy
 * session, a line, a task, an element of a batch. `message` is one whole JSON-RPC message without
 * a line end; it is borrowed. */
struct mcp_carrier {
	/* A notification, or a request of ours, that belongs to this request. */
	void (*notify)(struct mcp_request *request, const struct buffer *message);
	/* The answer; http_status is 200 unless the era requires another. Afterwards the caller
	 * drops the carrier's reference. */
	void (*answer)(struct mcp_request *request, const struct buffer *message, int http_status);
	/* NULL, or: the same for an answer whose end is cached for all clients. */
	void (*answer_kept)(struct mcp_request *request, const struct buffer *message,
			    const struct buffer *rest);
	/* NULL, or: stores the answer in a task's record: the bare result object, without
	 * envelope. */
	void (*settle)(struct mcp_request *request, const struct buffer *result, bool failed);
	/* NULL, or: the request was cancelled, no answer will come. */
	void (*dropped)(struct mcp_request *request);
};

/* Requests under way of one client (a session or a process), by id. */
#define REQUESTS_MAX 64
struct request_set {
	struct list requests;
	size_t count;
};

struct mcp_request {
	struct mcp_server *server;
	const struct mcp_carrier *carrier;
	void *carrier_data;
	unsigned references;
	bool open;
	bool silent; /* the client only accepts the answer: no progress, no questions */
	void (*on_cancel)(struct mcp_request *request);
	struct request_set *among; /* NULL: in none */
	struct list link;          /* there */

	/* The caller. */
	struct core *core;
	struct principal principal;
	struct mcp_view view; /* what this URL or process offers */
	enum mcp_revision revision;
	uint32_t client; /* enum mcp_client_capability */
	enum mcp_log_level log_level;
	struct mcp_session *session; /* legacy, counted by mcp/transport/session.c; NULL: none */
	struct mcp_task *task;       /* its answer goes there; NULL: to the client */

	/* The message. */
	json_t *message;             /* owned */
	struct memory *memory;       /* its accounting, held; NULL: it is not counted */
	json_t *id;                  /* borrowed: a string or an integer */
	const char *method;          /* borrowed */
	json_t *params;              /* borrowed; an object, or NULL */
	json_t *progress_token;      /* borrowed; NULL: no progress requested */
	const struct mcp_tool *tool; /* of tools/call */

	/* The answer while it is written. */
	struct buffer out;
	struct json_writer writer;
	bool content_open;    /* content.c's: the list of blocks is not closed yet */
	bool meta_put;        /* the result has its _meta */
	size_t id_end;        /* where the part that is equal for every client begins */
	uint64_t progress;    /* the last progress number sent */
	int64_t progress_due; /* CLOCK_MONOTONIC ns: earlier ones are dropped */

	struct question_rounds *question_rounds; /* of questions.c; NULL: none */

	/* The handler's own. */
	void *state;
	void (*state_free)(void *state);
	/* target.c's */
	void (*act)(struct mcp_request *request, struct sandbox *sandbox);
	struct id sandbox;
	bool sandbox_chosen; /* the caller named no sandbox: the answer names it */
	struct sandbox_readying *readying;
};

struct mcp_request *mcp_hold(struct mcp_request *request);
void mcp_release(struct mcp_request *request);
/* Nothing waits for the answer any more. Safe for an answered request. */
void mcp_cancel(struct mcp_request *request);

/* --- answers: exactly one of these ends it --- */

/* Opens the result's object, for the caller's members. */
struct json_writer *mcp_result_begin(struct mcp_request *request);
/* The same with another resultType than "complete" (only modern: "input_required", "task"). */
struct json_writer *mcp_result_begin_as(struct mcp_request *request, const char *type);
/* For a list or a read: ttlMs and cacheScope, if the revision has them. */
void mcp_put_cache(struct mcp_request *request, uint64_t ttl_ms, bool public);
/* Opens the result's `_meta` for the caller's members; mcp_meta_end() closes it. Not needed for a
 * result without own members there. */
struct json_writer *mcp_meta_begin(struct mcp_request *request);
void mcp_meta_end(struct mcp_request *request);
/* Closes and sends it. A result larger than MCP_ANSWER_MAX becomes an error. */
void mcp_result_end(struct mcp_request *request);
#define MCP_ANSWER_MAX (16 * MIB)
/* Closes it as mcp_result_end() does, but instead of sending it, returns the part after the id, for
 * mcp_result_kept(). false: it is too large. */
NODISCARD bool mcp_result_keep(struct mcp_request *request, struct buffer *ret_rest);
/* Sends a cached result. */
void mcp_result_kept(struct mcp_request *request, const struct buffer *rest);
/* `{}`. */
void mcp_result_empty(struct mcp_request *request);

/* A JSON-RPC error. data: a JSON value as text, or NULL. */
void mcp_error(struct mcp_request *request, enum mcp_code code, const char *data,
	       const char *format, ...) PRINTF_LIKE(4, 5);
/* An error of the domain: for a tool a result with isError that a model can act on (content.h), for
 * any other method a JSON-RPC error by the table of error_kinds.def. */
void mcp_fail(struct mcp_request *request, const struct error *error);

/* --- on the way --- */

/* Progress: dropped if the client did not request it, or if the last one was sent less than
 * MCP_PROGRESS_MS ago. Text is cut to MCP_PROGRESS_TEXT_MAX at a character's end. For a task it
 * becomes the statusMessage. */
#define MCP_PROGRESS_MS 100
#define MCP_PROGRESS_TEXT_MAX 1024
void mcp_progress(struct mcp_request *request, const char *text, size_t size);
/* The same with numbers, never dropped (total < 0: unknown). */
void mcp_progress_of(struct mcp_request *request, double progress, double total, const char *text);
/* notifications/message, if the client's level allows it. */
void mcp_log(struct mcp_request *request, enum mcp_log_level level, const char *logger,
	     const char *text);
