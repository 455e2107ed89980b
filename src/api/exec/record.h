/* What a client is told of an exec. */
#pragma once

#include "core/exec/exec.h"
#include "core/account/access.h"
#include "edge/json/json.h"

/* Members of an exec's record, in an object that the caller opened. */
void put_exec_members(struct json_writer *writer, const struct exec_row *row);
void put_exec(struct json_writer *writer, const char *key, const struct exec *exec);
/* The members of a result for which a client has waited: those of the record, its output, each
 * stream cut in the middle to at most `maximum` bytes, and its left-over processes. */
void put_exec_result(struct json_writer *writer, struct exec *exec, uint64_t maximum,
		     const struct left_process *left, size_t count);
struct output_shown {
	uint64_t omitted;
	uint64_t tail_offset; /* what follows the omitted bytes begins here, in the stream */
	bool base64;
};
/* [begin, end) of a stream as `stdout` or `stderr`, half of it from the beginning, with a line
 * where something was omitted; and its size. Bytes that are not UTF-8 come as `stdout_base64`,
 * without that line, or for clients that only know text (text_only) as U+FFFD. Unreadable parts,
 * and the output of an exec that no longer exists (NULL), are omitted. */
struct output_shown put_output(struct json_writer *writer, struct exec *exec,
			       enum exec_stream stream, uint64_t begin, uint64_t end,
			       uint64_t maximum, bool text_only);
void put_left_running(struct json_writer *writer, const struct left_process *processes,
		      size_t count);
/* expires_in_s of the sandbox, if its end is near. */
void put_expiry_warning(struct json_writer *writer, const struct sandbox_row *row);
