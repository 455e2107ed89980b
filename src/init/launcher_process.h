/* The launcher's and the runners' own code: they are forks of PID 1, live in the `work` cgroup and
 * may block, allocate and be killed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "init/setup/setup.h"

/* PID 1 asks for a runner with one byte; the answer is this, with PID 1's end of the runner's
 * socket when there is one. */
struct launcher_answer {
	int32_t pid;    /* 0: it failed */
	int32_t errnum; /* why */
};

/* By PID 1 itself, without a launcher: for a kernel that knows no CLONE_PARENT (gVisor's), where
 * there is no cgroup to be born in. The pid, or -errno. */
NODISCARD int runner_fork_directly(int *ret_socket);
/* What a launcher that was forked ahead is told when the sandbox is configured, in one message with
 * the environment behind it. */
struct launcher_configuration {
	struct setup setup; /* its descriptors are PID 1's */
	uint32_t environment_count, environment_size;
};

/* `socket` leads to PID 1. ahead: the sandbox is not configured, nor this process hardened; it
 * joins its cgroup, and waits for struct launcher_configuration. */
_Noreturn void launcher_process_main(int socket, bool ahead);
_Noreturn void runner_process_main(int socket);
