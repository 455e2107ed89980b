/* The ids of tasks. An id contains the id of the task's command, the facts about the call that are
 * needed without any record, and an HMAC over both and its principal, with a secret of this
 * installation. So nobody can forge one, and a restarted daemon still knows its owner and its
 * command. */
#pragma once

#include "core/core.h"

/* id, '-', eleven and six hexadecimal digits, '-', 256 bits as base64url, NUL */
#define TASK_ID_SIZE (ID_LENGTH + 1 + 11 + 6 + 1 + 43 + 1)

struct task_call {
	struct id exec;      /* or the id of the cell */
	uint64_t began_ms;   /* since 1970, at most 44 bits */
	uint32_t output_max; /* max_output_bytes, at most 24 bits */
};

NODISCARD int task_id_make(struct core *core, const struct principal *principal,
			   const struct task_call *call, char ret_id[TASK_ID_SIZE],
			   struct error *error);
/* Was it given to this principal? Then fills in its facts. */
bool task_id_check(struct core *core, const struct principal *principal, const char *id,
		   struct task_call *ret_call);
