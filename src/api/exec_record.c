/* What a client is told of an exec: its record, its output in an answer. Reads the exec's logs
 * (page cache, bounded by the answer's maximum). Called by the exec handlers. */
#include "api/exec_ask.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

static const char *state_name(uint32_t state)
{
	return state == EXEC_STARTING  ? "starting"
	       : state == EXEC_RUNNING ? "running"
	       : state == EXEC_ENDED   ? "ended"
				       : "failed";
}

static int exit_code(const struct exec_row *row)
{
	switch ((enum exec_end)row->end) {
	case EXEC_END_EXITED:
		return (int)row->code;
	case EXEC_END_SIGNALED:
	case EXEC_END_CANCELLED:
		return 128 + (int)row->code;
	case EXEC_END_TIMED_OUT:
		return 124; /* as timeout(1) */
	case EXEC_END_LOST:
		break;
	}
	return -1;
}

static void put_end(struct json_writer *writer, const struct exec_row *row)
{
	put_int(writer, "exit_code", exit_code(row));
	bool by_signal = row->end != EXEC_END_EXITED && row->end != EXEC_END_LOST && row->code > 0;
	if (by_signal) {
		const char *name = sigabbrev_np((int)row->code);
		char text[24];
		snprintf(text, sizeof(text), "SIG%s", name ? name : "?");
		put_uint(writer, "signal", row->code);
		put_text(writer, "signal_name", text);
	} else {
		put_null(writer, "signal");
	}
	put_bool(writer, "timed_out", row->end == EXEC_END_TIMED_OUT);
	put_bool(writer, "oom_killed", row->oom_killed);
	put_bool(writer, "cancelled", row->end == EXEC_END_CANCELLED);
	put_bool(writer, "lost", row->end == EXEC_END_LOST);
	put_number(writer, "duration_ms", (double)row->wall_ns / NSEC_PER_MSEC);
	put_number(writer, "cpu_ms", (double)row->cpu_ns / NSEC_PER_MSEC);
	put_uint(writer, "peak_memory_bytes", row->peak_memory);
	put_uint(writer, "left_running_count", row->left_running);
}

void put_exec_members(struct json_writer *writer, const struct exec_row *row)
{
	put_text(writer, "exec_id", row->id.text);
	put_text(writer, "sandbox_id", row->sandbox.text);
	put_text(writer, "command", row->command);
	put_text(writer, "state", state_name(row->state));
	put_bool(writer, "tty", row->flags & EXEC_TTY);
	put_time(writer, "started_at", row->started_wall);
	put_time(writer, "ended_at", row->ended_wall);
	if (row->state == EXEC_ENDED)
		put_end(writer, row);
	if (row->state == EXEC_FAILED) {
		put_object(writer, "failure");
		put_text(writer, "code", error_info((enum error_kind)row->error_kind)->code);
		put_text(writer, "error", row->error_message);
		put_object_end(writer);
	}
}

void put_exec(struct json_writer *writer, const char *key, const struct exec *exec)
{
	put_object(writer, key);
	put_exec_members(writer, &exec->row);
	if (exec->pid)
		put_uint(writer, "pid", exec->pid);
	put_uint(writer, "stdout_bytes", exec_total(exec, EXEC_STDOUT));
	put_uint(writer, "stderr_bytes", exec_total(exec, EXEC_STDERR));
	put_object_end(writer);
}

void exec_start_error(const struct exec *exec, struct error *ret_error)
{
	error_set(ret_error, (enum error_kind)exec->row.error_kind, "%s",
		  exec->row.error_message ? exec->row.error_message
					  : "the command could not be started");
}

/* Reads [from, to) as far as it is kept without a hole: how much came; *ret_gap = what is missing
 * before its first byte. */
static size_t read_range(struct exec *exec, enum exec_stream stream, uint64_t from, uint64_t to,
			 char *data, uint64_t *ret_gap)
{
	size_t done = 0;
	*ret_gap = 0;
	while (from + *ret_gap + done < to) {
		uint64_t gap = 0;
		ssize_t size = exec_read(exec, stream, from + *ret_gap + done, data + done,
					 (size_t)(to - from - *ret_gap) - done, &gap);
		if (gap > 0 && done > 0)
			break;
		if (gap > 0)
			*ret_gap = gap;
		if (size <= 0 || from + gap >= to)
			break;
		done += MIN((size_t)size, (size_t)(to - from - *ret_gap) - done);
	}
	return done;
}

/* Bytes at the start that are the rest of a character which began before. */
static size_t utf8_rest(const char *text, size_t size)
{
	size_t at = 0;
	while (at < size && at < 3 && ((unsigned char)text[at] & 0xc0) == 0x80)
		at++;
	return at;
}

struct cut {
	char *head, *tail;
	size_t head_size, tail_size;
	uint64_t gap_offset, gap;
};

/* Head and tail of a stream, at most `maximum` bytes together, cut between characters. */
static void cut_read(struct exec *exec, enum exec_stream stream, uint64_t maximum, struct cut *cut)
{
	uint64_t total = exec_total(exec, stream), gap;
	uint64_t head = total <= maximum ? total : maximum / 2;
	char *data = malloc(MIN(total, maximum) + 1);
	if (!data)
		abort();
	cut->head = data;
	cut->head_size = read_range(exec, stream, 0, head, data, &gap);
	if (gap > 0)
		cut->head_size = 0; /* nothing of its beginning is kept: all of it is tail */
	if (cut->head_size == total)
		return;
	uint64_t start = MAX(cut->head_size, total - MIN(total, maximum - head));
	if (total <= maximum)
		start = cut->head_size;
	cut->tail = data + cut->head_size;
	cut->tail_size = read_range(exec, stream, start, total, cut->tail, &gap);
	start += gap;
	size_t whole = text_utf8_prefix(cut->head, cut->head_size);
	size_t rest = start > cut->head_size ? utf8_rest(cut->tail, cut->tail_size) : 0;
	cut->head_size = whole;
	cut->tail += rest;
	cut->tail_size -= rest;
	cut->gap_offset = whole;
	cut->gap = start + rest - whole;
}

/* Whether it had to be base64. */
static bool put_cut(struct json_writer *writer, const char *name, const struct cut *cut)
{
	DONE_BUFFER struct buffer text = BUFFER(EXEC_ANSWER_MAX + 256);
	bool utf8 = text_is_utf8(cut->head, cut->head_size) &&
		    (!cut->tail || text_is_utf8(cut->tail, cut->tail_size));
	int result = buffer_append(&text, cut->head, cut->head_size);
	if (result == 0 && cut->gap && utf8)
		result = buffer_printf(&text, "\n[... %llu bytes are not shown ...]\n",
				       (unsigned long long)cut->gap);
	if (result == 0 && cut->tail)
		result = buffer_append(&text, cut->tail, cut->tail_size);
	if (result < 0) {
		writer->full = true;
	} else if (utf8) {
		put_text_size(writer, name, buffer_text(&text), text.size);
	} else {
		char key[32];
		snprintf(key, sizeof(key), "%s_base64", name);
		put_base64(writer, key, text.data, text.size);
	}
	return !utf8;
}

static bool put_stream(struct json_writer *writer, struct exec *exec, enum exec_stream stream,
		       uint64_t maximum)
{
	const char *name = stream == EXEC_STDOUT ? "stdout" : "stderr";
	struct cut cut = {0};
	char key[32];
	cut_read(exec, stream, maximum, &cut);
	bool base64 = put_cut(writer, name, &cut);
	snprintf(key, sizeof(key), "%s_bytes", name);
	put_uint(writer, key, exec_total(exec, stream));
	snprintf(key, sizeof(key), "%s_truncated", name);
	put_bool(writer, key, cut.gap > 0);
	if (cut.gap > 0) {
		snprintf(key, sizeof(key), "%s_gap", name);
		put_object(writer, key);
		put_uint(writer, "offset", cut.gap_offset);
		put_uint(writer, "bytes", cut.gap);
		put_object_end(writer);
	}
	free(cut.head);
	return base64;
}

void put_exec_output(struct json_writer *writer, struct exec *exec, uint64_t maximum)
{
	bool out = put_stream(writer, exec, EXEC_STDOUT, maximum);
	bool err = put_stream(writer, exec, EXEC_STDERR, maximum);
	if (out || err)
		put_text(writer, "encoding", "base64");
}

void put_left_running(struct json_writer *writer, const struct left_process *processes,
		      size_t count)
{
	put_array(writer, "left_running");
	for (size_t i = 0; i < count; i++) {
		put_object(writer, NULL);
		put_uint(writer, "pid", processes[i].pid);
		put_bytes(writer, "command", processes[i].command, strlen(processes[i].command));
		put_object_end(writer);
	}
	put_array_end(writer);
}
