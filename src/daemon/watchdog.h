/* Complains when one turn of the loop takes too long: nothing in the daemon may block. */
#pragma once

#include <stdint.h>
#include <uv.h>

/* Above it one is worth a look. A busy host makes some of any program's turns that long, so that it
 * is a line for debugging only; nobody is to be told before a client can notice. */
#define WATCHDOG_LIMIT_MS 5
#define WATCHDOG_WARNING_MS 50

struct watchdog {
	uv_prepare_t prepare;
	const char *const *handler; /* what was begun last, for the message */
	uint64_t turn_began, idle_before;
	uint64_t quiet_until;
	uint32_t suppressed;
};

/* The loop was configured with UV_METRICS_IDLE_TIME. *handler may be NULL at any time. */
void watchdog_start(struct watchdog *watchdog, uv_loop_t *loop, const char *const *handler);
void watchdog_stop(struct watchdog *watchdog);
