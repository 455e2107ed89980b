/* The ids of tasks. An id is that of the command that the task may be, what is to be known of the
 * call without any record of it, and an HMAC over both and its principal by a secret of this
 * installation: nobody can make one up, and a daemon that was restarted still knows whose it is and
 * which command it stands for. */
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
/* Is it one that this principal was given? Then what it says. */
bool task_id_check(struct core *core, const struct principal *principal, const char *id,
		   struct task_call *ret_call);
