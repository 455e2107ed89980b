/* Waiting for more output of a command, or for its end. */
#pragma once

#include "core/exec/exec.h"

struct exec_wait;

/* Waits until a stream has more than out_from or err_from bytes, the exec has ended, or the time is
 * over. done is called once, always in a later turn. exec: borrowed; NULL with error if its sandbox
 * was forgotten meanwhile. */
NODISCARD int exec_wait_output(struct exec *exec, uint64_t out_from, uint64_t err_from,
			       uint32_t timeout_ms,
			       void (*done)(void *data, struct exec *exec,
					    const struct error *error),
			       void *data, struct exec_wait **ret_wait, struct error *error);
/* Waits until it has ended. */
NODISCARD int exec_wait_end(struct exec *exec, uint32_t timeout_ms,
			    void (*done)(void *data, struct exec *exec, const struct error *error),
			    void *data, struct exec_wait **ret_wait, struct error *error);
/* done is not called any more. */
void exec_wait_cancel(struct exec_wait *wait);
