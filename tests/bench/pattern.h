/* Bytes that both ends of a stream can make: so that what arrives can be checked without having
 * been kept. Used by inside.c (in a sandbox) and the client. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* `at` and `size` are multiples of eight. */
static inline void pattern_fill(uint64_t at, void *to, size_t size)
{
	uint64_t *words = to;
	for (size_t i = 0; i < size / 8; i++) {
		uint64_t value = (at / 8 + i) * 0x9e3779b97f4a7c15ULL;
		words[i] = value ^ (value >> 29);
	}
}
