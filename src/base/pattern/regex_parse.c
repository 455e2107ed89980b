/* Compiles the text of a regular expression to a program. Called by pattern_compile_regex();
 * allocates, never blocks. The text is hostile: repetitions and the depth of groups are bounded
 * here, the size of all in program.c. */
#include <string.h>

#include "base/pattern/program.h"

#define DEPTH_MAX 200
#define REPEAT_MAX 1000
#define CHARACTER_LAST 0x1fffffu
#define WORD_PAIRS "azAZ09__"

static void parser_fail(struct parser *parser, const char *reason)
{
	program_fail(parser->program, reason);
}

/* Adds everything outside a class: within brackets it cannot be a negated set of its own. */
static void pairs_add_complement(struct program *program, const char *pairs)
{
	uint32_t from = 1;
	for (uint32_t value = 1; value <= 0x80; value++) {
		bool holds = value == 0x80;
		for (const char *pair = pairs; *pair; pair += 2)
			holds |= value >= (unsigned char)pair[0] && value <= (unsigned char)pair[1];
		if (!holds)
			continue;
		if (from < value)
			program_add_range(program, from, value - 1);
		from = value + 1;
	}
	program_add_range(program, 0x80, CHARACTER_LAST);
}

/* Adds the ranges of \d and the like; false: not such a letter. */
static bool letter_class_add(struct parser *parser, char letter)
{
	static const char letters[] = "dws", *const pairs[] = {"09", WORD_PAIRS, "\t\r  "};
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		if (letter == letters[i])
			program_add_pairs(parser->program, pairs[i]);
		else if (letter == letters[i] - ('a' - 'A'))
			pairs_add_complement(parser->program, pairs[i]);
		else
			continue;
		return true;
	}
	return false;
}

static int hex_digit_value(char digit)
{
	return digit >= '0' && digit <= '9'   ? digit - '0'
	       : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
	       : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
					      : -1;
}

/* The character that an escape stands for. The backslash is already consumed. */
static uint32_t escape_read_character(struct parser *parser)
{
	static const char letters[] = "ntrfve", values[] = "\n\t\r\f\v\033";
	if (parser->at == parser->size) {
		parser_fail(parser, "it ends with a backslash");
		return 0;
	}
	char letter = parser->text[parser->at];
	const char *known = strchr(letters, letter);
	if (known) {
		parser->at++;
		return (unsigned char)values[known - letters];
	}
	if (letter == 'x' && parser->size - parser->at > 2) {
		int high = hex_digit_value(parser->text[parser->at + 1]);
		int low = hex_digit_value(parser->text[parser->at + 2]);
		if (high >= 0 && low >= 0) {
			parser->at += 3;
			return (uint32_t)(16 * high + low);
		}
	}
	if (letter >= '1' && letter <= '9')
		parser_fail(parser, "back-references are not supported");
	else if (hex_digit_value(letter) >= 0 || (letter >= 'a' && letter <= 'z') ||
		 (letter >= 'A' && letter <= 'Z'))
		parser_fail(parser, "it has an escape that means nothing here");
	return parser_next_character(parser);
}

/* [:name:] inside brackets. */
static bool named_class_parse(struct parser *parser)
{
	const char *here = parser->text + parser->at;
	size_t size = class_text_size(here, parser->size - parser->at);
	if (size == 0)
		return false;
	bool word = size == 8 && memcmp(here, "[:word:]", 8) == 0;
	const char *pairs = word ? WORD_PAIRS : class_find(here + 2, size - 4);
	if (pairs)
		program_add_pairs(parser->program, pairs);
	else
		parser_fail(parser, "it names a class of characters that there is not");
	parser->at += size;
	return true;
}

static uint32_t set_read_character(struct parser *parser)
{
	if (parser->text[parser->at] != '\\')
		return parser_next_character(parser);
	parser->at++;
	return escape_read_character(parser);
}

static void set_item_parse(struct parser *parser)
{
	if (named_class_parse(parser))
		return;
	const char *here = parser->text + parser->at;
	size_t left = parser->size - parser->at;
	if (here[0] == '\\' && left > 1 && letter_class_add(parser, here[1])) {
		parser->at += 2;
		return;
	}
	uint32_t low = set_read_character(parser), high = low;
	left = parser->size - parser->at;
	here = parser->text + parser->at;
	if (parser->program->error == 0 && left > 1 && here[0] == '-' && here[1] != ']') {
		parser->at++;
		high = set_read_character(parser);
	}
	if (low > high)
		parser_fail(parser, "a range in brackets runs backwards");
	program_add_range(parser->program, low, high);
}

/* The '[' is already consumed. */
static void set_parse(struct parser *parser)
{
	size_t first_range = parser->program->range_count;
	bool negated = parser->at < parser->size && parser->text[parser->at] == '^';
	parser->at += negated;
	for (bool first = true; parser->program->error == 0; first = false) {
		if (parser->at == parser->size) {
			parser_fail(parser, "a '[' has no ']'");
			return;
		}
		if (parser->text[parser->at] == ']' && !first)
			break;
		set_item_parse(parser);
	}
	parser->at++;
	program_add_set(parser->program, first_range, negated);
}

/* The backslash is already consumed. */
static void escape_parse(struct parser *parser)
{
	static const char edges[] = "bB<>";
	size_t first_range = parser->program->range_count;
	char letter = parser->at < parser->size ? parser->text[parser->at] : '\0';
	const char *edge = letter ? strchr(edges, letter) : NULL;
	if (edge) {
		parser->at++;
		program_add(parser->program, STEP_WORD_EDGE, 0, (int32_t)(edge - edges));
	} else if (letter && letter_class_add(parser, letter)) {
		parser->at++;
		program_add_set(parser->program, first_range, false);
	} else {
		program_add(parser->program, STEP_CHARACTER, (int32_t)escape_read_character(parser),
			    0);
	}
}

/* {n}, {n,}, {n,m}: true, and consumed, if there is one here. */
static bool bounds_parse(struct parser *parser, uint32_t *ret_least, uint32_t *ret_most)
{
	uint32_t numbers[2] = {0, 0};
	bool given[2] = {false, false};
	size_t at = parser->at + 1;
	int which = 0;
	for (; at < parser->size && parser->text[at] != '}'; at++) {
		char digit = parser->text[at];
		if (digit == ',' && which == 0) {
			which = 1;
		} else if (digit >= '0' && digit <= '9') {
			numbers[which] = numbers[which] * 10 + (uint32_t)(digit - '0');
			given[which] = true;
			if (numbers[which] > REPEAT_MAX) {
				parser_fail(parser, "it repeats something more than 1000 times");
				return false;
			}
		} else {
			return false;
		}
	}
	if (at == parser->size || (!given[0] && !given[1]))
		return false;
	*ret_least = numbers[0];
	*ret_most = which == 0 ? numbers[0] : given[1] ? numbers[1] : REPEAT_OPEN;
	if (*ret_most < *ret_least)
		parser_fail(parser, "a repetition's bounds run backwards");
	parser->at = at + 1;
	return true;
}

static void repetitions_parse(struct parser *parser, size_t at)
{
	while (parser->at < parser->size && parser->program->error == 0) {
		uint32_t least = 0, most = REPEAT_OPEN;
		char sign = parser->text[parser->at];
		if (sign == '*' || sign == '+' || sign == '?') {
			least = sign == '+';
			most = sign == '?' ? 1 : REPEAT_OPEN;
			parser->at++;
		} else if (sign != '{' || !bounds_parse(parser, &least, &most)) {
			return;
		}
		if (parser->at < parser->size && parser->text[parser->at] == '?')
			parser->at++;
		if (parser->program->error == 0)
			program_repeat(parser->program, at, least, most);
	}
}

static void alternatives_parse(struct parser *parser);

/* The '(' is already consumed. */
static void group_parse(struct parser *parser)
{
	size_t left = parser->size - parser->at;
	const char *here = parser->text + parser->at;
	if (left > 1 && here[0] == '?' && here[1] == ':')
		parser->at += 2;
	else if (left > 0 && here[0] == '?')
		parser_fail(parser, "look-around and flags in a group are not supported");
	if (++parser->depth > DEPTH_MAX)
		parser_fail(parser, "its groups are nested too deeply");
	if (parser->program->error)
		return;
	alternatives_parse(parser);
	parser->depth--;
	if (parser->at == parser->size)
		parser_fail(parser, "a '(' has no ')'");
	parser->at++;
}

static void atom_parse(struct parser *parser)
{
	char sign = parser->text[parser->at];
	size_t first_range = parser->program->range_count;
	switch (sign) {
	case '(':
		parser->at++;
		group_parse(parser);
		return;
	case '[':
		parser->at++;
		set_parse(parser);
		return;
	case '\\':
		parser->at++;
		escape_parse(parser);
		return;
	case '.':
		parser->at++;
		program_add_set(parser->program, first_range, true);
		return;
	case '^':
	case '$':
		parser->at++;
		program_add(parser->program, sign == '^' ? STEP_LINE_START : STEP_LINE_END, 0, 0);
		return;
	case '*':
	case '+':
	case '?':
		parser_fail(parser, "a repetition has nothing before it");
		return;
	default:
		program_add(parser->program, STEP_CHARACTER, (int32_t)parser_next_character(parser),
			    0);
	}
}

/* Parses up to the end, or up to the ')' of a group. */
static void alternatives_parse(struct parser *parser)
{
	struct program *program = parser->program;
	struct alternatives alternatives = alternatives_begin(program);
	while (parser->at < parser->size && program->error == 0) {
		char sign = parser->text[parser->at];
		if (sign == ')' && parser->depth > 0)
			break;
		if (sign == '|') {
			alternatives_next(program, &alternatives);
			parser->at++;
			continue;
		}
		size_t at = program->count;
		atom_parse(parser);
		repetitions_parse(parser, at);
	}
	alternatives_end(program, &alternatives);
}

int regex_parse(const char *text, size_t size, struct program *program)
{
	struct parser parser = {.program = program, .text = text, .size = size};
	alternatives_parse(&parser);
	program_add(program, STEP_MATCH, 0, 0);
	return program->error;
}
