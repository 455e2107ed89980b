/* Glob patterns. A pattern is compiled once into a small program, whose branches are run in
 * parallel, so that matching costs at most the pattern's length times the text's. Used by glob and
 * by grep's name filter; knows no files.
 *
 *   *        any characters but '/'           [a-z] [!x] [[:digit:]]   one of them, never '/'
 *   ?        one character (UTF-8, or one     {a,b}                    either; may nest
 *            invalid byte) but '/'            \x                       x itself
 *   **       as a whole component: any number of components
 *
 * A dot at the start of a component is matched only by a dot, unless hidden is set. A slash at the
 * end of a pattern is removed, and only directories match then. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define PATTERN_MAX 4096

struct pattern;

/* The first character of a text (size at least 1): its value, and its size in bytes. An invalid
 * UTF-8 byte counts as a character of its own, above all others. */
uint32_t pattern_character(const char *text, size_t size, size_t *ret_size);

/* 0, -EINVAL (empty, or with a NUL), -E2BIG, -ENOMEM. */
NODISCARD int pattern_compile(const char *text, size_t size, bool hidden,
			      struct pattern **ret_pattern);
void pattern_free(struct pattern **pattern);
#define FREE_PATTERN CLEANUP(pattern_free)
bool pattern_wants_directory(const struct pattern *pattern);
bool pattern_has_slash(const struct pattern *pattern);

/* The length of the leading components without any wildcard ("src/lib/" of "src/lib/?*.c"),
 * which need no search. */
size_t pattern_fixed_prefix(const char *text, size_t size);

/* The state of a match after some characters: the branches that are still alive. */
struct pattern_state {
	uint16_t *alive;
	size_t count;
	bool component_start;
};
NODISCARD int pattern_start(const struct pattern *pattern, struct pattern_state *ret_state);
void pattern_state_done(struct pattern_state *state);
#define DONE_STATE CLEANUP(pattern_state_done)
/* Advances from a state through text: 0 or -ENOMEM. Without a branch (count 0) no text with this
 * beginning can match. */
NODISCARD int pattern_advance(struct pattern *pattern, const struct pattern_state *from,
			      const char *text, size_t size, struct pattern_state *ret_state);
bool pattern_accepts(struct pattern *pattern, const struct pattern_state *state);
/* The last component is a link to a directory, which "**" does not follow. */
void pattern_drop_recursion(const struct pattern *pattern, struct pattern_state *state);

/* Matches the whole text. */
bool pattern_matches(struct pattern *pattern, const char *text, size_t size);
