/* What a client asks for when it runs a command, and what it is told of one. */
#pragma once

#include "api/json.h"
#include "core/exec.h"

#define EXEC_ANSWER_DEFAULT (1 * MIB) /* of each stream, in a blocking answer */
#define EXEC_ANSWER_MAX (4 * MIB)     /* six times as much at worst, as JSON, fits REPLY_MAX */

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
	bool stdin_said; /* `stdin` was given as true or false */
	char *stdin_data;
	size_t stdin_size;
	bool background;
	uint64_t answer_max; /* of each stream */
};

NODISCARD int exec_ask_parse(const json_t *body, struct exec_ask *ret_ask, struct error *error);
void exec_ask_done(struct exec_ask *ask);

/* Members of the record of an exec, into an object that the caller opened. */
void put_exec_members(struct json_writer *writer, const struct exec_row *row);
void put_exec(struct json_writer *writer, const char *key, const struct exec *exec);
/* stdout and stderr with their counts, each cut in the middle to at most `maximum` bytes. */
void put_exec_output(struct json_writer *writer, struct exec *exec, uint64_t maximum);
void put_left_running(struct json_writer *writer, const struct left_process *processes,
		      size_t count);
/* Asks which descendants of an ended exec still run (nobody is asked where none do), then calls
 * back, also when the answer cannot be had. */
void exec_finish(struct exec *exec,
		 void (*done)(void *data, const struct left_process *processes, size_t count),
		 void *data);
/* Why an exec that is EXEC_FAILED could not be started. */
void exec_start_error(const struct exec *exec, struct error *ret_error);

/* Kills it with every process it started; while its sandbox cannot be reached, as soon as it can.
 */
void exec_cancel(struct exec *exec);
/* Bytes of its standard input were lost on the way, with the connection to the sandbox: what runs
 * has half an input. error says so. */
bool stdin_lost(const struct exec *exec, struct error *error);
/* Feeds bytes to an exec as it takes them, then closes its standard input, across a lost
 * connection. Where bytes got lost with it the exec is cancelled. Takes the data; outlives the
 * request. */
void stdin_feed(struct exec *exec, char *data, size_t size);
