/* Changing files without sending bytes: mkdir, rename, copy, symlink, chmod, chown, replace,
 * remove. Each is one operation in the sandbox and a short answer. */
#include "api/file/between.h"
#include "api/file/call.h"
#include "api/file/files.h"

#include <string.h>

/* The count that RESULT carries and what it is called in the answer; NULL: it is empty. */
static const char *count_name(uint8_t operation)
{
	switch ((enum file_operation)operation) {
	case FILE_REMOVE:
		return "removed";
	case FILE_COPY:
		return "bytes";
	case FILE_REPLACE:
		return "count";
	case FILE_STAT:
	case FILE_LIST:
	case FILE_READ:
	case FILE_WRITE:
	case FILE_APPEND:
	case FILE_MKDIR:
	case FILE_RENAME:
	case FILE_SYMLINK:
	case FILE_READLINK:
	case FILE_CHMOD:
	case FILE_CHOWN:
	case FILE_GLOB:
	case FILE_GREP:
	case FILE_WATCH:
	case FILE_PACK:
	case FILE_UNPACK:
		break;
	}
	return NULL;
}

static void done(struct file_operation_handle *handle, const void *result, size_t size,
		 const struct error *error)
{
	struct file_outcome outcome;
	struct file_call *file = file_result(handle, result, size, error, &outcome);
	if (!file)
		return;
	const char *name = count_name(file->request.operation);
	put_object(&file->writer, NULL);
	put_bytes(&file->writer, "path", file->request.path.data, file->request.path.size);
	if (file->request.operation == FILE_RENAME || file->request.operation == FILE_COPY)
		put_bytes(&file->writer, "to", file->request.path2.data, file->request.path2.size);
	if (name)
		put_uint(&file->writer, name, outcome.count);
	put_object_end(&file->writer);
	file_finish(file);
}

static const struct file_callbacks callbacks = {.on_done = done};

/* What a body may say; each handler takes some of it. */
struct change {
	const char *path, *second, *mode, *pattern, *replacement;
	uint64_t limit;
	bool recursive, parents, no_replace;
};

#define FIELD_PATH(name, to)                                                                       \
	{                                                                                          \
		name, FIELD_TEXT, to, true, 1, GUEST_PATH_MAX - 1                                  \
	}

static void start(struct call *call, enum file_operation operation, struct change *change,
		  const struct field_to *fields, size_t count)
{
	struct file_call *file = file_call_new(call, operation, &callbacks);
	struct field_to all[8];
	const char *user = "";
	struct error error;
	memcpy(all, fields, count * sizeof(*fields));
	all[count] = (struct field_to){"user", FIELD_TEXT, &user};
	int result = json_fields(call->body, all, count + 1, FIELDS_REST, &error);
	if (result == 0)
		result = file_user(file, user, &error);
	if (result == 0 && change->mode)
		result = file_mode(file, change->mode, &error);
	if (result < 0) {
		reply_error(call, &error);
		return;
	}
	/* The texts are the JSON body's, which lives as long as the call. */
	file->request.path = bytes_of(change->path);
	if (change->second)
		file->request.path2 = bytes_of(change->second);
	if (change->pattern)
		file->request.pattern = bytes_of(change->pattern);
	if (change->replacement)
		file->request.replacement = bytes_of(change->replacement);
	file->request.limit = (uint32_t)change->limit;
	file->request.flags = (change->recursive ? FILE_RECURSIVE : 0) |
			      (change->parents ? FILE_PARENTS : 0) |
			      (change->no_replace ? FILE_NO_REPLACE : 0);
	file_begin(file, 0, NULL);
}

void file_mkdir_post(struct call *call)
{
	struct change change = {0};
	struct field_to fields[] = {
	    FIELD_PATH("path", &change.path),
	    {"mode", FIELD_TEXT, &change.mode},
	    {"parents", FIELD_BOOL, &change.parents},
	};
	start(call, FILE_MKDIR, &change, fields, ARRAY_SIZE(fields));
}

void file_rename_post(struct call *call)
{
	struct change change = {0};
	struct field_to fields[] = {
	    FIELD_PATH("from", &change.path),
	    FIELD_PATH("to", &change.second),
	    {"no_replace", FIELD_BOOL, &change.no_replace},
	    {"parents", FIELD_BOOL, &change.parents},
	};
	start(call, FILE_RENAME, &change, fields, ARRAY_SIZE(fields));
}

void file_copy_post(struct call *call)
{
	struct change change = {0};
	struct between_ask ask = {.user = ""};
	struct error error;
	struct field_to fields[] = {
	    FIELD_PATH("from", &change.path),
	    FIELD_PATH("to", &change.second),
	    {"recursive", FIELD_BOOL, &change.recursive},
	    {"no_replace", FIELD_BOOL, &change.no_replace},
	    {"parents", FIELD_BOOL, &change.parents},
	    {"from_sandbox", FIELD_TEXT, &ask.from_sandbox, false, 1, NAME_MAX_LENGTH},
	    {"to_sandbox", FIELD_TEXT, &ask.to_sandbox, false, 1, NAME_MAX_LENGTH},
	    {"user", FIELD_TEXT, &ask.user},
	};
	if (json_fields(call->body, fields, ARRAY_SIZE(fields), FIELDS_REST, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	ask.from = change.path;
	ask.to = change.second;
	ask.recursive = change.recursive;
	ask.no_replace = change.no_replace;
	ask.parents = change.parents;
	if (!file_between(call, &ask))
		start(call, FILE_COPY, &change, fields, ARRAY_SIZE(fields) - 1);
}

void file_symlink_post(struct call *call)
{
	struct change change = {0};
	struct field_to fields[] = {
	    FIELD_PATH("path", &change.path),
	    FIELD_PATH("target", &change.second),
	};
	start(call, FILE_SYMLINK, &change, fields, ARRAY_SIZE(fields));
}

void file_chmod_post(struct call *call)
{
	struct change change = {0};
	struct field_to fields[] = {
	    FIELD_PATH("path", &change.path),
	    {"mode", FIELD_TEXT, &change.mode, true, 1, 5},
	    {"recursive", FIELD_BOOL, &change.recursive},
	};
	start(call, FILE_CHMOD, &change, fields, ARRAY_SIZE(fields));
}

void file_chown_post(struct call *call)
{
	struct change change = {0};
	struct field_to fields[] = {
	    FIELD_PATH("path", &change.path),
	    {"owner", FIELD_TEXT, &change.second, true, 1, 127},
	    {"recursive", FIELD_BOOL, &change.recursive},
	};
	start(call, FILE_CHOWN, &change, fields, ARRAY_SIZE(fields));
}

void file_replace_post(struct call *call)
{
	struct change change = {0};
	struct field_to fields[] = {
	    FIELD_PATH("path", &change.path),
	    {"old", FIELD_TEXT, &change.pattern, true, 1, FILE_CHUNK_MAX - 1},
	    {"new", FIELD_TEXT, &change.replacement, true, 0, FILE_CHUNK_MAX - 1},
	    {"limit", FIELD_UINT, &change.limit, false, 0, UINT32_MAX},
	};
	start(call, FILE_REPLACE, &change, fields, ARRAY_SIZE(fields));
}

void file_delete(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_REMOVE, &callbacks);
	bool recursive = false;
	struct error error;
	int result = file_query(file, true, &error);
	if (result == 0)
		result = query_flag(call, "recursive", &recursive, &error);
	file->request.flags = recursive ? FILE_RECURSIVE : 0;
	file_begin(file, result, &error);
}
