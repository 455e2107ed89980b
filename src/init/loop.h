/* PID 1's one epoll loop. Everything registers a descriptor with what it belongs to; an event that
 * was fetched for a slot that has been given away meanwhile is recognised by its generation. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum event_kind {
	EVENT_LISTENER,
	EVENT_CONNECTION,
	EVENT_SIGNAL,
	EVENT_TIMER,
	EVENT_LAUNCHER,
	EVENT_RUNNER, /* index in runners.c's table */
	EVENT_STDOUT, /* index in exec.c's table, as the next two */
	EVENT_STDERR,
	EVENT_INPUT,
};

#define NEVER INT64_MAX

/* Returns 0 or -errno. Closing the descriptor removes it. */
NODISCARD int loop_add(int fd, uint32_t events, enum event_kind kind, uint32_t index,
		       uint32_t generation);
NODISCARD int loop_modify(int fd, uint32_t events, enum event_kind kind, uint32_t index,
			  uint32_t generation);
void loop_remove(int fd);

/* Time-outs: CLOCK_BOOTTIME, NEVER when there is none. */
void loop_set_deadline(int64_t deadline);
/* Ends every process at grace (SIGTERM now), then the sandbox. */
void loop_shut_down(uint32_t grace_ms);
bool loop_shutting_down(void);

/* How PID 1 exits. Whichever it is, the kernel then kills everything in the sandbox. */
enum init_exit { INIT_EXIT_SHUTDOWN = 0, INIT_EXIT_FAILED = 1, INIT_EXIT_DEADLINE = 2 };

/* Before anything is added: 0 or -errno. */
NODISCARD int loop_open(void);
/* Serves until the sandbox ends. */
enum init_exit loop_run(void);
