/* The code of the launcher's and the runners' processes: forks of PID 1 in the `work` cgroup,
 * which may block, allocate and be killed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "init/setup/setup.h"

/* PID 1 asks for a runner with one byte; this is the answer, with PID 1's end of the runner's
 * socket if there is a runner. */
struct launcher_answer {
	int32_t pid;    /* 0: failed */
	int32_t errnum; /* why */
};

/* Forks a runner from PID 1, without a launcher: for gVisor's kernel, which has no CLONE_PARENT,
 * and where there is no `work` cgroup. The pid, or -errno. */
NODISCARD int runner_fork_directly(int *ret_socket);
/* What PID 1 sends to a launcher that was forked before CONFIGURE: one message, with the
 * environment behind this. */
struct launcher_configuration {
	struct setup setup; /* its descriptors are valid in PID 1 only */
	uint32_t environment_count, environment_size;
};

/* `socket` leads to PID 1. ahead: the sandbox is not configured and this process not hardened;
 * it joins its cgroup and waits for struct launcher_configuration. */
_Noreturn void launcher_process_main(int socket, bool ahead);
_Noreturn void runner_process_main(int socket);
