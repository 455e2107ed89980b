/* The BPF programs of seccomp-generate.c as they are laid out: one instruction after the other,
 * with jumps forward only. */
#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#define INSTRUCTIONS_MAX 2048
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define ALLOW SECCOMP_RET_ALLOW
#define ERRNO(number) (SECCOMP_RET_ERRNO | (number))
/* Errno 0: nothing is done and the caller sees success. */
#define PRETEND ERRNO(0)

struct program {
	struct sock_filter code[INSTRUCTIONS_MAX];
	size_t count;
};

void emit(struct program *program, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf);
void answer(struct program *program, uint32_t value);
/* The half of an argument that the kernel looks at where the parameter is an int: a comparison of
 * all 64 bits would be evaded by setting one of the upper ones. (Both architectures are
 * little-endian.) */
void load(struct program *program, unsigned argument);
void load_upper(struct program *program, unsigned argument);
/* Opens a block that runs when the loaded word is `value`; end() closes it. */
size_t if_equal(struct program *program, uint32_t value);
void end(struct program *program, size_t opened);
void answer_if_equal(struct program *program, uint32_t value, uint32_t result);
void answer_if_any(struct program *program, uint32_t bits, uint32_t result);
/* At most LISTED_MAX values, in any order. */
void answer_if_one_of(struct program *program, const uint32_t *values, size_t count,
		      uint32_t result);
#define LISTED_MAX 120 /* two comparisons each are within reach of a jump */
