/* Sizes by name: cpu and memory that go together. Read by a create and by `GET /v1/limits`. */
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

/* The smallest first; an entry without a name ends it. */
extern const struct sandbox_size sandbox_sizes[];
/* NULL for an unknown name. */
const struct sandbox_size *sandbox_size_find(const char *name);
/* May a sandbox be so large? A maximum of 0 is none. */
bool sandbox_size_fits(const struct sandbox_size *size, const struct limits *maximum);
