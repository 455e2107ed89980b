/* command_run and command_interrupt of OpenSandbox. Output is returned as OpenSandbox's server
 * returns it: one object for each line, with its time. That server's output is unbounded; here the
 * middle of long output is cut out, and the answer says so. Waits through callbacks; nothing
 * blocks. */
#include "mcp/dialects/opensandbox.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "core/account/access.h"

/* For one stream. A line costs some 170 bytes beside its text, in the two forms of the answer. */
#define HEAD_MAX (48 * KIB)
#define TAIL_MAX (80 * KIB)
#define HEAD_LINES 1500
#define TAIL_LINES 2500
#define INTERRUPT_GRACE_MS 3000
#define INTERRUPT_WAIT_MS 10000

/* --- lines --- */

/* One line: its text without the end, and its length including the end. CR, LF and CR LF end a
 * line. */
static size_t log_next_line(const char *text, size_t size, size_t *ret_length)
{
	size_t length = 0;
	while (length < size && text[length] != '\n' && text[length] != '\r')
		length++;
	*ret_length = length;
	if (length == size)
		return size;
	return length +
	       (text[length] == '\r' && length + 1 < size && text[length + 1] == '\n' ? 2 : 1);
}

static size_t log_count_lines(const char *text, size_t size)
{
	size_t count = 0, length;
	for (size_t at = 0; at < size; count++)
		at += log_next_line(text + at, size - at, &length);
	return count;
}

struct log_lines {
	struct json_writer *writer;
	const struct command_state *state;
	const struct exec *exec;
	enum exec_stream stream;
};

static void put_message(const struct log_lines *lines, const char *text, size_t size, int64_t wall)
{
	put_object(lines->writer, NULL);
	/* An empty line is sent as its line end, as OpenSandbox's server does. */
	put_text_size(lines->writer, "text", size > 0 ? text : "\n", MAX(size, (size_t)1));
	put_int(lines->writer, "timestamp", wall / NSEC_PER_MSEC);
	put_bool(lines->writer, "is_error", lines->stream == EXEC_STDERR);
	put_object_end(lines->writer);
}

/* Writes lines [from, to) of a text that begins at that offset of the stream. */
static void put_lines(const struct log_lines *lines, const char *text, size_t size, uint64_t offset,
		      size_t from, size_t to)
{
	size_t length;
	for (size_t at = 0, line = 0; at < size && line < to; line++) {
		size_t whole = log_next_line(text + at, size - at, &length);
		if (line >= from)
			put_message(lines, text + at, length,
				    command_time(lines->state, lines->exec, lines->stream,
						 offset + at + whole));
		at += whole;
	}
}

static void put_left_out(const struct log_lines *lines, uint64_t bytes, size_t count)
{
	char text[200];
	int64_t wall = lines->exec->row.ended_wall ? lines->exec->row.ended_wall : clock_wall();
	int size;
	if (bytes > 0)
		size = snprintf(text, sizeof(text),
				"[... %llu bytes left out here: send long output to a file, and "
				"read it in parts with file_read ...]",
				(unsigned long long)bytes);
	else
		size = snprintf(text, sizeof(text),
				"[... %zu lines left out here: send long output to a file, and "
				"read it in parts with file_read ...]",
				count);
	put_message(lines, text, (size_t)size, wall);
}

static void put_cut(const struct log_lines *lines, const struct output_cut *cut)
{
	const struct buffer *head = &cut->head, *tail = &cut->tail;
	size_t in_head = log_count_lines(head->data, head->size);
	size_t in_tail = log_count_lines(tail->data, tail->size);
	if (cut->omitted == 0) {
		/* The whole output is here, but it may have too many lines. */
		size_t all = in_head, first = MIN(all, (size_t)HEAD_LINES);
		size_t last = all > HEAD_LINES + TAIL_LINES ? all - TAIL_LINES : first;
		put_lines(lines, head->data, head->size, 0, 0, first);
		if (last > first)
			put_left_out(lines, 0, last - first);
		put_lines(lines, head->data, head->size, 0, last, all);
		return;
	}
	put_lines(lines, head->data, head->size, 0, 0, HEAD_LINES);
	put_left_out(lines, cut->omitted, 0);
	put_lines(lines, tail->data, tail->size, cut->tail_offset,
		  in_tail > TAIL_LINES ? in_tail - TAIL_LINES : 0, in_tail);
}

static void put_stream(struct json_writer *writer, const char *key,
		       const struct command_state *state, struct exec *exec,
		       enum exec_stream stream)
{
	struct log_lines lines = {writer, state, exec, stream};
	struct output_cut cut;
	struct error error;
	put_array(writer, key);
	if (!state->fields.background) {
		if (output_cut(exec, stream, 0, exec_total(exec, stream), HEAD_MAX, TAIL_MAX, &cut,
			       &error) < 0) {
			put_message(&lines, error.message, strlen(error.message), clock_wall());
		} else {
			put_cut(&lines, &cut);
			output_cut_done(&cut);
		}
	}
	put_array_end(writer);
}

/* --- command_run --- */

/* How it ended, for people. */
static void execution_describe_end(const struct exec_row *row, char *to, size_t room)
{
	if (row->end == EXEC_END_EXITED)
		snprintf(to, room, "exit status %u", row->code);
	else if (row->end == EXEC_END_TOO_MANY_PROCESSES)
		snprintf(to, room, "signal %u: %s", row->code, EXEC_TOO_MANY_PROCESSES);
	else if (row->end == EXEC_END_SIGNALED)
		snprintf(to, room, "signal %u%s", row->code,
			 row->oom_killed ? ": out of memory" : "");
	else
		snprintf(to, room, "%s",
			 row->end == EXEC_END_TIMED_OUT   ? "timed out"
			 : row->end == EXEC_END_CANCELLED ? "interrupted"
							  : COMMAND_LOST);
}

static void put_end(struct json_writer *writer, const struct command_state *state,
		    const struct exec_row *row)
{
	int code = state->fields.background ? 0 : exec_exit_code(row);
	int64_t wall = (row->ended_wall ? row->ended_wall : clock_wall()) / NSEC_PER_MSEC;
	char text[32], end[160];
	bool known = row->end != EXEC_END_LOST;
	if (code == 0) {
		put_null(writer, "error");
		put_object(writer, "complete");
		put_int(writer, "timestamp", wall);
		put_uint(writer, "execution_time_in_millis",
			 state->fields.background ? 0 : row->wall_ns / NSEC_PER_MSEC);
		put_object_end(writer);
	} else {
		snprintf(text, sizeof(text), "%d", code);
		execution_describe_end(row, end, sizeof(end));
		put_object(writer, "error");
		put_text(writer, "name", "CommandExecError");
		put_text(writer, "value", known ? text : COMMAND_LOST);
		put_int(writer, "timestamp", wall);
		put_array(writer, "traceback");
		put_text(writer, NULL, end);
		put_array_end(writer);
		put_object_end(writer);
		put_null(writer, "complete");
	}
	if (state->fields.background || !known)
		put_null(writer, "exit_code");
	else
		put_int(writer, "exit_code", code);
}

static void execution_reply(struct mcp_request *request, struct exec *exec)
{
	const struct command_state *state = request->state;
	DONE_BUFFER struct buffer json = BUFFER(MCP_ANSWER_MAX / 2);
	struct json_writer writer = json_writer_on(&json);
	put_object(&writer, NULL);
	put_text(&writer, "id", exec->row.id.text);
	put_null(&writer, "execution_count");
	put_array(&writer, "result");
	put_array_end(&writer);
	put_end(&writer, state, &exec->row);
	put_object(&writer, "logs");
	put_stream(&writer, "stdout", state, exec, EXEC_STDOUT);
	put_stream(&writer, "stderr", state, exec, EXEC_STDERR);
	put_object_end(&writer);
	put_object_end(&writer);
	dialect_reply(request, &writer);
}

void opensandbox_run(struct mcp_request *request, const json_t *arguments)
{
	const char *id = NULL;
	bool connect;
	struct command_state *state = command_new(request);
	const struct field_to fields[] = {
	    {"sandbox_id", FIELD_TEXT, &id, true, 1},
	    {"command", FIELD_TEXT, &state->fields.command, true, 1, EXEC_REQUEST_BYTES_MAX / 2},
	    {"background", FIELD_BOOL, &state->fields.background},
	    {"working_directory", FIELD_TEXT, &state->fields.cwd, false, 1, GUEST_PATH_MAX - 1},
	    {"connect_if_missing", FIELD_BOOL, &connect},
	};
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	state->fields.bash = true;
	state->finish = execution_reply;
	target_ready(request, id, TARGET_NAMED, command_begin);
}

/* --- command_interrupt --- */

struct interrupt {
	struct pending_operation pending;
	const char *execution;
	bool forced;
};

static void execution_wait_for_end(struct mcp_request *request, struct exec *exec, uint32_t ms);

static void interrupt_ended(void *data, struct exec *exec, const struct error *error)
{
	struct mcp_request *request = data;
	struct interrupt *interrupt = request->state;
	if (pending_over(request)) {
		if (error && !exec) {
			mcp_fail(request, error);
		} else if (exec_ended(exec)) {
			dialect_reply_status(request, "interrupted");
		} else if (!interrupt->forced) {
			interrupt->forced = true;
			exec_cancel(exec, &request->principal);
			execution_wait_for_end(request, exec, INTERRUPT_WAIT_MS);
		} else {
			content_refuse(request,
				       "the command was killed, and its sandbox has not said so "
				       "within %d s; ask sandbox_healthcheck",
				       INTERRUPT_WAIT_MS / 1000);
		}
	}
	mcp_release(request);
}

/* A cancelled interrupt still ends the command, even if that takes longer than the client waits. */
static void interrupt_cancelled(struct mcp_request *request)
{
	struct interrupt *interrupt = request->state;
	struct sandbox *sandbox = sandbox_by_id(request->core, &request->sandbox);
	struct exec *exec;
	struct error error;
	exec_wait_cancel(TAKE_PTR(interrupt->pending.wait));
	if (sandbox && exec_find(sandbox, interrupt->execution, &exec, &error) == 0)
		exec_cancel(exec, &request->principal);
	mcp_release(request);
}

static void execution_wait_for_end(struct mcp_request *request, struct exec *exec, uint32_t ms)
{
	struct interrupt *interrupt = request->state;
	struct error error;
	tool_wait(request, interrupt_cancelled);
	if (exec_wait_end(exec, ms, interrupt_ended, request, &interrupt->pending.wait, &error) < 0)
		pending_refused(request, &error);
}

static void interrupt_exec(struct mcp_request *request, struct sandbox *sandbox)
{
	const struct interrupt *interrupt = request->state;
	struct exec *exec;
	struct error error;
	if (exec_find(sandbox, interrupt->execution, &exec, &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	if (exec_ended(exec)) {
		error_set(&error, ERROR_CONFLICT, "command `%s` has ended already",
			  exec->row.id.text);
		mcp_fail(request, &error);
		return;
	}
	if (exec_signal(exec, &request->principal, SIGTERM, SIGNAL_TREE, &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	execution_wait_for_end(request, exec, INTERRUPT_GRACE_MS);
}

void opensandbox_interrupt(struct mcp_request *request, const json_t *arguments)
{
	const char *id = NULL;
	bool connect;
	struct interrupt *interrupt = pending_state(request, sizeof(*interrupt), NULL);
	const struct field_to fields[] = {
	    {"sandbox_id", FIELD_TEXT, &id, true, 1},
	    {"execution_id", FIELD_TEXT, &interrupt->execution, true, 1, 128},
	    {"connect_if_missing", FIELD_BOOL, &connect},
	};
	if (dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		target_ready(request, id, TARGET_NAMED, interrupt_exec);
}
