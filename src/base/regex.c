/* Matches the regular expressions of grep. Called by init/file/search.c; allocates when compiling,
 * never blocks. Patterns and texts are hostile: a search counts its steps and checks for a
 * cancel. */
#include "base/regex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"
#include "base/regex_program.h"

#define STEPS_PER_LOOK (1u << 16)

/* A live branch: its step, and where in the text it began. */
struct thread {
	uint32_t step;
	size_t start;
};

struct list {
	struct thread *threads;
	size_t count;
};

struct regex {
	struct regex_program program;
	bool ignore_case;
	bool filtered; /* a match begins with one of the `first` bytes and is not empty */
	bool first[256];
	struct list now, next;
	uint32_t *stack, *marks;
	uint32_t round;
};

static uint32_t character_fold(uint32_t value)
{
	return value >= 'A' && value <= 'Z' ? value + ('a' - 'A') : value;
}

static bool set_contains(const struct regex *regex, const struct step *step, uint32_t value)
{
	for (int32_t i = 0; i < step->extra; i++) {
		const struct range *range = &regex->program.ranges[step->value + i];
		if (value >= range->low && value <= range->high)
			return true;
	}
	return false;
}

static bool step_takes(const struct regex *regex, const struct step *step, uint32_t value)
{
	if (step->kind == STEP_CHARACTER)
		return regex->ignore_case
			   ? character_fold((uint32_t)step->value) == character_fold(value)
			   : (uint32_t)step->value == value;
	if (step->kind != STEP_SET)
		return false;
	bool holds = set_contains(regex, step, value);
	if (!holds && regex->ignore_case) {
		uint32_t lower = character_fold(value);
		bool letter = lower >= 'a' && lower <= 'z';
		holds = letter && (set_contains(regex, step, lower) ||
				   set_contains(regex, step, lower - ('a' - 'A')));
	}
	return holds != step->negated;
}

/* The conditions between two characters. */
struct place {
	bool line_start, line_end, word_before, word_after;
};

static bool edge_holds(const struct step *step, const struct place *place)
{
	if (step->kind == STEP_LINE_START)
		return place->line_start;
	if (step->kind == STEP_LINE_END)
		return place->line_end;
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
 * holds. Each step is in a list once, for the branch that began first. */
static void branches_add(struct regex *regex, struct list *list, uint32_t first, size_t start,
			 const struct place *place)
{
	size_t depth = 0;
	regex->stack[depth++] = first;
	while (depth > 0) {
		uint32_t at = regex->stack[--depth];
		if (regex->marks[at] == regex->round)
			continue;
		regex->marks[at] = regex->round;
		const struct step *step = &regex->program.steps[at];
		switch ((enum step_kind)step->kind) {
		case STEP_SPLIT:
			regex->stack[depth++] = at + (uint32_t)step->extra;
			regex->stack[depth++] = at + (uint32_t)step->value;
			break;
		case STEP_JUMP:
			regex->stack[depth++] = at + (uint32_t)step->value;
			break;
		case STEP_LINE_START:
		case STEP_LINE_END:
		case STEP_WORD_EDGE:
			if (!place || edge_holds(step, place))
				regex->stack[depth++] = at + 1;
			break;
		case STEP_CHARACTER:
		case STEP_SET:
		case STEP_MATCH:
			list->threads[list->count++] = (struct thread){at, start};
			break;
		}
	}
}

static void round_begin(struct regex *regex)
{
	if (++regex->round == 0) {
		memset(regex->marks, 0, regex->program.count * sizeof(*regex->marks));
		regex->round = 1;
	}
}

/* Finds the bytes that a match can begin with. */
static void first_bytes_find(struct regex *regex)
{
	round_begin(regex);
	regex->now.count = 0;
	regex->filtered = true;
	branches_add(regex, &regex->now, 0, 0, NULL);
	for (size_t i = 0; i < regex->now.count; i++) {
		const struct step *step = &regex->program.steps[regex->now.threads[i].step];
		regex->filtered &= step->kind != STEP_MATCH;
		bool ascii = step->kind == STEP_CHARACTER && (uint32_t)step->value < 0x80;
		for (uint32_t byte = 0; byte < 256; byte++)
			regex->first[byte] |= byte < 0x80 ? step_takes(regex, step, byte) : !ascii;
	}
	regex->now.count = 0;
}

int regex_compile(const char *text, size_t size, bool ignore_case, struct regex **ret_regex,
		  const char **ret_reason)
{
	struct regex *regex FREE_REGEX = calloc(1, sizeof(*regex));
	if (!regex)
		return -ENOMEM;
	regex->ignore_case = ignore_case;
	int result = regex_parse(text, size, &regex->program, ret_reason);
	if (result < 0)
		return result;
	regex->now.threads = calloc(regex->program.count, sizeof(struct thread));
	regex->next.threads = calloc(regex->program.count, sizeof(struct thread));
	/* Each popped step pushes at most two, and is popped once. */
	regex->stack = calloc(2 * regex->program.count + 2, sizeof(*regex->stack));
	regex->marks = calloc(regex->program.count, sizeof(*regex->marks));
	if (!regex->now.threads || !regex->next.threads || !regex->stack || !regex->marks)
		return -ENOMEM;
	first_bytes_find(regex);
	*ret_regex = TAKE_PTR(regex);
	return 0;
}

void regex_free(struct regex **regex)
{
	struct regex *gone = TAKE_PTR(*regex);
	if (!gone)
		return;
	free(gone->program.steps);
	free(gone->program.ranges);
	free(gone->now.threads);
	free(gone->next.threads);
	free(gone->stack);
	free(gone->marks);
	free(gone);
}

static bool byte_is_word(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
	       (byte >= '0' && byte <= '9') || byte == '_';
}

static struct place text_place_at(const struct regex_text *text, size_t at)
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

/* Advances all branches by one character. A branch that has matched ends those that began later. */
static bool branches_advance(struct regex *regex, uint32_t value, bool takable,
			     const struct place *after, size_t *best)
{
	bool found = false;
	regex->next.count = 0;
	round_begin(regex);
	for (size_t i = 0; i < regex->now.count && !found; i++) {
		const struct thread *thread = &regex->now.threads[i];
		const struct step *step = &regex->program.steps[thread->step];
		if (step->kind == STEP_MATCH) {
			*best = thread->start;
			found = true;
		} else if (takable && step_takes(regex, step, value)) {
			branches_add(regex, &regex->next, thread->step + 1, thread->start, after);
		}
	}
	struct list swap = regex->now;
	regex->now = regex->next;
	regex->next = swap;
	return found;
}

int regex_find(struct regex *regex, const struct regex_text *text, size_t *ret_at)
{
	size_t at = text->start, best = 0, steps = 0;
	bool found = false;
	struct place place = text_place_at(text, at);
	regex->now.count = 0;
	round_begin(regex);
	for (;;) {
		if (regex->now.count == 0 && found)
			break;
		if (regex->now.count == 0 && regex->filtered) {
			size_t from = at;
			while (at < text->end && !regex->first[(unsigned char)text->text[at]])
				at++;
			if (at == text->end)
				return 0;
			/* At a new place other steps may be reachable. */
			if (at > from) {
				place = text_place_at(text, at);
				round_begin(regex);
			}
		}
		if (!found)
			branches_add(regex, &regex->now, 0, at, &place);
		steps += regex->now.count + 1;
		if (steps > STEPS_PER_LOOK && text->cancelled) {
			steps = 0;
			if (text->cancelled(text->context))
				return -ECANCELED;
		}
		size_t length = 1;
		uint32_t value = at < text->end
				     ? pattern_character(text->text + at, text->end - at, &length)
				     : '\n';
		bool last = at == text->end, newline = value == '\n';
		at += last ? 0 : length;
		place = text_place_at(text, at);
		found |= branches_advance(regex, value, !newline && value != '\0', &place, &best);
		if (last || (found && newline))
			break;
	}
	*ret_at = best;
	return found;
}
