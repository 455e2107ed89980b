/* Requests with an Idempotency-Key: the same key and the same request in the same workspace come to
 * the same thing, once. What it came to is kept for a day and survives a restart of the daemon.
 *
 *     idempotency_begin -> 1: it was done before (the row says what it came to)
 *                       -> 0: it is new; then, in this order, record it before its effect can
 *                             begin, and end it when it is known what became of it
 *
 * A failure is not kept: the same request may be tried again with the same key. */
#pragma once

#include "core/core.h"
#include "store/requests.h"

#define IDEMPOTENCY_KEY_MAX 255
/* Within what a key is one: a workspace, or "workspace/sandbox". */
#define IDEMPOTENCY_SPACE_MAX (WORKSPACE_MAX + 1 + ID_LENGTH)

struct idempotent;

/* `what` is the operation with everything that makes it this one and no other. IDEMPOTENCY_MISMATCH
 * when the key stands for another, IDEMPOTENCY_PENDING while the first is under way, INVALID for
 * what is no key. ret_row->answer is the caller's to free. */
NODISCARD int idempotency_begin(struct core *core, const char *workspace, const char *key,
				const char *operation, const void *what, size_t size,
				struct idempotent **ret_request, struct request_row *ret_row,
				struct error *error);
/* What it comes to; `answer` may be NULL. */
NODISCARD int idempotency_record(struct idempotent *request, const struct id *sandbox,
				 const struct id *exec, const char *answer, size_t answer_size,
				 struct error *error);
/* kept: what was recorded stands; else it is as if it had never been asked. NULL is fine. */
void idempotency_end(struct idempotent *request, bool kept);
/* What was recorded is not there any more (a crash came between): forgets it. */
void idempotency_forget(struct core *core, const char *workspace, const char *key);
