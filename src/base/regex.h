/* Regular expressions, for grep in the init and for read_job: whether a line matches, and where its
 * first match begins. All branches run in parallel (no backtracking, no back-references). So the
 * cost is at most the program's length times the text's, in memory that is fixed when it is
 * compiled.
 *
 * Extended syntax:  . [] [^] [[:class:]] () (?:) | * + ? {n} {n,} {n,m} ^ $  and
 * \d \w \s \D \W \S \b \B \< \> \n \t \r \f \v \xHH. A backslash before any other character that is
 * no letter or digit makes it a literal, also in brackets. A '?' behind a repetition (lazy) has no
 * effect. '.' and [^...] match one character (UTF-8, or one invalid byte); nothing matches a
 * newline or a NUL. Ignoring case applies to ASCII letters.
 *
 * The C library's are not used: musl's add 46 KB to the init, cannot be cancelled, and do not read
 * text with a NUL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct regex;

/* 0, -EINVAL with the reason as text, -ENOMEM. */
NODISCARD int regex_compile(const char *text, size_t size, bool ignore_case,
			    struct regex **ret_regex, const char **ret_reason);
void regex_free(struct regex **regex);
#define FREE_REGEX CLEANUP(regex_free)

struct regex_text {
	const char *text;
	size_t start, end; /* the range to search; bytes before start are looked at too */
	bool begins;       /* a line begins at text[0] */
	bool ends;         /* a line ends at `end` */
	/* Called from time to time; NULL: never. */
	bool (*cancelled)(void *context);
	void *context;
};

/* 1 with the start of the first match in the first line that has one, 0, or -ECANCELED. */
NODISCARD int regex_find(struct regex *regex, const struct regex_text *text, size_t *ret_at);
