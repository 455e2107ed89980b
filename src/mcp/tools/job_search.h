/* Searches the lines of a job's output that match a regular expression, in slices, each of which is
 * a piece of work (base/work.h) of the caller's token. A pattern that costs too much is refused. */
#pragma once

#include "core/exec/exec.h"
#include "mcp/tools/output.h"

struct pattern;

struct job_search {
	struct pattern *regex;
	uint64_t at[2]; /* of each stream: the part before is searched */
	bool wanted[2];
	uint64_t max; /* bytes of lines */
	struct buffer lines;
	uint64_t matches;
	enum exec_stream shown; /* the stream of the last lines; 0: none, which reads as stdout */
	int64_t spent;          /* ns */
};

#define SEARCH_PATTERN_MAX 512

/* FULL: it has as many bytes, or took as long, as one answer may. */
enum search_state { SEARCH_MORE, SEARCH_CAUGHT_UP, SEARCH_FULL, SEARCH_TOO_COSTLY };

/* -1: the pattern is wrong; *ret_reason says why. */
int search_begin(struct job_search *search, const char *pattern, uint64_t max,
		 const char **ret_reason);
void search_done(struct job_search *search);
/* One slice. CAUGHT_UP: every complete line was searched. */
enum search_state search_step(struct job_search *search, struct exec *exec);
