/* For questions.c: the state that a modern client keeps for the server between two rounds. It is
 * accepted only unchanged, from the same principal, for the same call, and in time: to the client
 * it is opaque, and what the client sends is not trusted. It is signed but not encrypted, so it
 * must not contain secrets. */
#pragma once

#include "mcp/request.h"

/* Signs `kept` with the time until which it is valid. now: clock_wall(). -EMSGSIZE: more than
 * QUESTION_STATE_MAX. */
NODISCARD int question_state_seal(const struct mcp_request *request, const json_t *kept,
				  int64_t now, struct buffer *to);
/* The caller owns *ret_kept. -1 with INVALID: it is not ours, belongs to another call, or is too
 * old. */
NODISCARD int question_state_unseal(const struct mcp_request *request, const char *text,
				    int64_t now, json_t **ret_kept, struct error *error);
