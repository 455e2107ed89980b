/* Laying out BPF programs. See seccomp-program.h. */
#include "seccomp-program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void emit(struct program *program, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	if (program->count == INSTRUCTIONS_MAX) {
		fprintf(stderr, "seccomp-generate: the filter is too long\n");
		exit(1);
	}
	program->code[program->count++] = (struct sock_filter){code, jt, jf, k};
}

void answer(struct program *program, uint32_t value)
{
	emit(program, BPF_RET | BPF_K, value, 0, 0);
}

void load(struct program *program, unsigned argument)
{
	uint32_t offset = (uint32_t)(offsetof(struct seccomp_data, args) + argument * 8);
	emit(program, BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
}

void load_upper(struct program *program, unsigned argument)
{
	uint32_t offset = (uint32_t)(offsetof(struct seccomp_data, args) + argument * 8 + 4);
	emit(program, BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
}

size_t if_equal(struct program *program, uint32_t value)
{
	emit(program, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0);
	return program->count - 1;
}

void end(struct program *program, size_t opened)
{
	size_t distance = program->count - opened - 1;
	if (distance > UINT8_MAX) {
		fprintf(stderr, "seccomp-generate: a block is too long\n");
		exit(1);
	}
	program->code[opened].jf = (uint8_t)distance;
}

void answer_if_equal(struct program *program, uint32_t value, uint32_t result)
{
	emit(program, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	answer(program, result);
}

void answer_if_any(struct program *program, uint32_t bits, uint32_t result)
{
	emit(program, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
	answer(program, result);
}

static int by_value(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
	return (a > b) - (a < b);
}

/* Comparisons, two for values that follow each other, and one answer behind them all. */
void answer_if_one_of(struct program *program, const uint32_t *values, size_t count,
		      uint32_t result)
{
	uint32_t sorted[LISTED_MAX];
	size_t hits[LISTED_MAX], hit_count = 0;
	if (count > LISTED_MAX) {
		fprintf(stderr, "seccomp-generate: a list of values is too long\n");
		exit(1);
	}
	memcpy(sorted, values, count * sizeof(*values));
	qsort(sorted, count, sizeof(*sorted), by_value);
	for (size_t i = 0, last; i < count; i = last + 1) {
		for (last = i; last + 1 < count && sorted[last + 1] == sorted[last] + 1;)
			last++;
		if (last - i < 2)
			last = i;
		else
			emit(program, BPF_JMP | BPF_JGE | BPF_K, sorted[i], 0, 1);
		hits[hit_count++] = program->count;
		emit(program, BPF_JMP | (last == i ? BPF_JEQ : BPF_JGE) | BPF_K,
		     sorted[last] + (last != i), 0, 0);
	}
	/* Behind the last comparison: over the answer. */
	emit(program, BPF_JMP | BPF_JA, 1, 0, 0);
	for (size_t i = 0; i < hit_count; i++) {
		struct sock_filter *step = &program->code[hits[i]];
		uint8_t distance = (uint8_t)(program->count - hits[i] - 1);
		if (step->code == (BPF_JMP | BPF_JGE | BPF_K))
			step->jf = distance;
		else
			step->jt = distance;
	}
	answer(program, result);
}
