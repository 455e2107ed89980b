/* A file as a resource: `sandbox://{sandbox}/files/{+path}`, the path from the root, with or
 * without its first slash. Read like the file tools (a principal that may write wakes the sandbox);
 * a directory is its list of entries. Its watch is in file_watch.c. Nothing blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/file/tasks.h"
#include "core/account/access.h"
#include "mcp/resources/file.h"
#include "mcp/resources/usual_resources.h"

#define FILE_RESOURCE_MAX (1 * MIB)
#define DIRECTORY_ENTRIES_MAX 2000

struct resource_reading {
	char *uri;
	char path[GUEST_PATH_MAX];
	struct sandbox_readying *readying;
	struct file_task *task;
	struct buffer entries;
	struct json_writer writer;
};

int file_resource_path(const char *value, char path[GUEST_PATH_MAX], struct error *error)
{
	if (text_format(path, GUEST_PATH_MAX, "%s%s", value[0] == '/' ? "" : "/", value) < 0)
		return error_set(error, ERROR_FILE_NOT_FOUND, "a path is longer than %d bytes",
				 GUEST_PATH_MAX - 1);
	return 0;
}

static void resource_reading_free(void *state)
{
	struct resource_reading *reading = state;
	buffer_done(&reading->entries);
	free(reading->uri);
	free(reading);
}

static void resource_reading_cancel(struct mcp_request *request)
{
	struct resource_reading *reading = request->state;
	if (!reading->readying && !reading->task)
		return;
	if (reading->readying)
		sandbox_ready_cancel(TAKE_PTR(reading->readying));
	if (reading->task)
		file_task_cancel(TAKE_PTR(reading->task));
	mcp_release(request);
}

static void file_resource_fail(struct mcp_request *request, const struct error *error)
{
	struct resource_reading *reading = request->state;
	resource_fail(request, reading->uri, error);
	mcp_release(request);
}

/* --- what it is --- */

static const char *file_media_type(const char *path, bool text)
{
	static const struct {
		const char *suffix, *type;
	} types[] = {
	    {".json", "application/json"}, {".html", "text/html"},      {".htm", "text/html"},
	    {".css", "text/css"},          {".csv", "text/csv"},        {".md", "text/markdown"},
	    {".xml", "application/xml"},   {".svg", "image/svg+xml"},   {".js", "text/javascript"},
	    {".png", "image/png"},         {".jpg", "image/jpeg"},      {".jpeg", "image/jpeg"},
	    {".gif", "image/gif"},         {".webp", "image/webp"},     {".pdf", "application/pdf"},
	    {".zip", "application/zip"},   {".gz", "application/gzip"},
	};
	const char *dot = strrchr(path, '.');
	for (size_t i = 0; dot && i < ARRAY_SIZE(types); i++)
		if (strcmp(dot, types[i].suffix) == 0)
			return types[i].type;
	return text ? "text/plain" : "application/octet-stream";
}

static void resource_read_done(void *data, const struct file_content *content,
			       const struct error *error);

/* --- a directory --- */

static bool put_entry(void *data, const struct file_entry *entry)
{
	struct resource_reading *reading = ((struct mcp_request *)data)->state;
	struct json_writer *writer = &reading->writer;
	char type[] = {entry->type, '\0'};
	put_object(writer, NULL);
	put_bytes(writer, "name", entry->name, strlen(entry->name));
	put_text(writer, "type",
		 entry->type == 'f'   ? "file"
		 : entry->type == 'd' ? "directory"
		 : entry->type == 'l' ? "link"
				      : type);
	put_uint(writer, "size", entry->size);
	put_object_end(writer);
	return !writer->full;
}

static void resource_list_done(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	struct resource_reading *reading = request->state;
	struct json_writer *writer = &reading->writer;
	reading->task = NULL;
	if (!request->open) {
		mcp_release(request);
		return;
	}
	if (error) {
		file_resource_fail(request, error);
		return;
	}
	put_array_end(writer);
	put_uint(writer, "total", total);
	put_bool(writer, "truncated", cut);
	put_object_end(writer);
	if (writer->full)
		mcp_error(request, MCP_INTERNAL_ERROR, NULL, "the directory's list is too long");
	else
		resource_reply_text(request, reading->uri, "application/json",
				    buffer_text(&reading->entries), reading->entries.size);
	mcp_release(request);
}

static void directory_list_instead(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct file_records records = {.entry = put_entry, .done = resource_list_done};
	struct resource_reading *reading = request->state;
	struct file_place place = {.principal = &request->principal, .path = reading->path};
	struct error error;
	reading->entries = BUFFER(4 * MIB);
	reading->writer = json_writer_on(&reading->entries);
	put_object(&reading->writer, NULL);
	put_text(&reading->writer, "directory", reading->path);
	put_array(&reading->writer, "entries");
	if (file_list(sandbox, &place, 1, DIRECTORY_ENTRIES_MAX, &records, request, &reading->task,
		      &error) < 0)
		file_resource_fail(request, &error);
}

/* --- a file --- */

static void file_resource_reply(struct mcp_request *request, const struct file_content *content)
{
	struct resource_reading *reading = request->state;
	size_t whole =
	    content->more ? text_utf8_prefix(content->data, content->size) : content->size;
	bool text = text_is_utf8(content->data, whole) && !memchr(content->data, '\0', whole);
	const char *type = file_media_type(reading->path, text);
	resource_begin(request);
	if (text)
		resource_text(request, reading->uri, type, content->data, whole);
	else
		resource_blob(request, reading->uri, type, content->data, content->size);
	if (content->more) {
		char note[256];
		int size =
		    snprintf(note, sizeof(note),
			     "[the file has %llu bytes; these are its first %zu. read_file "
			     "with an offset reads the rest.]",
			     (unsigned long long)content->file_size, text ? whole : content->size);
		resource_text(request, reading->uri, "text/plain", note, (size_t)size);
	}
	resource_end(request);
}

static void resource_read_done(void *data, const struct file_content *content,
			       const struct error *error)
{
	struct mcp_request *request = data;
	struct resource_reading *reading = request->state;
	reading->task = NULL;
	if (!request->open) {
		mcp_release(request);
		return;
	}
	struct sandbox *sandbox = sandbox_by_id(request->core, &request->sandbox);
	if (error && error->kind == ERROR_FILE_WRONG_TYPE && sandbox) {
		directory_list_instead(request, sandbox);
		return;
	}
	if (error) {
		file_resource_fail(request, error);
		return;
	}
	file_resource_reply(request, content);
	mcp_release(request);
}

static void file_resource_ready(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	struct resource_reading *reading = request->state;
	struct file_place place = {.principal = &request->principal, .path = reading->path};
	struct error why;
	reading->readying = NULL;
	if (!request->open) {
		mcp_release(request);
		return;
	}
	struct sandbox *sandbox = sandbox_by_id(request->core, &request->sandbox);
	if (!error && !sandbox)
		error_set(&why, ERROR_SANDBOX_NOT_FOUND, "sandbox `%s` is gone",
			  request->sandbox.text);
	if (error || !sandbox)
		file_resource_fail(request, error ? error : &why);
	else if (file_read_whole(sandbox, &place, 0, FILE_RESOURCE_MAX, resource_read_done, request,
				 &reading->task, &why) < 0)
		file_resource_fail(request, &why);
}

static void file_read(struct mcp_request *request, const char *uri, const char *const *variables)
{
	struct sandbox *sandbox;
	struct error error;
	struct resource_reading *reading = calloc(1, sizeof(*reading));
	if (!reading)
		abort();
	reading->uri = text_duplicate(uri);
	request->state = reading;
	request->state_free = resource_reading_free;
	if (file_resource_path(variables[1], reading->path, &error) < 0 ||
	    sandbox_find(request->core, &request->principal, variables[0], &sandbox, &error) < 0) {
		resource_fail(request, uri, &error);
		return;
	}
	request->sandbox = sandbox->row.id;
	request->on_cancel = resource_reading_cancel;
	mcp_hold(request);
	if (sandbox_ready_for(sandbox, &request->principal, file_resource_ready, request,
			      &reading->readying, &error) < 0)
		file_resource_fail(request, &error);
}

/* --- completion: the entries of the directory that was named so far --- */

struct path_completion {
	struct file_task *task;
	struct buffer names; /* each with its NUL */
	char prefix[GUEST_PATH_MAX], base[GUEST_PATH_MAX];
};

static void path_completion_free(void *state)
{
	struct path_completion *path = state;
	buffer_done(&path->names);
	free(path);
}

static void path_completion_cancel(struct mcp_request *request)
{
	struct path_completion *path = request->state;
	if (!path->task)
		return;
	file_task_cancel(TAKE_PTR(path->task));
	mcp_release(request);
}

static bool complete_entry(void *data, const struct file_entry *entry)
{
	struct path_completion *path = ((struct mcp_request *)data)->state;
	size_t size = strlen(entry->name);
	if (!text_starts(entry->name, path->base) || !text_is_utf8(entry->name, size))
		return true;
	return buffer_printf(&path->names, "%s%s%s", path->prefix, entry->name,
			     entry->type == 'd' ? "/" : "") == 0 &&
	       buffer_append(&path->names, "", 1) == 0;
}

static void complete_done(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	struct path_completion *path = request->state;
	struct completion completion;
	(void)total;
	(void)cut;
	(void)error; /* if the listing fails, there are no values */
	path->task = NULL;
	if (request->open) {
		completion_begin(request, &completion);
		for (size_t at = 0; at < path->names.size; at += strlen(path->names.data + at) + 1)
			completion_put(&completion, path->names.data + at);
		completion_end(request, &completion);
	}
	mcp_release(request);
}

static void complete_path(struct mcp_request *request, const char *value)
{
	static const struct file_records records = {.entry = complete_entry, .done = complete_done};
	struct sandbox *sandbox = completion_sandbox(request);
	struct path_completion *path = calloc(1, sizeof(*path));
	struct error error;
	char directory[GUEST_PATH_MAX];
	if (!path)
		abort();
	request->state = path;
	request->state_free = path_completion_free;
	request->on_cancel = path_completion_cancel;
	path->names = BUFFER(1 * MIB);
	const char *slash = strrchr(value, '/');
	size_t prefix = slash ? (size_t)(slash - value) + 1 : 0;
	mcp_hold(request);
	/* A completion does not wake a sandbox: a sleeping one has no values. */
	if (!sandbox || !state_facts(sandbox->row.state)->may_exec || prefix >= GUEST_PATH_MAX ||
	    text_copy(path->base, sizeof(path->base), value + prefix) < 0) {
		complete_done(request, 0, false, NULL);
		return;
	}
	memcpy(path->prefix, value, prefix);
	struct file_place place = {.principal = &request->principal, .path = directory};
	if (file_resource_path(path->prefix, directory, &error) < 0 ||
	    file_list(sandbox, &place, 1, DIRECTORY_ENTRIES_MAX, &records, request, &path->task,
		      &error) < 0)
		complete_done(request, 0, false, &error);
}

static void file_complete(struct mcp_request *request, const char *variable, const char *value)
{
	if (strcmp(variable, "sandbox") == 0)
		complete_sandbox(request, value);
	else
		complete_path(request, value);
}

const struct resource_kind file_resource = {
    .template = "sandbox://{sandbox}/files/{+path}",
    .name = "file",
    .title = "File in a sandbox",
    .description = "A file by its path from the root (its first 1 MiB; text as text, anything "
		   "else as base64), or the entries of a directory.",
    .read = file_read,
    .watch = file_resource_watch,
    .complete = file_complete,
};
