/* The request for a command, and the JSON answers about it. */
#pragma once

#include "core/exec/exec.h"
#include "core/account/access.h"
#include "edge/fields.h"

#define EXEC_ANSWER_DEFAULT (1 * MIB) /* for each stream, in a blocking answer */
#define EXEC_ANSWER_MAX (4 * MIB)     /* as JSON at worst six times as much, which fits REPLY_MAX */

enum stdin_kind {
	STDIN_NONE,  /* /dev/null */
	STDIN_GIVEN, /* `stdin` or `stdin_base64` */
	STDIN_OPEN,  /* `stdin: true`: it comes later */
};

struct exec_ask {
	struct exec_spec spec; /* borrows from the request's JSON and from here */
	const char **argv;
	struct pair *environment;
	struct exec_limit limits[EXEC_RUNLIMITS_MAX];
	enum stdin_kind stdin_kind;
	bool stdin_said; /* `stdin` was given as a boolean */
	char *stdin_data;
	size_t stdin_size;
	bool background;
	uint64_t answer_max; /* for each stream */
};

NODISCARD int exec_ask_parse(const json_t *body, struct exec_ask *ret_ask, struct error *error);
void exec_ask_done(struct exec_ask *ask);

/* "TERM", "SIGTERM", "15" or 15. */
NODISCARD int signal_parse(const json_t *json, int *ret_signal, struct error *error);

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
