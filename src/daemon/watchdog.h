/* Warns when one iteration of the loop takes too long: nothing in the daemon may block. */
#pragma once

#include <stdint.h>
#include <uv.h>

/* Above LIMIT an iteration is suspicious. On a busy host any program has some of that length, so
 * it is logged for debugging only. Above WARNING clients can notice it. */
#define WATCHDOG_LIMIT_MS 5
#define WATCHDOG_WARNING_MS 50

struct watchdog {
	uv_prepare_t prepare;
	const char *const *handler; /* the handler that was begun last, for the message */
	uint64_t turn_began, idle_before;
	uint64_t quiet_until;
	uint32_t suppressed;
};

/* The loop must be configured with UV_METRICS_IDLE_TIME. *handler may be NULL at any time. */
void watchdog_start(struct watchdog *watchdog, uv_loop_t *loop, const char *const *handler);
void watchdog_stop(struct watchdog *watchdog);
