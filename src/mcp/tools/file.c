/* Tools on files: their table, their shared code, and the two small ones, write_file and
 * list_files. Called by tools.c. Files are read and changed inside the sandbox; nothing blocks. */
#include "mcp/tools/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/text.h"
#include "edge/fields/file_fields.h"
#include "mcp/tools/output.h"

/* --- what they share --- */

void file_tool_path(struct buffer *to, const char *path)
{
	(void)!buffer_append_text(to, path[0] == '/' ? "" : FILE_TOOL_WORKSPACE "/");
	output_name(to, path, strlen(path));
}

void file_tool_call(const struct mcp_request *request, struct buffer *to, const char *tool,
		    const char *path, const char *extra)
{
	const struct file_tool *here = request->state;
	struct json_writer writer = json_writer_on(to), name_writer = json_writer_on(to);
	(void)!buffer_printf(to, "%s {\"path\": ", tool);
	put_text(&writer, NULL, path);
	(void)!buffer_append_text(to, extra);
	if (here->sandbox && here->sandbox[0]) {
		(void)!buffer_append_text(to, ", \"sandbox_id\": ");
		put_text(&name_writer, NULL, here->sandbox);
	}
	(void)!buffer_append_text(to, "}");
}

void file_tool_note(struct mcp_request *request, const char *note)
{
	struct buffer text DONE_BUFFER = BUFFER(FILE_TOOL_TEXT_MAX);
	target_note(request, &text);
	if (note[0])
		(void)!buffer_printf(&text, "%s%s", text.size > 0 ? "; " : "", note);
	if (text.size > 0)
		content_format(request, "[%s]", buffer_text(&text));
}

PRINTF_LIKE(3, 0)
static void file_tool_answer(struct mcp_request *request, bool is_error, const char *format,
			     va_list arguments)
{
	struct buffer note DONE_BUFFER = BUFFER(KIB);
	char *message;
	if (vasprintf(&message, format, arguments) < 0)
		abort();
	target_note(request, &note);
	content_begin(request);
	if (note.size > 0)
		content_format(request, "%s [%s]", message, buffer_text(&note));
	else
		content_text(request, message, strlen(message));
	content_end(request, is_error);
	free(message);
}

void file_tool_reply(struct mcp_request *request, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	file_tool_answer(request, false, format, arguments);
	va_end(arguments);
}

void file_tool_refuse(struct mcp_request *request, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	file_tool_answer(request, true, format, arguments);
	va_end(arguments);
}

void file_tool_fail(struct mcp_request *request, const char *path, const struct error *error)
{
	struct buffer call DONE_BUFFER = BUFFER(FILE_TOOL_TEXT_MAX);
	if (error->kind == ERROR_FILE_NOT_FOUND) {
		const char *slash = strrchr(path, '/');
		char *parent = strndup(path, slash > path ? (size_t)(slash - path) : 1);
		if (!parent)
			abort();
		file_tool_call(request, &call, "list_files", slash ? parent : FILE_TOOL_WORKSPACE,
			       "");
		free(parent);
		file_tool_refuse(request, "%s. To see what there is: %s", error->message,
				 buffer_text(&call));
	} else if (error->kind == ERROR_PATTERN_INVALID) {
		content_refuse(request, "%s.", error->message);
	} else {
		mcp_fail(request, error);
	}
}

/* --- write_file --- */

struct write_file_state {
	struct file_tool tool;
	struct file_write_fields fields;
	char *bytes; /* the decoded base64 */
	size_t size;
};

static void write_file_free(void *state)
{
	struct write_file_state *write = state;
	free(write->bytes);
	free(write);
}

static void write_file_done(void *data, uint64_t written, bool created, const struct error *error)
{
	struct mcp_request *request = data;
	const struct write_file_state *write = request->state;
	struct buffer path DONE_BUFFER = BUFFER(2 * GUEST_PATH_MAX);
	if (!pending_back(request))
		return;
	if (error) {
		file_tool_fail(request, write->fields.path, error);
	} else {
		file_tool_path(&path, write->fields.path);
		file_tool_reply(
		    request, "%s %llu bytes to %s%s", write->fields.append ? "appended" : "wrote",
		    (unsigned long long)written, buffer_text(&path), created ? " (new)" : "");
	}
	mcp_release(request);
}

static void write_file_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct write_file_state *write = request->state;
	struct file_place place = {.principal = &request->principal, .path = write->fields.path};
	struct error error;
	if (file_write_whole(sandbox, &place, write->bytes ? write->bytes : write->fields.content,
			     write->size, 0, write->fields.append, write_file_done, request,
			     &write->tool.pending.task, &error) < 0)
		file_tool_fail(request, write->fields.path, &error);
	else
		pending_begin(request);
}

static bool write_file_decode(struct mcp_request *request, struct write_file_state *write)
{
	size_t size = strlen(write->fields.base64);
	write->bytes = malloc(size + 1);
	if (!write->bytes)
		abort();
	ssize_t decoded = base64_decode(write->fields.base64, size, write->bytes);
	if (decoded < 0) {
		content_refuse(request,
			       "field `content_base64` is not base64: characters A-Z a-z 0-9 + /, "
			       "padded with = to a multiple of four, without line ends.");
		return false;
	}
	write->size = (size_t)decoded;
	return true;
}

static const struct field write_file_fields[] = {
    {FIELD_ROWS_AT(struct write_file_state, fields, struct file_write_fields),
     .inner = file_write_fields},
    FILE_TOOL_SANDBOX_TOLD,
    {0},
};

static void write_file(struct mcp_request *request, const json_t *arguments)
{
	struct write_file_state *write = pending_state(request, sizeof(*write), write_file_free);
	if (!tool_arguments(request, arguments, write))
		return;
	const char *content = write->fields.content;
	if (!content == !write->fields.base64) {
		content_refuse(request, "Give `content` (text) or `content_base64` (bytes), %s.",
			       content ? "not both" : "one of them");
		return;
	}
	if (content)
		write->size = strlen(content);
	else if (!write_file_decode(request, write))
		return;
	target_ready(request, write->tool.sandbox, 0, write_file_act);
}

/* --- list_files --- */

#define LIST_COUNTED 10000 /* the maximum of entries that are counted */
#define LIST_SHOWN 500
#define LIST_DEPTH_MAX 10

struct listed_entry {
	char *line; /* including its line end */
	char type;
};

struct list_files_state {
	struct file_tool tool;
	uint64_t depth;
	struct listed_entry *entries;
	size_t count, room;
};

static void list_files_free(void *state)
{
	struct list_files_state *list = state;
	for (size_t i = 0; i < list->count; i++)
		free(list->entries[i].line);
	free(list->entries);
	free(list);
}

static void entry_line(const struct file_entry *entry, struct buffer *to)
{
	double size = (double)entry->size;
	output_name(to, entry->name, strlen(entry->name));
	switch (entry->type) {
	case 'd':
		(void)!buffer_append_text(to, "/\n");
		break;
	case 'l':
		(void)!buffer_append_text(to, " -> ");
		output_name(to, entry->target, strlen(entry->target));
		(void)!buffer_append_text(to, "\n");
		break;
	case 'f':
		if (size < 10 * KIB)
			(void)!buffer_printf(to, "  %.0f B\n", size);
		else if (size < 10 * MIB)
			(void)!buffer_printf(to, "  %.0f KiB\n", size / KIB);
		else
			(void)!buffer_printf(to, "  %.0f MiB\n", size / MIB);
		break;
	default:
		(void)!buffer_printf(to, "  (%s)\n",
				     entry->type == 'p'   ? "fifo"
				     : entry->type == 's' ? "socket"
							  : "device");
	}
}

static bool list_entry_seen(void *data, const struct file_entry *entry)
{
	struct mcp_request *request = data;
	struct list_files_state *list = request->state;
	struct buffer line = BUFFER(4 * sizeof(struct file_entry) + 64);
	if (list->count == list->room) {
		list->room = list->room ? list->room * 2 : 64;
		list->entries = realloc(list->entries, list->room * sizeof(*list->entries));
		if (!list->entries)
			abort();
	}
	entry_line(entry, &line);
	list->entries[list->count++] = (struct listed_entry){line.data, entry->type};
	return list->count < LIST_COUNTED;
}

static int listed_entries_compare(const void *a, const void *b)
{
	return strcmp(((const struct listed_entry *)a)->line,
		      ((const struct listed_entry *)b)->line);
}

static void list_files_reply(struct mcp_request *request, bool cut)
{
	struct list_files_state *list = request->state;
	struct buffer text DONE_BUFFER = BUFFER(FILE_TOOL_TEXT_MAX);
	size_t shown = 0;
	if (list->count > 0)
		qsort(list->entries, list->count, sizeof(*list->entries), listed_entries_compare);
	while (shown < MIN(list->count, (size_t)LIST_SHOWN) &&
	       buffer_append_text(&text, list->entries[shown].line) == 0)
		shown++;
	struct buffer note DONE_BUFFER = BUFFER(3 * GUEST_PATH_MAX);
	file_tool_path(&note, list->tool.path);
	(void)!buffer_printf(&note, ": %zu %s%s", list->count,
			     list->count == 1 ? "entry" : "entries", cut ? " or more" : "");
	if (shown < list->count)
		(void)!buffer_printf(&note,
				     ", the first %zu shown; list a directory below it, or use "
				     "search_files with a glob",
				     shown);
	content_begin(request);
	if (list->count > 0)
		content_text(request, text.data, text.size);
	file_tool_note(request, buffer_text(&note));
	content_end(request, false);
}

/* The path is a file: it is described as by `ls`, with the call that reads it. */
static void listed_file_stat_done(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	struct list_files_state *list = request->state;
	struct buffer call DONE_BUFFER = BUFFER(FILE_TOOL_TEXT_MAX);
	(void)total;
	(void)cut;
	if (!pending_back(request))
		return;
	if (error) {
		file_tool_fail(request, list->tool.path, error);
	} else {
		file_tool_call(request, &call, "read_file", list->tool.path, "");
		file_tool_reply(request, "%sIt is a file, not a directory: %s",
				list->count > 0 ? list->entries[0].line : "", buffer_text(&call));
	}
	mcp_release(request);
}

static void file_tool_look(struct mcp_request *request)
{
	static const struct file_records records = {.entry = list_entry_seen,
						    .done = listed_file_stat_done};
	struct list_files_state *list = request->state;
	struct file_place place = {.principal = &request->principal, .path = list->tool.path};
	struct error error;
	struct sandbox *sandbox = target_again(request);
	if (!sandbox)
		return;
	if (file_stat(sandbox, &place, true, &records, request, &list->tool.pending.task, &error) <
	    0)
		file_tool_fail(request, list->tool.path, &error);
	else
		pending_begin(request);
}

static void list_files_done(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	const struct list_files_state *list = request->state;
	(void)total;
	if (!pending_back(request))
		return;
	if (error && error->kind == ERROR_FILE_WRONG_TYPE)
		file_tool_look(request);
	else if (error)
		file_tool_fail(request, list->tool.path, error);
	else
		list_files_reply(request, cut);
	mcp_release(request);
}

static void list_files_act(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct file_records records = {.entry = list_entry_seen,
						    .done = list_files_done};
	struct list_files_state *list = request->state;
	struct file_place place = {.principal = &request->principal, .path = list->tool.path};
	struct error error;
	if (file_list(sandbox, &place, (uint32_t)list->depth, LIST_COUNTED, &records, request,
		      &list->tool.pending.task, &error) < 0)
		file_tool_fail(request, list->tool.path, &error);
	else
		pending_begin(request);
}

static const struct field list_files_fields[] = {
    FILE_TOOL_DIRECTORY,
    {"depth", FIELD_UINT_AT(struct list_files_state, depth), .min = 1, .max = LIST_DEPTH_MAX,
     .fallback = 1, .mcp = "levels, default 1"},
    FILE_TOOL_SANDBOX,
    {0},
};

static void list_files(struct mcp_request *request, const json_t *arguments)
{
	struct list_files_state *list = pending_state(request, sizeof(*list), list_files_free);
	list->tool.path = FILE_TOOL_WORKSPACE;
	if (!tool_arguments(request, arguments, list))
		return;
	if (list->tool.path[0] == '\0')
		list->tool.path = FILE_TOOL_WORKSPACE;
	target_ready(request, list->tool.sandbox, 0, list_files_act);
}

/* --- the table --- */

const struct mcp_tool file_tools[] = {
    {
	.name = "read_file",
	.title = "Read a file",
	.description = "Text of a file, 16 KiB by default, and how to read on; png, jpeg, gif, "
		       "webp come as images.",
	.fields = read_file_fields,
	.example = "{\"path\": \"src/main.c\", \"line\": 100, \"lines\": 50}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = read_file_tool,
    },
    {
	.name = "write_file",
	.title = "Write a file",
	.description = "Write or replace a whole file; directories above it are made. For small "
		       "changes use edit_file.",
	.fields = write_file_fields,
	.example = "{\"path\": \"hello.py\", \"content\": \"print('hello')\\n\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_DESTROYS | TOOL_REPEATABLE,
	.call = write_file,
    },
    {
	.name = "edit_file",
	.title = "Edit a file",
	.description = "Replace old_text, exact and found once, by new_text. Say more of what is "
		       "around it where it is found often, or set replace_all.",
	.fields = edit_file_fields,
	.example =
	    "{\"path\": \"main.py\", \"old_text\": \"retries = 3\", \"new_text\": \"retries = 5\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_DESTROYS,
	.call = edit_file_tool,
    },
    {
	.name = "list_files",
	.title = "List files",
	.description = "Names, types and sizes in a directory (default /workspace).",
	.fields = list_files_fields,
	.example = "{\"path\": \"/workspace/src\", \"depth\": 2}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = list_files,
    },
    {
	.name = "search_files",
	.title = "Search files",
	.description = "Find lines by regex (pattern), in files whose names match glob; with glob "
		       "alone, find names. Returns path:line: text.",
	.fields = search_files_fields,
	.example = "{\"pattern\": \"def .*main\", \"glob\": \"*.py\"}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = search_files_tool,
    },
    {0},
};
