/* A tool: a row of a table, and a function. tools.c lists and calls them; the other files of this
 * folder and dialects/ have the tables. */
#pragma once

#include "edge/fields/fields.h"
#include "mcp/content.h"
#include "mcp/pending_operation.h"
#include "mcp/request.h"
#include "mcp/target.h"

enum tool_hint {
	TOOL_READS = 1 << 0,      /* readOnlyHint */
	TOOL_DESTROYS = 1 << 1,   /* destructiveHint */
	TOOL_REPEATABLE = 1 << 2, /* idempotentHint */
	TOOL_OPEN_WORLD = 1 << 3, /* openWorldHint, if sandboxes have a network */
	TOOL_TASK = 1 << 8,       /* becomes a task for clients that know tasks */
	TOOL_TASK_ONLY = 1 << 9,  /* and other clients are refused */
	TOOL_NO_HINTS = 1 << 10,  /* a dialect's: it is listed without annotations */
	TOOL_UNBOUND = 1 << 11,   /* not for a token that is bound to one sandbox */
};

/* Can any sandbox have a network? So far all requests for one are refused (sandbox.c,
 * api/sandbox/create_fields.c), so that no tool reaches the open world. */
#define TOOL_NETWORK false

struct mcp_tool {
	const char *name, *title, *description; /* title NULL: not listed */
	const struct field *fields;             /* its arguments */
	const char *input;  /* for a dialect, instead of `fields`: the listed JSON schema */
	const char *output; /* JSON schema of structuredContent, or NULL */
	const char *meta;   /* JSON of _meta, or NULL */
	/* Of TOOL_UNBOUND: what a bound token's refusal ends with, or NULL. */
	const char *unbound;
	const char *example; /* arguments of a correct call, for errors; NULL: none */
	enum scope scope;
	uint32_t toolsets;
	uint32_t hints;
	/* Capabilities without which the client is refused (-32021). */
	uint32_t needs;
	/* arguments: an object, never NULL (the request's own, or an empty one). */
	void (*call)(struct mcp_request *request, const json_t *arguments);
};

/* tools/list and tools/call. */
void tools_list(struct mcp_request *request);
void tools_call(struct mcp_request *request);
/* The member `tools` of a list, for a face that also has it elsewhere. */
void tools_put(struct mcp_request *request, struct json_writer *writer);
/* Their names, with commas between them. */
#define TOOLS_NAMES_MAX (4 * KIB)
void tools_names(const struct mcp_request *request, struct buffer *to);
/* The tool of that name in this request's view and for its principal; NULL: unknown here.
 * ret_scope_missing: it exists, but the token may not use it. */
const struct mcp_tool *tool_find(const struct mcp_request *request, const char *name,
				 bool *ret_scope_missing);

/* The arguments by the tool's table; on failure the request is answered (what was wrong, what is
 * accepted, an example) and false comes back. */
bool tool_arguments(struct mcp_request *request, const json_t *arguments, void *into);
/* That answer. names: "`a`, `b` (required)". */
void tool_arguments_refuse(struct mcp_request *request, const char *wrong, const char *names);

/* The arguments of a tool that only takes a sandbox (metrics.c). */
struct tool_sandbox {
	const char *sandbox;
};
extern const struct field tool_sandbox_fields[];

/* The usual face's tables. */
extern const struct mcp_tool run_tools[];          /* run_shell.c: run_shell, run_code */
extern const struct mcp_tool sandbox_tools[];      /* sandbox.c */
extern const struct mcp_tool file_tools[];         /* file.c */
extern const struct mcp_tool job_tools[];          /* job.c */
extern const struct mcp_tool more_job_tools[];     /* toolset_jobs.c: of the toolset `jobs` */
extern const struct mcp_tool metrics_tools[];      /* metrics.c */
extern const struct mcp_tool more_sandbox_tools[]; /* extend_sandbox.c: of `sandboxes` */
extern const struct mcp_tool more_file_tools[];    /* toolset_files.c: of the toolset `files` */
