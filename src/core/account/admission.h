/* Does the host have room for another sandbox? This is decided by the measured use of sandboxes,
 * not by their limits, since most of a limit is never used.
 *
 * Memory: the memory that the kernel calls available, less a reserve, must cover the expected use
 * of this sandbox (the 95th percentile of the peaks of sandboxes of its size; a guess before there
 * were any) and the expected growth of the young ones; and the sum of all limits must stay below a
 * configured multiple of the RAM. Disk likewise, with the free bytes of the state directory's file
 * system. */
#pragma once

#include "core/core.h"

#define ADMISSION_SIZES 4 /* by memory limit: as small, medium, large, beyond */
#define ADMISSION_PEAKS 128

/* The last values, in a ring. */
struct peaks {
	uint64_t values[ADMISSION_PEAKS];
	uint32_t next, count;
};

struct admission {
	int meminfo_fd;                 /* opened before the daemon gives up the rights for it */
	int64_t memory_read, disk_read; /* CLOCK_MONOTONIC */
	uint64_t memory_total, memory_available, disk_total, disk_free;
	struct peaks memory[ADMISSION_SIZES], disk;
	/* Recomputed at most once a second. */
	int64_t expected_at;
	uint64_t memory_expected[ADMISSION_SIZES], disk_expected;
};

void admission_start(struct core *core);
void admission_stop(struct core *core);
/* HOST_CAPACITY says what is short and how much. */
NODISCARD int admission_check(struct core *core, const struct limits *limits, struct error *error);
/* Records the peak use of a sandbox that ends. */
void admission_observe(struct core *core, uint64_t memory_limit, uint64_t memory_peak,
		       uint64_t disk);

struct host_room {
	uint64_t memory_total, memory_available, memory_reserve;
	uint64_t memory_committed, memory_commit_max;
	uint64_t disk_total, disk_free, disk_reserve;
	uint64_t memory_expected; /* of a default sandbox */
};
void admission_room(struct core *core, struct host_room *ret_room);

/* The value below which 95 % of the values are; 0 if there are none. Sorts them. */
uint64_t admission_p95(uint64_t *values, size_t count);
