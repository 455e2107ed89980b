/* Passes a message to the function that serves it, for every transport.
 *
 * A transport that carries messages one by one (lines.c) makes a struct mcp_connection, passes each
 * message to it as text and gets the messages to send: it knows nothing of eras or methods. HTTP
 * (http_post.c) takes the same steps itself, since headers and statuses matter there. */
#pragma once

#include "mcp/transport/envelope.h"
#include "mcp/transport/message.h"
#include "mcp/request.h"

/* --- the steps --- */

/* The sender of a message, and where its answer goes. */
struct mcp_source {
	struct mcp_server *server;
	const struct principal *principal;
	const struct mcp_view *view;
	const struct mcp_carrier *carrier;
	void *carrier_data;
	struct mcp_session *session; /* for a legacy request, or NULL */
	struct request_set *among;   /* where notifications/cancelled finds it, or NULL */
	bool silent;                 /* as in struct mcp_request */
	struct memory *memory;       /* of the message; NULL: it is not counted */
};

/* A request for this message: takes *json, from which the message was read. It has one reference,
 * the carrier's. */
struct mcp_request *mcp_request_new(const struct mcp_source *source, const struct message *message,
				    const struct envelope *envelope, json_t **json);
/* Serves it: its carrier gets the answer, now or later. headers: for a modern request over HTTP,
 * else NULL. `request` may be freed when this returns. */
void mcp_dispatch(struct mcp_request *request, const struct mcp_headers *headers);
/* Answers a request that cannot be served. */
void mcp_refuse(struct mcp_request *request, const struct mcp_problem *problem);
/* A notification; session and among as in struct mcp_source. */
void mcp_notified(const struct message *message, struct mcp_session *session,
		  struct request_set *among);

/* What a face declares because it has it. */
bool face_has_tools(const struct mcp_face *face);
bool face_has_resources(const struct mcp_face *face);
bool face_has_prompts(const struct mcp_face *face);

/* Cancels all of them. */
void request_set_cancel(struct request_set *set);
void request_set_init(struct request_set *set);

/* --- a connection that carries messages --- */

/* Batches of 2025-03-26. */
#define BATCH_MAX 32

struct mcp_connection {
	/* Filled in by the transport. */
	struct mcp_server *server;
	struct principal principal;
	struct mcp_view view;
	/* A whole message without a line end, borrowed. Not called after mcp_connection_done(). */
	void (*send)(struct mcp_connection *connection, const struct buffer *message);
	/* Called after mcp_receive() returned false: it accepts messages again. */
	void (*ready)(struct mcp_connection *connection);
	void *data;
	/* Of the message that is being received, until it was taken; NULL: it is not counted. */
	struct memory *memory;
	/* dispatch.c's */
	struct mcp_session *session;
	struct request_set requests;
	struct json_parse *parsing;
};
/* The fields above `session` are filled in. */
void mcp_connection_init(struct mcp_connection *connection);
/* One message as text, without its line end; the caller skips empty ones. An unreadable message is
 * answered. false: a long message is being read; do not pass another one until ready() is
 * called. */
bool mcp_receive(struct mcp_connection *connection, const char *text, size_t size);
/* The client is gone: cancels its requests. Nothing is sent any more. */
void mcp_connection_done(struct mcp_connection *connection);
/* Are requests under way? */
bool mcp_connection_busy(const struct mcp_connection *connection);
