/* Idempotency-Key at the edge: which requests are the same, and what a repeated one is told. */
#pragma once

#include "core/account/idempotency.h"
#include "edge/call.h"

/* Looks at the request's Idempotency-Key; `path` and the body say which request it is.
 *   0: there is none (*ret_request is NULL), or it is new: go on, record, end
 * (core/account/idempotency.h) 1: it was done before; ret_row says what it came to. The answer
 * carries `Idempotent-Replayed` -1: refused. */
NODISCARD int idempotent_begin(struct call *call, const char *operation, const char *path,
			       struct idempotent **ret_request, struct request_row *ret_row,
			       struct error *error);
/* As reply_json(), with Idempotent-Replayed: true. */
void reply_replayed(struct call *call, int status, struct json_writer *writer);
/* What was recorded for it is not there any more. */
void idempotent_forget(const struct call *call);
