/* For ask.c: what a modern client carries for us between two rounds. It is given back as we gave
 * it, to the same principal, for the same call, in time, or it is refused: to the client it is
 * opaque, and from the client it is anybody's. It is signed and not hidden: no secret goes in. */
#pragma once

#include "mcp/request.h"

/* `kept` with the time until which it is good, signed. now: clock_wall(). -EMSGSIZE: more than
 * ASK_STATE_MAX. */
NODISCARD int ask_seal(const struct mcp_request *request, const json_t *kept, int64_t now,
		       struct buffer *to);
/* The caller owns *ret_kept. -1 with INVALID: it is not ours, of another call, or too old. */
NODISCARD int ask_unseal(const struct mcp_request *request, const char *text, int64_t now,
			 json_t **ret_kept, struct error *error);
