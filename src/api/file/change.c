/* Changing files without sending bytes: mkdir, rename, copy, symlink, chmod, chown, replace,
 * remove. Each is one operation in the sandbox and a short answer. */
#include "api/file/sandbox_copy.h"
#include "api/file/call.h"
#include "api/file/files.h"

#include <string.h>

/* The name in the answer of RESULT's count; NULL: the answer is empty. */
static const char *replace_count_name(uint8_t operation)
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

static void file_change_done(struct file_operation_handle *handle, const void *result, size_t size,
			     const struct error *error)
{
	struct file_outcome outcome;
	struct file_call *file = file_result(handle, result, size, error, &outcome);
	if (!file)
		return;
	const char *name = replace_count_name(file->request.operation);
	put_object(&file->writer, NULL);
	put_bytes(&file->writer, "path", file->request.path.data, file->request.path.size);
	if (file->request.operation == FILE_RENAME || file->request.operation == FILE_COPY)
		put_bytes(&file->writer, "to", file->request.path2.data, file->request.path2.size);
	if (name)
		put_uint(&file->writer, name, outcome.count);
	put_object_end(&file->writer);
	file_finish(file);
}

static const struct file_callbacks callbacks = {.on_done = file_change_done};

/* The possible members of a body; each table has some of them. */
struct change_fields {
	const char *path, *second, *mode, *pattern, *replacement, *user;
	const char *from_sandbox, *to_sandbox;
	uint32_t limit;
	bool recursive, parents, no_replace;
};

#define TEXT(member) FIELD_TEXT_AT(struct change_fields, member)
#define FLAG(member) FIELD_BOOL_AT(struct change_fields, member)
#define PATH(member) TEXT(member), FIELD_REQUIRED, 1, GUEST_PATH_MAX - 1
/* The user, and the mode: file_user() and file_mode() check them. */
#define USER "user", TEXT(user), .shape = "\"type\":\"string\",\"maxLength\":63"
#define MODE .shape = "\"type\":\"string\",\"pattern\":\"^[0-7]{1,5}$\""

const struct field file_mkdir_fields[] = {
    {"path", PATH(path)}, {"mode", TEXT(mode), MODE}, {"parents", FLAG(parents)}, {USER}, {0}};
const struct field file_rename_fields[] = {{"from", PATH(path)},
					   {"to", PATH(second)},
					   {"no_replace", FLAG(no_replace)},
					   {"parents", FLAG(parents)},
					   {USER},
					   {0}};
const struct field file_copy_fields[] = {
    {"from", PATH(path)},
    {"to", PATH(second)},
    {"recursive", FLAG(recursive)},
    {"no_replace", FLAG(no_replace)},
    {"parents", FLAG(parents)},
    {"from_sandbox", TEXT(from_sandbox), .min = 1, .max = NAME_MAX_LENGTH},
    {"to_sandbox", TEXT(to_sandbox), .min = 1, .max = NAME_MAX_LENGTH},
    {USER},
    {0},
};
const struct field file_symlink_fields[] = {
    {"path", PATH(path)}, {"target", PATH(second)}, {USER}, {0}};
const struct field file_chmod_fields[] = {{"path", PATH(path)},
					  {"mode", TEXT(mode), FIELD_REQUIRED, 1, 5, MODE},
					  {"recursive", FLAG(recursive)},
					  {USER},
					  {0}};
const struct field file_chown_fields[] = {{"path", PATH(path)},
					  {"owner", TEXT(second), FIELD_REQUIRED, 1, 127,
					   .rest = "user, user:group, :group, or numbers."},
					  {"recursive", FLAG(recursive)},
					  {USER},
					  {0}};
const struct field file_replace_fields[] = {
    {"path", PATH(path)},
    {"old", TEXT(pattern), FIELD_REQUIRED, 1, FILE_CHUNK_MAX - 1},
    {"new", TEXT(replacement), FIELD_REQUIRED, 0, FILE_CHUNK_MAX - 1},
    {"limit", FIELD_UINT_AT(struct change_fields, limit), .max = UINT32_MAX,
     .shape = "\"type\":\"integer\",\"minimum\":0", .rest = "0 = all."},
    {USER},
    {0}};

static void file_change_begin(struct call *call, enum file_operation operation,
			      const struct change_fields *change)
{
	struct file_call *file = file_call_new(call, operation, &callbacks);
	struct error error;
	if (file_user(file, change->user, &error) < 0 ||
	    (change->mode && file_mode(file, change->mode, &error) < 0)) {
		reply_error(call, &error);
		return;
	}
	/* The texts belong to the JSON body, which lives as long as the call. */
	file->request.path = bytes_from_text(change->path);
	if (change->second)
		file->request.path2 = bytes_from_text(change->second);
	if (change->pattern)
		file->request.pattern = bytes_from_text(change->pattern);
	if (change->replacement)
		file->request.replacement = bytes_from_text(change->replacement);
	file->request.limit = change->limit;
	file->request.flags = (change->recursive ? FILE_RECURSIVE : 0) |
			      (change->parents ? FILE_PARENTS : 0) |
			      (change->no_replace ? FILE_NO_REPLACE : 0);
	file_begin(file);
}

static void file_change_post(struct call *call, enum file_operation operation)
{
	struct change_fields change = {.user = ""};
	struct error error;
	if (call_fields(call, &change, &error) < 0)
		reply_error(call, &error);
	else
		file_change_begin(call, operation, &change);
}

void file_mkdir_post(struct call *call)
{
	file_change_post(call, FILE_MKDIR);
}

void file_rename_post(struct call *call)
{
	file_change_post(call, FILE_RENAME);
}

void file_copy_post(struct call *call)
{
	struct change_fields change = {.user = ""};
	struct error error;
	if (call_fields(call, &change, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct sandbox_copy_fields fields = {.from = change.path,
					     .to = change.second,
					     .from_sandbox = change.from_sandbox,
					     .to_sandbox = change.to_sandbox,
					     .user = change.user,
					     .recursive = change.recursive,
					     .no_replace = change.no_replace,
					     .parents = change.parents};
	if (!sandbox_copy_answer(call, &fields))
		file_change_begin(call, FILE_COPY, &change);
}

void file_symlink_post(struct call *call)
{
	file_change_post(call, FILE_SYMLINK);
}

void file_chmod_post(struct call *call)
{
	file_change_post(call, FILE_CHMOD);
}

void file_chown_post(struct call *call)
{
	file_change_post(call, FILE_CHOWN);
}

void file_replace_post(struct call *call)
{
	file_change_post(call, FILE_REPLACE);
}

void file_delete(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_REMOVE, &callbacks);
	if (file_query(file))
		file_begin(file);
}
