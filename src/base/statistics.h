/* The daemon's own statistics, for /metrics and /healthz. Numbers are added where things happen
 * and read by api/prometheus.c. One thread writes them; nothing is allocated, nothing can fail.
 * They start at zero with each daemon. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Upper bounds in microseconds, the same for every duration; one more bucket is above the last. */
#define HISTOGRAM_BOUNDS 16
extern const uint32_t histogram_bounds[HISTOGRAM_BOUNDS];

struct histogram {
	uint64_t buckets[HISTOGRAM_BOUNDS + 1]; /* not cumulative */
	uint64_t sum;                           /* microseconds */
};
void histogram_add(struct histogram *histogram, int64_t nanoseconds);
uint64_t histogram_count(const struct histogram *histogram);

#define STATISTICS_ORIGINS 4
#define STATISTICS_REASONS 8
#define STATISTICS_EXEC_ENDS 8

struct statistics {
	struct histogram creates[STATISTICS_ORIGINS]; /* by enum create_origin */
	uint64_t creates_failed;
	uint64_t ends[STATISTICS_REASONS]; /* by enum end_reason */
	uint64_t pauses, resumes, reclaimed_bytes;
	struct histogram execs;
	uint64_t exec_ends[STATISTICS_EXEC_ENDS]; /* by enum exec_end */
	uint64_t execs_failed;
	uint64_t errors[ERROR_KIND_COUNT]; /* answers of the API, by kind */
	struct histogram store_writes;
	uint64_t store_failures;
	/* Since when writes fail (CLOCK_MONOTONIC); 0: the last one succeeded. */
	int64_t store_failing;
	struct histogram loop_turns; /* busy time of one iteration of the loop */
	int64_t loop_longest;        /* nanoseconds */
	uint64_t streams;            /* open streams of server-sent events */
	uint32_t pool_ready, pool_making;
};
extern struct statistics statistics;
