/* One POST under way and the channel back to its client: what http_post.c reads and post.c
 * answers. */
#pragma once

#include "edge/call.h"
#include "mcp/transport/dispatch.h"
#include "mcp/server.h"

/* An answer that has not come by then becomes a stream. */
#define POST_WAIT_MS 200

struct memory;
struct json_parse;
struct mcp_stream;

struct post {
	/* One for the channel (call or stream) while it is open, one for each request under way,
	 * and one while the body is read. */
	unsigned references;
	struct mcp_server *server;
	struct call *call; /* NULL: answered, streaming, or the client is gone */
	struct mcp_view view;
	struct mcp_session *session; /* legacy, held; NULL: none */
	struct mcp_stream *stream;   /* NULL: not streaming */
	struct mcp_request *request; /* the only one, while it is under way; NULL: of a batch */
	struct request_set requests; /* those that end with the channel: of no session */
	struct json_parse *parse;
	struct memory *memory; /* of the body */
	struct list waiting;   /* of the server's */
	int64_t due;           /* CLOCK_MONOTONIC, ns */
	bool accepts_stream, accepts_json;
	enum mcp_revision said; /* by the header, of a legacy client without a session */
	/* A batch: the answers so far, and how many are still to come. */
	bool batch;
	size_t pending;
	struct buffer answers;
};

extern const struct mcp_carrier post_carrier;

struct post *post_new(struct call *call, struct mcp_server *server, const struct mcp_view *view);
struct post *post_hold(struct post *post);
void post_release(struct post *post);
/* Dispatches a request of this POST. */
void post_serve(struct post *post, struct mcp_request *request, const struct mcp_headers *headers);
/* The whole answer: an error, or 202. */
void post_problem(struct post *post, const json_t *id, const struct mcp_problem *problem);
void post_accepted(struct post *post);
/* The server's waiting_alarm: those that are due become streams. */
void posts_waited(void *server);

/* A batch: elements are served in between; its answer goes out when the last of them has come. */
void post_batch_begin(struct post *post);
void post_collect_problem(struct post *post, const json_t *id, const struct mcp_problem *problem);
void post_batch_end(struct post *post);
