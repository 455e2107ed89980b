/* A job's output as a resource: `job://{sandbox}/{job}/{stream}`. Bounded: the end of a long
 * output, with a note about the part before it. Reading and watching wake nothing. Nothing blocks
 * except reading the output's log. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "core/exec/exec.h"
#include "core/account/access.h"
#include "mcp/resources/usual_resources.h"

#define JOB_OUTPUT_MAX (256 * KIB)

static int stream_parse(const char *text, enum exec_stream *ret_stream, struct error *error)
{
	if (strcmp(text, "stdout") == 0)
		*ret_stream = EXEC_STDOUT;
	else if (strcmp(text, "stderr") == 0)
		*ret_stream = EXEC_STDERR;
	else
		return error_set(error, ERROR_NO_ROUTE, "a stream is `stdout` or `stderr`");
	return 0;
}

/* variables: sandbox, job, stream. */
static int job_stream_find(struct core *core, const struct principal *principal,
			   const char *const *variables, struct exec **ret_exec,
			   enum exec_stream *ret_stream, struct error *error)
{
	struct sandbox *sandbox;
	if (stream_parse(variables[2], ret_stream, error) < 0 ||
	    sandbox_find(core, principal, variables[0], &sandbox, error) < 0)
		return -1;
	return exec_find(sandbox, variables[1], ret_exec, error);
}

/* Fills `to` with the kept output from `offset` on; *ret_begin is where it begins. */
static int job_read_from(struct exec *exec, enum exec_stream stream, uint64_t offset,
			 struct buffer *to, uint64_t *ret_begin)
{
	uint64_t gap = 0;
	*ret_begin = offset;
	for (;;) {
		size_t want = MIN(to->maximum - to->size, FILE_CHUNK_MAX);
		if (want == 0 || buffer_reserve(to, want) < 0)
			return 0;
		ssize_t got = exec_read(exec, stream, offset, to->data + to->size, want, &gap);
		if (got < 0)
			return (int)got;
		if (gap > 0) { /* the data after the gap is the end, in one piece */
			memmove(to->data, to->data + to->size, (size_t)got);
			to->size = 0;
			*ret_begin = offset + gap;
		}
		if (got == 0)
			return 0;
		buffer_grow(to, (size_t)got);
		offset += gap + (uint64_t)got;
	}
}

static void job_read(struct mcp_request *request, const char *uri, const char *const *variables)
{
	DONE_BUFFER struct buffer output = BUFFER(JOB_OUTPUT_MAX);
	enum exec_stream stream;
	struct exec *exec;
	struct error error;
	uint64_t begin = 0;
	if (job_stream_find(request->core, &request->principal, variables, &exec, &stream, &error) <
	    0) {
		resource_fail(request, uri, &error);
		return;
	}
	uint64_t total = exec_total(exec, stream);
	int result = job_read_from(
	    exec, stream, total > JOB_OUTPUT_MAX ? total - JOB_OUTPUT_MAX : 0, &output, &begin);
	if (result < 0) {
		error_set_errno(&error, ERROR_INTERNAL, result, "the output of job %s",
				exec->row.id.text);
		mcp_fail(request, &error);
		return;
	}
	size_t skip = begin > 0 ? utf8_rest(buffer_text(&output), output.size) : 0;
	const char *text = buffer_text(&output) + skip;
	size_t size = output.size - skip;
	/* A running command may have written half a character. */
	size_t whole = exec_ended(exec) ? size : text_utf8_prefix(text, size);
	resource_begin(request);
	if (text_is_utf8(text, whole) && !memchr(text, '\0', whole))
		resource_text(request, uri, "text/plain", text, whole);
	else
		resource_blob(request, uri, "application/octet-stream", buffer_text(&output),
			      output.size);
	if (begin > 0) {
		char note[256];
		int used =
		    snprintf(note, sizeof(note),
			     "[%s of job %s has %llu bytes; these are its last %zu. Call "
			     "read_job for what is before them.]",
			     variables[2], exec->row.id.text, (unsigned long long)total, size);
		resource_text(request, uri, "text/plain", note, (size_t)used);
	}
	resource_end(request);
}

/* --- watching --- */

struct job_watch {
	struct exec_watcher watcher;
	struct resource_watch *watch;
	enum exec_stream stream;
	uint64_t total;
	bool watching;
};

static void job_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct job_watch *job = container_of(watcher, struct job_watch, watcher);
	uint64_t total = exec_total(exec, job->stream);
	if (exec_ended(exec)) {
		job->watching = false;
		exec_unwatch(watcher);
		resource_over(job->watch);
	} else if (total != job->total) {
		resource_changed(job->watch);
	}
	job->total = total;
}

static void job_forgotten(struct exec_watcher *watcher)
{
	struct job_watch *job = container_of(watcher, struct job_watch, watcher);
	job->watching = false;
	resource_over(job->watch);
}

static void job_watch_free(void *state)
{
	struct job_watch *job = state;
	if (job->watching)
		exec_unwatch(&job->watcher);
	free(job);
}

static int job_watch(struct resource_watch *watch, const char *const *variables,
		     struct error *error)
{
	enum exec_stream stream;
	struct exec *exec;
	if (job_stream_find(watch->core, &watch->principal, variables, &exec, &stream, error) < 0)
		return -1;
	struct job_watch *job = calloc(1, sizeof(*job));
	if (!job)
		abort();
	job->watcher.changed = job_changed;
	job->watcher.forgotten = job_forgotten;
	job->watch = watch;
	job->stream = stream;
	job->total = exec_total(exec, stream);
	watch->state = job;
	watch->state_free = job_watch_free;
	/* An ended job does not change: there is nothing to report. */
	job->watching = !exec_ended(exec);
	if (job->watching)
		exec_watch(exec, &job->watcher);
	return 0;
}

/* --- completion --- */

struct job_completion {
	struct completion completion;
	const char *value;
};

static bool complete_job(void *data, const struct exec_row *row)
{
	struct job_completion *job = data;
	if (text_starts(row->id.text, job->value))
		completion_put(&job->completion, row->id.text);
	return true;
}

static void job_complete(struct mcp_request *request, const char *variable, const char *value)
{
	static const char *const streams[] = {"stdout", "stderr"};
	struct job_completion job = {.value = value};
	struct error error;
	if (strcmp(variable, "sandbox") == 0) {
		complete_sandbox(request, value);
		return;
	}
	completion_begin(request, &job.completion);
	if (strcmp(variable, "stream") == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(streams); i++)
			if (text_starts(streams[i], value))
				completion_put(&job.completion, streams[i]);
	} else {
		struct sandbox *sandbox = completion_sandbox(request);
		if (sandbox &&
		    exec_list(sandbox, COMPLETIONS_MAX + 1, complete_job, &job, &error) < 0)
			log_warning("the jobs of sandbox %s: %s", sandbox->row.id.text,
				    error.message);
	}
	completion_end(request, &job.completion);
}

const struct resource_kind job_resource = {
    .template = "job://{sandbox}/{job}/{stream}",
    .name = "job-output",
    .title = "Output of a job",
    .description = "What a job has written to stdout or stderr; the last 256 KiB of it.",
    .type = "text/plain",
    .read = job_read,
    .watch = job_watch,
    .complete = job_complete,
};
