/* Questions to the client during a request: elicitation, sampling, roots. There are three ways. A
 * modern client gets an input_required result with a state that only this server can make (HMAC
 * over principal, method, name, arguments and time), and sends its answers in a new request. A
 * legacy client gets a request of ours on the same stream, and the handler waits. A task becomes
 * input_required until tasks/update brings the answers. The handler is the same for all: it is
 * called from the start each time, and decides by the answers that questions_answer() has (answers
 * of earlier rounds are kept, in the state if the request ends in between). */
#pragma once

#include "mcp/request.h"

#define QUESTIONS_MAX 8               /* at once */
#define QUESTION_ROUNDS_MAX 8         /* of one request, for a client that never answers properly */
#define QUESTION_STATE_MAX (64 * KIB) /* as it is sent */
#define QUESTION_STATE_SECONDS 600    /* how long a state is valid */
#define QUESTION_WAIT_MS (QUESTION_STATE_SECONDS * 1000) /* how long a legacy request waits */

struct question {
	const char *key;    /* by which the answer is found */
	const char *method; /* "elicitation/create", "sampling/createMessage", "roots/list" */
	const char *params; /* a JSON object */
};

/* Asks those of `questions` that have no valid answer yet (if each has one: all of them, since the
 * handler did not accept the answers). state: a JSON value as text, which the next round gets with
 * questions_state(), or NULL. When the answers of a legacy client or of a task have come, `again`
 * is called with the same request; for others the request ends here. If the client lacks the
 * capability: -32021 (modern), an error result (legacy). */
void questions_ask(struct mcp_request *request, const struct question *questions, size_t count,
		   const char *state, void (*again)(struct mcp_request *request));
/* The client's answer (a result object), borrowed; NULL: none yet, or of the wrong shape. */
const json_t *questions_answer(struct mcp_request *request, const char *key);
/* The state of the last round, borrowed; NULL: none. false: the client's state is invalid (the
 * request was answered with an error). Call it before questions_answer(). */
bool questions_state(struct mcp_request *request, const json_t **ret_state);

/* For request.c, when the last reference is dropped. Takes NULL in request->question_rounds. */
void questions_free(struct mcp_request *request);
