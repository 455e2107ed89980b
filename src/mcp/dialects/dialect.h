/* What the dialects share: arguments in the peers' form, results in their form, commands. A dialect
 * is a table of tools over the operations of core/, a JSON file that describes each tool to
 * clients, and a face. A new dialect is another pair of files here, with its tools in the same
 * shape:
 *     dialect_arguments -> target_ready -> pending_begin, an operation -> pending_over -> reply */
#pragma once

#include "core/exec/wait.h"
#include "core/file/tasks.h"
#include "core/exec/foreground.h"
#include "mcp/tools/output.h"
#include "mcp/tools/tool.h"

/* --- the table of tools --- */

/* A row. The build makes LISTED_name (description, schemas, example) from the dialect's JSON file:
 * a tool that is missing there does not compile. */
#define DIALECT_TOOL(tool, needs, flags, function)                                                 \
	{                                                                                          \
		LISTED_##tool, .scope = needs, .hints = TOOL_NO_HINTS | (flags), .call = function  \
	}
/* A tool of the file that is missing in the table does not compile either. */
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
/* As tool_arguments(), but unknown names are ignored, as the peers do. */
bool dialect_arguments(struct mcp_request *request, const json_t *arguments,
		       const struct field_to *fields, size_t count);
/* The same for an object within the arguments; `where` is its name in errors. */
NODISCARD int dialect_entry(const json_t *entry, const char *where, const struct field_to *fields,
			    size_t count, struct error *error);
/* An array of texts of at least one byte each; at most `max`. */
NODISCARD int dialect_texts(const json_t *array, const char *name, size_t max, struct error *error);

/* --- results --- */

/* Indents JSON without blanks, as a json_writer makes it: line ends, and two blanks per level. */
NODISCARD int json_indent(struct buffer *to, const char *json, size_t size);

/* The written JSON, one object, is the result: as indented text and as structuredContent. If it did
 * not fit into the buffer, the call is refused. */
void dialect_reply(struct mcp_request *request, const struct json_writer *writer);
/* The same for an array: a text for each element, and {"result": [...]}. */
void dialect_reply_list(struct mcp_request *request, const struct json_writer *writer);
/* {"status": ...}. */
void dialect_reply_status(struct mcp_request *request, const char *status);

/* Bytes in base64 under a line that says so. What does not fit is omitted: the buffer has the size
 * of the answer. */
void dialect_base64(struct buffer *to, const char *heading, const void *data, size_t size);

/* --- a command --- */

struct command_fields {
	const char *command; /* for the shell; lives as long as the request; so does cwd */
	const char *cwd;     /* NULL: the default */
	uint32_t timeout_ms; /* 0: none */
	bool bash;           /* bash if the sandbox has it, as some peers do */
	bool background;     /* answer as soon as it has begun */
};

/* How long a stream was at which time: this gives the time of a line. */
#define COMMAND_MARKS 64
struct command_mark {
	uint64_t offset;
	int64_t wall;
};

/* For a command whose exit code is unknown. */
#define COMMAND_LOST                                                                               \
	"its sandbox ended or stopped while it ran, or its processes were killed from inside"

/* The first member of the state of a tool that runs a command. */
struct command_state {
	struct pending_operation pending;
	struct command_fields fields;
	bool plain_shell; /* the sandbox has no bash */
	struct output_marks {
		struct command_mark marks[COMMAND_MARKS];
		uint32_t count;
	} marks[2];
	struct exec_progress progress;
	/* The command has ended (in the background: begun). Answers. */
	void (*finish)(struct mcp_request *request, struct exec *exec);
};
/* The request's state, zeroed. */
struct command_state *command_new(struct mcp_request *request);
/* state->fields and finish are set. If the request is cancelled before its answer, the command and
 * every process it started are killed. Every failure is answered. */
void command_begin(struct mcp_request *request, struct sandbox *sandbox);
/* When the byte before `offset` arrived, in wall-clock nanoseconds. */
int64_t command_time(const struct command_state *state, const struct exec *exec,
		     enum exec_stream stream, uint64_t offset);
