/* Finds the lines of a file that contain a text or match a regular expression, in bounded memory
 * for every size of the file and its lines. Used by grep. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/pattern/pattern.h"
#include "init/file/internal.h"

#define SEARCH_PATTERN_MAX (64 * 1024)

struct search_match {
	uint64_t line;    /* from 1 */
	uint64_t offset;  /* of the match, in the file */
	const char *text; /* the line, or GREP_LINE_MAX bytes of it around the match */
	size_t size;
};

struct text_search {
	struct operation *operation;
	bool ignore_case, holes_cannot_match;
	char *pattern; /* literal; folded to lower case with ignore_case */
	size_t pattern_size;
	struct pattern *regex; /* NULL: literal */
	/* A window on the file: `size` bytes from offset `base`. `folded` is the same in lower
	 * case, for a literal pattern with ignore_case. */
	char *buffer, *folded;
	size_t size;
	uint64_t base;
	uint64_t line;    /* the number of the line at the buffer's start */
	bool continued;   /* that line began before the buffer */
	bool reported;    /* that line was reported already */
	bool skip_binary; /* skip files with a NUL in their first 8 KiB */
	/* Called for each matching line. 0: continue; other values end the search and are
	 * returned. */
	int (*on_match)(void *context, const struct search_match *match);
	void *context;
};

/* Takes the pattern and the flags FILE_REGEX and FILE_IGNORE_CASE of the request. 0, or -1 with
 * *failure. */
NODISCARD int search_open(struct text_search *search, struct operation *operation,
			  struct failure *failure);
void search_done(struct text_search *search);
/* 0, the result of on_match, or -errno. */
NODISCARD int search_file(struct text_search *search, int fd, const struct stat *stat);
