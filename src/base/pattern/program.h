/* The program of a pattern: glob_parse.c and regex_parse.c make it with the functions of program.c,
 * which know neither syntax; pattern.c runs it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define REPEAT_OPEN UINT32_MAX

/* Jumps are relative, so that parts of a program can be copied and moved. */
enum step_kind {
	STEP_CHARACTER, /* value */
	STEP_SET,       /* value: first range, extra: how many; negated */
	STEP_SPLIT,     /* at + value and at + extra */
	STEP_JUMP,      /* at + value */
	STEP_RECURSE,   /* the jump back to the start of a glob's "**" */
	STEP_LINE_START,
	STEP_LINE_END,
	STEP_NO_LEADING_DOT, /* no dot at the start of a path's component follows */
	STEP_WORD_EDGE,      /* extra: enum edge */
	STEP_MATCH,
};

enum edge { EDGE_ANY, EDGE_NONE, EDGE_START, EDGE_END };

struct step {
	uint8_t kind;
	bool negated;
	int32_t value, extra;
};

struct range {
	uint32_t low, high;
};

/* Keeps its first error, and adds nothing after it. Its owner frees the two arrays. */
struct program {
	struct step *steps;
	size_t count, room;
	struct range *ranges;
	size_t range_count, range_room;
	uint32_t outside_sets; /* a character that no set contains, negated or not */
	int error;             /* -errno */
	const char *reason;    /* of -EINVAL */
};

void program_fail(struct program *program, const char *reason);
void program_add(struct program *program, enum step_kind kind, int32_t value, int32_t extra);
void program_add_range(struct program *program, uint32_t low, uint32_t high);
/* Pairs of first and last character, as class_find() returns them. */
void program_add_pairs(struct program *program, const char *pairs);
/* A set of the ranges that were added since the count was `first_range`. */
void program_add_set(struct program *program, size_t first_range, bool negated);
/* Repeats the steps since `at`, least to most times. */
void program_repeat(struct program *program, size_t at, uint32_t least, uint32_t most);

/* Alternatives: begin, the steps of the first one, next, the steps of another one, ..., end. */
struct alternatives {
	size_t start;  /* of the last one */
	int32_t jumps; /* behind them all: a list, linked by the steps' values */
};
struct alternatives alternatives_begin(const struct program *program);
void alternatives_next(struct program *program, struct alternatives *alternatives);
void alternatives_end(struct program *program, const struct alternatives *alternatives);

/* The characters of a class, such as "alpha", as pairs of first and last; NULL: no such class. */
const char *class_find(const char *name, size_t size);
/* The size of the "[:name:]" that the text begins with, or 0. */
size_t class_text_size(const char *text, size_t size);

struct parser {
	struct program *program;
	const char *text;
	size_t size, at;
	int depth;
};
uint32_t parser_next_character(struct parser *parser);

/* The first character of a text (size at least 1): its value, and its size in bytes. An invalid
 * UTF-8 byte counts as a character of its own, above all others. */
uint32_t character_read(const char *text, size_t size, size_t *ret_size);

/* Both: 0, -EINVAL with the program's reason, -ENOMEM. */
NODISCARD int glob_parse(const char *text, size_t size, struct program *program);
NODISCARD int regex_parse(const char *text, size_t size, struct program *program);
