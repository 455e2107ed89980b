/* The contents of files for OpenSandbox: read, write, search, replace. Each is one operation in the
 * sandbox or one after the other; waits through callbacks, nothing blocks. */
#include "mcp/dialects/opensandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "mcp/dialects/encoding.h"

/* The maximum that fits one answer: it contains a text twice, and a byte may become seven. */
#define READ_MAX (1 * MIB)
#define SEARCH_MAX 1000
#define FIELD_PATH(to)                                                                             \
	{                                                                                          \
		"path", FIELD_TEXT, to, true, 1, GUEST_PATH_MAX - 1                                \
	}

/* --- file_read --- */

struct read {
	struct pending_operation pending;
	const char *path;
	enum text_encoding encoding;
	struct byte_range range;
};

/* A range may cut a character at its ends; anywhere else undecodable bytes mean that the text has
 * another encoding. */
static bool content_is_decodable(const struct read *read, const struct file_content *content)
{
	size_t begin = 0, end = content->size;
	if (read->encoding != ENCODING_UTF8)
		return encoding_holds(read->encoding, content->data, content->size);
	if (read->range.given) {
		begin = utf8_rest(content->data, content->size);
		end = begin + text_utf8_prefix(content->data + begin, content->size - begin);
	}
	return text_is_utf8(content->data + begin, end - begin);
}

static void read_reply_content(struct mcp_request *request, const struct file_content *content)
{
	const struct read *read = request->state;
	DONE_BUFFER struct buffer json = BUFFER(MCP_ANSWER_MAX);
	struct json_writer writer = json_writer_on(&json);
	put_object(&writer, NULL);
	put_text(&writer, "path", read->path);
	encoding_put(&writer, "content", read->encoding, content->data, content->size);
	put_object_end(&writer);
	dialect_reply(request, &writer);
}

static void write_check_content(struct mcp_request *request, const struct file_content *content)
{
	const struct read *read = request->state;
	unsigned long long size = (unsigned long long)content->file_size;
	bool whole = !read->range.given || read->range.length == 0;
	if (content->more && whole)
		content_refuse(request,
			       "%s has %llu bytes; at most %llu can be read at once: give "
			       "`range_header`, for example \"bytes=%llu-%llu\"",
			       read->path, size, READ_MAX, (unsigned long long)read->range.offset,
			       (unsigned long long)read->range.offset + READ_MAX - 1);
	else if (read->range.given && size > 0 && read->range.offset >= size)
		content_refuse(request,
			       "range_header asks for bytes from %llu on; %s has %llu bytes",
			       (unsigned long long)read->range.offset, read->path, size);
	else if (!content_is_decodable(read, content))
		content_refuse(request,
			       "%s is not %s: read it with `encoding` \"latin-1\" or \"base64\"",
			       read->path, encoding_name(read->encoding));
	else
		read_reply_content(request, content);
}

static void content_came(void *data, const struct file_content *content, const struct error *error)
{
	struct mcp_request *request = data;
	if (pending_over(request)) {
		if (error)
			mcp_fail(request, error);
		else
			write_check_content(request, content);
	}
	mcp_release(request);
}

static void read_bytes_max(struct mcp_request *request, struct sandbox *sandbox)
{
	struct read *read = request->state;
	const struct file_place place = {.principal = &request->principal, .path = read->path};
	struct error error;
	uint64_t max = read->range.length > 0 ? read->range.length : READ_MAX;
	pending_begin(request);
	if (file_read_whole(sandbox, &place, read->range.offset, max, content_came, request,
			    &read->pending.task, &error) < 0)
		pending_refused(request, &error);
}

/* For the last N bytes: their beginning is known when the size is known. */
static bool read_size_seen(void *data, const struct file_entry *entry)
{
	struct mcp_request *request = data;
	struct read *read = request->state;
	uint64_t last = read->range.last;
	read->range.offset = entry->size > last ? entry->size - last : 0;
	read->range.length = last;
	return true;
}

static void read_size_known(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	(void)total, (void)cut;
	if (pending_over(request)) {
		struct sandbox *sandbox = error ? NULL : target_again(request);
		if (error)
			mcp_fail(request, error);
		else if (sandbox)
			read_bytes_max(request, sandbox);
	}
	mcp_release(request);
}

static void opensandbox_read_file(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct file_records records = {.entry = read_size_seen,
						    .done = read_size_known};
	struct read *read = request->state;
	const struct file_place place = {.principal = &request->principal, .path = read->path};
	struct error error;
	if (!read->range.last) {
		read_bytes_max(request, sandbox);
		return;
	}
	pending_begin(request);
	if (file_stat(sandbox, &place, true, &records, request, &read->pending.task, &error) < 0)
		pending_refused(request, &error);
}

void opensandbox_read(struct mcp_request *request, const json_t *arguments)
{
	const char *id = NULL, *encoding = "utf-8", *range = NULL;
	bool connect;
	struct error error;
	struct read *read = pending_state(request, sizeof(*read), NULL);
	const struct field_to fields[] = {
	    {"sandbox_id", FIELD_TEXT, &id, true, 1},
	    FIELD_PATH(&read->path),
	    {"encoding", FIELD_TEXT, &encoding},
	    {"range_header", FIELD_TEXT, &range, false, 0, 100},
	    {"connect_if_missing", FIELD_BOOL, &connect},
	};
	opensandbox_expand_home(arguments);
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	if (encoding_parse(encoding, &read->encoding, &error) < 0 ||
	    byte_range_parse(range, READ_MAX, &read->range, &error) < 0) {
		content_refuse(request, "%s", error.message);
		return;
	}
	target_ready(request, id, TARGET_NAMED, opensandbox_read_file);
}

/* --- file_write --- */

struct opensandbox_write_state {
	struct pending_operation pending;
	const char *path, *content;
	struct buffer bytes;
	uint32_t mode;
	char owner[OPENSANDBOX_OWNER_SIZE]; /* "": keep the owner */
};

static void opensandbox_write_free(void *state)
{
	struct opensandbox_write_state *write = state;
	buffer_done(&write->bytes);
	free(write);
}

static void owner_given(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	if (pending_over(request)) {
		if (error)
			mcp_fail(request, error);
		else
			dialect_reply_status(request, "written");
	}
	mcp_release(request);
}

static void give_owner(struct mcp_request *request)
{
	struct opensandbox_write_state *write = request->state;
	struct sandbox *sandbox = target_again(request);
	struct error error;
	if (!sandbox)
		return;
	const struct file_request change = {
	    .operation = FILE_CHOWN,
	    .path = {(const uint8_t *)write->path, strlen(write->path)},
	    .path2 = {(const uint8_t *)write->owner, strlen(write->owner)},
	};
	pending_begin(request);
	if (file_change(sandbox, &request->principal, &change, owner_given, request,
			&write->pending.task, &error) < 0)
		pending_refused(request, &error);
}

static void opensandbox_file_written(void *data, uint64_t written, bool created,
				     const struct error *error)
{
	struct mcp_request *request = data;
	const struct opensandbox_write_state *write = request->state;
	(void)written, (void)created;
	if (pending_over(request)) {
		if (error)
			mcp_fail(request, error);
		else if (write->owner[0])
			give_owner(request);
		else
			dialect_reply_status(request, "written");
	}
	mcp_release(request);
}

static void opensandbox_write_file(struct mcp_request *request, struct sandbox *sandbox)
{
	struct opensandbox_write_state *write = request->state;
	const struct file_place place = {.principal = &request->principal, .path = write->path};
	struct error error;
	pending_begin(request);
	if (file_write_whole(sandbox, &place, write->bytes.data, write->bytes.size, write->mode,
			     false, opensandbox_file_written, request, &write->pending.task,
			     &error) < 0)
		pending_refused(request, &error);
}

void opensandbox_write(struct mcp_request *request, const json_t *arguments)
{
	const char *id = NULL, *name = "utf-8", *owner = NULL, *group = NULL;
	bool connect;
	uint64_t digits = 755;
	enum text_encoding encoding;
	struct error error;
	struct opensandbox_write_state *write =
	    pending_state(request, sizeof(*write), opensandbox_write_free);
	const struct field_to fields[] = {
	    {"sandbox_id", FIELD_TEXT, &id, true, 1},
	    FIELD_PATH(&write->path),
	    {"content", FIELD_TEXT, &write->content, true},
	    {"encoding", FIELD_TEXT, &name},
	    {"mode", FIELD_UINT, &digits},
	    {"owner", FIELD_TEXT, &owner},
	    {"group", FIELD_TEXT, &group},
	    {"connect_if_missing", FIELD_BOOL, &connect},
	};
	opensandbox_expand_home(arguments);
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	write->bytes = BUFFER(FILE_WHOLE_MAX);
	if (encoding_parse(name, &encoding, &error) < 0 ||
	    encoding_bytes(encoding, write->content, &write->bytes, &error) < 0 ||
	    opensandbox_mode(digits, &write->mode, &error) < 0 ||
	    opensandbox_owner(owner, group, write->owner, &error) < 0) {
		content_refuse(request, "%s", error.message);
		return;
	}
	target_ready(request, id, TARGET_NAMED, opensandbox_write_file);
}

/* --- file_search --- */

struct opensandbox_search_state {
	struct pending_operation pending;
	const char *path, *pattern;
	struct buffer paths; /* "a\0b\0": the matches */
	size_t at;           /* position of the current one */
	struct buffer json;
	struct json_writer writer;
};

static void opensandbox_search_free(void *state)
{
	struct opensandbox_search_state *search = state;
	buffer_done(&search->paths);
	buffer_done(&search->json);
	free(search);
}

static const char *entry_type(char type)
{
	return type == 'f' ? "file" : type == 'd' ? "directory" : type == 'l' ? "symlink" : "other";
}

/* User names are in the sandbox's own files; a number is as useful. */
static void put_owner(struct json_writer *writer, const char *key, uint32_t id)
{
	char text[16];
	snprintf(text, sizeof(text), "%u", id);
	put_text(writer, key, id == 0 ? "root" : text);
}

static bool entry_seen(void *data, const struct file_entry *entry)
{
	struct mcp_request *request = data;
	struct opensandbox_search_state *search = request->state;
	struct json_writer *writer = &search->writer;
	uint32_t mode = entry->mode & 07777;
	int64_t modified = entry->mtime_ns != 0 ? entry->mtime_ns : 1;
	if (entry->type == 'd')
		return true;
	put_object(writer, NULL);
	put_text(writer, "path", search->paths.data + search->at);
	put_text(writer, "type", entry_type(entry->type));
	put_uint(writer, "mode",
		 (mode >> 9) * 1000 + (mode >> 6 & 7) * 100 + (mode >> 3 & 7) * 10 + (mode & 7));
	put_owner(writer, "owner", entry->uid);
	put_owner(writer, "group", entry->gid);
	put_uint(writer, "size", entry->size);
	put_time(writer, "modified_at", modified);
	put_time(writer, "created_at", modified);
	put_object_end(writer);
	return true;
}

static void search_look_at_next(struct mcp_request *request);

static void entry_looked(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	struct opensandbox_search_state *search = request->state;
	(void)total, (void)cut;
	if (pending_over(request)) {
		/* A file that was removed meanwhile is not a match. */
		if (error && error->kind != ERROR_FILE_NOT_FOUND) {
			mcp_fail(request, error);
		} else {
			search->at += strlen(search->paths.data + search->at) + 1;
			search_look_at_next(request);
		}
	}
	mcp_release(request);
}

static void search_look_at_next(struct mcp_request *request)
{
	static const struct file_records records = {.entry = entry_seen, .done = entry_looked};
	struct opensandbox_search_state *search = request->state;
	struct error error;
	if (search->at >= search->paths.size) {
		put_array_end(&search->writer);
		dialect_reply_list(request, &search->writer);
		return;
	}
	struct sandbox *sandbox = target_again(request);
	const struct file_place place = {.principal = &request->principal,
					 .path = search->paths.data + search->at};
	if (!sandbox)
		return;
	pending_begin(request);
	if (file_stat(sandbox, &place, false, &records, request, &search->pending.task, &error) < 0)
		pending_refused(request, &error);
}

static bool path_found(void *data, const struct file_match *match)
{
	struct mcp_request *request = data;
	struct opensandbox_search_state *search = request->state;
	return buffer_append(&search->paths, match->path, match->path_size) == 0 &&
	       buffer_append(&search->paths, "", 1) == 0;
}

static void paths_found(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	(void)total;
	if (pending_over(request)) {
		if (error)
			mcp_fail(request, error);
		else if (cut)
			content_refuse(request,
				       "more than %d files match: give a narrower `path` or "
				       "`pattern`",
				       SEARCH_MAX);
		else
			search_look_at_next(request);
	}
	mcp_release(request);
}

static void search_files(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct file_records records = {.match = path_found, .done = paths_found};
	struct opensandbox_search_state *search = request->state;
	const struct file_place place = {.principal = &request->principal, .path = search->path};
	char pattern[GUEST_PATH_MAX];
	struct error error;
	/* Without a slash the pattern is for names at any depth. */
	bool of_names = !strchr(search->pattern, '/');
	bool all = strcmp(search->pattern, "**") == 0;
	if (text_format(pattern, sizeof(pattern), "%s%s", of_names ? "**/" : "",
			all ? "*" : search->pattern) < 0) {
		content_refuse(request, "field `pattern` is too long");
		return;
	}
	search->paths = BUFFER(SEARCH_MAX * 256);
	search->json = BUFFER(MCP_ANSWER_MAX / 2);
	search->writer = json_writer_on(&search->json);
	put_array(&search->writer, NULL);
	pending_begin(request);
	struct glob_query query = {.pattern = pattern, .max = SEARCH_MAX};
	if (file_glob(sandbox, &place, &query, &records, request, &search->pending.task, &error) <
	    0)
		pending_refused(request, &error);
}

void opensandbox_search(struct mcp_request *request, const json_t *arguments)
{
	const char *id = NULL;
	bool connect;
	struct opensandbox_search_state *search =
	    pending_state(request, sizeof(*search), opensandbox_search_free);
	const struct field_to fields[] = {
	    {"sandbox_id", FIELD_TEXT, &id, true, 1},
	    FIELD_PATH(&search->path),
	    {"pattern", FIELD_TEXT, &search->pattern, true, 1, GUEST_PATH_MAX - 8},
	    {"connect_if_missing", FIELD_BOOL, &connect},
	};
	opensandbox_expand_home(arguments);
	if (dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		target_ready(request, id, TARGET_NAMED, search_files);
}

/* --- file_replace_contents --- */

struct replacement {
	const char *path, *old, *new;
};

struct replace {
	struct pending_operation pending;
	struct replacement *entries;
	size_t count, at;
	struct buffer json;
	struct json_writer writer;
};

static void replace_free(void *state)
{
	struct replace *replace = state;
	buffer_done(&replace->json);
	free(replace->entries);
	free(replace);
}

static void replace_next(struct mcp_request *request, struct sandbox *sandbox);

static void text_replaced(void *data, uint64_t count, const struct error *error)
{
	struct mcp_request *request = data;
	struct replace *replace = request->state;
	if (pending_over(request)) {
		struct sandbox *sandbox = NULL;
		if (error) {
			struct error told = *error;
			if (replace->count > 1)
				(void)error_prepend(&told,
						    "entry %zu of %zu (those before it are "
						    "done): ",
						    replace->at + 1, replace->count);
			mcp_fail(request, &told);
		} else {
			sandbox = target_again(request);
		}
		if (sandbox) {
			put_object(&replace->writer, NULL);
			put_text(&replace->writer, "path", replace->entries[replace->at].path);
			put_uint(&replace->writer, "replaced_count", count);
			put_object_end(&replace->writer);
			replace->at++;
			replace_next(request, sandbox);
		}
	}
	mcp_release(request);
}

static void replace_next(struct mcp_request *request, struct sandbox *sandbox)
{
	struct replace *replace = request->state;
	struct error error;
	if (replace->at == replace->count) {
		put_array_end(&replace->writer);
		dialect_reply_list(request, &replace->writer);
		return;
	}
	const struct replacement *entry = &replace->entries[replace->at];
	const struct file_place place = {.principal = &request->principal, .path = entry->path};
	pending_begin(request);
	if (file_replace(sandbox, &place, entry->old, entry->new, 0, text_replaced, request,
			 &replace->pending.task, &error) < 0)
		pending_refused(request, &error);
}

static int write_read_entries(struct replace *replace, const json_t *entries, struct error *error)
{
	size_t index;
	json_t *value;
	char where[32];
	if (json_array_size(entries) > OPENSANDBOX_ENTRIES_MAX)
		return error_set(error, ERROR_INVALID,
				 "field `entries` has %zu entries; at most %d",
				 json_array_size(entries), OPENSANDBOX_ENTRIES_MAX);
	replace->entries = calloc(json_array_size(entries) + 1, sizeof(*replace->entries));
	if (!replace->entries)
		abort();
	json_array_foreach(entries, index, value)
	{
		struct replacement *entry = &replace->entries[replace->count++];
		const struct field_to fields[] = {
		    FIELD_PATH(&entry->path),
		    {"old_content", FIELD_TEXT, &entry->old, true, 1},
		    {"new_content", FIELD_TEXT, &entry->new, true},
		};
		snprintf(where, sizeof(where), "entries[%zu]", index);
		if (dialect_entry(value, where, fields, ARRAY_SIZE(fields), error) < 0)
			return -1;
	}
	return 0;
}

void opensandbox_replace(struct mcp_request *request, const json_t *arguments)
{
	const char *id = NULL;
	json_t *entries = NULL;
	bool connect;
	struct error error;
	struct replace *replace = pending_state(request, sizeof(*replace), replace_free);
	const struct field_to fields[] = {
	    {"sandbox_id", FIELD_TEXT, &id, true, 1},
	    {"entries", FIELD_ARRAY, &entries, true},
	    {"connect_if_missing", FIELD_BOOL, &connect},
	};
	opensandbox_expand_home(arguments);
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	if (write_read_entries(replace, entries, &error) < 0) {
		content_refuse(request, "%s", error.message);
		return;
	}
	replace->json = BUFFER(MCP_ANSWER_MAX / 2);
	replace->writer = json_writer_on(&replace->json);
	put_array(&replace->writer, NULL);
	target_ready(request, id, TARGET_NAMED, replace_next);
}
