/* Builds the program of a pattern. Called by glob_parse.c and regex_parse.c; allocates, never
 * blocks. Patterns are hostile: steps and ranges are bounded. */
#include "base/pattern/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Enough for every glob of GLOB_MAX bytes, of which each takes at most three: "*," makes six. */
#define PROGRAM_MAX 16384
#define RANGES_MAX 16384
#define BYTE_BASE 0x110000u

uint32_t character_read(const char *text, size_t size, size_t *ret_size)
{
	const unsigned char *byte = (const unsigned char *)text;
	size_t length = byte[0] < 0x80             ? 1
			: (byte[0] & 0xe0) == 0xc0 ? 2
			: (byte[0] & 0xf0) == 0xe0 ? 3
			: (byte[0] & 0xf8) == 0xf0 ? 4
						   : 0;
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t value = length > 1 ? byte[0] & (0x7fu >> length) : byte[0];
	bool good = length > 0 && length <= size;
	for (size_t i = 1; good && i < length; i++) {
		good = (byte[i] & 0xc0) == 0x80;
		value = value << 6 | (byte[i] & 0x3fu);
	}
	if (!good || value < least[length] || value >= BYTE_BASE) {
		*ret_size = 1;
		return BYTE_BASE + byte[0];
	}
	*ret_size = length;
	return value;
}

uint32_t parser_next_character(struct parser *parser)
{
	size_t length;
	uint32_t value =
	    character_read(parser->text + parser->at, parser->size - parser->at, &length);
	parser->at += length;
	return value;
}

const char *class_find(const char *name, size_t size)
{
	static const struct {
		const char *name, *pairs;
	} classes[] = {
	    {"digit", "09"},      {"space", "\t\r  "},   {"alpha", "azAZ"},
	    {"alnum", "azAZ09"},  {"lower", "az"},       {"upper", "AZ"},
	    {"blank", "\t\t  "},  {"punct", "!/:@[`{~"}, {"graph", "!~"},
	    {"xdigit", "09afAF"}, {"print", " ~"},       {"cntrl", "\001\037\177\177"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (strlen(classes[i].name) == size && memcmp(classes[i].name, name, size) == 0)
			return classes[i].pairs;
	}
	return NULL;
}

size_t class_text_size(const char *text, size_t size)
{
	if (size < 4 || text[0] != '[' || text[1] != ':')
		return 0;
	const char *end = memmem(text + 2, size - 2, ":]", 2);
	return end ? (size_t)(end - text) + 2 : 0;
}

void program_fail(struct program *program, const char *reason)
{
	if (program->error == 0) {
		program->error = -EINVAL;
		program->reason = reason;
	}
}

/* Reserves room for `more` steps. */
static bool program_reserve(struct program *program, size_t more)
{
	if (program->error == 0 && more > PROGRAM_MAX - program->count)
		program_fail(program, "it is too large, with its repetitions written out");
	if (program->error)
		return false;
	if (program->count + more > program->room) {
		size_t room =
		    MIN(MAX(program->count + more, 2 * program->room), (size_t)PROGRAM_MAX);
		void *steps = realloc(program->steps, room * sizeof(*program->steps));
		if (!steps) {
			program->error = -ENOMEM;
			return false;
		}
		program->steps = steps;
		program->room = room;
	}
	return true;
}

void program_add(struct program *program, enum step_kind kind, int32_t value, int32_t extra)
{
	if (program_reserve(program, 1))
		program->steps[program->count++] =
		    (struct step){.kind = (uint8_t)kind, .value = value, .extra = extra};
}

void program_add_range(struct program *program, uint32_t low, uint32_t high)
{
	if (program->error)
		return;
	if (program->range_count == RANGES_MAX) {
		program_fail(program, "it has too many ranges in brackets");
		return;
	}
	if (program->range_count == program->range_room) {
		size_t room = MAX(32, 2 * program->range_room);
		void *ranges = realloc(program->ranges, room * sizeof(*program->ranges));
		if (!ranges) {
			program->error = -ENOMEM;
			return;
		}
		program->ranges = ranges;
		program->range_room = room;
	}
	program->ranges[program->range_count++] = (struct range){low, high};
}

void program_add_pairs(struct program *program, const char *pairs)
{
	for (; *pairs; pairs += 2)
		program_add_range(program, (unsigned char)pairs[0], (unsigned char)pairs[1]);
}

void program_add_set(struct program *program, size_t first_range, bool negated)
{
	program_add(program, STEP_SET, (int32_t)first_range,
		    (int32_t)(program->range_count - first_range));
	if (program->error == 0)
		program->steps[program->count - 1].negated = negated;
}

/* Inserts a split before the steps since `at`: into them, or `extra` steps on. */
static void split_insert(struct program *program, size_t at, int32_t extra)
{
	if (!program_reserve(program, 1))
		return;
	memmove(program->steps + at + 1, program->steps + at,
		(program->count - at) * sizeof(*program->steps));
	program->steps[at] = (struct step){.kind = STEP_SPLIT, .value = 1, .extra = extra};
	program->count++;
}

struct alternatives alternatives_begin(const struct program *program)
{
	return (struct alternatives){.start = program->count, .jumps = -1};
}

/* Each but the last is entered by a split and left by a jump behind them all. */
void alternatives_next(struct program *program, struct alternatives *alternatives)
{
	size_t start = alternatives->start;
	split_insert(program, start, (int32_t)(program->count - start) + 2);
	program_add(program, STEP_JUMP, alternatives->jumps, 0);
	alternatives->jumps = (int32_t)program->count - 1;
	alternatives->start = program->count;
}

void alternatives_end(struct program *program, const struct alternatives *alternatives)
{
	int32_t jumps = alternatives->jumps;
	while (jumps >= 0 && program->error == 0) {
		int32_t before = program->steps[jumps].value;
		program->steps[jumps].value = (int32_t)program->count - jumps;
		jumps = before;
	}
}

/* Adds a copy of the steps at `at`. */
static void program_copy(struct program *program, size_t at, size_t size)
{
	if (!program_reserve(program, size))
		return;
	memcpy(program->steps + program->count, program->steps + at,
	       size * sizeof(*program->steps));
	program->count += size;
}

void program_repeat(struct program *program, size_t at, uint32_t least, uint32_t most)
{
	size_t size = program->count - at;
	/* Repeating nothing is nothing. */
	if (size == 0 || most == 0) {
		program->count = at;
		return;
	}
	for (uint32_t i = 1; i < least && program->error == 0; i++)
		program_copy(program, at, size);
	if (most == REPEAT_OPEN) {
		program_add(program, STEP_SPLIT, -(int32_t)size, 1);
	} else {
		/* Each optional copy may be the last: its split leads behind them all. */
		for (uint32_t left = most - MAX(least, 1u); left > 0 && program->error == 0;
		     left--) {
			program_add(program, STEP_SPLIT, 1, (int32_t)(left * (size + 1)));
			program_copy(program, at, size);
		}
	}
	if (least == 0)
		split_insert(program, at, (int32_t)(program->count - at) + 1);
}
