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
	file_get_begin(file);
}

/* Missing parents are made in any case. */
static void fs_put(struct call *call)
{
	file_put_within(call, 0);
}

/* Like rm -rf: removing a missing file succeeds. */
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
	struct error error;
	int result = file_query(file, true, &error);
	file->request.flags = FILE_RECURSIVE;
	file_begin(file, result, &error);
}

/* A link is described, not followed: a client that walks a tree by `is_dir` must not run in
 * circles. */
static void fs_stat(struct call *call)
{
	file_stat_begin(call, false);
}

const struct route fs_routes[] = {
    {"GET", SB "/fs", READ, ROUTE_SANDBOX, fs_get, "path"},
    {"PUT", SB "/fs", WRITE, ROUTE_SANDBOX, fs_put, "path"},
    {"DELETE", SB "/fs", WRITE, ROUTE_SANDBOX, fs_delete, "path"},
    {"GET", SB "/fs/dir", READ, ROUTE_SANDBOX, file_list_get, "path"},
    {"GET", SB "/fs/stat", READ, ROUTE_SANDBOX, fs_stat, "path"},
    {0},
};
