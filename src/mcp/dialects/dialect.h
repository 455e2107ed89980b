/* What the dialects share: arguments as the peers take them, results as they give them, commands. A
 * dialect is a table of tools over the operations of core/, a JSON file with what clients are told
 * about each of them, and a face; another one is another pair of files here, with its tools in the
 * same shape:
 *     dialect_arguments -> target_ready -> pending_begin, an operation -> pending_over -> reply */
#pragma once

#include "core/exec/wait.h"
#include "core/file/tasks.h"
#include "core/exec/foreground.h"
#include "mcp/tools/output.h"
#include "mcp/tools/tool.h"

/* --- the table of tools --- */

/* A row. The build makes LISTED_name (description, schemas, example) of the dialect's JSON file: a
 * tool that the file lacks does not compile. */
#define DIALECT_TOOL(tool, needs, flags, function)                                                 \
	{                                                                                          \
		LISTED_##tool, .scope = needs, .hints = TOOL_NO_HINTS | (flags), .call = function  \
	}
/* A tool of the file that the table lacks does not compile either. */
#define DIALECT_TOOLS_COMPLETE(table)                                                              \
	_Static_assert(ARRAY_SIZE(table) == LISTED_COUNT + 1, "a listed tool has no row")

/* --- arguments --- */

/* What a tool of a peer's takes: a table on its stack, whose rows point to where each value goes.
 * Its schema is the peer's own. */
struct field_to {
	const char *name;
	enum field_type type;
	void *to; /* of a FIELD_UINT a uint64_t */
	bool required;
	uint64_t min, max;
	bool *present;
};
/* As tool_arguments(); names that the table does not have are passed over, as the peers do. */
bool dialect_arguments(struct mcp_request *request, const json_t *arguments,
		       const struct field_to *fields, size_t count);
/* An object within the arguments by a table, the same way; `where` is what errors call it. */
NODISCARD int dialect_entry(const json_t *entry, const char *where, const struct field_to *fields,
			    size_t count, struct error *error);
/* An array of texts of at least one byte each; at most `max`. */
NODISCARD int dialect_texts(const json_t *array, const char *name, size_t max, struct error *error);

/* --- results --- */

/* JSON without blanks, as a json_writer makes it, with line ends and two blanks a level. */
NODISCARD int json_indent(struct buffer *to, const char *json, size_t size);

/* The result is what was written: one object, as indented text and as structuredContent. What did
 * not fit into the buffer is refused. */
void dialect_reply(struct mcp_request *request, const struct json_writer *writer);
/* The same for an array: a text for each element, and {"result": [...]}. */
void dialect_reply_list(struct mcp_request *request, const struct json_writer *writer);
/* {"status": ...}. */
void dialect_reply_status(struct mcp_request *request, const char *status);

/* Bytes in base64 under a line that says so. What does not fit is left out: its buffer is the
 * answer's size. */
void dialect_base64(struct buffer *to, const char *heading, const void *data, size_t size);

/* --- a command --- */

struct command_ask {
	const char *command; /* for the shell; lives as long as the request, as cwd does */
	const char *cwd;     /* NULL: the default */
	uint32_t timeout_ms; /* 0: none */
	bool bash;           /* bash where the sandbox has one, as some peers do */
	bool background;     /* the answer comes when it has begun */
};

/* When a stream had grown to how much: what tells the time of a line. */
#define COMMAND_MARKS 64
struct command_mark {
	uint64_t offset;
	int64_t wall;
};

/* Of one whose exit code nobody knows. */
#define COMMAND_LOST                                                                               \
	"its sandbox ended or stopped while it ran, or its processes were killed from inside"

/* The first member of the state of a tool that runs one. */
struct command_state {
	struct pending pending;
	struct command_ask ask;
	bool plain_shell; /* there is no bash in it */
	struct output_marks {
		struct command_mark marks[COMMAND_MARKS];
		uint32_t count;
	} marks[2];
	struct follow follow;
	/* The command has ended (in the background: begun). Answers. */
	void (*finish)(struct mcp_request *request, struct exec *exec);
};
/* The request's state, zeroed. */
struct command_state *command_new(struct mcp_request *request);
/* state->ask and finish are set. Kills the command with everything it started when the request is
 * cancelled before its answer. Any failure is answered. */
void command_begin(struct mcp_request *request, struct sandbox *sandbox);
/* When the byte before `offset` had come, wall-clock nanoseconds. */
int64_t command_time(const struct command_state *state, const struct exec *exec,
		     enum exec_stream stream, uint64_t offset);
