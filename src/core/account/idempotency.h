/* Requests with an Idempotency-Key. Requests with the same key and content in the same workspace
 * take effect once. The result is kept for a day and survives a restart of the daemon.
 *
 *     idempotency_begin -> 1: it was done before (the row has the result)
 *                       -> 0: it is new; then, in this order, record it before its effect can
 *                             begin, and end it when its result is known
 *
 * A failure is not kept: the request may be repeated with the same key. */
#pragma once

#include "core/core.h"
#include "store/requests.h"

#define IDEMPOTENCY_KEY_MAX 255
/* A key is unique within a space: a workspace, or "workspace/sandbox". */
#define IDEMPOTENCY_SPACE_MAX (WORKSPACE_MAX + 1 + ID_LENGTH)

struct idempotent;

/* `what` identifies the operation with all its arguments. IDEMPOTENCY_MISMATCH: the key belongs to
 * another operation; IDEMPOTENCY_PENDING: the first request is under way; INVALID: not a valid key.
 * The caller frees ret_row->answer. */
NODISCARD int idempotency_begin(struct core *core, const char *workspace, const char *key,
				const char *operation, const void *what, size_t size,
				struct idempotent **ret_request, struct request_row *ret_row,
				struct error *error);
/* Records the result; `answer` may be NULL. */
NODISCARD int idempotency_record(struct idempotent *request, const struct id *sandbox,
				 const struct id *exec, const char *answer, size_t answer_size,
				 struct error *error);
/* kept: the record stays; else it is removed, as if the request had never come. Takes NULL. */
void idempotency_end(struct idempotent *request, bool kept);
/* The recorded object no longer exists (because of a crash): removes the record. */
void idempotency_forget(struct core *core, const char *workspace, const char *key);
