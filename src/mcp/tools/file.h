/* Shared by the tools on files: one task of the domain at a time, and answers that say what to do
 * next. file.c has this and the table; the larger tools have their own files. */
#pragma once

#include "core/file/tasks.h"
#include "mcp/tools/tool.h"

#define FILE_TOOL_WORKSPACE "/workspace" /* base of relative paths */
#define FILE_TOOL_TEXT_MAX (16 * KIB)    /* of a text without a given size */

/* The beginning of every file tool's state. The texts belong to the request. */
struct file_tool {
	struct pending_operation pending;
	const char *path, *sandbox;
};

/* The path as the sandbox sees it, as text for people. */
void file_tool_path(struct buffer *to, const char *path);
/* `read_file {"path": "…", "offset": 5}`; extra: ", \"offset\": 5", or "". Includes the sandbox if
 * this call named one: the state begins with a struct file_tool. */
void file_tool_call(const struct mcp_request *request, struct buffer *to, const char *tool,
		    const char *path, const char *extra);
/* "[...]" as a separate block at the end: which sandbox was chosen, and `note` if there is any. */
void file_tool_note(struct mcp_request *request, const char *note);
/* isError, with the call to use instead if there is one. */
void file_tool_fail(struct mcp_request *request, const char *path, const struct error *error);
/* A complete answer: one text, and which sandbox was chosen. */
void file_tool_reply(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);
/* The same with isError, without the example: the arguments were valid. */
void file_tool_refuse(struct mcp_request *request, const char *format, ...) PRINTF_LIKE(2, 3);

/* Rows of the tables. */
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
/* In the description, where models look first; the instructions say it for all tools. */
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
