/* Time: the three clocks, and their text. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t now(clockid_t id)
{
	struct timespec time;
	clock_gettime(id, &time);
	return (int64_t)time.tv_sec * NSEC_PER_SEC + time.tv_nsec;
}

int64_t clock_boot(void)
{
	return now(CLOCK_BOOTTIME);
}

int64_t clock_monotonic(void)
{
	return now(CLOCK_MONOTONIC);
}

int64_t clock_wall(void)
{
	return now(CLOCK_REALTIME);
}

void clock_text(int64_t wall, char text[CLOCK_TEXT_SIZE])
{
	time_t seconds = (time_t)(wall / NSEC_PER_SEC);
	struct tm parts;
	gmtime_r(&seconds, &parts);
	size_t used = strftime(text, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(text + used, CLOCK_TEXT_SIZE - used, ".%03dZ",
		 (int)(wall % NSEC_PER_SEC / NSEC_PER_MSEC));
}
