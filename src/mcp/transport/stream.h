/* A stream of server-sent events: what follows on a POST, or on a session's GET.
 *
 * Of a modern request it is a connection and no more: events have no ids, and with the client goes
 * the stream. In a legacy session it outlives connections: events are numbered and kept (within
 * SESSION_REPLAY_MAX of the session), and a client that comes back with Last-Event-ID is given what
 * followed on that very stream. The session owns it then. */
#pragma once

#include "edge/call.h"
#include "mcp/server.h"
#include "mcp/transport/session.h"

#define STREAM_KEEP_ALIVE_MS 15000
#define STREAM_RETRY_MS 1000

struct mcp_stream {
	struct mcp_server *server;
	struct mcp_session *session; /* NULL: modern */
	struct list link;            /* of the session's */
	struct list attached;        /* of the server's, while it has a connection */
	struct call *call;           /* NULL: nobody reads at the moment */
	struct list events;          /* struct stream_event, kept */
	uint64_t number;             /* within the session */
	uint64_t next;               /* the next event's */
	bool finished;               /* its last event was sent */
	bool unanswered; /* its request was cancelled: that nothing follows is no loss */
	int64_t spoken;  /* CLOCK_MONOTONIC, ns: when something was written */
	/* The client went away by itself. */
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

/* Of a session it becomes one of its streams. */
struct mcp_stream *stream_new(struct mcp_server *server, struct mcp_session *session);
/* The answer to `call` is this stream from here on: its kept events after that number come first
 * (STREAM_ANEW: none of them). Another connection that it has is ended. */
#define STREAM_ANEW UINT64_MAX
void stream_attach(struct mcp_stream *stream, struct call *call, uint64_t after);
void stream_send(struct mcp_stream *stream, const struct buffer *message);
/* Ends the connection; the stream goes on for who comes back. */
void stream_detach(struct mcp_stream *stream);
/* Nothing follows. The connection ends; of a session what is kept stays for who comes back. The
 * pointer is not to be used after it. */
void stream_finish(struct mcp_stream *stream);
/* Ends the connection and forgets everything. */
void stream_free(struct mcp_stream *stream);
/* Forgets the events of a session that nobody came back for in time. */
void streams_expire(struct mcp_session *session, int64_t now);
/* A comment on every connection that was silent for long. */
void streams_keep_alive(struct mcp_server *server, int64_t now);
