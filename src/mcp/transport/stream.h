/* A stream of server-sent events: the answer to a POST, or a session's GET.
 *
 * For a modern request it is only a connection: events have no ids, and the stream ends with the
 * client. In a legacy session it outlives connections: events are numbered and kept (within
 * SESSION_REPLAY_MAX of the session), and a client that reconnects with Last-Event-ID gets the
 * later events of that stream. The session owns it then. */
#pragma once

#include "edge/call.h"
#include "mcp/server.h"
#include "mcp/transport/session.h"

#define STREAM_KEEP_ALIVE_MS 15000
#define STREAM_RETRY_MS 1000

struct mcp_stream {
	struct mcp_server *server;
	struct mcp_session *session; /* NULL: modern */
	struct list link;            /* in the session's list */
	struct list attached;        /* in the server's list, while it has a connection */
	struct call *call;           /* NULL: there is no reader at the moment */
	struct list events;          /* struct stream_event, kept */
	uint64_t number;             /* within the session */
	uint64_t next;               /* the number of the next event */
	bool finished;               /* its last event was sent */
	bool unanswered; /* its request was cancelled: nothing is missing when nothing follows */
	int64_t spoken;  /* CLOCK_MONOTONIC, ns: the last write */
	/* The client has disconnected. */
	void (*gone)(struct mcp_stream *stream);
	void *data;
};

struct stream_event {
	struct list in_stream, in_session;
	struct mcp_stream *stream;
	uint64_t number;
	int64_t at; /* CLOCK_MONOTONIC, ns */
	size_t size;
	char data[];
};

/* With a session it becomes one of the session's streams. */
struct mcp_stream *stream_new(struct mcp_server *server, struct mcp_session *session);
/* From here on the answer to `call` is this stream: it begins with the kept events after that
 * number (STREAM_ANEW: none). Another connection of the stream is ended. */
#define STREAM_ANEW UINT64_MAX
void stream_attach(struct mcp_stream *stream, struct call *call, uint64_t after);
void stream_send(struct mcp_stream *stream, const struct buffer *message);
/* Ends the connection; the stream continues for a reconnect. */
void stream_detach(struct mcp_stream *stream);
/* Nothing follows. The connection ends; a session keeps the events for a reconnect. Do not use the
 * pointer afterwards. */
void stream_finish(struct mcp_stream *stream);
/* Ends the connection and frees everything. */
void stream_free(struct mcp_stream *stream);
/* Removes the events of a session that no client has fetched in time. */
void streams_expire(struct mcp_session *session, int64_t now);
/* Sends a comment on every connection that was silent for long. */
void streams_keep_alive(struct mcp_server *server, int64_t now);
