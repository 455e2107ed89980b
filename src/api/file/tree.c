/* Reading about files: stat, list, glob, grep, readlink. Results are streamed as JSON while they
 * come; names that are not UTF-8 come as base64. */
#include "api/file/call.h"

#include <stdio.h>
#include <string.h>

#include "api/file/files.h"
#include "base/clock.h"
#include "base/text.h"

static const char *file_type_word(char type)
{
	switch (type) {
	case 'f':
		return "file";
	case 'd':
		return "directory";
	case 'l':
		return "symlink";
	case 'p':
		return "fifo";
	case 's':
		return "socket";
	case 'c':
		return "char";
	case 'b':
		return "block";
	default:
		return "unknown";
	}
}

void put_entry(struct json_writer *writer, const char *key, const struct file_entry *entry)
{
	char mode[8];
	snprintf(mode, sizeof(mode), "%04o", entry->mode & 07777);
	put_object(writer, key);
	put_bytes(writer, "name", entry->name, strlen(entry->name));
	put_text(writer, "type", file_type_word(entry->type));
	put_bool(writer, "is_dir", entry->type == 'd');
	put_uint(writer, "size", entry->size);
	put_text(writer, "mode", mode);
	put_uint(writer, "uid", entry->uid);
	put_uint(writer, "gid", entry->gid);
	put_int(writer, "mtime", entry->mtime_ns / NSEC_PER_SEC);
	put_time(writer, "modified_at", entry->mtime_ns);
	put_uint(writer, "inode", entry->inode);
	if (entry->type == 'l')
		put_bytes(writer, "target", entry->target, strlen(entry->target));
	put_object_end(writer);
}

static void put_path(struct file_call *file)
{
	put_bytes(&file->writer, "path", file->request.path.data, file->request.path.size);
}

/* --- stat --- */

static void file_stat_reply(struct file_operation_handle *handle, const void *result, size_t size,
			    const struct error *error)
{
	struct file_outcome outcome;
	struct file_call *file = file_result(handle, result, size, error, &outcome);
	if (!file)
		return;
	put_entry(&file->writer, NULL, outcome.entry);
	file_finish(file);
}

static const struct file_callbacks stat_callbacks = {.on_done = file_stat_reply};

void file_stat_get(struct call *call)
{
	file_stat_begin(call, true);
}

void file_stat_begin(struct call *call, bool follow)
{
	struct file_call *file = file_call_new(call, FILE_STAT, &stat_callbacks);
	file->follow = follow;
	if (!file_query(file))
		return;
	if (!file->follow)
		file->request.flags |= FILE_NO_FOLLOW;
	file_begin(file);
}

/* --- readlink --- */

static void readlink_done(struct file_operation_handle *handle, const void *result, size_t size,
			  const struct error *error)
{
	struct file_outcome outcome;
	struct file_call *file = file_result(handle, result, size, error, &outcome);
	if (!file)
		return;
	put_object(&file->writer, NULL);
	put_path(file);
	put_bytes(&file->writer, "target", outcome.target.data, outcome.target.size);
	put_object_end(&file->writer);
	file_finish(file);
}

static const struct file_callbacks readlink_callbacks = {.on_done = readlink_done};

void file_readlink_get(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_READLINK, &readlink_callbacks);
	if (file_query(file))
		file_begin(file);
}

/* --- what list, glob and grep share: records in DATA, counts in RESULT --- */

static bool put_one_entry(void *data, const struct file_entry *entry)
{
	struct file_call *file = data;
	put_entry(&file->writer, NULL, entry);
	file->count++;
	return true;
}

static void put_path_found(struct json_writer *writer, const struct file_match *match)
{
	if (text_is_utf8(match->path, match->path_size)) {
		put_text_size(writer, NULL, match->path, match->path_size);
		return;
	}
	put_object(writer, NULL);
	put_base64(writer, "path_base64", match->path, match->path_size);
	put_object_end(writer);
}

static void put_line_found(struct json_writer *writer, const struct file_match *match)
{
	put_object(writer, NULL);
	put_bytes(writer, "path", match->path, match->path_size);
	put_uint(writer, "line", match->line);
	put_uint(writer, "offset", match->offset);
	put_bytes(writer, "text", match->text, match->text_size);
	put_object_end(writer);
}

static bool put_one_match(void *data, const struct file_match *match)
{
	struct file_call *file = data;
	if (file->request.operation == FILE_GREP)
		put_line_found(&file->writer, match);
	else
		put_path_found(&file->writer, match);
	file->count++;
	return true;
}

static void records_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	static const struct file_sink sink = {put_one_entry, put_one_match};
	struct file_call *file = file_data(handle);
	if (file_records_read(file->request.operation, data, size, &sink, file) < 0 ||
	    file->writer.full)
		file_bad_answer(file);
	else
		file_emit(file, (uint32_t)size);
}

static void file_list_end(struct file_call *file, bool truncated)
{
	put_array_end(&file->writer);
	put_uint(&file->writer, "count", file->count);
	put_bool(&file->writer, "truncated", truncated);
	put_object_end(&file->writer);
	file_finish(file);
}

static void file_list_done(struct file_operation_handle *handle, const void *result, size_t size,
			   const struct error *error)
{
	struct file_call *file = file_data(handle);
	file->handle = NULL;
	if (error) {
		file_fail(file, file->refusal.kind ? &file->refusal : error);
		return;
	}
	struct file_outcome outcome;
	struct error bad;
	if (file_outcome_read(file->request.operation, result, size, &outcome, &bad) < 0)
		file_fail(file, &bad);
	else
		file_list_end(file, outcome.truncated);
}

/* --- list --- */

const struct file_callbacks file_list_callbacks = {.on_data = records_data,
						   .on_done = file_list_done};

void file_list_open(struct file_call *file)
{
	if (file->request.limit == 0)
		file->request.limit = FILE_LIST_DEFAULT;
	put_object(&file->writer, NULL);
	put_path(file);
	put_array(&file->writer, "entries");
}

void file_list_get(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_LIST, &file_list_callbacks);
	if (!file_query(file))
		return;
	file_list_open(file);
	file_begin(file);
}

/* --- glob --- */

static void file_search_begin(struct call *call, enum file_operation operation,
			      const struct file_callbacks *callbacks, const char *found)
{
	struct file_call *file = file_call_new(call, operation, callbacks);
	if (!file_query(file))
		return;
	put_object(&file->writer, NULL);
	put_array(&file->writer, found);
	file_begin(file);
}

void file_glob_get(struct call *call)
{
	file_search_begin(call, FILE_GLOB, &file_list_callbacks, "paths");
}

/* --- grep --- */

static void file_grep_done(struct file_operation_handle *handle, const void *result, size_t size,
			   const struct error *error)
{
	struct file_outcome outcome;
	struct file_call *file = file_result(handle, result, size, error, &outcome);
	if (!file)
		return;
	put_array_end(&file->writer);
	put_uint(&file->writer, "count", file->count);
	put_uint(&file->writer, "files", outcome.files);
	put_bool(&file->writer, "truncated", outcome.truncated);
	put_object_end(&file->writer);
	file_finish(file);
}

static const struct file_callbacks grep_callbacks = {.on_data = records_data,
						     .on_done = file_grep_done};

void file_grep_get(struct call *call)
{
	file_search_begin(call, FILE_GREP, &grep_callbacks, "matches");
}
