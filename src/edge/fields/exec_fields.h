/* What a command takes, for each surface that runs one: the bodies of POST .../exec and of what
 * streams or is a job, the command's part of POST /v1/run, run_shell and start_job of MCP. */
#pragma once

#include "core/exec/exec.h"
#include "edge/fields/fields.h"

/* Of each stream, in a blocking answer; six times as much at worst, as JSON, fits REPLY_MAX. */
#define EXEC_ANSWER_DEFAULT (1 * MIB)
#define EXEC_ANSWER_MAX (4 * MIB)
/* Of both together, for a model to read: well within MCP_ANSWER_MAX when escaped. */
#define EXEC_ANSWER_MCP_DEFAULT (16 * KIB)
#define EXEC_ANSWER_MCP_MAX (1 * MIB)
#define TERMINAL_SIZE_MAX 10000
#define EXEC_TIMEOUT_MAX (UINT32_MAX / 1000) /* seconds */
#define EXEC_TIMEOUT_MCP_MAX (7u * 24 * 3600)
#define CODE_TIMEOUT_MAX (24u * 3600) /* of a piece of code, everywhere */

enum stdin_kind {
	STDIN_NONE,  /* /dev/null */
	STDIN_GIVEN, /* `stdin` or `stdin_base64` */
	STDIN_OPEN,  /* `stdin: true`: it comes later */
};

/* Zeroed before; borrows from the JSON. */
struct exec_fields {
	struct exec_spec spec; /* whole after exec_fields_check() */
	json_t *cmd, *command, *args, *argv, *env, *input, *limits, *rlimits;
	const char *shell; /* MCP's command, always for the shell */
	const char *input_text, *input_base64;
	double timeout_seconds, timeout_ms;
	uint64_t answer_max;
	bool background;
	/* Made of them. */
	const char **words;
	struct pair *environment;
	struct exec_limit run_limits[EXEC_RUNLIMITS_MAX];
	enum stdin_kind stdin_kind;
	bool stdin_said; /* `stdin` was given as true or false */
	char *stdin_data;
	size_t stdin_size;
};

extern const struct field exec_fields[];

/* What the fields say together. */
NODISCARD int exec_fields_check(struct exec_fields *fields, enum field_form form,
				struct error *error);
void exec_fields_done(struct exec_fields *fields);

/* A time-out of both fields together, at most so many milliseconds. */
NODISCARD int exec_timeout_check(double seconds, double ms, uint32_t max_ms, enum field_form form,
				 uint32_t *ret_ms, struct error *error);
