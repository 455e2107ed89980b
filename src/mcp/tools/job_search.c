/* See job_search.h. Called by read_job, in separate turns. The pattern comes from the client and
 * the text from the sandbox: the matcher is the init's own, which never backtracks, and its time is
 * bounded here. */
#include "mcp/tools/job_search.h"

#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/pattern/pattern.h"
#include "base/text.h"

#define SLICE (32 * KIB)
#define LINE_SHOWN 400
/* A pattern is refused if one line takes more calls of the matcher (each 65536 steps, which take
 * less than a millisecond). This does not use a clock, so that a busy host does not make a pattern
 * fail. */
#define LINE_LOOKS 10
/* The time limit of a whole search. */
#define SEARCH_TIME NSEC_PER_SEC

int search_begin(struct job_search *search, const char *pattern, uint64_t max,
		 const char **ret_reason)
{
	*ret_reason = "out of memory";
	if (pattern_compile_regex(pattern, strlen(pattern), false, &search->regex, ret_reason) < 0)
		return -1;
	search->max = max;
	/* A line is shown with its offset, and with every byte as four in the worst case. */
	search->lines = BUFFER(max + 4 * LINE_SHOWN + 64);
	return 0;
}

void search_done(struct job_search *search)
{
	pattern_free(&search->regex);
	buffer_done(&search->lines);
}

static bool search_took_too_long(void *context)
{
	unsigned *looks = context;
	return ++*looks >= LINE_LOOKS;
}

static void search_show_match(struct job_search *search, enum exec_stream stream, uint64_t offset,
			      const char *line, size_t size)
{
	struct buffer *to = &search->lines;
	uint64_t binary = 0;
	size_t shown = size <= LINE_SHOWN ? size : text_utf8_prefix(line, LINE_SHOWN);
	search->matches++;
	enum exec_stream before = search->shown ? search->shown : EXEC_STDOUT;
	search->shown = stream;
	if (stream != before &&
	    buffer_append_text(to, stream == EXEC_STDERR ? "[stderr]\n" : "[stdout]\n") < 0)
		return;
	if (buffer_printf(to, "%llu:", (unsigned long long)offset) < 0)
		return;
	output_visible(to, line, shown, &binary);
	if (buffer_append_text(to, shown < size ? "...\n" : "\n") < 0)
		return;
}

/* Searches the lines in [data, data + size), which begins at `offset`; each ends with a newline,
 * except perhaps the last. */
static enum search_state search_lines(struct job_search *search, enum exec_stream stream,
				      uint64_t offset, const char *data, size_t size)
{
	int64_t turn = clock_monotonic();
	for (size_t at = 0; at < size;) {
		const char *end = memchr(data + at, '\n', size - at);
		size_t length = end ? (size_t)(end - data) - at : size - at;
		unsigned looks = 0;
		size_t where;
		const struct pattern_text text = {
		    .text = data + at,
		    .end = length,
		    .begins = true,
		    .ends = true,
		    .cancelled = search_took_too_long,
		    .context = &looks,
		};
		int found = pattern_find(search->regex, &text, &where);
		if (found < 0)
			return SEARCH_TOO_COSTLY;
		if (found > 0)
			search_show_match(search, stream, offset + at, data + at, length);
		at += length + (end != NULL);
		search->at[stream - EXEC_STDOUT] = offset + at;
		if (search->lines.size >= search->max)
			return SEARCH_FULL;
		/* The rest of the slice is for the next turn. */
		if (clock_monotonic() - turn > WORK_PIECE_NS)
			return SEARCH_MORE;
	}
	return SEARCH_MORE;
}

static enum search_state search_stream(struct job_search *search, struct exec *exec,
				       enum exec_stream stream)
{
	static char slice[SLICE]; /* one loop; no function called from here waits */
	uint64_t *at = &search->at[stream - EXEC_STDOUT], total = exec_total(exec, stream), gap = 0;
	if (*at >= total)
		return SEARCH_CAUGHT_UP;
	ssize_t got = exec_read(exec, stream, *at, slice, sizeof(slice), &gap);
	if (got <= 0)
		return SEARCH_CAUGHT_UP;
	*at += gap;
	size_t size = (size_t)got;
	const char *last = memrchr(slice, '\n', size);
	/* An incomplete line waits for its end, unless the end cannot come or is too far away. */
	if (last)
		size = (size_t)(last - slice) + 1;
	else if (!exec_ended(exec) && size < sizeof(slice))
		return SEARCH_CAUGHT_UP;
	return search_lines(search, stream, *at, slice, size);
}

static enum search_state search_streams(struct job_search *search, struct exec *exec)
{
	for (int i = 0; i < 2; i++) {
		enum search_state state = search->wanted[i]
					      ? search_stream(search, exec, EXEC_STDOUT + i)
					      : SEARCH_CAUGHT_UP;
		if (state != SEARCH_CAUGHT_UP)
			return state;
	}
	return SEARCH_CAUGHT_UP;
}

enum search_state search_step(struct job_search *search, struct exec *exec)
{
	int64_t began = clock_monotonic();
	enum search_state state = search_streams(search, exec);
	search->spent += clock_monotonic() - began;
	return state == SEARCH_MORE && search->spent > SEARCH_TIME ? SEARCH_FULL : state;
}
