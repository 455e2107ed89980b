/* One POST under way and the channel back to its client: http_post.c reads it, post.c answers
 * it. */
#pragma once

#include "edge/call.h"
#include "mcp/transport/dispatch.h"
#include "mcp/server.h"

/* An answer that takes longer becomes a stream. */
#define POST_WAIT_MS 200

struct memory;
struct json_parse;
struct mcp_stream;

struct post {
	/* One for the channel (call or stream) while it is open, one for each running request, and
	 * one while the body is read. */
	unsigned references;
	struct mcp_server *server;
	struct call *call; /* NULL: answered, streaming, or the client is gone */
	struct mcp_view view;
	struct mcp_session *session; /* legacy, held; NULL: none */
	struct mcp_stream *stream;   /* NULL: not streaming */
	struct mcp_request *request; /* the only request, while it is under way; NULL: a batch */
	struct request_set requests; /* requests without a session, which end with the channel */
	struct json_parse *parse;
	struct memory *memory; /* of the body */
	struct list waiting;   /* of the server's */
	int64_t due;           /* CLOCK_MONOTONIC, ns */
	bool accepts_stream, accepts_json;
	enum mcp_revision said; /* from the header, for a legacy client without a session */
	/* A batch: the answers so far, and the number of missing ones. */
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
/* For the server's waiting_alarm: overdue answers become streams. */
void posts_waited(void *server);

/* A batch: elements are served in between; its answer is sent after the last of them. */
void post_batch_begin(struct post *post);
void post_collect_problem(struct post *post, const json_t *id, const struct mcp_problem *problem);
void post_batch_end(struct post *post);
