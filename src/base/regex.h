/* Regular expressions, for grep in the init and for read_job: does a line match, and where does its
 * first match begin. All branches run side by side (no backtracking, no back-references), so that
 * the cost is at most the program's length times the text's, in memory that is fixed when it is
 * compiled.
 *
 * Extended syntax:  . [] [^] [[:class:]] () (?:) | * + ? {n} {n,} {n,m} ^ $  and
 * \d \w \s \D \W \S \b \B \< \> \n \t \r \f \v \xHH; a backslash before anything that is no letter
 * or digit makes it itself, in brackets too. A '?' behind a repetition (lazy) changes nothing here.
 * '.' and [^...] match one character (UTF-8, or one byte that is none); nothing matches a newline
 * or a NUL. Ignoring case is for ASCII letters.
 *
 * Why not the C library's: musl's brings 46 KB into the init, cannot be cancelled, and reads no
 * text with a NUL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct regex;

/* 0, -EINVAL with the reason in words, -ENOMEM. */
NODISCARD int regex_compile(const char *text, size_t size, bool ignore_case,
			    struct regex **ret_regex, const char **ret_reason);
void regex_free(struct regex **regex);
#define FREE_REGEX CLEANUP(regex_free)

struct regex_text {
	const char *text;
	size_t start, end; /* searched; what stands before start is looked at */
	bool begins;       /* a line begins at text[0] */
	bool ends;         /* a line ends at `end` */
	/* Asked now and then; NULL: never. */
	bool (*cancelled)(void *context);
	void *context;
};

/* 1 with where the first match in the first line that has one begins, 0, or -ECANCELED. */
NODISCARD int regex_find(struct regex *regex, const struct regex_text *text, size_t *ret_at);
