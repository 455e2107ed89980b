/* See answer.h. Called by the tools that run something and by read_job; reads logs from the page
 * cache, bounded. Output and figures of a sandbox are not trusted: their sizes and types are
 * checked here. */
#include "mcp/tools/answer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/account/access.h"
#include "mcp/content.h"

/* Room beside the output: results, tracebacks, notes. */
#define ANSWER_EXTRA (64 * KIB)
#define RESULT_TEXT_MAX (8 * KIB)
#define RESULTS_TEXT_MAX (24 * KIB)
#define LEFT_SHOWN 5
#define NEXT_WAIT_SECONDS 30
#define LEFT_COMMAND_SHOWN 60
#define KILLED_CODE 137    /* 128 and SIGKILL */
#define TIMED_OUT_CODE 124 /* as for a command (core/exec/exec.h) */

#define add(to, ...)                                                                               \
	do {                                                                                       \
		if (buffer_printf(to, __VA_ARGS__) < 0)                                            \
			break;                                                                     \
	} while (0)

void answer_begin(struct answer *answer, uint64_t output_max)
{
	*answer = (struct answer){0};
	/* A byte that is not text becomes four, and up to a quarter of the bytes may be such. */
	answer->text = BUFFER(2 * MAX(output_max, OUTPUT_DEFAULT) + ANSWER_EXTRA);
}

void answer_done(struct answer *answer)
{
	buffer_done(&answer->text);
	for (size_t i = 0; i < answer->image_count; i++)
		free(answer->images[i].data);
	*answer = (struct answer){0};
}

void answer_send(struct mcp_request *request, struct answer *answer)
{
	static const char *const names[] = {"stdout", "stderr"};
	char uri[2 * ID_LENGTH + 32], description[96];
	content_begin(request);
	content_text(request, buffer_text(&answer->text), answer->text.size);
	for (size_t i = 0; i < answer->image_count; i++)
		content_image(request, answer->images[i].type, answer->images[i].data,
			      answer->images[i].size);
	for (int i = 0; i < 2; i++) {
		if (!answer->linked[i])
			continue;
		snprintf(uri, sizeof(uri), "job://%s/%s/%s", answer->sandbox.text,
			 answer->exec.text, names[i]);
		snprintf(description, sizeof(description), "the %s of job %s", names[i],
			 answer->exec.text);
		content_link(request, uri, names[i], "text/plain", description);
	}
	content_end(request, false);
}

/* --- an exec --- */

void answer_view_all(struct exec *exec, struct answer_view *view)
{
	view->output.out_begin = view->output.err_begin = 0;
	view->output.out_end = output_end(exec, EXEC_STDOUT);
	view->output.err_end = output_end(exec, EXEC_STDERR);
}

static void answer_append_output(struct answer *answer, struct exec *exec,
				 const struct answer_view *view)
{
	bool left_out = !view->paged && output_append(&answer->text, exec, &view->output);
	answer->sandbox = exec->sandbox->row.id;
	answer->exec = exec->row.id;
	if (view->gone && left_out)
		add(&answer->text,
		    "[what was left out is gone with the one-shot sandbox: for all of "
		    "it give max_output_bytes, or create_sandbox first]\n");
	if (view->gone)
		return;
	answer->linked[0] = left_out && view->output.out_end > view->output.out_begin;
	answer->linked[1] = left_out && view->output.err_end > view->output.err_begin;
}

static void answer_append_duration(struct buffer *to, uint64_t nanoseconds)
{
	double seconds = (double)nanoseconds / NSEC_PER_SEC;
	if (seconds >= 1)
		add(to, " after %.1f s", seconds);
}

static void answer_append_end(struct buffer *to, const struct exec *exec)
{
	const struct exec_row *row = &exec->row;
	bool deleted = state_facts(exec->sandbox->row.state)->going;
	bool lost = row->end == EXEC_END_LOST;
	const char *name = row->code < NSIG ? sigabbrev_np((int)row->code) : NULL;
	add(to, "[");
	if (row->end == EXEC_END_SIGNALED)
		add(to, "killed by SIG%s%s, ", name ? name : "?",
		    row->oom_killed ? ": out of memory" : "");
	else if (row->end == EXEC_END_TIMED_OUT)
		add(to, "timed out after %g s and was killed with all it started, ",
		    row->timeout_ms / 1000.0);
	else if (row->end == EXEC_END_TOO_MANY_PROCESSES)
		add(to, "killed with all it started: " EXEC_TOO_MANY_PROCESSES " of %u (pids), ",
		    exec->sandbox->row.limits.pids);
	else if (row->end == EXEC_END_CANCELLED)
		add(to, "killed, ");
	else if (lost)
		add(to, "lost: %s; its exit code is not known",
		    deleted ? "its sandbox was ended while it ran"
			    : "its sandbox stopped, or its processes were killed from inside");
	if (!lost)
		add(to, "exit code %d", exec_exit_code(row));
	if (!lost && row->end != EXEC_END_TIMED_OUT)
		answer_append_duration(to, row->wall_ns);
	if (row->oom_killed && row->end != EXEC_END_SIGNALED)
		add(to, "; a process ran out of memory");
}

static void answer_append_left(struct buffer *to, const struct left_process *left, size_t count,
			       bool gone)
{
	if (count == 0)
		return;
	add(to, gone ? "[left in the background and ended with the sandbox:"
		     : "[still running in the background:");
	for (size_t i = 0; i < MIN(count, (size_t)LEFT_SHOWN); i++) {
		DONE_BUFFER struct buffer command = BUFFER(4 * LEFT_COMMAND_SHOWN + 1);
		size_t size = strnlen(left[i].command, LEFT_COMMAND_SHOWN);
		size = text_utf8_prefix(left[i].command, size);
		output_name(&command, left[i].command, size);
		add(to, "%s pid %u `%s`", i ? "," : "", left[i].pid, buffer_text(&command));
	}
	if (count > LEFT_SHOWN)
		add(to, " and %zu more", count - LEFT_SHOWN);
	add(to, "]\n");
}

/* Closes the last line: which sandbox it was, and when it will end if that is soon. */
static void answer_close_line(struct buffer *to, const struct sandbox *sandbox,
			      const struct answer_view *view)
{
	int64_t left = sandbox_expires_in(&sandbox->row);
	if (view->note && view->note[0])
		add(to, "; %s", view->note);
	if (view->gone)
		add(to, "; ran in a fresh sandbox, gone now");
	else if (left >= 0 && left < SANDBOX_EXPIRY_WARNING)
		add(to,
		    "; sandbox %s ends in %lld s with its files; for more time: extend_sandbox "
		    "{\"sandbox_id\":\"%s\",\"timeout_seconds\":3600}",
		    sandbox->row.id.text, (long long)left, sandbox->row.id.text);
	add(to, "]");
}

void answer_exec(struct answer *answer, struct exec *exec, const struct answer_view *view,
		 const struct left_process *left, size_t left_count)
{
	struct buffer *to = &answer->text;
	answer_append_output(answer, exec, view);
	bool silent = to->size == 0 && !view->paged;
	answer_append_left(to, left, left_count, view->gone);
	answer_append_end(to, exec);
	if (silent)
		add(to, ", no output");
	answer_close_line(to, exec->sandbox, view);
}

void answer_next_call(struct buffer *to, const struct exec *exec, const struct answer_view *view,
		      unsigned wait)
{
	bool only_stderr = view->only == EXEC_STDERR;
	add(to, "read_job {\"job_id\":\"%s\",", exec->row.id.text);
	if (view->only)
		add(to, "\"stream\":\"%s\",", only_stderr ? "stderr" : "stdout");
	add(to, "\"offset\":%llu",
	    (unsigned long long)(only_stderr ? view->output.err_end : view->output.out_end));
	/* Also if it is 0: else new output in the meantime would not count as new. */
	if (!view->only)
		add(to, ",\"stderr_offset\":%llu", (unsigned long long)view->output.err_end);
	if (wait > 0)
		add(to, ",\"wait_seconds\":%u", wait);
	add(to, "}");
}

void answer_running(struct answer *answer, struct exec *exec, const struct answer_view *view)
{
	struct buffer *to = &answer->text;
	int64_t since = view->since_wall ? view->since_wall : exec->row.started_wall;
	int64_t ran = since ? clock_wall() - since : 0;
	answer_append_output(answer, exec, view);
	answer->linked[0] = !view->gone && !view->paged;
	add(to, "[status: running for %lld s, job_id %s; next: ",
	    (long long)(MAX(ran, 0) / NSEC_PER_SEC), exec->row.id.text);
	answer_next_call(to, exec, view, NEXT_WAIT_SECONDS);
	add(to, ", or stop_job {\"job_id\":\"%s\"}", exec->row.id.text);
	answer_close_line(to, exec->sandbox, view);
}

/* --- a cell --- */

void answer_cell_view(struct exec *exec, const struct code_cell *cell, struct answer_view *view)
{
	bool over = cell->state == CELL_ENDED || cell->state == CELL_LOST;
	view->since_wall = cell->sent_wall;
	view->output.out_begin = cell->out_begin;
	view->output.err_begin = cell->err_begin;
	view->output.out_end = over ? cell->out_end : output_end(exec, EXEC_STDOUT);
	view->output.err_end = over ? cell->err_end : output_end(exec, EXEC_STDERR);
}

/* An image type that clients show to a model. */
static bool result_is_picture(const char *type)
{
	return strcmp(type, "image/png") == 0 || strcmp(type, "image/jpeg") == 0 ||
	       strcmp(type, "image/gif") == 0 || strcmp(type, "image/webp") == 0;
}

/* Lower is better; 0: not shown. */
static int result_type_rank(const char *type)
{
	static const char *const texts[] = {"text/plain", "text/markdown", "application/json",
					    "text/latex", "text/html",     "image/svg+xml"};
	if (result_is_picture(type))
		return 1;
	for (int i = 0; i < (int)ARRAY_SIZE(texts); i++)
		if (strcmp(type, texts[i]) == 0)
			return 2 + i;
	return text_starts(type, "text/") ? 2 + (int)ARRAY_SIZE(texts) : 0;
}

static void answer_add_picture(struct answer *answer, const struct code_context *context,
			       const struct code_part *part)
{
	if (answer->image_count == ANSWER_IMAGES_MAX || part->size > ANSWER_IMAGE_BYTES_MAX ||
	    answer->image_bytes + part->size > ANSWER_IMAGES_BYTES_MAX) {
		add(&answer->text,
		    "[a figure of %u bytes (%s) is not shown: at most %d of %llu bytes each; save "
		    "it to a file and read that]\n",
		    part->size, part->key, ANSWER_IMAGES_MAX,
		    (unsigned long long)ANSWER_IMAGE_BYTES_MAX);
		return;
	}
	char *data = part->size > 0 ? code_part_read(context, part) : NULL;
	bool picture = false;
	if (!data)
		return;
	const char *type = content_type_of(data, part->size, &picture);
	if (!picture) {
		free(data);
		add(&answer->text, "[a result that says it is %s and is not, %u bytes]\n",
		    part->key, part->size);
		return;
	}
	struct answer_image *image = &answer->images[answer->image_count++];
	snprintf(image->type, sizeof(image->type), "%s", type);
	image->data = data;
	image->size = part->size;
	answer->image_bytes += part->size;
}

static void answer_add_text(struct buffer *to, const char *title, const char *data, size_t size,
			    size_t max)
{
	uint64_t binary = 0;
	size_t shown = size <= max ? size : text_utf8_prefix(data, max);
	add(to, "[%s]\n", title);
	output_visible(to, data, shown, &binary);
	output_end_line(to);
	if (shown < size)
		add(to, "[... %zu bytes more of the %s left out: print a part of it]\n",
		    size - shown, title);
}

static void answer_add_result(struct answer *answer, const struct code_context *context,
			      const struct code_cell *cell, uint32_t result, size_t *text_left)
{
	const struct code_part *best = NULL;
	for (size_t i = 0; i < cell->part_count; i++) {
		const struct code_part *part = &cell->parts[i];
		if (part->kind != CODE_RECORD_DATA || part->result != result ||
		    result_type_rank(part->key) == 0)
			continue;
		if (!best || result_type_rank(part->key) < result_type_rank(best->key))
			best = part;
	}
	if (!best)
		return;
	if (result_is_picture(best->key)) {
		answer_add_picture(answer, context, best);
		return;
	}
	FREE_TEXT char *data = code_part_read(context, best);
	size_t max = MIN((size_t)RESULT_TEXT_MAX, *text_left);
	if (!data)
		return;
	answer_add_text(&answer->text, strcmp(best->key, "text/plain") == 0 ? "result" : best->key,
			data, best->size, max);
	*text_left -= MIN(max, (size_t)best->size);
}

/* The forms that the driver omitted: too large, or too many. */
static void answer_add_left_out(struct answer *answer, const struct code_context *context,
				const struct code_part *part)
{
	FREE_TEXT char *digits = code_part_read(context, part);
	uint64_t number = 0;
	if (!digits || text_to_u64(digits, 0, INT64_MAX, &number) < 0)
		number = 0;
	if (strcmp(part->key, "results") == 0)
		add(&answer->text, "[%llu more results are left out]\n",
		    (unsigned long long)number);
	else
		add(&answer->text, "[a result of %llu bytes (%s) is too large and left out]\n",
		    (unsigned long long)number, part->key);
}

static void answer_add_results(struct answer *answer, const struct code_context *context,
			       const struct code_cell *cell)
{
	size_t text_left = RESULTS_TEXT_MAX;
	uint32_t count = 0;
	for (size_t i = 0; i < cell->part_count; i++)
		if (cell->parts[i].kind == CODE_RECORD_DATA)
			count = MAX(count, cell->parts[i].result + 1);
	for (uint32_t i = 0; i < MIN(count, (uint32_t)CODE_PARTS_MAX); i++)
		answer_add_result(answer, context, cell, i, &text_left);
	for (size_t i = 0; i < cell->part_count; i++)
		if (cell->parts[i].kind == CODE_RECORD_LEFT)
			answer_add_left_out(answer, context, &cell->parts[i]);
}

static char *result_error_part(const struct code_context *context, const struct code_cell *cell,
			       const char *key, size_t *ret_size)
{
	for (size_t i = 0; i < cell->part_count; i++) {
		const struct code_part *part = &cell->parts[i];
		if (part->kind != CODE_RECORD_ERROR || strcmp(part->key, key) != 0 ||
		    part->size == 0)
			continue;
		*ret_size = part->size;
		return code_part_read(context, part);
	}
	return NULL;
}

/* The traceback is sufficient; without one, the error's name and value. Of a long one the end
 * matters. */
static void answer_add_error(struct answer *answer, const struct code_context *context,
			     const struct code_cell *cell)
{
	size_t size = 0, name_size = 0;
	struct buffer *to = &answer->text;
	if (!cell->has_error)
		return;
	FREE_TEXT char *text = result_error_part(context, cell, "traceback", &size);
	if (!text) {
		FREE_TEXT char *name = result_error_part(context, cell, "name", &name_size);
		text = result_error_part(context, cell, "value", &size);
		add(to, "[error]\n%.200s%s", name ? name : "", name && text ? ": " : "");
		if (text)
			output_visible(to, text, MIN(size, (size_t)RESULT_TEXT_MAX),
				       &(uint64_t){0});
		output_end_line(to);
		return;
	}
	size_t skip = size > RESULT_TEXT_MAX ? size - RESULT_TEXT_MAX : 0;
	skip += skip > 0 ? utf8_rest(text + skip, size - skip) : 0;
	if (skip > 0)
		add(to, "[the first %zu bytes of the traceback are left out]\n", skip);
	answer_add_text(to, "error", text + skip, size - skip, RESULT_TEXT_MAX);
}

void answer_cell(struct answer *answer, struct code_context *context, const struct code_cell *cell,
		 const struct answer_view *view)
{
	struct buffer *to = &answer->text;
	struct exec *exec = code_context_exec(context);
	if (exec)
		answer_append_output(answer, exec, view);
	answer_add_results(answer, context, cell);
	answer_add_error(answer, context, cell);
	bool silent = to->size == 0 && answer->image_count == 0 && !view->paged;
	if (cell->state == CELL_LOST)
		add(to, "[lost: nobody knows whether it ran");
	else if (cell->timed_out) /* whatever the interrupt has caused */
		add(to, "[timed out and was stopped, exit code %d", TIMED_OUT_CODE);
	else if (cell->interrupted)
		add(to, "[interrupted, exit code %d", cell->exit_code);
	else
		add(to, "[exit code %d", cell->exit_code);
	answer_append_duration(to, cell->duration_ns);
	/* The end of a context is reported separately. */
	if (exec && exec_ended(exec) && exec->row.oom_killed && !cell->context_ended)
		add(to, cell->exit_code == KILLED_CODE ? "; killed: out of memory"
						       : "; a process ran out of memory");
	if (silent)
		add(to, ", no output");
	if (cell->context_ended)
		add(to, "; its interpreter ended with it, the variables are gone: %s",
		    context->row.reason ? context->row.reason : "nobody knows why");
	answer_close_line(to, context->sandbox, view);
}
