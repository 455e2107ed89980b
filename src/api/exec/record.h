/* What a client is told of an exec. */
#pragma once

#include "core/exec/exec.h"
#include "core/account/access.h"
#include "edge/json.h"

/* Members of the record of an exec, into an object that the caller opened. */
void put_exec_members(struct json_writer *writer, const struct exec_row *row);
void put_exec(struct json_writer *writer, const char *key, const struct exec *exec);
/* stdout and stderr with their counts, each cut in the middle to at most `maximum` bytes. */
void put_exec_output(struct json_writer *writer, struct exec *exec, uint64_t maximum);
/* What a cut has kept, as `name`, with a line where something was left out; bytes that are not
 * UTF-8 as `name_base64`, without, or for clients that know text alone (text_only) as U+FFFD.
 * Whether it was base64. */
bool put_output(struct json_writer *writer, const char *name, const struct output_cut *cut,
		bool text_only);
/* [begin, end) of a stream for an answer, half of it the beginning: what cannot be read, or of an
 * exec that is not there any more (NULL), is left out, and told as that. */
void output_for_answer(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
		       uint64_t maximum, struct output_cut *ret_cut);
void put_left_running(struct json_writer *writer, const struct left_process *processes,
		      size_t count);
/* expires_in_s of the sandbox, when its end is near. */
void put_expiry_warning(struct json_writer *writer, const struct sandbox_row *row);
