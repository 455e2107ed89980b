/* A process, identified by pid, pidfd and start time, so that a reused pid is never mistaken for
 * it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

struct process {
	pid_t pid;
	int pidfd;           /* owned; -1 when unset */
	uint64_t start_time; /* field 22 of /proc/PID/stat, clock ticks since boot */
};

#define PROCESS_NONE ((struct process){.pid = 0, .pidfd = -1, .start_time = 0})
void process_done(struct process *process);

/* Opens a running process; with start_time != 0 only that one (else -ESRCH). */
NODISCARD int process_open(pid_t pid, uint64_t start_time, struct process *ret_process);
NODISCARD int process_start_time(pid_t pid, uint64_t *ret_start_time);
/* -ESRCH when it has ended. */
NODISCARD int process_signal(const struct process *process, int signal);
bool process_alive(const struct process *process);
/* Waits for its end (it need not be our child); -ETIMEDOUT. Does not reap. */
NODISCARD int process_wait_end(const struct process *process, int timeout_ms);
