/* PID 1's epoll loop. A descriptor is registered with the kind, index and generation of its
 * owner. The generation shows that an event is for an earlier owner of the same index. */
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

/* When the sandbox ends by itself, in CLOCK_BOOTTIME; or NEVER. */
void loop_set_deadline(int64_t deadline);
/* SIGTERM to every process now; the sandbox ends after grace_ms, or when every exec has ended. */
void loop_shut_down(uint32_t grace_ms);
bool loop_shutting_down(void);

/* How PID 1 exits. The kernel then kills every process of the sandbox. */
enum init_exit { INIT_EXIT_SHUTDOWN = 0, INIT_EXIT_FAILED = 1, INIT_EXIT_DEADLINE = 2 };

/* Called before anything is added. 0 or -errno. */
NODISCARD int loop_open(void);
/* Serves until the sandbox ends. */
enum init_exit loop_run(void);
