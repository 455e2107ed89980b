/* The program of a regular expression: regex_parse.c makes it, regex.c runs it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

/* Jumps are relative, so that parts of a program can be copied and moved. */
enum step_kind {
	STEP_CHARACTER, /* value */
	STEP_SET,       /* value: first range, extra: how many; negated */
	STEP_SPLIT,     /* at + value and at + extra */
	STEP_JUMP,      /* at + value */
	STEP_LINE_START,
	STEP_LINE_END,
	STEP_WORD_EDGE, /* extra: enum edge */
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

struct regex_program {
	struct step *steps;
	size_t count, room;
	struct range *ranges;
	size_t range_count, range_room;
};

/* 0, -EINVAL with the reason as text, -ENOMEM; the owner of the program frees it, also on
 * failure. */
NODISCARD int regex_parse(const char *text, size_t size, struct regex_program *program,
			  const char **ret_reason);
