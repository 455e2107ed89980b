/* Glob patterns: compiled once into a small program, matched by running all its branches side by
 * side, so that no pattern costs more than its length times the text's. Used by glob and by grep's
 * name filter; knows no files.
 *
 *   *        any characters but '/'           [a-z] [!x] [[:digit:]]   one of them, never '/'
 *   ?        one character (UTF-8, or one     {a,b}                    either; may nest
 *            byte that is none) but '/'       \x                       x itself
 *   **       as a whole component: any number of components
 *
 * A dot at the start of a component is matched by a dot only, unless hidden is set. A pattern's
 * slash at the end is dropped, and only directories are meant then. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define PATTERN_MAX 4096

struct pattern;

/* One character of a text (size at least 1): its value, and its size in bytes. A byte that is no
 * UTF-8 stands for itself, beyond all characters. */
uint32_t pattern_character(const char *text, size_t size, size_t *ret_size);

/* 0, -EINVAL (empty, or with a NUL), -E2BIG, -ENOMEM. */
NODISCARD int pattern_compile(const char *text, size_t size, bool hidden,
			      struct pattern **ret_pattern);
void pattern_free(struct pattern **pattern);
#define FREE_PATTERN CLEANUP(pattern_free)
bool pattern_wants_directory(const struct pattern *pattern);
bool pattern_has_slash(const struct pattern *pattern);

/* The length of the leading whole components that hold no wildcard at all ("src/lib/" of
 * "src/lib/?*.c"): they need no search. */
size_t pattern_fixed_prefix(const char *text, size_t size);

/* Where a match stands after some characters: the branches that are still alive. */
struct pattern_state {
	uint16_t *alive;
	size_t count;
	bool component_start;
};
NODISCARD int pattern_start(const struct pattern *pattern, struct pattern_state *ret_state);
void pattern_state_done(struct pattern_state *state);
#define DONE_STATE CLEANUP(pattern_state_done)
/* From one state on, through text: 0 or -ENOMEM. No branch alive (count 0): nothing that begins
 * like this can match. */
NODISCARD int pattern_advance(struct pattern *pattern, const struct pattern_state *from,
			      const char *text, size_t size, struct pattern_state *ret_state);
bool pattern_accepts(struct pattern *pattern, const struct pattern_state *state);
/* What was just passed is a link to a directory: "**" does not go through those. */
void pattern_drop_recursion(const struct pattern *pattern, struct pattern_state *state);

/* The whole text at once. */
bool pattern_matches(struct pattern *pattern, const char *text, size_t size);
