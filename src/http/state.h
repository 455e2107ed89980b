/* The life of a connection and of the request on it as tables: which event is possible in which
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
	/* The handler has said its last word, or there is none. */
	HTTP_ANSWERED, /* the next turn decides what becomes of the connection */
	HTTP_SKIP,     /* the rest of the body is thrown away */
	HTTP_DRAIN,    /* our last bytes are being written; nothing is read */
	HTTP_LINGER,   /* our side is shut; we read until the client's is */
	HTTP_ABORTED,  /* the next turn closes the connection */
	HTTP_CLOSED,   /* freed when libuv has let go of it */
	HTTP_STATES
};

enum http_event {
	/* Of the client. */
	HTTP_EVENT_SECURED,    /* the TLS handshake is complete */
	HTTP_EVENT_REQUEST,    /* a head is complete */
	HTTP_EVENT_CLIENT_END, /* it has closed its half, and all of its bytes are read */
	/* Of the handler. */
	HTTP_EVENT_RESPOND, /* a whole answer */
	HTTP_EVENT_BEGIN,   /* the head of an answer */
	HTTP_EVENT_UPGRADE,
	HTTP_EVENT_WRITE, /* a piece of an answer, or of what an upgraded connection sends */
	HTTP_EVENT_END,
	HTTP_EVENT_ABORT,
	/* Ours. */
	HTTP_EVENT_REFUSE, /* the client broke a rule or a deadline */
	HTTP_EVENT_BREAK,  /* the connection cannot go on; its next turn is to close it */
	HTTP_EVENT_LOSE,   /* close it now */
	HTTP_EVENT_KEPT,   /* the connection waits for its next request */
	HTTP_EVENT_UNREAD, /* a rest of the request's body has to be skipped first */
	HTTP_EVENT_LAST,   /* there is no next request on this connection */
	HTTP_EVENT_SENT,   /* our last byte is out */
	HTTP_EVENTS
};

/* What the one who caused the event has to do. */
enum http_action {
	/* The state stays. */
	HTTP_ACTION_NONE,   /* nothing: it cannot be, or comes too late */
	HTTP_ACTION_DEFECT, /* the handler has a defect: log it, and abort the answer */
	HTTP_ACTION_CLOSE,  /* close the connection now */
	/* The state changes. */
	HTTP_ACTION_DO,    /* what was asked for */
	HTTP_ACTION_TELL,  /* the same, and tell the handler that its client ends */
	HTTP_ACTION_LEAVE, /* nothing; the handler has left and is told nothing more */
	HTTP_ACTION_WAKE,  /* ask for a turn: it closes the connection */
};

/* Moves *state on. What the table does not have changes nothing and asks for nothing. */
enum http_action http_state_step(enum http_state *state, enum http_event event);

/* Has a handler the request, and may it still say something? */
static inline bool http_state_open(enum http_state state)
{
	return state >= HTTP_ASKED && state <= HTTP_UPGRADED;
}

/* Will the next turn close the connection, or is it closed? */
static inline bool http_state_ends(enum http_state state)
{
	return state == HTTP_BROKEN || state >= HTTP_ABORTED;
}

/* How far a request's body has come to its handler. */
enum http_body_state {
	HTTP_BODY_NONE,    /* there is none; the handler has not asked */
	HTTP_BODY_UNASKED, /* there is one; the handler has not asked for it */
	HTTP_BODY_READING,
	HTTP_BODY_WHOLE, /* all of it has come; the handler has asked, and is to be told */
	HTTP_BODY_OVER,  /* the handler knows, or does not want to */
	HTTP_BODY_STATES
};

enum http_body_event {
	HTTP_BODY_EVENT_ASK,  /* the handler wants it */
	HTTP_BODY_EVENT_LAST, /* the last byte has come, or nothing more is taken */
	HTTP_BODY_EVENT_TELL, /* the handler is told that it has all */
	HTTP_BODY_EVENTS
};

/* Moves *state on; false: the event is not possible there. */
bool http_body_step(enum http_body_state *state, enum http_body_event event);

static inline bool http_body_complete(enum http_body_state state)
{
	return state != HTTP_BODY_UNASKED && state != HTTP_BODY_READING;
}
