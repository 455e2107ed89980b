/* Idempotency-Key at the edge: decides which requests are equal, and the answer to a repeated
 * one. */
#pragma once

#include "core/account/idempotency.h"
#include "edge/call.h"

/* Looks at the request's Idempotency-Key; `path` and the body identify the request.
 *   0: there is none (*ret_request is NULL), or it is new: go on, record, end
 * (core/account/idempotency.h) 1: it was done before; ret_row has the result. The answer carries
 * `Idempotent-Replayed` -1: refused. */
NODISCARD int idempotent_begin(struct call *call, const char *operation, const char *path,
			       struct idempotent **ret_request, struct request_row *ret_row,
			       struct error *error);
/* As reply_json(), with Idempotent-Replayed: true. */
void reply_replayed(struct call *call, int status, struct json_writer *writer);
/* The recorded object no longer exists: removes the record. */
void idempotent_forget(const struct call *call);
