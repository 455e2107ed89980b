/* Watches a file: the sandbox's init watches the directory that contains it, because most programs
 * replace a file by renaming another one onto it.
 *
 * A watch neither wakes a sandbox nor keeps it alive. While watching is impossible (the sandbox is
 * paused or stopped, or the directory does not exist yet) the watch is suspended; when the sandbox
 * runs again, one notification is sent, since anything may have happened in between. Nothing
 * blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/activity/activity.h"
#include "core/file/records.h"
#include "mcp/resources/file.h"
#include "mcp/resources/usual_resources.h"

/* Per sandbox: each uses one of its init's concurrent operations. */
#define FILE_WATCHES_MAX 16

struct file_watch {
	struct list link;
	struct resource_watch *watch;
	struct id sandbox;
	char directory[GUEST_PATH_MAX];
	const char *base; /* in `path` */
	char path[GUEST_PATH_MAX];
	struct file_operation_handle *handle; /* NULL: it is suspended */
	bool missed; /* something may have happened while it was suspended */
	struct sandbox_watcher watcher;
	struct activity_listener listener;
};

static struct list file_watches = {&file_watches, &file_watches};

static bool file_watch_concerns(const struct file_watch *file, const struct file_event *event)
{
	if (event->kind == WATCH_OVERFLOW || !file->base[0])
		return true;
	return event->base_size == strlen(file->base) &&
	       memcmp(event->base, file->base, event->base_size) == 0;
}

static void file_resource_watch_data(struct file_operation_handle *handle, const void *data,
				     size_t size)
{
	struct file_watch *file = file_data(handle);
	struct file_event event;
	file_credit(handle, (uint32_t)size);
	if (file_event_read(data, size, &event) < 0)
		return;
	if (event.kind == WATCH_READY) {
		if (file->missed)
			resource_changed(file->watch);
		file->missed = false;
	} else if (file_watch_concerns(file, &event)) {
		resource_changed(file->watch);
	}
}

static void file_resource_watch_done(struct file_operation_handle *handle, const void *result,
				     size_t size, const struct error *error)
{
	struct file_watch *file = file_data(handle);
	(void)result;
	(void)size;
	(void)error;
	file->handle = NULL;
	file->missed = true;
}

/* If the watch cannot begin, it stays suspended: the next change of the sandbox tries again. */
static void file_watch_begin(struct file_watch *file, struct sandbox *sandbox)
{
	static const struct file_callbacks callbacks = {.on_data = file_resource_watch_data,
							.on_done = file_resource_watch_done};
	struct error error;
	if (file->handle || !sandbox_may_exec(sandbox)) {
		file->missed |= !file->handle;
		return;
	}
	struct file_request request = {
	    .operation = FILE_WATCH,
	    .path = {(const uint8_t *)file->directory, strlen(file->directory)},
	};
	if (file_start(sandbox, &file->watch->principal, &request, &callbacks, file, &file->handle,
		       &error) < 0)
		file->missed = true;
	else
		file_look_on(file->handle);
}

static void sandbox_changed(struct sandbox_watcher *watcher, struct sandbox *sandbox)
{
	struct file_watch *file = container_of(watcher, struct file_watch, watcher);
	if (sandbox->row.state == SANDBOX_ENDED)
		resource_over(file->watch);
	else
		file_watch_begin(file, sandbox);
}

static void sandbox_lost(struct sandbox_watcher *watcher, const struct error *error)
{
	(void)watcher;
	(void)error;
}

/* The file API may have made a missing directory; the end of a command would not report that. */
static void activity_recorded(struct activity_listener *listener, const struct activity_row *row)
{
	struct file_watch *file = container_of(listener, struct file_watch, listener);
	if (file->handle || !id_equal(&row->sandbox, &file->sandbox) ||
	    row->kind < ACTIVITY_FILE_WRITTEN || row->kind > ACTIVITY_FILE_REMOVED)
		return;
	struct sandbox *sandbox = sandbox_by_id(file->watch->core, &file->sandbox);
	if (sandbox)
		file_watch_begin(file, sandbox);
}

static void file_resource_watch_free(void *state)
{
	struct file_watch *file = state;
	if (file->handle)
		file_cancel(file->handle);
	sandbox_unwatch(&file->watcher);
	activity_unlisten(&file->listener);
	list_remove(&file->link);
	free(file);
}

static bool file_watches_too_many(const struct id *sandbox)
{
	unsigned count = 0;
	list_each (&file_watches, node)
		count += id_equal(&list_entry(node, struct file_watch, link)->sandbox, sandbox);
	return count >= FILE_WATCHES_MAX;
}

int file_resource_watch(struct resource_watch *watch, const char *const *variables,
			struct error *error)
{
	struct sandbox *sandbox;
	char path[GUEST_PATH_MAX];
	if (file_resource_path(variables[1], path, error) < 0 ||
	    sandbox_find(watch->core, &watch->principal, variables[0], &sandbox, error) < 0)
		return -1;
	if (file_watches_too_many(&sandbox->row.id))
		return error_set(error, ERROR_BUSY,
				 "%d files of sandbox `%s` are watched already, the most there may "
				 "be",
				 FILE_WATCHES_MAX, sandbox->row.id.text);
	struct file_watch *file = calloc(1, sizeof(*file));
	if (!file)
		abort();
	file->watch = watch;
	/* Changes before the init's watch begins are not seen: one notification is sent when it
	 * begins. */
	file->missed = true;
	file->sandbox = sandbox->row.id;
	memcpy(file->path, path, sizeof(path));
	char *slash = strrchr(file->path, '/');
	file->base = slash + 1;
	size_t size = MAX((size_t)(slash - file->path), 1);
	memcpy(file->directory, file->path, size);
	file->watcher.changed = sandbox_changed;
	file->watcher.lost = sandbox_lost;
	file->listener.recorded = activity_recorded;
	list_append(&file_watches, &file->link);
	sandbox_watch(sandbox, &file->watcher);
	activity_listen(watch->core, &file->listener);
	watch->state = file;
	watch->state_free = file_resource_watch_free;
	file_watch_begin(file, sandbox);
	return 0;
}
