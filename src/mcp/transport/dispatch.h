/* From a message to the function that serves it, whatever it came over.
 *
 * A transport that carries messages one by one (lines.c) makes a struct mcp_connection, gives it
 * each message as text and is given the messages to send: it knows nothing of eras or methods. HTTP
 * (http_post.c) has its own way through the same steps, since headers and statuses take part. */
#pragma once

#include "mcp/transport/envelope.h"
#include "mcp/transport/message.h"
#include "mcp/request.h"

/* --- the steps --- */

/* Who sends a message, and where its answer goes. */
struct mcp_source {
	struct mcp_server *server;
	const struct principal *principal;
	const struct mcp_view *view;
	const struct mcp_carrier *carrier;
	void *carrier_data;
	struct mcp_session *session; /* of a legacy request, or NULL */
	struct request_set *among;   /* where notifications/cancelled looks for it, or NULL */
	bool silent;                 /* as of struct mcp_request */
	struct memory *memory;       /* of the message; NULL: it is not counted */
};

/* A request of this message: takes *json, which it is read of. It has one reference, the carrier's.
 */
struct mcp_request *mcp_request_new(const struct mcp_source *source, const struct message *message,
				    const struct envelope *envelope, json_t **json);
/* Serves it: it is answered by its carrier, now or later. headers: of a modern request over HTTP,
 * else NULL. `request` may be gone when this returns. */
void mcp_dispatch(struct mcp_request *request, const struct mcp_headers *headers);
/* Answers what cannot be served. */
void mcp_refuse(struct mcp_request *request, const struct mcp_problem *problem);
/* A notification; session and among as of struct mcp_source. */
void mcp_notified(const struct message *message, struct mcp_session *session,
		  struct request_set *among);

/* What a face declares by having it. */
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
	/* Filled by the transport. */
	struct mcp_server *server;
	struct principal principal;
	struct mcp_view view;
	/* One whole message without a line end, borrowed. Not called after mcp_connection_done().
	 */
	void (*send)(struct mcp_connection *connection, const struct buffer *message);
	/* After mcp_receive() gave false: it takes messages again. */
	void (*ready)(struct mcp_connection *connection);
	void *data;
	/* Of the message that is received, until it was taken; NULL: it is not counted. */
	struct memory *memory;
	/* dispatch.c's */
	struct mcp_session *session;
	struct request_set requests;
	struct json_parse *parsing;
};
/* The fields above `session` are filled. */
void mcp_connection_init(struct mcp_connection *connection);
/* One message as text, without its line end; empty ones are the caller's to leave out. What cannot
 * be read is answered. false: it is a long one that is being read; no other is to be given until
 * ready() is called. */
bool mcp_receive(struct mcp_connection *connection, const char *text, size_t size);
/* The client is gone: what it asked for is cancelled. Nothing is sent any more. */
void mcp_connection_done(struct mcp_connection *connection);
/* Requests under way. */
bool mcp_connection_busy(const struct mcp_connection *connection);
