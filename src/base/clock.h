/* Time in nanoseconds. Deadlines use the boot-time clock, which goes on while the host sleeps
 * and cannot be stepped; users see wall-clock time. */
#pragma once

#include <stdint.h>

#define NSEC_PER_SEC 1000000000LL
#define NSEC_PER_MSEC 1000000LL
#define NSEC_PER_USEC 1000LL

int64_t clock_boot(void);
int64_t clock_monotonic(void);
int64_t clock_wall(void);

#define CLOCK_TEXT_SIZE 32
/* RFC 3339 in UTC with milliseconds, "2026-11-15T08:00:00.123Z". */
void clock_text(int64_t wall, char text[CLOCK_TEXT_SIZE]);
