/* .../fs: files as the clients of another service know them. The shapes are ours, which hold all of
 * theirs; what differs is said at each. */
#include "api/file/call.h"
#include "api/file/files.h"
#include "api/routes.h"

/* Bytes of a file alone: a directory is an error, never its list. */
static void fs_get(struct call *call)
{
	struct file_call *file = file_get_new(call);
	file->only_file = true;
	if (file_query(file))
		file_get_begin(file);
}

/* Directories above it are made, without asking. */
static void fs_put(struct call *call)
{
	struct file_call *file = file_put_new(call);
	file->request.flags = FILE_PARENTS;
	if (file_query(file))
		file_put_begin(file);
}

/* As rm -rf does: what is not there is removed. */
static void removed(struct file_operation_handle *handle, const void *result, size_t size,
		    const struct error *error)
{
	bool missing = error && error->kind == ERROR_FILE_NOT_FOUND;
	struct file_call *file = file_ended(handle, missing ? NULL : error);
	(void)result;
	(void)size;
	if (file)
		reply_empty(file->call, 204);
}

static const struct file_callbacks remove_callbacks = {.on_done = removed};

static void fs_delete(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_REMOVE, &remove_callbacks);
	file->request.flags = FILE_RECURSIVE;
	if (file_query(file))
		file_begin(file);
}

/* A link is told of, not followed: who walks a tree by `is_dir` must not run in circles. */
static void fs_stat(struct call *call)
{
	file_stat_begin(call, false);
}

static const struct field path_query[] = {{FILE_PATH}, {0}};
static const struct field folder_query[] = {{FILE_FOLDER}, {0}};

const struct route fs_routes[] = {
    {"GET", SB "/fs", READ, ROUTE_SANDBOX, fs_get, path_query},
    {"PUT", SB "/fs", WRITE, ROUTE_SANDBOX, fs_put, path_query},
    {"DELETE", SB "/fs", WRITE, ROUTE_SANDBOX, fs_delete, path_query},
    {"GET", SB "/fs/dir", READ, ROUTE_SANDBOX, file_list_get, folder_query},
    {"GET", SB "/fs/stat", READ, ROUTE_SANDBOX, fs_stat, path_query},
    {0},
};
