/* Compiles the text of a glob to a program that matches whole paths. Called by
 * pattern_compile_glob(); allocates, never blocks. The text is hostile: its size and the depth of
 * groups are bounded. Every text is a valid glob: a bracket or a brace without its end is a
 * literal. */
#include <string.h>

#include "base/pattern/pattern.h"
#include "base/pattern/program.h"

#define DEPTH_MAX 64

size_t glob_fixed_prefix(const char *text, size_t size)
{
	size_t fixed = 0;
	for (size_t at = 0; at < size && !strchr("*?[{\\", text[at]); at++) {
		if (text[at] == '/' && at + 1 < size)
			fixed = at + 1;
	}
	return fixed;
}

/* For each byte of a glob, what follows it as a part of a set or of a group. Found from the end of
 * the text, so that nested beginnings without an end do not cost more than others. */
struct ends {
	uint16_t set[GLOB_MAX + 2];   /* the ']' that ends a set; 0: none */
	uint16_t group[GLOB_MAX + 2]; /* the '}' that ends a group; 0: none */
	bool comma[GLOB_MAX + 2];     /* the group has a comma of its own before that */
};

/* The index of the ']' that ends the set at this '[', or 0 (then '[' is a literal). */
static size_t set_end(const struct ends *ends, const char *text, size_t size, size_t at)
{
	at++;
	at += at < size && (text[at] == '!' || text[at] == '^');
	at += at < size && text[at] == ']';
	return ends->set[at];
}

/* The index of the '}' that ends the group at this '{', if it is one: balanced, with a comma of
 * its own; else 0. */
static size_t group_end(const struct ends *ends, size_t at)
{
	return ends->comma[at + 1] ? ends->group[at + 1] : 0;
}

static void ends_find(struct ends *ends, const char *text, size_t size)
{
	*ends = (struct ends){0};
	for (size_t at = size; at-- > 0;) {
		char sign = text[at];
		size_t class = sign == '[' ? class_text_size(text + at, size - at) : 0;
		size_t length = class > 0 ? class : sign == '\\' ? 2 : 1;
		ends->set[at] = sign == ']' ? (uint16_t)at : ends->set[at + length];
		size_t next = at + (sign == '\\' ? 2 : 1);
		size_t inner = sign == '['   ? set_end(ends, text, size, at)
			       : sign == '{' ? ends->group[at + 1]
					     : 0;
		if (inner > 0)
			next = inner + 1;
		else if (sign == '{')
			next = size; /* no end of an outer group either */
		ends->group[at] = sign == '}' ? (uint16_t)at : ends->group[next];
		ends->comma[at] = sign != '}' && (sign == ',' || ends->comma[next]);
	}
}

/* Adds least to most characters of a component. */
static void any_add(struct program *program, uint32_t least, uint32_t most)
{
	program_add(program, STEP_NO_LEADING_DOT, 0, 0);
	size_t at = program->count;
	program_add_set(program, program->range_count, true);
	program_repeat(program, at, least, most);
}

/* "**" before a slash matches any number of components with their slashes; otherwise at least
 * one component and everything below it. */
static void recursion_add(struct program *program, bool slash)
{
	size_t start = program->count;
	if (slash)
		program_add(program, STEP_SPLIT, 1, 6);
	any_add(program, 1, REPEAT_OPEN);
	if (!slash)
		program_add(program, STEP_SPLIT, 1, 3);
	program_add(program, STEP_CHARACTER, '/', 0);
	program_add(program, STEP_RECURSE, (int32_t)start - (int32_t)program->count, 0);
}

static bool parser_at_component_start(const struct parser *parser, bool in_group)
{
	if (parser->at == 0)
		return true;
	char before = parser->text[parser->at - 1];
	return before == '/' || (in_group && (before == '{' || before == ','));
}

static void stars_parse(struct parser *parser, bool in_group)
{
	bool start = parser_at_component_start(parser, in_group);
	size_t stars = 0;
	while (parser->at < parser->size && parser->text[parser->at] == '*') {
		parser->at++;
		stars++;
	}
	char after = parser->at < parser->size ? parser->text[parser->at] : '\0';
	bool end = parser->at == parser->size || after == '/' ||
		   (in_group && (after == ',' || after == '}'));
	if (stars == 2 && start && end) {
		recursion_add(parser->program, after == '/');
		parser->at += after == '/';
		return;
	}
	any_add(parser->program, 0, REPEAT_OPEN);
}

/* Reads one character of a set, which may be escaped. */
static uint32_t set_read_character(struct parser *parser)
{
	parser->at += parser->text[parser->at] == '\\' && parser->at + 1 < parser->size;
	return parser_next_character(parser);
}

/* `end` is the closing bracket. An unknown class and a reversed range contain nothing. */
static void set_parse(struct parser *parser, size_t end)
{
	struct program *program = parser->program;
	size_t first_range = program->range_count;
	char sign = parser->text[++parser->at];
	bool negated = sign == '!' || sign == '^';
	parser->at += negated;
	while (parser->at < end) {
		const char *here = parser->text + parser->at;
		size_t class = class_text_size(here, end - parser->at);
		if (class > 0) {
			const char *pairs = class_find(here + 2, class - 4);
			program_add_pairs(program, pairs ? pairs : "");
			parser->at += class;
			continue;
		}
		uint32_t low = set_read_character(parser), high = low;
		if (parser->at + 1 < end && parser->text[parser->at] == '-') {
			parser->at++;
			high = set_read_character(parser);
		}
		if (low <= high)
			program_add_range(program, low, high);
	}
	parser->at = end + 1;
	program_add(program, STEP_NO_LEADING_DOT, 0, 0);
	program_add_set(program, first_range, negated);
}

/* Parses up to `end`; in a group, its alternatives. */
static void sequence_parse(struct parser *parser, const struct ends *ends, size_t end,
			   bool in_group)
{
	struct program *program = parser->program;
	struct alternatives alternatives = alternatives_begin(program);
	while (parser->at < end && program->error == 0) {
		size_t inner;
		switch (parser->text[parser->at]) {
		case '*':
			stars_parse(parser, in_group);
			continue;
		case '?':
			any_add(program, 1, 1);
			parser->at++;
			continue;
		case '[':
			inner = set_end(ends, parser->text, parser->size, parser->at);
			if (inner == 0)
				break;
			set_parse(parser, inner);
			continue;
		case '{':
			inner = parser->depth < DEPTH_MAX ? group_end(ends, parser->at) : 0;
			if (inner == 0)
				break;
			parser->at++;
			parser->depth++;
			sequence_parse(parser, ends, inner, true);
			parser->depth--;
			parser->at++;
			continue;
		case ',':
			if (!in_group)
				break;
			alternatives_next(program, &alternatives);
			parser->at++;
			continue;
		case '\\':
			parser->at += parser->at + 1 < parser->size;
			break;
		default:
			break;
		}
		program_add(program, STEP_CHARACTER, (int32_t)parser_next_character(parser), 0);
	}
	alternatives_end(program, &alternatives);
}

int glob_parse(const char *text, size_t size, struct program *program)
{
	struct parser parser = {.program = program, .text = text, .size = size};
	struct ends ends;
	ends_find(&ends, text, size);
	program->outside_sets = '/';
	sequence_parse(&parser, &ends, size, false);
	program_add(program, STEP_LINE_END, 0, 0);
	program_add(program, STEP_MATCH, 0, 0);
	return program->error;
}
