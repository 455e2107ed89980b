/* Checks eight bytes of a text at once for a byte that a scanner looks for. It never gives a
 * wrong answer, but does not say which byte it is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define WORD_ONES UINT64_C(0x0101010101010101)
#define WORD_HIGHS UINT64_C(0x8080808080808080)

static inline uint64_t word_load(const char *at)
{
	uint64_t word;
	memcpy(&word, at, sizeof(word));
	return word;
}

/* A byte below `limit`, which is at most 0x80. */
static inline bool word_has_below(uint64_t word, unsigned char limit)
{
	return (word - WORD_ONES * limit) & ~word & WORD_HIGHS;
}

static inline bool word_has(uint64_t word, unsigned char byte)
{
	return word_has_below(word ^ WORD_ONES * byte, 1);
}
