/* Runs the programs of patterns. Called by glob and grep in the init, and by read_job; allocates
 * when compiling and for a state, never blocks. Patterns and texts are hostile: a search counts its
 * steps and checks for a cancel. */
#include "base/pattern/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern/program.h"

#define STEPS_PER_LOOK (1u << 16)

/* A live branch: its step, and where in the text it began. */
struct branch {
	uint32_t step;
	size_t start;
};

struct list {
	struct branch *branches;
	size_t count;
};

struct pattern {
	struct program program;
	bool ignore_case;                        /* of a regular expression */
	bool hidden, wants_directory, has_slash; /* of a glob */
	bool filtered; /* a match begins with one of the `first` bytes and is not empty */
	bool first[256];
	/* The branches behind a character; and where they wait for the next one, after their
	 * splits, jumps and conditions. */
	struct list reached, waiting;
	uint32_t *stack, *marks;
	uint32_t round;
};

static uint32_t character_fold(uint32_t value)
{
	return value >= 'A' && value <= 'Z' ? value + ('a' - 'A') : value;
}

static bool set_contains(const struct pattern *pattern, const struct step *step, uint32_t value)
{
	for (int32_t i = 0; i < step->extra; i++) {
		const struct range *range = &pattern->program.ranges[step->value + i];
		if (value >= range->low && value <= range->high)
			return true;
	}
	return false;
}

static bool step_takes(const struct pattern *pattern, const struct step *step, uint32_t value)
{
	if (step->kind == STEP_CHARACTER)
		return pattern->ignore_case
			   ? character_fold((uint32_t)step->value) == character_fold(value)
			   : (uint32_t)step->value == value;
	if (step->kind != STEP_SET || value == pattern->program.outside_sets)
		return false;
	bool holds = set_contains(pattern, step, value);
	if (!holds && pattern->ignore_case) {
		uint32_t lower = character_fold(value);
		bool letter = lower >= 'a' && lower <= 'z';
		holds = letter && (set_contains(pattern, step, lower) ||
				   set_contains(pattern, step, lower - ('a' - 'A')));
	}
	return holds != step->negated;
}

/* The conditions between two characters. */
struct place {
	bool line_start, line_end, word_before, word_after, leading_dot;
};

static bool edge_holds(const struct step *step, const struct place *place)
{
	if (step->kind == STEP_LINE_START)
		return place->line_start;
	if (step->kind == STEP_LINE_END)
		return place->line_end;
	if (step->kind == STEP_NO_LEADING_DOT)
		return !place->leading_dot;
	switch ((enum edge)step->extra) {
	case EDGE_ANY:
		return place->word_before != place->word_after;
	case EDGE_NONE:
		return place->word_before == place->word_after;
	case EDGE_START:
		return !place->word_before && place->word_after;
	case EDGE_END:
		return place->word_before && !place->word_after;
	}
	return false;
}

/* Adds a step and all that it reaches here without a character. Without a place every condition
 * holds. Each step is in the list once, for the branch that began first. */
static void branch_add(struct pattern *pattern, uint32_t first, size_t start,
		       const struct place *place)
{
	struct list *list = &pattern->waiting;
	size_t depth = 0;
	pattern->stack[depth++] = first;
	while (depth > 0) {
		uint32_t at = pattern->stack[--depth];
		if (pattern->marks[at] == pattern->round)
			continue;
		pattern->marks[at] = pattern->round;
		const struct step *step = &pattern->program.steps[at];
		switch ((enum step_kind)step->kind) {
		case STEP_SPLIT:
			pattern->stack[depth++] = at + (uint32_t)step->extra;
			pattern->stack[depth++] = at + (uint32_t)step->value;
			break;
		case STEP_JUMP:
		case STEP_RECURSE:
			pattern->stack[depth++] = at + (uint32_t)step->value;
			break;
		case STEP_LINE_START:
		case STEP_LINE_END:
		case STEP_NO_LEADING_DOT:
		case STEP_WORD_EDGE:
			if (!place || edge_holds(step, place))
				pattern->stack[depth++] = at + 1;
			break;
		case STEP_CHARACTER:
		case STEP_SET:
		case STEP_MATCH:
			list->branches[list->count++] = (struct branch){at, start};
			break;
		}
	}
}

static void branches_begin(struct pattern *pattern)
{
	pattern->waiting.count = 0;
	if (++pattern->round == 0) {
		memset(pattern->marks, 0, pattern->program.count * sizeof(*pattern->marks));
		pattern->round = 1;
	}
}

/* Adds what the branches reach at this place, in their order. */
static void branches_follow(struct pattern *pattern, const struct place *place)
{
	branches_begin(pattern);
	for (size_t i = 0; i < pattern->reached.count; i++) {
		const struct branch *branch = &pattern->reached.branches[i];
		branch_add(pattern, branch->step, branch->start, place);
	}
}

/* Advances all branches by one character. A branch that has matched ends those that began later:
 * true with its start. */
static bool branches_take(struct pattern *pattern, uint32_t value, bool takable, size_t *ret_start)
{
	struct list *reached = &pattern->reached;
	reached->count = 0;
	for (size_t i = 0; i < pattern->waiting.count; i++) {
		const struct branch *branch = &pattern->waiting.branches[i];
		const struct step *step = &pattern->program.steps[branch->step];
		if (step->kind == STEP_MATCH) {
			*ret_start = branch->start;
			return true;
		}
		if (takable && step_takes(pattern, step, value))
			reached->branches[reached->count++] =
			    (struct branch){branch->step + 1, branch->start};
	}
	return false;
}

/* --- compiling --- */

static int pattern_allocate_lists(struct pattern *pattern)
{
	size_t count = pattern->program.count;
	pattern->reached.branches = calloc(count, sizeof(struct branch));
	pattern->waiting.branches = calloc(count, sizeof(struct branch));
	/* Each popped step pushes at most two, and is popped once. */
	pattern->stack = calloc(2 * count + 2, sizeof(*pattern->stack));
	pattern->marks = calloc(count, sizeof(*pattern->marks));
	bool all = pattern->reached.branches && pattern->waiting.branches && pattern->stack &&
		   pattern->marks;
	return all ? 0 : -ENOMEM;
}

int pattern_compile_glob(const char *text, size_t size, bool hidden, struct pattern **ret_pattern)
{
	if (size == 0 || memchr(text, '\0', size))
		return -EINVAL;
	if (size > GLOB_MAX)
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
	int result = glob_parse(text, size, &pattern->program);
	if (result == 0)
		result = pattern_allocate_lists(pattern);
	if (result == 0)
		*ret_pattern = TAKE_PTR(pattern);
	return result;
}

/* Finds the bytes that a match can begin with. */
static void first_bytes_find(struct pattern *pattern)
{
	branches_begin(pattern);
	branch_add(pattern, 0, 0, NULL);
	pattern->filtered = true;
	for (size_t i = 0; i < pattern->waiting.count; i++) {
		const struct step *step =
		    &pattern->program.steps[pattern->waiting.branches[i].step];
		pattern->filtered &= step->kind != STEP_MATCH;
		bool ascii = step->kind == STEP_CHARACTER && (uint32_t)step->value < 0x80;
		for (uint32_t byte = 0; byte < 256; byte++)
			pattern->first[byte] |=
			    byte < 0x80 ? step_takes(pattern, step, byte) : !ascii;
	}
}

int pattern_compile_regex(const char *text, size_t size, bool ignore_case,
			  struct pattern **ret_pattern, const char **ret_reason)
{
	struct pattern *pattern FREE_PATTERN = calloc(1, sizeof(*pattern));
	if (!pattern)
		return -ENOMEM;
	pattern->ignore_case = ignore_case;
	int result = regex_parse(text, size, &pattern->program);
	if (result < 0)
		*ret_reason = pattern->program.reason;
	else
		result = pattern_allocate_lists(pattern);
	if (result < 0)
		return result;
	first_bytes_find(pattern);
	*ret_pattern = TAKE_PTR(pattern);
	return 0;
}

void pattern_free(struct pattern **pattern)
{
	struct pattern *gone = TAKE_PTR(*pattern);
	if (!gone)
		return;
	free(gone->program.steps);
	free(gone->program.ranges);
	free(gone->reached.branches);
	free(gone->waiting.branches);
	free(gone->stack);
	free(gone->marks);
	free(gone);
}

/* --- finding a regular expression in a text --- */

static bool byte_is_word(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
	       (byte >= '0' && byte <= '9') || byte == '_';
}

static struct place text_place_at(const struct pattern_text *text, size_t at)
{
	bool first = at == 0, last = at == text->end;
	char before = first ? '\n' : text->text[at - 1], after = last ? '\n' : text->text[at];
	return (struct place){
	    .line_start = first ? text->begins : before == '\n',
	    .line_end = last ? text->ends : after == '\n',
	    .word_before = byte_is_word(before),
	    .word_after = byte_is_word(after),
	};
}

int pattern_find(struct pattern *pattern, const struct pattern_text *text, size_t *ret_at)
{
	size_t at = text->start, best = 0, steps = 0;
	bool found = false;
	pattern->reached.count = 0;
	while (!found || pattern->reached.count > 0) {
		if (pattern->reached.count == 0 && pattern->filtered) {
			while (at < text->end && !pattern->first[(unsigned char)text->text[at]])
				at++;
			if (at == text->end)
				return 0;
		}
		const struct place place = text_place_at(text, at);
		branches_follow(pattern, &place);
		if (!found)
			branch_add(pattern, 0, at, &place);
		steps += pattern->waiting.count + 1;
		if (steps > STEPS_PER_LOOK && text->cancelled) {
			steps = 0;
			if (text->cancelled(text->context))
				return -ECANCELED;
		}
		bool last = at == text->end;
		size_t length = 0;
		uint32_t value =
		    last ? '\n' : character_read(text->text + at, text->end - at, &length);
		at += length;
		found |= branches_take(pattern, value, value != '\n' && value != '\0', &best);
		if (last || (found && value == '\n'))
			break;
	}
	*ret_at = best;
	return found;
}

/* --- matching whole paths with a glob --- */

bool pattern_wants_directory(const struct pattern *pattern)
{
	return pattern->wants_directory;
}

bool pattern_has_slash(const struct pattern *pattern)
{
	return pattern->has_slash;
}

/* Advances the branches through a part of a path. */
static void path_advance(struct pattern *pattern, const char *part, size_t size,
			 bool *component_start)
{
	for (size_t at = 0, length; at < size && pattern->reached.count > 0; at += length) {
		uint32_t value = character_read(part + at, size - at, &length);
		const struct place place = {.leading_dot = *component_start && value == '.' &&
							   !pattern->hidden};
		size_t start;
		branches_follow(pattern, &place);
		(void)branches_take(pattern, value, true, &start);
		*component_start = value == '/';
	}
}

/* Whether a branch has matched the whole path. */
static bool path_accepted(struct pattern *pattern)
{
	const struct place end = {.line_end = true};
	size_t start;
	branches_follow(pattern, &end);
	return branches_take(pattern, 0, false, &start);
}

bool pattern_matches(struct pattern *pattern, const char *path, size_t size)
{
	bool component_start = true;
	pattern->reached.branches[0] = (struct branch){0};
	pattern->reached.count = 1;
	path_advance(pattern, path, size, &component_start);
	return path_accepted(pattern);
}

int pattern_start(struct pattern_state *ret_state)
{
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

static void branches_restore(struct pattern *pattern, const struct pattern_state *state)
{
	pattern->reached.count = state->count;
	for (size_t i = 0; i < state->count; i++)
		pattern->reached.branches[i] = (struct branch){.step = state->alive[i]};
}

int pattern_advance(struct pattern *pattern, const struct pattern_state *from, const char *part,
		    size_t size, struct pattern_state *ret_state)
{
	bool component_start = from->component_start;
	branches_restore(pattern, from);
	path_advance(pattern, part, size, &component_start);
	size_t count = pattern->reached.count;
	uint16_t *alive = malloc(MAX(count, 1u) * sizeof(*alive));
	if (!alive)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		alive[i] = (uint16_t)pattern->reached.branches[i].step;
	*ret_state = (struct pattern_state){
	    .alive = alive, .count = count, .component_start = component_start};
	return 0;
}

bool pattern_accepts(struct pattern *pattern, const struct pattern_state *state)
{
	branches_restore(pattern, state);
	return path_accepted(pattern);
}

void pattern_drop_recursion(const struct pattern *pattern, struct pattern_state *state)
{
	size_t kept = 0;
	for (size_t i = 0; i < state->count; i++) {
		if (pattern->program.steps[state->alive[i]].kind != STEP_RECURSE)
			state->alive[kept++] = state->alive[i];
	}
	state->count = kept;
}
