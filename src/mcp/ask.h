/* What a handler asks of the client in the middle of a request: elicitation, sampling, roots. One
 * question, three ways: a modern client gets an input_required result with a state that only this
 * server can make (HMAC over principal, method, name, arguments and time), and comes back with its
 * answers in a new request; a legacy one gets a request of ours on the same stream, and the handler
 * waits; a task becomes input_required until tasks/update brings them. The handler is written once:
 * it is called from the start each time, and goes through its steps by what ask_answer() has (the
 * answers of earlier rounds are kept, in the state where the request ends in between). */
#pragma once

#include "mcp/request.h"

#define ASK_QUESTIONS_MAX 8      /* at once */
#define ASK_ROUNDS_MAX 8         /* of one request: a client that never answers well */
#define ASK_STATE_MAX (64 * KIB) /* as it is sent */
#define ASK_STATE_SECONDS 600    /* how long a state is taken back */
#define ASK_WAIT_MS (ASK_STATE_SECONDS * 1000) /* how long a legacy request waits */

struct question {
	const char *key;    /* by which the answer is found */
	const char *method; /* "elicitation/create", "sampling/createMessage", "roots/list" */
	const char *params; /* a JSON object */
};

/* Asks what of `questions` has no good answer yet (where all have one: all of them, for the handler
 * found them wanting). state: a JSON value as text to find again in the next round with
 * ask_state(), or NULL. `again` is called with the same request when the answers of a legacy
 * client, or of a task, have come; for others the request ends here. Questions for which the client
 * has no capability: -32021 (modern), an error result (legacy). */
void ask(struct mcp_request *request, const struct question *questions, size_t count,
	 const char *state, void (*again)(struct mcp_request *request));
/* The client's answer (a result's object), borrowed; NULL: none yet, or not of the right shape. */
const json_t *ask_answer(struct mcp_request *request, const char *key);
/* The state of the round before, borrowed; NULL: none. false: what the client sent is not ours (it
 * was answered with an error). To be called before ask_answer(). */
bool ask_state(struct mcp_request *request, const json_t **ret_state);

/* For request.c, when the last reference is dropped. Takes NULL in request->asking. */
void ask_free(struct mcp_request *request);
