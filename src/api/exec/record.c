/* The JSON record of an exec and its output in an answer. Reads the exec's logs (page cache,
 * bounded by the answer's maximum). Called by the exec handlers. */
#include "api/exec/record.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "edge/fields/exec_fields.h"

void put_exec_members(struct json_writer *writer, const struct exec_row *row)
{
	put_text(writer, "exec_id", row->id.text);
	put_text(writer, "sandbox_id", row->sandbox.text);
	put_text(writer, "command", row->command);
	put_text(writer, "state", row->state == EXEC_ENDED ? "ended" : exec_state_text(row));
	put_bool(writer, "tty", row->flags & EXEC_TTY);
	put_time(writer, "started_at", row->started_wall);
	put_time(writer, "ended_at", row->ended_wall);
	if (row->state == EXEC_ENDED) {
		put_int(writer, "exit_code", exec_exit_code(row));
		bool by_signal =
		    row->end != EXEC_END_EXITED && row->end != EXEC_END_LOST && row->code > 0;
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
		put_bool(writer, "too_many_processes", row->end == EXEC_END_TOO_MANY_PROCESSES);
		put_bool(writer, "cancelled", row->end == EXEC_END_CANCELLED);
		put_bool(writer, "lost", row->end == EXEC_END_LOST);
		if (row->end == EXEC_END_LOST && row->error_message)
			put_text(writer, "lost_reason", row->error_message);
		put_number(writer, "duration_ms", (double)row->wall_ns / NSEC_PER_MSEC);
		put_number(writer, "cpu_ms", (double)row->cpu_ns / NSEC_PER_MSEC);
		put_uint(writer, "peak_memory_bytes", row->peak_memory);
		put_uint(writer, "left_running_count", row->left_running);
	}
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

struct output_shown put_output(struct json_writer *writer, struct exec *exec,
			       enum exec_stream stream, uint64_t begin, uint64_t end,
			       uint64_t maximum, bool text_only)
{
	const char *name = stream == EXEC_STDOUT ? "stdout" : "stderr";
	DONE_BUFFER struct buffer text = BUFFER(EXEC_ANSWER_MAX + 256);
	struct output_cut cut;
	struct error error;
	char key[32];
	if (!exec || output_cut(exec, stream, begin, end, maximum / 2, maximum - maximum / 2, &cut,
				&error) < 0) {
		uint64_t total = end > begin ? end - begin : 0;
		/* The result is worth more than the missing output, which is reported as a gap. */
		if (exec)
			log_warning("%s", error.message);
		cut = (struct output_cut){
		    .total = total, .omitted = total, .tail_offset = begin + total};
	}
	bool utf8 = text_only || (text_is_utf8(cut.head.data, cut.head.size) &&
				  text_is_utf8(cut.tail.data, cut.tail.size));
	int result = buffer_append(&text, cut.head.data, cut.head.size);
	if (result == 0 && cut.omitted && utf8)
		result = buffer_printf(&text, "\n[... %llu bytes are not shown ...]\n",
				       (unsigned long long)cut.omitted);
	if (result == 0)
		result = buffer_append(&text, cut.tail.data, cut.tail.size);
	if (result < 0) {
		writer->full = true;
	} else if (utf8) {
		put_text_size(writer, name, buffer_text(&text), text.size);
	} else {
		snprintf(key, sizeof(key), "%s_base64", name);
		put_base64(writer, key, text.data, text.size);
	}
	snprintf(key, sizeof(key), "%s_bytes", name);
	put_uint(writer, key, cut.total);
	output_cut_done(&cut);
	return (struct output_shown){cut.omitted, cut.tail_offset, !utf8};
}

void put_exec_result(struct json_writer *writer, struct exec *exec, uint64_t maximum,
		     const struct left_process *left, size_t count)
{
	bool base64 = false;
	put_exec_members(writer, &exec->row);
	for (enum exec_stream stream = EXEC_STDOUT; stream <= EXEC_STDERR; stream++) {
		const char *name = stream == EXEC_STDOUT ? "stdout" : "stderr";
		char key[32];
		struct output_shown shown =
		    put_output(writer, exec, stream, 0, exec_total(exec, stream), maximum, false);
		base64 |= shown.base64;
		snprintf(key, sizeof(key), "%s_truncated", name);
		put_bool(writer, key, shown.omitted > 0);
		if (shown.omitted > 0) {
			snprintf(key, sizeof(key), "%s_gap", name);
			put_object(writer, key);
			put_uint(writer, "offset", shown.tail_offset - shown.omitted);
			put_uint(writer, "bytes", shown.omitted);
			put_object_end(writer);
		}
	}
	if (base64)
		put_text(writer, "encoding", "base64");
	put_left_running(writer, left, count);
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

void put_expiry_warning(struct json_writer *writer, const struct sandbox_row *row)
{
	int64_t left = sandbox_expires_in(row);
	if (left >= 0 && left < SANDBOX_EXPIRY_WARNING)
		put_int(writer, "expires_in_s", left);
}
