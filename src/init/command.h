/* The command of an exec: from the request to a running leader. For runners. */
#pragma once

#include <sys/types.h>

#include "base/macros.h"
#include "proto/init_messages.h"

/* What can be done before there is a request, so that it need not be done after. */
void command_prepare(void);
/* Starts it with these descriptors (a terminal is one; else standard input where EXEC_STDIN,
 * output, error). Its pid, or -1 with *ret_failure. */
NODISCARD pid_t command_start(const struct exec_request *request, const int *fds, size_t fd_count,
			      struct failure *ret_failure);
