/* Lets a test move the daemon's time. The loop wakes every few milliseconds, sees that the
 * clocks have moved, runs the timers that are due and acknowledges it (base/fault.h). Built only
 * with -Dfault_points=true. */
#include "daemon/fault.h"

#include "base/fault.h"

#define LOOK_MS 5

static void on_fault_wake(uv_timer_t *timer)
{
	(void)timer; /* only wakes the loop */
}

/* Every timer that was due at the last call has run since. */
static void on_fault_turn(uv_prepare_t *prepare)
{
	(void)prepare;
	fault_turn(FAULT_DAEMON);
}

void daemon_fault_watch_clock(uv_loop_t *loop)
{
	static uv_timer_t timer;
	static uv_prepare_t prepare;
	uv_timer_init(loop, &timer);
	uv_timer_start(&timer, on_fault_wake, LOOK_MS, LOOK_MS);
	uv_unref((uv_handle_t *)&timer);
	uv_prepare_init(loop, &prepare);
	uv_prepare_start(&prepare, on_fault_turn);
	uv_unref((uv_handle_t *)&prepare);
}
