/* read_job: the output of a job, from an offset on or as a whole; its end; or only the matching
 * lines. It may wait until one of these comes: a batch that is worth a turn of the model (new
 * output, and then silence for a tenth of the waiting time, or a full page), a matching line, the
 * end of the job, the end of the waiting time. Called by tools.c; waits through callbacks.
 *
 * From read_job_act() on the request is held: else an answer would free it with this state. Each
 * turn (job_reading_step()) either waits by `wait` or for its `turn`, or answers and leaves; a
 * cancel leaves. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "core/exec/wait.h"
#include "mcp/tools/answer.h"
#include "mcp/tools/find_job.h"
#include "mcp/tools/job_search.h"
#include "mcp/tools/job.h"
#include "mcp/tools/tool.h"

#define QUIET_LEAST_MS 300
#define QUIET_SHARE 10 /* of wait_seconds */
/* The watchers of an interpreter are not notified of a cell's end. */
#define CELL_LOOK_MS 200

struct job_reading {
	struct mcp_request *request;
	const char *job_id, *sandbox_id, *stream, *pattern, *until;
	int64_t offsets[2]; /* a negative one counts from the end */
	bool offset_given[2];
	double wait_seconds;
	bool wait_given;
	uint64_t max;
	enum exec_stream only; /* 0: both */
	bool paged;            /* a page from the offsets on; else head and tail of the whole */
	bool until_end;        /* output alone does not end the wait */
	int64_t quiet_ms;
	uint64_t from[2], known[2], seen[2]; /* shown from here; new after this; seen last */
	int64_t past[2];                     /* 0, or the requested offset beyond the end */
	int64_t deadline, grown;             /* clock_monotonic() */
	struct job_search search;
	struct exec_wait *wait;
	struct tool_turn turn;
};

static void job_reading_free(void *state)
{
	struct job_reading *reading = state;
	tool_turn_cancel(&reading->turn);
	search_done(&reading->search);
	free(reading);
}

static void job_reading_leave(struct job_reading *reading)
{
	struct mcp_request *request = reading->request;
	tool_turn_cancel(&reading->turn);
	request->on_cancel = NULL;
	mcp_release(request);
}

static void read_job_cancelled(struct mcp_request *request)
{
	struct job_reading *reading = request->state;
	if (reading->wait)
		exec_wait_cancel(TAKE_PTR(reading->wait));
	job_reading_leave(reading);
}

/* --- the answer --- */

static bool job_reading_wants(const struct job_reading *reading, enum exec_stream stream)
{
	return reading->only == 0 || reading->only == stream;
}

/* Adds the requested pages; `view` says where they end. */
static void job_reading_add_pages(struct job_reading *reading, struct answer *answer,
				  struct exec *exec, struct answer_view *view)
{
	uint64_t out =
	    exec_total(exec, EXEC_STDOUT) - MIN(reading->from[0], exec_total(exec, EXEC_STDOUT));
	uint64_t err =
	    exec_total(exec, EXEC_STDERR) - MIN(reading->from[1], exec_total(exec, EXEC_STDERR));
	if (!job_reading_wants(reading, EXEC_STDOUT))
		out = 0;
	if (!job_reading_wants(reading, EXEC_STDERR))
		err = 0;
	uint64_t err_max = MIN(err, MAX(reading->max / 2, reading->max - MIN(reading->max, out)));
	uint64_t *ends[] = {&view->output.out_end, &view->output.err_end};
	const uint64_t maxima[] = {MAX(reading->max - err_max, 1u), MAX(err_max, 1u)};
	const uint64_t news[] = {out, err};
	for (int i = 0; i < 2; i++) {
		*ends[i] = reading->from[i];
		if (news[i] == 0)
			continue;
		if (i == 1 && buffer_append_text(&answer->text, "[stderr]\n") < 0)
			return;
		*ends[i] =
		    output_page(&answer->text, exec, EXEC_STDOUT + i, reading->from[i], maxima[i]);
	}
	uint64_t more = (out ? exec_total(exec, EXEC_STDOUT) - view->output.out_end : 0) +
			(err ? exec_total(exec, EXEC_STDERR) - view->output.err_end : 0);
	/* For a running job the last line says how to continue. */
	if (more == 0 || !exec_ended(exec))
		return;
	if (buffer_printf(&answer->text, "[... %llu bytes more; next: ", (unsigned long long)more) <
	    0)
		return;
	answer_next_call(&answer->text, exec, view, 0);
	if (buffer_append_text(&answer->text, "]\n") < 0)
		return;
}

/* The model's offset was wrong; the offsets of the next call say what was read instead. */
static void job_reading_add_past(const struct job_reading *reading, struct answer *answer,
				 struct exec *exec)
{
	for (int i = 0; i < 2; i++) {
		if (reading->past[i] > 0 && job_reading_wants(reading, EXEC_STDOUT + i) &&
		    buffer_printf(&answer->text,
				  "[offset %lld is past the end: %s has %llu bytes%s]\n",
				  (long long)reading->past[i], i == 0 ? "stdout" : "stderr",
				  (unsigned long long)exec_total(exec, EXEC_STDOUT + i),
				  exec_ended(exec) ? "" : " so far") < 0)
			return;
	}
}

static void job_reading_add_matches(struct job_reading *reading, struct answer *answer,
				    struct answer_view *view, bool full)
{
	struct job_search *search = &reading->search;
	view->output.out_end = search->at[0];
	view->output.err_end = search->at[1];
	if (buffer_append(&answer->text, buffer_text(&search->lines), search->lines.size) < 0 ||
	    buffer_printf(
		&answer->text, "[matching lines: %llu%s%s]\n", (unsigned long long)search->matches,
		search->matches ? ", each behind its byte offset" : "",
		full ? "; there may be more: read on from the offset that follows" : "") < 0)
		return;
}

/* The range that is shown without a given offset. */
static void job_reading_view_all(const struct job_reading *reading, const struct job *job,
				 struct answer_view *view)
{
	if (job->cell)
		answer_cell_view(job->exec, job->cell, view);
	else
		answer_view_all(job->exec, view);
	if (!job_reading_wants(reading, EXEC_STDOUT))
		view->output.out_begin = view->output.out_end;
	if (!job_reading_wants(reading, EXEC_STDERR))
		view->output.err_begin = view->output.err_end;
}

static void job_reading_reply(struct job_reading *reading, struct exec *exec, bool full)
{
	struct job job = job_of(exec);
	struct answer answer;
	struct answer_view view = {
	    .output = {.max = reading->max, .read_more = "read_job"},
	    .only = reading->only,
	    .paged = reading->paged || reading->pattern,
	    .since_wall = job.cell ? job.cell->sent_wall : 0,
	};
	answer_begin(&answer, reading->max);
	if (reading->pattern)
		job_reading_add_matches(reading, &answer, &view, full);
	else if (reading->paged)
		job_reading_add_pages(reading, &answer, exec, &view);
	else
		job_reading_view_all(reading, &job, &view);
	job_reading_add_past(reading, &answer, exec);
	if (full && job_over(&job)) {
		answer_next_call(&answer.text, exec, &view, 0);
	} else if (!job_over(&job)) {
		answer_running(&answer, exec, &view);
	} else if (job.cell) {
		answer_cell(&answer, job.context, job.cell, &view);
	} else if (exec->row.state == EXEC_FAILED) {
		struct error error;
		exec_start_error(exec, &error);
		answer_done(&answer);
		mcp_fail(reading->request, &error);
		return;
	} else {
		answer_exec(&answer, exec, &view, NULL, 0);
	}
	answer_send(reading->request, &answer);
	answer_done(&answer);
}

/* --- waiting --- */

static void job_reading_step(struct job_reading *reading, struct exec *exec);

static void job_reading_woken(void *data, struct exec *exec, const struct error *error)
{
	struct job_reading *reading = data;
	reading->wait = NULL;
	if (!reading->request->open) {
		job_reading_leave(reading);
	} else if (error) {
		mcp_fail(reading->request, error);
		job_reading_leave(reading);
	} else {
		job_reading_step(reading, exec);
	}
}

/* Waits for output, its end, or the time limit. */
static void job_reading_wait_more(struct job_reading *reading, struct exec *exec,
				  int64_t milliseconds)
{
	struct error error;
	uint32_t most = (uint32_t)MAX(milliseconds, 1);
	int result =
	    reading->until_end
		? exec_wait_end(exec, most, job_reading_woken, reading, &reading->wait, &error)
		: exec_wait_output(exec, reading->seen[0], reading->seen[1], most,
				   job_reading_woken, reading, &reading->wait, &error);
	if (result < 0) {
		mcp_fail(reading->request, &error);
		job_reading_leave(reading);
	}
}

static void job_reading_finish(struct job_reading *reading, struct exec *exec, bool full)
{
	job_reading_reply(reading, exec, full);
	job_reading_leave(reading);
}

/* How much relevant output has come since. */
static uint64_t job_reading_count_new(struct job_reading *reading, struct exec *exec)
{
	uint64_t sum = 0;
	for (int i = 0; i < 2; i++) {
		uint64_t total = exec_total(exec, EXEC_STDOUT + i);
		if (total != reading->seen[i])
			reading->grown = clock_monotonic();
		reading->seen[i] = total;
		if (job_reading_wants(reading, EXEC_STDOUT + i) && total > reading->known[i])
			sum += total - reading->known[i];
	}
	return sum;
}

static void job_reading_step_search(struct job_reading *reading, struct exec *exec)
{
	struct mcp_request *request = reading->request;
	struct job job = job_of(exec);
	bool over = job_over(&job);
	/* The wait below is for output from now on. */
	(void)job_reading_count_new(reading, exec);
	switch (search_step(&reading->search, exec)) {
	case SEARCH_TOO_COSTLY:
		content_refuse(request, "field `pattern` takes too long to match: make it simpler, "
					"with fewer or smaller repetitions");
		job_reading_leave(reading);
		return;
	case SEARCH_FULL:
		job_reading_finish(reading, exec, true);
		return;
	case SEARCH_MORE:
		tool_turn_wait(request, &reading->turn);
		return;
	case SEARCH_CAUGHT_UP:
		break;
	}
	int64_t left = (reading->deadline - clock_monotonic()) / NSEC_PER_MSEC;
	if (over || left <= 0 || (reading->search.matches > 0 && !reading->until_end))
		job_reading_finish(reading, exec, false);
	else
		job_reading_wait_more(reading, exec, MIN(left, job.context ? CELL_LOOK_MS : left));
}

static void job_reading_turn_come(void *data)
{
	struct job_reading *reading = data;
	if (!reading->request->open) {
		job_reading_leave(reading);
		return;
	}
	struct exec *exec = job_again(reading->request, reading->job_id);
	if (exec)
		job_reading_step_search(reading, exec);
	else
		job_reading_leave(reading);
}

static void job_reading_step(struct job_reading *reading, struct exec *exec)
{
	if (reading->pattern) {
		tool_turn_wait(reading->request, &reading->turn);
		return;
	}
	struct job job = job_of(exec);
	bool over = job_over(&job);
	uint64_t come = job_reading_count_new(reading, exec);
	if (reading->until_end)
		come = 0;
	int64_t now = clock_monotonic(), left = (reading->deadline - now) / NSEC_PER_MSEC;
	int64_t quiet = (now - reading->grown) / NSEC_PER_MSEC;
	if (over || left <= 0 || come >= reading->max || (come > 0 && quiet >= reading->quiet_ms)) {
		job_reading_finish(reading, exec, false);
		return;
	}
	int64_t most = come > 0 ? reading->quiet_ms - quiet : job.context ? CELL_LOOK_MS : left;
	job_reading_wait_more(reading, exec, MIN(left, most));
}

/* --- the beginning --- */

/* From the beginning, or from the end if it is negative. */
static uint64_t job_reading_offset(int64_t offset, uint64_t total)
{
	if (offset >= 0)
		return (uint64_t)offset;
	uint64_t back = (uint64_t) - (offset + 1) + 1;
	return total - MIN(total, back);
}

static void read_job_act(struct mcp_request *request, struct exec *exec)
{
	struct job_reading *reading = request->state;
	struct job job = job_of(exec);
	const uint64_t begins[] = {job.cell ? job.cell->out_begin : 0,
				   job.cell ? job.cell->err_begin : 0};
	for (int i = 0; i < 2; i++) {
		uint64_t total = exec_total(exec, EXEC_STDOUT + i);
		/* `offset` applies to the stream that is read alone. */
		int which = reading->only == EXEC_STDERR ? 0 : i;
		bool given = reading->offset_given[which];
		reading->from[i] =
		    given ? job_reading_offset(reading->offsets[which], total) : begins[i];
		if (reading->from[i] > total) {
			reading->past[i] = reading->offsets[which];
			reading->from[i] = total;
		}
		/* Without an offset, new output is the output from now on. */
		reading->known[i] = given ? reading->from[i] : total;
		reading->seen[i] = total;
		reading->search.at[i] = reading->from[i];
		reading->search.wanted[i] = job_reading_wants(reading, EXEC_STDOUT + i);
	}
	int64_t now = clock_monotonic();
	tool_wait(request, read_job_cancelled);
	reading->grown = now;
	reading->deadline = now + (int64_t)(reading->wait_seconds * (double)NSEC_PER_SEC);
	job_reading_step(reading, exec);
}

static bool job_reading_check(struct job_reading *reading)
{
	struct mcp_request *request = reading->request;
	const char *reason = NULL;
	if (reading->stream && strcmp(reading->stream, "stdout") == 0)
		reading->only = EXEC_STDOUT;
	else if (reading->stream && strcmp(reading->stream, "stderr") == 0)
		reading->only = EXEC_STDERR;
	else if (reading->stream && reading->stream[0] && strcmp(reading->stream, "both") != 0) {
		content_refuse(request,
			       "field `stream` is `%.16s`; accepted: `stdout`, `stderr`; "
			       "leave it out for both",
			       reading->stream);
		return false;
	}
	reading->until_end = reading->until && strcmp(reading->until, "end") == 0;
	if (reading->until && reading->until[0] && !reading->until_end &&
	    strcmp(reading->until, "output") != 0) {
		content_refuse(request,
			       "field `until` is `%.16s`; accepted: `end`, `output` (which also "
			       "ends with the job)",
			       reading->until);
		return false;
	}
	reading->paged = reading->offset_given[0] || reading->offset_given[1];
	/* Clients give up on a call after a minute. */
	double most = request->core->config.mcp_block_seconds;
	if (reading->until && !reading->wait_given)
		reading->wait_seconds = most;
	reading->wait_seconds = MIN(reading->wait_seconds, most);
	reading->quiet_ms =
	    MAX((int64_t)(reading->wait_seconds * 1000 / QUIET_SHARE), QUIET_LEAST_MS);
	if (reading->pattern && reading->pattern[0] == '\0')
		reading->pattern = NULL;
	if (reading->pattern &&
	    search_begin(&reading->search, reading->pattern, reading->max, &reason) < 0) {
		content_refuse(request,
			       "field `pattern` is not a regular expression: %s; it is "
			       "extended syntax, like `error|warn(ing)?`",
			       reason);
		return false;
	}
	return true;
}

const struct field read_job_fields[] = {
    {"job_id", FIELD_TEXT_AT(struct job_reading, job_id), FIELD_REQUIRED, 1},
    {"sandbox_id", FIELD_TEXT_AT(struct job_reading, sandbox_id)},
    {"wait_seconds", FIELD_NUMBER_AT(struct job_reading, wait_seconds),
     .given = FIELD_GIVEN(struct job_reading, wait_given), .mcp = "At most 50."},
    {"until", FIELD_TEXT_AT(struct job_reading, until), FIELD_WORDS_TOLD, .words = "output,end"},
    {"offset", FIELD_INT_AT(struct job_reading, offsets[0]),
     .given = FIELD_GIVEN(struct job_reading, offset_given[0]), .mcp = "Negative: from the end."},
    {"stderr_offset", FIELD_INT_AT(struct job_reading, offsets[1]),
     .given = FIELD_GIVEN(struct job_reading, offset_given[1])},
    {"pattern", FIELD_TEXT_AT(struct job_reading, pattern), .max = SEARCH_PATTERN_MAX,
     .mcp = "Extended regex, like error|warn."},
    {"stream", FIELD_TEXT_AT(struct job_reading, stream), FIELD_WORDS_TOLD,
     .words = "stdout,stderr"},
    {"max_bytes", FIELD_UINT_AT(struct job_reading, max), .min = 1, .max = OUTPUT_MOST,
     .fallback = OUTPUT_DEFAULT, .mcp = "Default 16384."},
    {0},
};

void read_job(struct mcp_request *request, const json_t *arguments)
{
	struct job_reading *reading = calloc(1, sizeof(*reading));
	if (!reading)
		abort();
	reading->request = request;
	reading->turn = (struct tool_turn){.come = job_reading_turn_come, .data = reading};
	request->state = reading;
	request->state_free = job_reading_free;
	if (!tool_arguments(request, arguments, reading) || !job_reading_check(reading))
		return;
	job_find(request, reading->sandbox_id, reading->job_id, read_job_act);
}
