/* What a client is told of an exec. */
#pragma once

#include "core/exec/exec.h"
#include "core/account/access.h"
#include "edge/json.h"

/* Members of an exec's record, in an object that the caller opened. */
void put_exec_members(struct json_writer *writer, const struct exec_row *row);
void put_exec(struct json_writer *writer, const char *key, const struct exec *exec);
/* stdout and stderr with their counts, each cut in the middle to at most `maximum` bytes. */
void put_exec_output(struct json_writer *writer, struct exec *exec, uint64_t maximum);
/* The kept part of an output, as `name`, with a line where something was omitted. Bytes that are
 * not UTF-8 come as `name_base64`, without that line, or for clients that only know text
 * (text_only) as U+FFFD. Returns whether it was base64. */
bool put_output(struct json_writer *writer, const char *name, const struct output_cut *cut,
		bool text_only);
/* [begin, end) of a stream for an answer, half of it from the beginning. Unreadable parts, and the
 * output of an exec that no longer exists (NULL), are omitted and reported as omitted. */
void output_for_answer(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
		       uint64_t maximum, struct output_cut *ret_cut);
void put_left_running(struct json_writer *writer, const struct left_process *processes,
		      size_t count);
/* expires_in_s of the sandbox, if its end is near. */
void put_expiry_warning(struct json_writer *writer, const struct sandbox_row *row);
