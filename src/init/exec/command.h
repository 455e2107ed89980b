/* The command of an exec: from the request to its first process, the leader. For runners. */
#pragma once

#include <sys/types.h>

#include "base/macros.h"
#include "proto/init_messages.h"

/* Does the work that needs no request, before one comes. */
void command_prepare(void);
/* Starts it with these descriptors: one of a terminal, or of standard input (with EXEC_STDIN),
 * output and error. Returns its pid, or -1 with *ret_failure. */
NODISCARD pid_t command_start(const struct exec_request *request, const int *fds, size_t fd_count,
			      struct failure *ret_failure);
