/* The life of a connection and of the request on it as tables: which events are possible in which
 * state, and what follows.
 *
 *   handshake ──> head ──> asked ──> [answering] ──> answered ──> [skip] ──> head or drain
 *                                └──> upgraded ──> answered ──> drain
 *                                └──> refused ──> drain ──> [linger] ──> closed
 *   any of them ──> broken or aborted ──> closed
 *
 * Pure; nothing blocks. The effects are in connection.c, answer.c and body.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum http_state {
	HTTP_HANDSHAKE, /* TLS */
	HTTP_HEAD,      /* between requests, or inside a head */
	/* A handler has the request; http_state_open() says which. */
	HTTP_ASKED,     /* nothing of the answer is queued */
	HTTP_ANSWERING, /* the head of the answer is queued, its body follows */
	HTTP_UPGRADED,  /* raw bytes both ways */
	/* The handler is about to be told that its client is gone. */
	HTTP_REFUSED, /* we answered in its place */
	HTTP_BROKEN,  /* the next turn closes the connection */
	/* The handler has finished, or none has the request. */
	HTTP_ANSWERED, /* the next turn decides how the connection continues */
	HTTP_SKIP,     /* the rest of the body is discarded */
	HTTP_DRAIN,    /* our last bytes are being written; nothing is read */
	HTTP_LINGER,   /* our side is closed; we read until the client closes its side */
	HTTP_ABORTED,  /* the next turn closes the connection */
	HTTP_CLOSED,   /* freed when libuv has closed the handle */
	HTTP_STATES
};

enum http_event {
	/* Caused by the client. */
	HTTP_EVENT_SECURED,    /* the TLS handshake is complete */
	HTTP_EVENT_REQUEST,    /* a head is complete */
	HTTP_EVENT_CLIENT_END, /* it has closed its half, and all of its bytes are read */
	/* Caused by the handler. */
	HTTP_EVENT_RESPOND, /* a whole answer */
	HTTP_EVENT_BEGIN,   /* the head of an answer */
	HTTP_EVENT_UPGRADE,
	HTTP_EVENT_WRITE, /* a piece of an answer, or of what an upgraded connection sends */
	HTTP_EVENT_END,
	HTTP_EVENT_ABORT,
	/* Caused by this layer. */
	HTTP_EVENT_REFUSE, /* the client broke a rule or a deadline */
	HTTP_EVENT_BREAK,  /* the connection cannot continue; its next turn closes it */
	HTTP_EVENT_LOSE,   /* close it now */
	HTTP_EVENT_KEPT,   /* the connection waits for its next request */
	HTTP_EVENT_UNREAD, /* the rest of the request's body must be skipped first */
	HTTP_EVENT_LAST,   /* no further request follows on this connection */
	HTTP_EVENT_SENT,   /* our last byte has been written */
	HTTP_EVENTS
};

/* What the code that caused the event must do. */
enum http_action {
	/* The state stays the same. */
	HTTP_ACTION_NONE,   /* nothing: the event is impossible, or comes too late */
	HTTP_ACTION_DEFECT, /* the handler has a defect: log it, and abort the answer */
	HTTP_ACTION_CLOSE,  /* close the connection now */
	/* The state changes. */
	HTTP_ACTION_DO,    /* what was asked for */
	HTTP_ACTION_TELL,  /* the same, and tell the handler that its client is gone */
	HTTP_ACTION_LEAVE, /* nothing; the handler has finished and gets no more callbacks */
	HTTP_ACTION_WAKE,  /* ask for a turn: it closes the connection */
};

/* Advances *state. An event that is not in the table changes nothing and requires nothing. */
enum http_action http_state_step(enum http_state *state, enum http_event event);

/* Returns whether a handler has the request and may still answer. */
static inline bool http_state_open(enum http_state state)
{
	return state >= HTTP_ASKED && state <= HTTP_UPGRADED;
}

/* Returns whether the connection is closed or its next turn will close it. */
static inline bool http_state_ends(enum http_state state)
{
	return state == HTTP_BROKEN || state >= HTTP_ABORTED;
}

/* How much of a request's body its handler has received. */
enum http_body_state {
	HTTP_BODY_NONE,    /* the request has no body; the handler has not asked for it */
	HTTP_BODY_UNASKED, /* the request has a body; the handler has not asked for it */
	HTTP_BODY_READING,
	HTTP_BODY_WHOLE, /* all of it has arrived; the handler has asked, and must be told */
	HTTP_BODY_OVER,  /* the handler was told, or does not want the body */
	HTTP_BODY_STATES
};

enum http_body_event {
	HTTP_BODY_EVENT_ASK,  /* the handler wants it */
	HTTP_BODY_EVENT_LAST, /* the last byte has arrived, or no more are accepted */
	HTTP_BODY_EVENT_TELL, /* the handler is told that the body is complete */
	HTTP_BODY_EVENTS
};

/* Advances *state; false: the event is not possible in that state. */
bool http_body_step(enum http_body_state *state, enum http_body_event event);

static inline bool http_body_complete(enum http_body_state state)
{
	return state != HTTP_BODY_UNASKED && state != HTTP_BODY_READING;
}
