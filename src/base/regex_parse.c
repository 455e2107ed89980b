/* Compiles the text of a regular expression to a program. Called by regex_compile(); allocates,
 * never blocks. The text is hostile: program, ranges, repetitions and the depth of groups are
 * bounded. */
#include "base/regex_program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"

#define PROGRAM_MAX 16384
#define RANGES_MAX 16384
#define DEPTH_MAX 200
#define REPEAT_MAX 1000
#define REPEAT_OPEN UINT32_MAX
#define CHARACTER_LAST 0x1fffffu

struct parser {
	struct regex_program *program;
	const char *text;
	size_t size, at;
	int depth;
	int error; /* -errno */
	const char *reason;
};

static void parser_fail(struct parser *parser, const char *reason)
{
	if (parser->error == 0) {
		parser->error = -EINVAL;
		parser->reason = reason;
	}
}

/* Reserves room for `more` steps. */
static bool program_reserve(struct parser *parser, size_t more)
{
	struct regex_program *program = parser->program;
	if (parser->error == 0 && more > PROGRAM_MAX - program->count)
		parser_fail(parser, "it is too large, with its repetitions written out");
	if (parser->error)
		return false;
	if (program->count + more > program->room) {
		size_t room =
		    MIN(MAX(program->count + more, 2 * program->room), (size_t)PROGRAM_MAX);
		void *steps = realloc(program->steps, room * sizeof(*program->steps));
		if (!steps) {
			parser->error = -ENOMEM;
			return false;
		}
		program->steps = steps;
		program->room = room;
	}
	return true;
}

static void step_emit(struct parser *parser, enum step_kind kind, int32_t value, int32_t extra)
{
	if (program_reserve(parser, 1))
		parser->program->steps[parser->program->count++] =
		    (struct step){.kind = (uint8_t)kind, .value = value, .extra = extra};
}

/* Inserts a split before the steps since `at`: into them, or `extra` steps on. */
static void split_insert(struct parser *parser, size_t at, int32_t extra)
{
	struct regex_program *program = parser->program;
	if (!program_reserve(parser, 1))
		return;
	memmove(program->steps + at + 1, program->steps + at,
		(program->count - at) * sizeof(*program->steps));
	program->steps[at] = (struct step){.kind = STEP_SPLIT, .value = 1, .extra = extra};
	program->count++;
}

static void range_add(struct parser *parser, uint32_t low, uint32_t high)
{
	struct regex_program *program = parser->program;
	if (parser->error)
		return;
	if (low > high || program->range_count == RANGES_MAX) {
		parser_fail(parser, low > high ? "a range in brackets runs backwards"
					       : "it has too many ranges in brackets");
		return;
	}
	if (program->range_count == program->range_room) {
		size_t room = MAX(32, 2 * program->range_room);
		void *ranges = realloc(program->ranges, room * sizeof(*program->ranges));
		if (!ranges) {
			parser->error = -ENOMEM;
			return;
		}
		program->ranges = ranges;
		program->range_room = room;
	}
	program->ranges[program->range_count++] = (struct range){low, high};
}

/* ASCII classes as pairs of first and last character; letter is \d, \w, \s. */
static const struct {
	const char *name;
	char letter;
	const char *pairs;
} classes[] = {
    {"digit", 'd', "09"},
    {"word", 'w', "azAZ09__"},
    {"space", 's', "\t\t\v\r  "},
    {"alpha", 0, "azAZ"},
    {"alnum", 0, "azAZ09"},
    {"lower", 0, "az"},
    {"upper", 0, "AZ"},
    {"blank", 0, "\t\t  "},
    {"punct", 0, "!/:@[`{~"},
    {"xdigit", 0, "09afAF"},
    {"graph", 0, "!~"},
    {"print", 0, " ~"},
    {"cntrl", 0, "\001\037\177\177"},
};

static void class_add(struct parser *parser, const char *pairs)
{
	for (; *pairs; pairs += 2)
		range_add(parser, (unsigned char)pairs[0], (unsigned char)pairs[1]);
}

/* Adds everything outside a class: within brackets it cannot be a negated set of its own. */
static void class_add_complement(struct parser *parser, const char *pairs)
{
	uint32_t from = 1;
	for (uint32_t value = 1; value <= 0x80; value++) {
		bool holds = value == 0x80;
		for (const char *pair = pairs; *pair; pair += 2)
			holds |= value >= (unsigned char)pair[0] && value <= (unsigned char)pair[1];
		if (!holds)
			continue;
		if (from < value)
			range_add(parser, from, value - 1);
		from = value + 1;
	}
	range_add(parser, 0x80, CHARACTER_LAST);
}

/* Adds the ranges of \d and the like; false: not such a letter. */
static bool letter_class_add(struct parser *parser, char letter)
{
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (classes[i].letter == 0)
			continue;
		if (letter == classes[i].letter) {
			class_add(parser, classes[i].pairs);
			return true;
		}
		if (letter == classes[i].letter - ('a' - 'A')) {
			class_add_complement(parser, classes[i].pairs);
			return true;
		}
	}
	return false;
}

static uint32_t parser_next_character(struct parser *parser)
{
	size_t length;
	uint32_t value =
	    pattern_character(parser->text + parser->at, parser->size - parser->at, &length);
	parser->at += length;
	return value;
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
	size_t left = parser->size - parser->at;
	if (left < 4 || here[0] != '[' || here[1] != ':')
		return false;
	const char *end = memmem(here + 2, left - 2, ":]", 2);
	if (!end)
		return false;
	size_t size = (size_t)(end - here) - 2;
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (strlen(classes[i].name) == size &&
		    memcmp(classes[i].name, here + 2, size) == 0) {
			class_add(parser, classes[i].pairs);
			parser->at += size + 4;
			return true;
		}
	}
	parser_fail(parser, "it names a class of characters that there is not");
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
	if (parser->error == 0 && left > 1 && here[0] == '-' && here[1] != ']') {
		parser->at++;
		high = set_read_character(parser);
	}
	range_add(parser, low, high);
}

static void set_emit(struct parser *parser, size_t first, bool negated)
{
	struct regex_program *program = parser->program;
	step_emit(parser, STEP_SET, (int32_t)first, (int32_t)(program->range_count - first));
	if (parser->error == 0)
		program->steps[program->count - 1].negated = negated;
}

/* The '[' is already consumed. */
static void set_parse(struct parser *parser)
{
	size_t first_range = parser->program->range_count;
	bool negated = parser->at < parser->size && parser->text[parser->at] == '^';
	parser->at += negated;
	for (bool first = true; parser->error == 0; first = false) {
		if (parser->at == parser->size) {
			parser_fail(parser, "a '[' has no ']'");
			return;
		}
		if (parser->text[parser->at] == ']' && !first)
			break;
		set_item_parse(parser);
	}
	parser->at++;
	set_emit(parser, first_range, negated);
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
		step_emit(parser, STEP_WORD_EDGE, 0, (int32_t)(edge - edges));
	} else if (letter && letter_class_add(parser, letter)) {
		parser->at++;
		set_emit(parser, first_range, false);
	} else {
		step_emit(parser, STEP_CHARACTER, (int32_t)escape_read_character(parser), 0);
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

static void program_append(struct parser *parser, const struct step *piece, size_t size)
{
	if (!program_reserve(parser, size))
		return;
	memcpy(parser->program->steps + parser->program->count, piece, size * sizeof(*piece));
	parser->program->count += size;
}

/* Repeats the steps since `at`, least to most times. */
static void program_repeat(struct parser *parser, size_t at, uint32_t least, uint32_t most)
{
	struct regex_program *program = parser->program;
	size_t size = program->count - at;
	/* Repeating nothing is nothing. */
	if (size == 0)
		return;
	if (most == REPEAT_OPEN && least == 0) {
		split_insert(parser, at, (int32_t)size + 2);
		step_emit(parser, STEP_JUMP, -(int32_t)size - 1, 0);
		return;
	}
	struct step *piece = malloc(size * sizeof(*piece));
	if (!piece) {
		parser->error = -ENOMEM;
		return;
	}
	memcpy(piece, program->steps + at, size * sizeof(*piece));
	program->count = at;
	for (uint32_t i = 0; i < least && parser->error == 0; i++)
		program_append(parser, piece, size);
	if (most == REPEAT_OPEN) {
		step_emit(parser, STEP_SPLIT, -(int32_t)size, 1);
	} else {
		/* Each optional copy may be the last: its split leads behind them all. */
		for (uint32_t left = most - least; left > 0 && parser->error == 0; left--) {
			step_emit(parser, STEP_SPLIT, 1, (int32_t)(left * (size + 1)));
			program_append(parser, piece, size);
		}
	}
	free(piece);
}

static void repetitions_parse(struct parser *parser, size_t at)
{
	while (parser->at < parser->size && parser->error == 0) {
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
		if (parser->error == 0)
			program_repeat(parser, at, least, most);
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
	if (parser->error)
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
		set_emit(parser, first_range, true);
		return;
	case '^':
	case '$':
		parser->at++;
		step_emit(parser, sign == '^' ? STEP_LINE_START : STEP_LINE_END, 0, 0);
		return;
	case '*':
	case '+':
	case '?':
		parser_fail(parser, "a repetition has nothing before it");
		return;
	default:
		step_emit(parser, STEP_CHARACTER, (int32_t)parser_next_character(parser), 0);
	}
}

/* Parses alternatives. Each but the last is entered by a split and left by a jump behind them
 * all. */
static void alternatives_parse(struct parser *parser)
{
	struct regex_program *program = parser->program;
	int32_t jumps = -1; /* a list of jumps, linked by their values */
	size_t start = program->count;
	while (parser->error == 0) {
		char sign = parser->at < parser->size ? parser->text[parser->at] : '\0';
		bool end = parser->at == parser->size || (sign == ')' && parser->depth > 0);
		if (end)
			break;
		if (sign == '|') {
			parser->at++;
			split_insert(parser, start, (int32_t)(program->count - start) + 2);
			step_emit(parser, STEP_JUMP, jumps, 0);
			jumps = (int32_t)program->count - 1;
			start = program->count;
			continue;
		}
		size_t at = program->count;
		atom_parse(parser);
		repetitions_parse(parser, at);
	}
	while (jumps >= 0 && parser->error == 0) {
		int32_t before = program->steps[jumps].value;
		program->steps[jumps].value = (int32_t)program->count - jumps;
		jumps = before;
	}
}

int regex_parse(const char *text, size_t size, struct regex_program *program,
		const char **ret_reason)
{
	struct parser parser = {.program = program, .text = text, .size = size};
	alternatives_parse(&parser);
	step_emit(&parser, STEP_MATCH, 0, 0);
	if (parser.error)
		*ret_reason = parser.reason;
	return parser.error;
}
