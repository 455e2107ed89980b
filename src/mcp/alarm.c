/* See alarm.h. The timer is freed only after the loop has closed it, which may be after its owner
 * is freed. */
#include "mcp/alarm.h"

#include <stdlib.h>

#include "base/macros.h"

struct alarm {
	uv_timer_t timer;
	void (*ring)(void *data);
	void *data;
};

static void alarm_due(uv_timer_t *timer)
{
	struct alarm *alarm = container_of(timer, struct alarm, timer);
	alarm->ring(alarm->data);
}

struct alarm *alarm_new(uv_loop_t *loop, void (*ring)(void *data), void *data)
{
	struct alarm *alarm = calloc(1, sizeof(*alarm));
	if (!alarm)
		abort();
	alarm->ring = ring;
	alarm->data = data;
	uv_timer_init(loop, &alarm->timer); /* never fails */
	uv_unref((uv_handle_t *)&alarm->timer);
	return alarm;
}

void alarm_set(struct alarm *alarm, uint64_t milliseconds)
{
	/* libuv calls a timer of 0 ms that a timer's callback has set in the same pass: one that
	 * sets itself again would block the loop forever. */
	uv_timer_start(&alarm->timer, alarm_due, MAX(milliseconds, 1u), 0); /* never fails either */
}

bool alarm_is_set(const struct alarm *alarm)
{
	return uv_is_active((const uv_handle_t *)&alarm->timer);
}

struct alarm *alarm_after(uv_loop_t *loop, uint64_t milliseconds, void (*ring)(void *data),
			  void *data)
{
	struct alarm *alarm = alarm_new(loop, ring, data);
	uv_ref((uv_handle_t *)&alarm->timer);
	alarm_set(alarm, milliseconds);
	return alarm;
}

static void alarm_timer_closed(uv_handle_t *handle)
{
	free(container_of((uv_timer_t *)handle, struct alarm, timer));
}

void alarm_stop(struct alarm **alarm)
{
	if (*alarm)
		uv_close((uv_handle_t *)&(*alarm)->timer, alarm_timer_closed);
	*alarm = NULL;
}
