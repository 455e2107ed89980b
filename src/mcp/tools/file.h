/* What the tools on files share: one task of the domain's at a time, and answers that say what to
 * do next. file.c has it, and the table; the larger tools have files of their own. */
#pragma once

#include "core/file/tasks.h"
#include "mcp/tools/tool.h"

#define FILE_TOOL_WORKSPACE "/workspace" /* where relative paths begin */
#define FILE_TOOL_TEXT_MAX (16 * KIB)    /* of a text that nobody gave a size for */

/* The beginning of every file tool's state. Texts are the request's own. */
struct file_tool {
	struct pending pending;
	const char *path, *sandbox;
};

/* Its path as the sandbox sees it, as text for people. */
void file_tool_path(struct buffer *to, const char *path);
/* `read_file {"path": "…", "offset": 5}`; extra: ", \"offset\": 5", or "". With the sandbox where
 * this call named one: the state begins with a struct file_tool. */
void file_tool_call(const struct mcp_request *request, struct buffer *to, const char *tool,
		    const char *path, const char *extra);
/* "[...]" as a block of its own at the end: which sandbox was chosen, and `note` where there is
 * any. */
void file_tool_note(struct mcp_request *request, const char *note);
/* isError with what to call instead where that can be said. */
void file_tool_fail(struct mcp_request *request, const char *path, const struct error *error);
/* A whole answer: one text, and which sandbox was chosen. */
void file_tool_reply(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);
/* The same with isError, without the example: the arguments were good. */
void file_tool_refuse(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);

/* Rows of their tables. */
#define FILE_TOOL_PATH                                                                             \
	{                                                                                          \
		"path", FIELD_TEXT_AT(struct file_tool, path), FIELD_REQUIRED, 1,                  \
		    GUEST_PATH_MAX - 1                                                             \
	}
#define FILE_TOOL_DIRECTORY                                                                        \
	{                                                                                          \
		"path", FIELD_TEXT_AT(struct file_tool, path), .max = GUEST_PATH_MAX - 1           \
	}
#define FILE_TOOL_SANDBOX                                                                          \
	{                                                                                          \
		"sandbox_id", FIELD_TEXT_AT(struct file_tool, sandbox)                             \
	}
/* Said where models look first; the instructions say it for all. */
#define FILE_TOOL_SANDBOX_TOLD                                                                     \
	{                                                                                          \
		"sandbox_id", FIELD_TEXT_AT(struct file_tool, sandbox),                            \
		    .mcp = "id or name; may be left out if there is one"                           \
	}

/* read_file.c, search_files.c, edit_file.c */
extern const struct field read_file_fields[], search_files_fields[], edit_file_fields[];
void read_file_tool(struct mcp_request *request, const json_t *arguments);    /* read_file.c */
void search_files_tool(struct mcp_request *request, const json_t *arguments); /* search_files.c */
void edit_file_tool(struct mcp_request *request, const json_t *arguments);    /* edit_file.c */
