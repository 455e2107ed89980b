/* The launcher's and the runners' own code: they are forks of PID 1, live in the `work` cgroup and
 * may block, allocate and be killed. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

/* PID 1 asks for a runner with one byte; the answer is this, with PID 1's end of the runner's
 * socket when there is one. */
struct launched {
	int32_t pid;    /* 0: it failed */
	int32_t errnum; /* why */
};

/* `socket` leads to PID 1. */
_Noreturn void launcher_main(int socket);
_Noreturn void runner_main(int socket);
