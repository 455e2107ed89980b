/* A call in some time, on the loop; never in the turn in which it is set. It belongs to who made it
 * until alarm_stop(), which may come from within the call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct alarm;

struct alarm *alarm_after(uv_loop_t *loop, uint64_t milliseconds, void (*ring)(void *data),
			  void *data);
/* One that is set again and again: it rings once for each alarm_set(), at the time of the last. It
 * does not keep the loop running. */
struct alarm *alarm_new(uv_loop_t *loop, void (*ring)(void *data), void *data);
void alarm_set(struct alarm *alarm, uint64_t milliseconds);
bool alarm_is_set(const struct alarm *alarm);
/* Takes NULL, and one that has rung. */
void alarm_stop(struct alarm **alarm);
