/* .../fs: files in the form of another service. Our answers contain all of that service's members;
 * each function says what differs. */
#include "api/file/call.h"
#include "api/file/files.h"
#include "api/routes.h"

/* Only the bytes of a file: a directory is an error, and is not listed. */
static void fs_get(struct call *call)
{
	struct file_call *file = file_get_new(call);
	file->only_file = true;
	if (file_query(file))
		file_get_begin(file);
}

/* Missing parents are made in any case. */
static void fs_put(struct call *call)
{
	struct file_call *file = file_put_new(call);
	file->request.flags = FILE_PARENTS;
	if (file_query(file))
		file_put_begin(file);
}

/* Like rm -rf: removing a missing file succeeds. */
static void file_removed(struct file_operation_handle *handle, const void *result, size_t size,
			 const struct error *error)
{
	bool missing = error && error->kind == ERROR_FILE_NOT_FOUND;
	struct file_call *file = file_ended(handle, missing ? NULL : error);
	(void)result;
	(void)size;
	if (file)
		reply_empty(file->call, 204);
}

static const struct file_callbacks remove_callbacks = {.on_done = file_removed};

static void fs_delete(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_REMOVE, &remove_callbacks);
	file->request.flags = FILE_RECURSIVE;
	if (file_query(file))
		file_begin(file);
}

/* A link is described, not followed: a client that walks a tree by `is_dir` must not run in
 * circles. */
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
