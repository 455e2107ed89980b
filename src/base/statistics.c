/* See statistics.h. Called on hot paths: a few additions. */
#include "base/statistics.h"

#include "base/clock.h"
#include "base/macros.h"

const uint32_t histogram_bounds[HISTOGRAM_BOUNDS] = {
    50,    100,   250,    500,    1000,    2500,    5000,     10000,
    25000, 50000, 100000, 250000, 1000000, 5000000, 30000000, 300000000,
};

struct statistics statistics;

void histogram_add(struct histogram *histogram, int64_t nanoseconds)
{
	uint64_t microseconds = (uint64_t)MAX(nanoseconds, 0) / NSEC_PER_USEC;
	size_t at = 0;
	while (at < HISTOGRAM_BOUNDS && microseconds > histogram_bounds[at])
		at++;
	histogram->buckets[at]++;
	histogram->sum += microseconds;
}

uint64_t histogram_count(const struct histogram *histogram)
{
	uint64_t count = 0;
	for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
		count += histogram->buckets[i];
	return count;
}
