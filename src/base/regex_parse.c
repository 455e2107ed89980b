/* From a regular expression's text to its program. Called by regex_compile(); allocates, never
 * blocks. The text is hostile: program, ranges, repetitions and the groups' depth have a maximum.
 */
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

static void refuse(struct parser *parser, const char *reason)
{
	if (parser->error == 0) {
		parser->error = -EINVAL;
		parser->reason = reason;
	}
}

/* Room for `more` steps. */
static bool reserve(struct parser *parser, size_t more)
{
	struct regex_program *program = parser->program;
	if (parser->error == 0 && more > PROGRAM_MAX - program->count)
		refuse(parser, "it is too large, with its repetitions written out");
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

static void emit(struct parser *parser, enum step_kind kind, int32_t value, int32_t extra)
{
	if (reserve(parser, 1))
		parser->program->steps[parser->program->count++] =
		    (struct step){.kind = (uint8_t)kind, .value = value, .extra = extra};
}

/* A split before what was emitted since `at`: into it, or `extra` steps on. */
static void insert_split(struct parser *parser, size_t at, int32_t extra)
{
	struct regex_program *program = parser->program;
	if (!reserve(parser, 1))
		return;
	memmove(program->steps + at + 1, program->steps + at,
		(program->count - at) * sizeof(*program->steps));
	program->steps[at] = (struct step){.kind = STEP_SPLIT, .value = 1, .extra = extra};
	program->count++;
}

static void add_range(struct parser *parser, uint32_t low, uint32_t high)
{
	struct regex_program *program = parser->program;
	if (parser->error)
		return;
	if (low > high || program->range_count == RANGES_MAX) {
		refuse(parser, low > high ? "a range in brackets runs backwards"
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

/* The characters of a class of ASCII, as pairs of first and last; letter is \d, \w, \s. */
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

static void add_pairs(struct parser *parser, const char *pairs)
{
	for (; *pairs; pairs += 2)
		add_range(parser, (unsigned char)pairs[0], (unsigned char)pairs[1]);
}

/* All that a class does not hold: within brackets it cannot be a negated set of its own. */
static void add_complement(struct parser *parser, const char *pairs)
{
	uint32_t from = 1;
	for (uint32_t value = 1; value <= 0x80; value++) {
		bool holds = value == 0x80;
		for (const char *pair = pairs; *pair; pair += 2)
			holds |= value >= (unsigned char)pair[0] && value <= (unsigned char)pair[1];
		if (!holds)
			continue;
		if (from < value)
			add_range(parser, from, value - 1);
		from = value + 1;
	}
	add_range(parser, 0x80, CHARACTER_LAST);
}

/* \d and the like: adds its ranges and returns true. */
static bool add_letter_class(struct parser *parser, char letter)
{
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (classes[i].letter == 0)
			continue;
		if (letter == classes[i].letter) {
			add_pairs(parser, classes[i].pairs);
			return true;
		}
		if (letter == classes[i].letter - ('a' - 'A')) {
			add_complement(parser, classes[i].pairs);
			return true;
		}
	}
	return false;
}

static uint32_t next_character(struct parser *parser)
{
	size_t length;
	uint32_t value =
	    pattern_character(parser->text + parser->at, parser->size - parser->at, &length);
	parser->at += length;
	return value;
}

static int hex_digit(char digit)
{
	return digit >= '0' && digit <= '9'   ? digit - '0'
	       : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
	       : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
					      : -1;
}

/* The character that an escape stands for; the parser is behind the backslash. */
static uint32_t escaped_character(struct parser *parser)
{
	static const char letters[] = "ntrfve", values[] = "\n\t\r\f\v\033";
	if (parser->at == parser->size) {
		refuse(parser, "it ends with a backslash");
		return 0;
	}
	char letter = parser->text[parser->at];
	const char *known = strchr(letters, letter);
	if (known) {
		parser->at++;
		return (unsigned char)values[known - letters];
	}
	if (letter == 'x' && parser->size - parser->at > 2) {
		int high = hex_digit(parser->text[parser->at + 1]);
		int low = hex_digit(parser->text[parser->at + 2]);
		if (high >= 0 && low >= 0) {
			parser->at += 3;
			return (uint32_t)(16 * high + low);
		}
	}
	if (letter >= '1' && letter <= '9')
		refuse(parser, "back-references are not supported");
	else if (hex_digit(letter) >= 0 || (letter >= 'a' && letter <= 'z') ||
		 (letter >= 'A' && letter <= 'Z'))
		refuse(parser, "it has an escape that means nothing here");
	return next_character(parser);
}

/* [:name:] inside brackets. */
static bool parse_named_class(struct parser *parser)
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
			add_pairs(parser, classes[i].pairs);
			parser->at += size + 4;
			return true;
		}
	}
	refuse(parser, "it names a class of characters that there is not");
	return true;
}

static uint32_t set_character(struct parser *parser)
{
	if (parser->text[parser->at] != '\\')
		return next_character(parser);
	parser->at++;
	return escaped_character(parser);
}

static void parse_set_item(struct parser *parser)
{
	if (parse_named_class(parser))
		return;
	const char *here = parser->text + parser->at;
	size_t left = parser->size - parser->at;
	if (here[0] == '\\' && left > 1 && add_letter_class(parser, here[1])) {
		parser->at += 2;
		return;
	}
	uint32_t low = set_character(parser), high = low;
	left = parser->size - parser->at;
	here = parser->text + parser->at;
	if (parser->error == 0 && left > 1 && here[0] == '-' && here[1] != ']') {
		parser->at++;
		high = set_character(parser);
	}
	add_range(parser, low, high);
}

static void emit_set(struct parser *parser, size_t first, bool negated)
{
	struct regex_program *program = parser->program;
	emit(parser, STEP_SET, (int32_t)first, (int32_t)(program->range_count - first));
	if (parser->error == 0)
		program->steps[program->count - 1].negated = negated;
}

/* The parser is behind the '['. */
static void parse_set(struct parser *parser)
{
	size_t first_range = parser->program->range_count;
	bool negated = parser->at < parser->size && parser->text[parser->at] == '^';
	parser->at += negated;
	for (bool first = true; parser->error == 0; first = false) {
		if (parser->at == parser->size) {
			refuse(parser, "a '[' has no ']'");
			return;
		}
		if (parser->text[parser->at] == ']' && !first)
			break;
		parse_set_item(parser);
	}
	parser->at++;
	emit_set(parser, first_range, negated);
}

/* The parser is behind the backslash. */
static void parse_escape(struct parser *parser)
{
	static const char edges[] = "bB<>";
	size_t first_range = parser->program->range_count;
	char letter = parser->at < parser->size ? parser->text[parser->at] : '\0';
	const char *edge = letter ? strchr(edges, letter) : NULL;
	if (edge) {
		parser->at++;
		emit(parser, STEP_WORD_EDGE, 0, (int32_t)(edge - edges));
	} else if (letter && add_letter_class(parser, letter)) {
		parser->at++;
		emit_set(parser, first_range, false);
	} else {
		emit(parser, STEP_CHARACTER, (int32_t)escaped_character(parser), 0);
	}
}

/* {n}, {n,}, {n,m}: true when there is one here; then the parser is behind it. */
static bool parse_bounds(struct parser *parser, uint32_t *ret_least, uint32_t *ret_most)
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
				refuse(parser, "it repeats something more than 1000 times");
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
		refuse(parser, "a repetition's bounds run backwards");
	parser->at = at + 1;
	return true;
}

static void append_copy(struct parser *parser, const struct step *piece, size_t size)
{
	if (!reserve(parser, size))
		return;
	memcpy(parser->program->steps + parser->program->count, piece, size * sizeof(*piece));
	parser->program->count += size;
}

/* The piece since `at`, least to most times. */
static void repeat(struct parser *parser, size_t at, uint32_t least, uint32_t most)
{
	struct regex_program *program = parser->program;
	size_t size = program->count - at;
	/* Nothing, however often, is nothing. */
	if (size == 0)
		return;
	if (most == REPEAT_OPEN && least == 0) {
		insert_split(parser, at, (int32_t)size + 2);
		emit(parser, STEP_JUMP, -(int32_t)size - 1, 0);
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
		append_copy(parser, piece, size);
	if (most == REPEAT_OPEN) {
		emit(parser, STEP_SPLIT, -(int32_t)size, 1);
	} else {
		/* Each further one may be the last: it leaves to behind them all. */
		for (uint32_t left = most - least; left > 0 && parser->error == 0; left--) {
			emit(parser, STEP_SPLIT, 1, (int32_t)(left * (size + 1)));
			append_copy(parser, piece, size);
		}
	}
	free(piece);
}

static void parse_repetitions(struct parser *parser, size_t at)
{
	while (parser->at < parser->size && parser->error == 0) {
		uint32_t least = 0, most = REPEAT_OPEN;
		char sign = parser->text[parser->at];
		if (sign == '*' || sign == '+' || sign == '?') {
			least = sign == '+';
			most = sign == '?' ? 1 : REPEAT_OPEN;
			parser->at++;
		} else if (sign != '{' || !parse_bounds(parser, &least, &most)) {
			return;
		}
		if (parser->at < parser->size && parser->text[parser->at] == '?')
			parser->at++;
		if (parser->error == 0)
			repeat(parser, at, least, most);
	}
}

static void parse_alternatives(struct parser *parser);

/* The parser is behind the '('. */
static void parse_group(struct parser *parser)
{
	size_t left = parser->size - parser->at;
	const char *here = parser->text + parser->at;
	if (left > 1 && here[0] == '?' && here[1] == ':')
		parser->at += 2;
	else if (left > 0 && here[0] == '?')
		refuse(parser, "look-around and flags in a group are not supported");
	if (++parser->depth > DEPTH_MAX)
		refuse(parser, "its groups are nested too deeply");
	if (parser->error)
		return;
	parse_alternatives(parser);
	parser->depth--;
	if (parser->at == parser->size)
		refuse(parser, "a '(' has no ')'");
	parser->at++;
}

static void parse_atom(struct parser *parser)
{
	char sign = parser->text[parser->at];
	size_t first_range = parser->program->range_count;
	switch (sign) {
	case '(':
		parser->at++;
		parse_group(parser);
		return;
	case '[':
		parser->at++;
		parse_set(parser);
		return;
	case '\\':
		parser->at++;
		parse_escape(parser);
		return;
	case '.':
		parser->at++;
		emit_set(parser, first_range, true);
		return;
	case '^':
	case '$':
		parser->at++;
		emit(parser, sign == '^' ? STEP_LINE_START : STEP_LINE_END, 0, 0);
		return;
	case '*':
	case '+':
	case '?':
		refuse(parser, "a repetition has nothing before it");
		return;
	default:
		emit(parser, STEP_CHARACTER, (int32_t)next_character(parser), 0);
	}
}

/* One alternative after the other; each but the last is entered by a split and left by a jump
 * behind them all. */
static void parse_alternatives(struct parser *parser)
{
	struct regex_program *program = parser->program;
	int32_t jumps = -1; /* a chain through the jumps' values */
	size_t start = program->count;
	while (parser->error == 0) {
		char sign = parser->at < parser->size ? parser->text[parser->at] : '\0';
		bool end = parser->at == parser->size || (sign == ')' && parser->depth > 0);
		if (end)
			break;
		if (sign == '|') {
			parser->at++;
			insert_split(parser, start, (int32_t)(program->count - start) + 2);
			emit(parser, STEP_JUMP, jumps, 0);
			jumps = (int32_t)program->count - 1;
			start = program->count;
			continue;
		}
		size_t at = program->count;
		parse_atom(parser);
		parse_repetitions(parser, at);
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
	parse_alternatives(&parser);
	emit(&parser, STEP_MATCH, 0, 0);
	if (parser.error)
		*ret_reason = parser.reason;
	return parser.error;
}
