/* Patterns: globs, for glob and for grep's name filter, and regular expressions, for grep and for
 * read_job. Both are compiled to one kind of program (program.h), whose branches run in parallel,
 * without backtracking. So matching costs at most the program's length times the text's, in memory
 * that is fixed when the pattern is compiled. Knows no files.
 *
 * The C library's regular expressions are not used: musl's add 46 KB to the init, cannot be
 * cancelled, and do not read text with a NUL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define GLOB_MAX 4096

struct pattern;

/* Globs:
 *
 *   *        any characters but '/'           [a-z] [!x] [[:digit:]]   one of them, never '/'
 *   ?        one character (UTF-8, or one     {a,b}                    either; may nest
 *            invalid byte) but '/'            \x                       x itself
 *   **       as a whole component: any number of components
 *
 * A dot at the start of a component is matched only by a dot, unless hidden is set. A slash at the
 * end of a glob is removed, and only directories match then.
 *
 * 0, -EINVAL (empty, or with a NUL), -E2BIG, -ENOMEM. */
NODISCARD int pattern_compile_glob(const char *text, size_t size, bool hidden,
				   struct pattern **ret_pattern);

/* Regular expressions, extended syntax:  . [] [^] [[:class:]] () (?:) | * + ? {n} {n,} {n,m} ^ $
 * and  \d \w \s \D \W \S \b \B \< \> \n \t \r \f \v \xHH. A backslash before any other character
 * that is no letter or digit makes it a literal, also in brackets. A '?' behind a repetition (lazy)
 * has no effect. '.' and [^...] match one character (UTF-8, or one invalid byte); nothing matches a
 * newline or a NUL. Ignoring case applies to ASCII letters.
 *
 * 0, -EINVAL with the reason as text, -ENOMEM. */
NODISCARD int pattern_compile_regex(const char *text, size_t size, bool ignore_case,
				    struct pattern **ret_pattern, const char **ret_reason);

void pattern_free(struct pattern **pattern);
#define FREE_PATTERN CLEANUP(pattern_free)

/* --- finding a regular expression in a text --- */

struct pattern_text {
	const char *text;
	size_t start, end; /* the range to search; bytes before start are looked at too */
	bool begins;       /* a line begins at text[0] */
	bool ends;         /* a line ends at `end` */
	/* Called from time to time; NULL: never. */
	bool (*cancelled)(void *context);
	void *context;
};

/* 1 with the start of the first match in the first line that has one, 0, or -ECANCELED. */
NODISCARD int pattern_find(struct pattern *pattern, const struct pattern_text *text,
			   size_t *ret_at);

/* --- matching whole paths with a glob --- */

bool pattern_matches(struct pattern *pattern, const char *path, size_t size);
bool pattern_wants_directory(const struct pattern *pattern);
bool pattern_has_slash(const struct pattern *pattern);

/* The length of a glob's leading components without any wildcard ("src/lib/" of "src/lib/?*.c"),
 * which need no search. */
size_t glob_fixed_prefix(const char *text, size_t size);

/* The state of a match after a part of a path: the branches that are still alive. */
struct pattern_state {
	uint16_t *alive;
	size_t count;
	bool component_start;
};
NODISCARD int pattern_start(struct pattern_state *ret_state);
void pattern_state_done(struct pattern_state *state);
#define DONE_STATE CLEANUP(pattern_state_done)
/* Advances from a state through the next part: 0 or -ENOMEM. Without a branch (count 0) no path
 * with this beginning can match. */
NODISCARD int pattern_advance(struct pattern *pattern, const struct pattern_state *from,
			      const char *part, size_t size, struct pattern_state *ret_state);
bool pattern_accepts(struct pattern *pattern, const struct pattern_state *state);
/* The last component is a link to a directory, which "**" does not follow. */
void pattern_drop_recursion(const struct pattern *pattern, struct pattern_state *state);
