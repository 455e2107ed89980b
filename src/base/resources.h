/* How much a sandbox may use. */
#pragma once

#include <stdint.h>

struct limits {
	uint64_t memory; /* bytes */
	uint64_t disk;
	uint64_t inodes;
	uint32_t cpu_millis; /* 1000 = one cpu */
	uint32_t pids;
	uint32_t files; /* RLIMIT_NOFILE inside */
};
