/* See state.h. The tables are arrays, so that a step costs one lookup: a request makes four of
 * them. */
#include "http/state.h"

/* A transition from each state from `first` to `last`. */
#define TRANSITIONS(first, last, event, to, action)                                                \
	[HTTP_##first... HTTP_##last][HTTP_EVENT_##event] = {HTTP_##to, HTTP_ACTION_##action}
#define TRANSITION(from, event, to, action) TRANSITIONS(from, from, event, to, action)
/* The state stays the same. */
#define ANSWERS(first, last, event, action)                                                        \
	[HTTP_##first... HTTP_##last][HTTP_EVENT_##event] = {0, HTTP_ACTION_##action}

static const struct {
	uint8_t to, action;
} transitions[HTTP_STATES][HTTP_EVENTS] = {
    TRANSITION(HANDSHAKE, SECURED, HEAD, DO),
    TRANSITION(HEAD, REQUEST, ASKED, DO),

    ANSWERS(HANDSHAKE, HANDSHAKE, CLIENT_END, CLOSE),
    TRANSITION(HEAD, CLIENT_END, DRAIN, DO), /* answers that are queued still go out */
    ANSWERS(ASKED, ANSWERING, CLIENT_END, CLOSE),
    TRANSITION(UPGRADED, CLIENT_END, UPGRADED, TELL),
    ANSWERS(REFUSED, ANSWERED, CLIENT_END, CLOSE),
    TRANSITION(SKIP, CLIENT_END, DRAIN, DO),
    ANSWERS(DRAIN, ABORTED, CLIENT_END, CLOSE),

    TRANSITION(ASKED, RESPOND, ANSWERED, DO),
    ANSWERS(ANSWERING, UPGRADED, RESPOND, DEFECT),
    TRANSITION(REFUSED, RESPOND, ANSWERED, LEAVE),
    TRANSITION(BROKEN, RESPOND, ABORTED, LEAVE),

    TRANSITION(ASKED, BEGIN, ANSWERING, DO),
    ANSWERS(ANSWERING, UPGRADED, BEGIN, DEFECT),

    TRANSITION(ASKED, UPGRADE, UPGRADED, DO),
    ANSWERS(ANSWERING, UPGRADED, UPGRADE, DEFECT),

    TRANSITION(ANSWERING, WRITE, ANSWERING, DO),
    TRANSITION(UPGRADED, WRITE, UPGRADED, DO),

    ANSWERS(ASKED, ASKED, END, DEFECT),
    TRANSITIONS(ANSWERING, UPGRADED, END, ANSWERED, DO),
    TRANSITION(REFUSED, END, ANSWERED, LEAVE),
    TRANSITION(BROKEN, END, ABORTED, LEAVE),

    TRANSITIONS(ASKED, UPGRADED, ABORT, ABORTED, DO),
    TRANSITION(REFUSED, ABORT, ANSWERED, LEAVE),
    TRANSITION(BROKEN, ABORT, ABORTED, LEAVE),

    TRANSITION(HANDSHAKE, REFUSE, ABORTED, WAKE), /* no answer is possible without TLS keys */
    TRANSITION(HEAD, REFUSE, DRAIN, DO),
    TRANSITION(ASKED, REFUSE, REFUSED, DO),
    TRANSITIONS(ANSWERING, UPGRADED, REFUSE, BROKEN, WAKE), /* an answer has begun */
    TRANSITIONS(SKIP, LINGER, REFUSE, ABORTED, WAKE),

    TRANSITIONS(HANDSHAKE, HEAD, BREAK, ABORTED, WAKE),
    TRANSITIONS(ASKED, REFUSED, BREAK, BROKEN, WAKE),
    TRANSITIONS(ANSWERED, LINGER, BREAK, ABORTED, WAKE),

    TRANSITIONS(HANDSHAKE, HEAD, LOSE, CLOSED, DO),
    TRANSITIONS(ASKED, BROKEN, LOSE, CLOSED, TELL),
    TRANSITIONS(ANSWERED, ABORTED, LOSE, CLOSED, DO),

    TRANSITIONS(ANSWERED, SKIP, KEPT, HEAD, DO),
    TRANSITION(ANSWERED, UNREAD, SKIP, DO),
    TRANSITION(HEAD, LAST, DRAIN, DO), /* the server stops */
    TRANSITION(REFUSED, LAST, DRAIN, TELL),
    TRANSITIONS(ANSWERED, SKIP, LAST, DRAIN, DO),
    TRANSITION(DRAIN, SENT, LINGER, DO),
};

enum http_action http_state_step(enum http_state *state, enum http_event event)
{
	enum http_action action = (enum http_action)transitions[*state][event].action;
	if (action >= HTTP_ACTION_DO)
		*state = (enum http_state)transitions[*state][event].to;
	return action;
}

bool http_body_step(enum http_body_state *state, enum http_body_event event)
{
	/* No state leads to HTTP_BODY_NONE: here it means that the event is not possible. */
	static const uint8_t next[HTTP_BODY_STATES][HTTP_BODY_EVENTS] = {
	    [HTTP_BODY_NONE] = {[HTTP_BODY_EVENT_ASK] = HTTP_BODY_WHOLE},
	    [HTTP_BODY_UNASKED] = {[HTTP_BODY_EVENT_ASK] = HTTP_BODY_READING,
				   [HTTP_BODY_EVENT_LAST] = HTTP_BODY_OVER},
	    [HTTP_BODY_READING] = {[HTTP_BODY_EVENT_LAST] = HTTP_BODY_WHOLE},
	    [HTTP_BODY_WHOLE] = {[HTTP_BODY_EVENT_TELL] = HTTP_BODY_OVER},
	};
	if (next[*state][event] == HTTP_BODY_NONE)
		return false;
	*state = (enum http_body_state)next[*state][event];
	return true;
}
