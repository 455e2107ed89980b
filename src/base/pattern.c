/* The glob matcher. Called by glob and grep; allocates, never blocks. Input is hostile: the
 * program is bounded by the pattern's length, and matching simulates all branches at once (no
 * backtracking). */
#include "base/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The maximum of steps for one character of a pattern ("**" makes five of two, a group's comma
 * two, a group itself one more). */
#define STEPS_PER_CHARACTER 4
#define STEPS_MAX (STEPS_PER_CHARACTER * PATTERN_MAX + 8)
#define DEPTH_MAX 64
#define BYTE_BASE 0x110000u

enum step_kind {
	STEP_CHARACTER, /* value */
	STEP_ANY,
	STEP_SET,     /* value: index of its text in the pattern, extra: its size */
	STEP_STAR,    /* stays, or continues without a character */
	STEP_SPLIT,   /* continues at value and at extra */
	STEP_JUMP,    /* continues at value */
	STEP_RECURSE, /* a jump back to the start of "**" */
	STEP_MATCH,
};

struct step {
	uint8_t kind;
	uint32_t value, extra;
};

struct pattern {
	char *text;
	size_t size;
	bool hidden, wants_directory, has_slash;
	struct step *steps;
	size_t count;
	/* Scratch memory of a match: the branches before and after a character, and the round in
	 * which a step was last added, so that each is added once. */
	uint16_t *now, *next, *stack;
	uint32_t *marks;
	uint32_t round;
};

struct compiler {
	struct pattern *pattern;
	const char *text;
	size_t size, at;
	int depth;
	bool full;
};

uint32_t pattern_character(const char *text, size_t size, size_t *ret_size)
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

static size_t step_emit(struct compiler *compiler, enum step_kind kind, uint32_t value,
			uint32_t extra)
{
	struct pattern *pattern = compiler->pattern;
	if (pattern->count == STEPS_PER_CHARACTER * compiler->size + 8) {
		compiler->full = true;
		return 0;
	}
	pattern->steps[pattern->count] =
	    (struct step){.kind = (uint8_t)kind, .value = value, .extra = extra};
	return pattern->count++;
}

/* The size of the set that starts at this '[', or 0 without an end (then '[' is a literal). */
static size_t set_text_size(const char *text, size_t size)
{
	size_t at = 1;
	if (at < size && (text[at] == '!' || text[at] == '^'))
		at++;
	for (bool first = true; at < size; first = false, at++) {
		if (text[at] == ']' && !first)
			return at + 1;
		if (text[at] == '\\' && at + 1 < size) {
			at++;
		} else if (text[at] == '[' && at + 1 < size && text[at + 1] == ':') {
			const char *end = memmem(text + at + 2, size - at - 2, ":]", 2);
			if (end)
				at = (size_t)(end - text) + 1;
		}
	}
	return 0;
}

/* The index of the '}' that ends the group at this '{', if it is one: balanced, with a comma of
 * its own; else 0. */
static size_t group_text_end(const char *text, size_t size)
{
	int depth = 0;
	bool comma = false;
	for (size_t at = 0; at < size; at++) {
		if (text[at] == '\\') {
			at++;
		} else if (text[at] == '[') {
			size_t set = set_text_size(text + at, size - at);
			at += set > 0 ? set - 1 : 0;
		} else if (text[at] == '{') {
			depth++;
		} else if (text[at] == ',' && depth == 1) {
			comma = true;
		} else if (text[at] == '}' && --depth == 0) {
			return comma ? at : 0;
		}
	}
	return 0;
}

static bool compiler_at_component_start(const struct compiler *compiler, bool in_group)
{
	if (compiler->at == 0)
		return true;
	char before = compiler->text[compiler->at - 1];
	return before == '/' || (in_group && (before == '{' || before == ','));
}

/* "**" before a slash matches any number of components with their slashes; otherwise at least
 * one component and everything below it. */
static void recursion_compile(struct compiler *compiler, bool slash)
{
	size_t start = compiler->pattern->count;
	if (slash) {
		step_emit(compiler, STEP_SPLIT, (uint32_t)start + 1, (uint32_t)start + 5);
		step_emit(compiler, STEP_ANY, 0, 0);
		step_emit(compiler, STEP_STAR, 0, 0);
		step_emit(compiler, STEP_CHARACTER, '/', 0);
		step_emit(compiler, STEP_RECURSE, (uint32_t)start, 0);
		return;
	}
	step_emit(compiler, STEP_ANY, 0, 0);
	step_emit(compiler, STEP_STAR, 0, 0);
	step_emit(compiler, STEP_SPLIT, (uint32_t)start + 3, (uint32_t)start + 5);
	step_emit(compiler, STEP_CHARACTER, '/', 0);
	step_emit(compiler, STEP_RECURSE, (uint32_t)start, 0);
}

static void stars_compile(struct compiler *compiler, bool in_group)
{
	bool start = compiler_at_component_start(compiler, in_group);
	size_t stars = 0;
	while (compiler->at < compiler->size && compiler->text[compiler->at] == '*') {
		compiler->at++;
		stars++;
	}
	char after = compiler->at < compiler->size ? compiler->text[compiler->at] : '\0';
	bool end = compiler->at == compiler->size || after == '/' ||
		   (in_group && (after == ',' || after == '}'));
	if (stars != 2 || !start || !end) {
		step_emit(compiler, STEP_STAR, 0, 0);
		return;
	}
	recursion_compile(compiler, after == '/');
	if (after == '/')
		compiler->at++;
}

static void sequence_compile(struct compiler *compiler, size_t end, bool in_group);

/* {a,b,c}: each branch but the last begins with a split, and ends with a jump behind the group. */
static void group_compile(struct compiler *compiler, size_t end)
{
	struct pattern *pattern = compiler->pattern;
	uint32_t jumps = UINT32_MAX; /* a list of jumps, linked by their values, which are set at
				      * the end */
	compiler->at++;
	compiler->depth++;
	for (;;) {
		size_t split = step_emit(compiler, STEP_SPLIT, 0, 0);
		sequence_compile(compiler, end, true);
		bool last = compiler->at >= end;
		compiler->at++;
		if (compiler->full)
			return;
		pattern->steps[split].value = (uint32_t)split + 1;
		if (last) {
			pattern->steps[split].extra = (uint32_t)split + 1;
			break;
		}
		jumps = (uint32_t)step_emit(compiler, STEP_JUMP, jumps, 0);
		pattern->steps[split].extra = (uint32_t)pattern->count;
	}
	while (jumps != UINT32_MAX && !compiler->full) {
		uint32_t before = pattern->steps[jumps].value;
		pattern->steps[jumps].value = (uint32_t)pattern->count;
		jumps = before;
	}
	compiler->depth--;
}

static void literal_compile(struct compiler *compiler)
{
	size_t length;
	uint32_t value = pattern_character(compiler->text + compiler->at,
					   compiler->size - compiler->at, &length);
	step_emit(compiler, STEP_CHARACTER, value, 0);
	compiler->at += length;
}

/* Compiles up to `end`, or in a group up to a comma of its own. */
static void sequence_compile(struct compiler *compiler, size_t end, bool in_group)
{
	while (compiler->at < end && !compiler->full) {
		const char *here = compiler->text + compiler->at;
		size_t left = compiler->size - compiler->at, size;
		switch (*here) {
		case '*':
			stars_compile(compiler, in_group);
			continue;
		case '?':
			step_emit(compiler, STEP_ANY, 0, 0);
			compiler->at++;
			continue;
		case '[':
			size = set_text_size(here, left);
			if (size == 0)
				break;
			step_emit(compiler, STEP_SET, (uint32_t)compiler->at, (uint32_t)size);
			compiler->at += size;
			continue;
		case '{':
			size = compiler->depth < DEPTH_MAX ? group_text_end(here, left) : 0;
			if (size == 0)
				break;
			group_compile(compiler, compiler->at + size);
			continue;
		case ',':
			if (in_group)
				return;
			break;
		case '\\':
			compiler->at += left > 1;
			break;
		default:
			break;
		}
		literal_compile(compiler);
	}
}

int pattern_compile(const char *text, size_t size, bool hidden, struct pattern **ret_pattern)
{
	if (size == 0 || memchr(text, '\0', size))
		return -EINVAL;
	if (size > PATTERN_MAX)
		return -E2BIG;
	struct pattern *pattern FREE_PATTERN = calloc(1, sizeof(*pattern));
	if (!pattern)
		return -ENOMEM;
	pattern->hidden = hidden;
	while (size > 1 && text[size - 1] == '/' && text[size - 2] != '\\') {
		pattern->wants_directory = true;
		size--;
	}
	pattern->has_slash = memchr(text, '/', size) != NULL;
	size_t room = STEPS_PER_CHARACTER * size + 8;
	pattern->text = malloc(size);
	pattern->steps = calloc(room, sizeof(*pattern->steps));
	pattern->now = calloc(room, sizeof(*pattern->now));
	pattern->next = calloc(room, sizeof(*pattern->next));
	/* A split pushes two entries; each step is popped once per round at most. */
	pattern->stack = calloc(2 * room, sizeof(*pattern->stack));
	pattern->marks = calloc(room, sizeof(*pattern->marks));
	if (!pattern->text || !pattern->steps || !pattern->now || !pattern->next ||
	    !pattern->stack || !pattern->marks)
		return -ENOMEM;
	memcpy(pattern->text, text, size);
	pattern->size = size;
	struct compiler compiler = {.pattern = pattern, .text = pattern->text, .size = size};
	sequence_compile(&compiler, size, false);
	step_emit(&compiler, STEP_MATCH, 0, 0);
	if (compiler.full)
		return -E2BIG;
	*ret_pattern = TAKE_PTR(pattern);
	return 0;
}

void pattern_free(struct pattern **pattern)
{
	struct pattern *gone = TAKE_PTR(*pattern);
	if (!gone)
		return;
	free(gone->text);
	free(gone->steps);
	free(gone->now);
	free(gone->next);
	free(gone->stack);
	free(gone->marks);
	free(gone);
}

bool pattern_wants_directory(const struct pattern *pattern)
{
	return pattern->wants_directory;
}

bool pattern_has_slash(const struct pattern *pattern)
{
	return pattern->has_slash;
}

size_t pattern_fixed_prefix(const char *text, size_t size)
{
	size_t fixed = 0;
	for (size_t at = 0; at < size && !strchr("*?[{\\", text[at]); at++) {
		if (text[at] == '/' && at + 1 < size)
			fixed = at + 1;
	}
	return fixed;
}

static bool class_contains(const char *name, size_t size, uint32_t value)
{
	bool lower = value >= 'a' && value <= 'z', upper = value >= 'A' && value <= 'Z';
	bool digit = value >= '0' && value <= '9';
	bool graph = value > ' ' && value < 0x7f;
	const struct {
		const char *name;
		bool holds;
	} classes[] = {
	    {"alpha", lower || upper},
	    {"digit", digit},
	    {"alnum", lower || upper || digit},
	    {"lower", lower},
	    {"upper", upper},
	    {"space", value == ' ' || (value >= '\t' && value <= '\r')},
	    {"blank", value == ' ' || value == '\t'},
	    {"punct", graph && !lower && !upper && !digit},
	    {"xdigit", digit || (value >= 'a' && value <= 'f') || (value >= 'A' && value <= 'F')},
	    {"graph", graph},
	    {"print", graph || value == ' '},
	    {"cntrl", value < ' ' || value == 0x7f},
	};
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (strlen(classes[i].name) == size && memcmp(classes[i].name, name, size) == 0)
			return classes[i].holds;
	}
	return false;
}

/* Reads one character of a set, which may be escaped. */
static uint32_t set_read_character(const char *text, size_t size, size_t *at)
{
	size_t length;
	if (text[*at] == '\\' && *at + 1 < size)
		(*at)++;
	uint32_t value = pattern_character(text + *at, size - *at, &length);
	*at += length;
	return value;
}

/* `text` is the set including its brackets. */
static bool set_contains(const char *text, size_t size, uint32_t value)
{
	size_t at = 1;
	bool holds = false, negated = text[1] == '!' || text[1] == '^';
	size--; /* the closing bracket */
	at += negated;
	while (at < size) {
		if (text[at] == '[' && at + 1 < size && text[at + 1] == ':') {
			const char *end = memmem(text + at + 2, size - at - 2, ":]", 2);
			if (end) {
				holds |= class_contains(text + at + 2,
							(size_t)(end - text) - at - 2, value);
				at = (size_t)(end - text) + 2;
				continue;
			}
		}
		uint32_t low = set_read_character(text, size, &at), high = low;
		if (at + 1 < size && text[at] == '-') {
			at++;
			high = set_read_character(text, size, &at);
		}
		holds |= value >= low && value <= high;
	}
	return holds != negated;
}

/* Adds a step and all that it reaches without a character. `leading_dot`: the next character is
 * a dot at the start of a component, which a star must not skip. */
static size_t branches_add(struct pattern *pattern, uint16_t *list, size_t count, uint16_t first,
			   bool leading_dot)
{
	size_t depth = 0;
	pattern->stack[depth++] = first;
	while (depth > 0) {
		uint16_t at = pattern->stack[--depth];
		if (pattern->marks[at] == pattern->round)
			continue;
		pattern->marks[at] = pattern->round;
		const struct step *step = &pattern->steps[at];
		switch ((enum step_kind)step->kind) {
		case STEP_SPLIT:
			pattern->stack[depth++] = (uint16_t)step->value;
			pattern->stack[depth++] = (uint16_t)step->extra;
			break;
		case STEP_JUMP:
		case STEP_RECURSE:
			pattern->stack[depth++] = (uint16_t)step->value;
			break;
		case STEP_STAR:
			list[count++] = at;
			if (!leading_dot)
				pattern->stack[depth++] = (uint16_t)(at + 1);
			break;
		case STEP_CHARACTER:
		case STEP_ANY:
		case STEP_SET:
		case STEP_MATCH:
			list[count++] = at;
			break;
		}
	}
	return count;
}

static void round_begin(struct pattern *pattern)
{
	if (++pattern->round == 0) {
		memset(pattern->marks, 0, pattern->count * sizeof(*pattern->marks));
		pattern->round = 1;
	}
}

/* Whether a step accepts the character; a star then stays where it is. */
static bool step_takes(const struct pattern *pattern, const struct step *step, uint32_t value,
		       bool leading_dot)
{
	switch ((enum step_kind)step->kind) {
	case STEP_CHARACTER:
		return step->value == value;
	case STEP_ANY:
	case STEP_STAR:
		return value != '/' && !leading_dot;
	case STEP_SET:
		return value != '/' && !leading_dot &&
		       set_contains(pattern->text + step->value, step->extra, value);
	case STEP_SPLIT:
	case STEP_JUMP:
	case STEP_RECURSE:
	case STEP_MATCH:
		return false;
	}
	return false;
}

/* Consumes one character: reads the branches in `now`, writes the new ones back to it. */
static size_t branches_advance(struct pattern *pattern, size_t count, uint32_t value, bool start)
{
	bool leading_dot = start && value == '.' && !pattern->hidden;
	round_begin(pattern);
	size_t closed = 0;
	for (size_t i = 0; i < count; i++)
		closed = branches_add(pattern, pattern->next, closed, pattern->now[i], leading_dot);
	round_begin(pattern);
	size_t after = 0;
	for (size_t i = 0; i < closed; i++) {
		uint16_t at = pattern->next[i];
		const struct step *step = &pattern->steps[at];
		if (!step_takes(pattern, step, value, leading_dot))
			continue;
		uint16_t to = step->kind == STEP_STAR ? at : (uint16_t)(at + 1);
		if (pattern->marks[to] != pattern->round) {
			pattern->marks[to] = pattern->round;
			pattern->now[after++] = to;
		}
	}
	return after;
}

int pattern_start(const struct pattern *pattern, struct pattern_state *ret_state)
{
	(void)pattern;
	uint16_t *alive = calloc(1, sizeof(*alive));
	if (!alive)
		return -ENOMEM;
	*ret_state = (struct pattern_state){.alive = alive, .count = 1, .component_start = true};
	return 0;
}

void pattern_state_done(struct pattern_state *state)
{
	free(state->alive);
	*state = (struct pattern_state){0};
}

int pattern_advance(struct pattern *pattern, const struct pattern_state *from, const char *text,
		    size_t size, struct pattern_state *ret_state)
{
	size_t count = from->count, at = 0;
	bool start = from->component_start;
	if (count > 0)
		memcpy(pattern->now, from->alive, count * sizeof(*from->alive));
	while (at < size && count > 0) {
		size_t length;
		uint32_t value = pattern_character(text + at, size - at, &length);
		count = branches_advance(pattern, count, value, start);
		start = value == '/';
		at += length;
	}
	uint16_t *alive = malloc(MAX(count, 1u) * sizeof(*alive));
	if (!alive)
		return -ENOMEM;
	if (count > 0)
		memcpy(alive, pattern->now, count * sizeof(*alive));
	*ret_state =
	    (struct pattern_state){.alive = alive, .count = count, .component_start = start};
	return 0;
}

bool pattern_accepts(struct pattern *pattern, const struct pattern_state *state)
{
	round_begin(pattern);
	size_t closed = 0;
	for (size_t i = 0; i < state->count; i++)
		closed = branches_add(pattern, pattern->next, closed, state->alive[i], false);
	for (size_t i = 0; i < closed; i++) {
		if (pattern->steps[pattern->next[i]].kind == STEP_MATCH)
			return true;
	}
	return false;
}

void pattern_drop_recursion(const struct pattern *pattern, struct pattern_state *state)
{
	size_t kept = 0;
	for (size_t i = 0; i < state->count; i++) {
		if (pattern->steps[state->alive[i]].kind != STEP_RECURSE)
			state->alive[kept++] = state->alive[i];
	}
	state->count = kept;
}

bool pattern_matches(struct pattern *pattern, const char *text, size_t size)
{
	struct pattern_state start DONE_STATE = {0}, end DONE_STATE = {0};
	return pattern_start(pattern, &start) == 0 &&
	       pattern_advance(pattern, &start, text, size, &end) == 0 &&
	       pattern_accepts(pattern, &end);
}
