/* Waiting for more output of a command, or for its end. */
#pragma once

#include "core/exec/exec.h"

struct exec_wait;

/* Until a stream has more than out_from or err_from bytes, or the exec has ended, or the time is
 * over; done is called once, in a later turn also where it is so already. exec: borrowed; NULL with
 * error when its sandbox was forgotten meanwhile. */
NODISCARD int exec_wait_output(struct exec *exec, uint64_t out_from, uint64_t err_from,
			       uint32_t timeout_ms,
			       void (*done)(void *data, struct exec *exec,
					    const struct error *error),
			       void *data, struct exec_wait **ret_wait, struct error *error);
/* Until it has ended. */
NODISCARD int exec_wait_end(struct exec *exec, uint32_t timeout_ms,
			    void (*done)(void *data, struct exec *exec, const struct error *error),
			    void *data, struct exec_wait **ret_wait, struct error *error);
/* done is not called any more. */
void exec_wait_cancel(struct exec_wait *wait);
