/* Sizes by name: cpu and memory that go together. The one table; a create and `GET /v1/limits` read
 * it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct limits;

#define SANDBOX_SIZE_NAMES "small,medium,large"

struct sandbox_size {
	const char *name;
	uint32_t cpu_millis;
	uint64_t memory;
};

/* The smallest first; without a name at the end. */
extern const struct sandbox_size sandbox_sizes[];
/* NULL: there is none of that name. */
const struct sandbox_size *sandbox_size_find(const char *name);
/* Whether a sandbox may be so large; a maximum of 0 is none. */
bool sandbox_size_fits(const struct sandbox_size *size, const struct limits *maximum);
