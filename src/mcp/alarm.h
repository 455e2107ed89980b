/* A delayed call on the loop; never in the turn in which it is set. It belongs to its maker until
 * alarm_stop(), which may be called from the callback. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct alarm;

struct alarm *alarm_after(uv_loop_t *loop, uint64_t milliseconds, void (*ring)(void *data),
			  void *data);
/* A reusable alarm: it rings once for each alarm_set(), at the last set time. It does not keep the
 * loop running. */
struct alarm *alarm_new(uv_loop_t *loop, void (*ring)(void *data), void *data);
void alarm_set(struct alarm *alarm, uint64_t milliseconds);
bool alarm_is_set(const struct alarm *alarm);
/* Takes NULL, and an alarm that has rung. */
void alarm_stop(struct alarm **alarm);
