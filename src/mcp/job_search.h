/* The lines of a job's output that match a regular expression, found in slices: a turn of the loop
 * reads at most a slice, and gives up a pattern that costs too much. All searches of the daemon
 * stand in one queue, so that many at once take no more of a turn of the loop than one. */
#pragma once

#include "core/exec.h"
#include "mcp/output.h"

struct regex;

struct job_search {
	struct regex *regex;
	uint64_t at[2]; /* of each stream: what is before is searched */
	bool wanted[2];
	uint64_t max; /* bytes of lines */
	struct buffer lines;
	uint64_t matches;
	bool stderr_begun; /* its heading stands */
	int64_t spent;     /* ns */
};

#define SEARCH_PATTERN_MAX 512

/* FULL: it has as many bytes, or took as long, as one answer may. */
enum search_state { SEARCH_MORE, SEARCH_CAUGHT_UP, SEARCH_FULL, SEARCH_TOO_COSTLY };

/* -1: the pattern is wrong; *ret_reason says why. */
int search_begin(struct job_search *search, const char *pattern, uint64_t max,
		 const char **ret_reason);
void search_done(struct job_search *search);
/* One slice. CAUGHT_UP: every whole line that was printed is searched. */
enum search_state search_step(struct job_search *search, struct exec *exec);

/* A place in the queue, of who is to call search_step(). `come` is called once for each
 * search_queue(), in a later turn of the loop. */
struct search_turn {
	struct list link;
	void (*come)(void *data);
	void *data;
};
void search_queue(uv_loop_t *loop, struct search_turn *turn);
/* Safe for one that is not in it, and for one that is all zero. */
void search_unqueue(struct search_turn *turn);
