/* See tasks.h: stat, list, glob, grep, with their records. A walk lists one directory after the
 * other, breadth first, with a maximum of directories. Called by the edges, on the loop; everything
 * waits through the callbacks of files.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/core_private.h"
#include "core/file/task_private.h"

#define WALK_DIRECTORIES_MAX 4096

/* A directory of a walk, by its path below the starting place. */
struct directory {
	struct list link;
	uint32_t depth;
	char path[];
};

static void search_tell_done(struct file_task *task, const struct error *error)
{
	task->records.done(task->data, task->told, task->cut, error);
}

/* Never more than requested, whatever an init sends. */
static bool search_tell_entry(void *data, const struct file_entry *entry)
{
	struct file_task *task = data;
	if (task->told == task->limit)
		return false;
	task->told++;
	return task->records.entry(task->data, entry) && !task->over;
}

static bool search_tell_match(void *data, const struct file_match *match)
{
	struct file_task *task = data;
	if (task->told == task->limit)
		return false;
	task->told++;
	return task->records.match(task->data, match) && !task->over;
}

/* The owner has stopped the records. */
static void search_stop(struct file_task *task)
{
	task->cut = true;
	file_task_over(task, NULL);
}

static bool search_take_records(struct file_task *task, const void *bytes, size_t size)
{
	static const struct file_sink sink = {search_tell_entry, search_tell_match};
	int result = file_records_read(task->request.operation, bytes, size, &sink, task);
	if (result > 0)
		search_stop(task);
	return result >= 0;
}

static void search_records_done(struct file_task *task, const struct file_outcome *outcome,
				const struct error *error)
{
	task->cut |= outcome->truncated;
	file_task_over(task, error);
}

static struct file_task *search_new(struct sandbox *sandbox, const struct file_place *place,
				    enum file_operation operation, uint32_t max,
				    const struct file_records *records, void *data,
				    struct error *error)
{
	struct file_task *task = file_task_new(sandbox, place, data, error);
	if (!task)
		return NULL;
	uint32_t most = operation == FILE_GREP ? GREP_MATCHES_MAX : GLOB_RESULTS_MAX;
	task->request.operation = (uint8_t)operation;
	task->request.limit = task->limit = max > 0 ? MIN(max, most) : most;
	task->records = *records;
	task->on_data = search_take_records;
	task->on_done = search_records_done;
	task->tell = search_tell_done;
	return task;
}

/* --- stat --- */

static void file_stat_done(struct file_task *task, const struct file_outcome *outcome,
			   const struct error *error)
{
	if (!error)
		search_tell_entry(task, outcome->entry);
	file_task_over(task, error);
}

int file_stat(struct sandbox *sandbox, const struct file_place *place, bool follow,
	      const struct file_records *records, void *data, struct file_task **ret_task,
	      struct error *error)
{
	struct file_task *task = search_new(sandbox, place, FILE_STAT, 0, records, data, error);
	if (!task)
		return -1;
	task->request.flags = follow ? 0 : FILE_NO_FOLLOW;
	task->on_data = NULL;
	task->on_done = file_stat_done;
	return file_task_first(task, ret_task, error);
}

/* --- list, and a walk --- */

static void search_release_directories(struct file_task *task)
{
	while (!list_empty(&task->directories)) {
		struct directory *directory =
		    list_entry(task->directories.next, struct directory, link);
		list_remove(&directory->link);
		free(directory);
	}
}

/* The directory that is being listed is the first one. */
static struct directory *directory_listed(struct file_task *task)
{
	return list_entry(task->directories.next, struct directory, link);
}

static void search_add_directory(struct file_task *task, const char *path, uint32_t depth)
{
	size_t size = strlen(path) + 1;
	if (task->directory_count == WALK_DIRECTORIES_MAX) {
		task->cut = true;
		return;
	}
	struct directory *directory = malloc(sizeof(*directory) + size);
	if (!directory)
		abort();
	directory->depth = depth;
	memcpy(directory->path, path, size);
	list_append(&task->directories, &directory->link);
	task->directory_count++;
}

static bool walk_entry(void *data, const struct file_entry *entry)
{
	static struct file_entry joined; /* large; one loop */
	struct file_task *task = data;
	const struct directory *directory = directory_listed(task);
	joined = *entry;
	if (directory->path[0] && text_format(joined.name, sizeof(joined.name), "%s/%s",
					      directory->path, entry->name) < 0) {
		task->cut = true;
		return true;
	}
	if (entry->type == 'd' && directory->depth < task->depth)
		search_add_directory(task, joined.name, directory->depth + 1);
	return search_tell_entry(task, &joined);
}

static bool walk_data(struct file_task *task, const void *bytes, size_t size)
{
	static const struct file_sink sink = {.entry = walk_entry};
	int result = file_records_read(FILE_LIST, bytes, size, &sink, task);
	if (result > 0)
		search_stop(task);
	return result >= 0;
}

/* Lists the first directory; an error if that fails to begin. */
static int walk_next(struct file_task *task, struct error *error)
{
	char path[GUEST_PATH_MAX];
	const struct directory *directory = directory_listed(task);
	if (text_format(path, sizeof(path), "%s%s%s", task->path, directory->path[0] ? "/" : "",
			directory->path) < 0)
		return error_set(error, ERROR_FILE_INVALID, "a path is longer than %d bytes",
				 GUEST_PATH_MAX - 1);
	task->request.path = text_bytes(path);
	task->request.limit = task->limit - (uint32_t)MIN(task->told, task->limit - 1);
	/* A directory that has become a link meanwhile is not followed. */
	task->request.flags = directory->path[0] ? FILE_NO_FOLLOW : 0;
	int result = file_task_begin(task, error);
	task->request.path = text_bytes(task->path);
	return result;
}

/* A directory below that cannot be read is skipped; the walk is then marked as cut. */
static bool directory_can_skip(const struct directory *directory, const struct error *error)
{
	return directory->path[0] &&
	       (error->kind == ERROR_FILE_DENIED || error->kind == ERROR_FILE_NOT_FOUND ||
		error->kind == ERROR_FILE_WRONG_TYPE || error->kind == ERROR_FILE_INVALID ||
		error->kind == ERROR_FILE_LOOP);
}

static void walk_done(struct file_task *task, const struct file_outcome *outcome,
		      const struct error *error)
{
	struct error refused;
	for (;;) {
		struct directory *directory = directory_listed(task);
		task->cut |= outcome->truncated || error;
		if (error && !directory_can_skip(directory, error)) {
			file_task_over(task, error);
			return;
		}
		list_remove(&directory->link);
		free(directory);
		if (list_empty(&task->directories) || task->told >= task->limit) {
			task->cut |= !list_empty(&task->directories);
			file_task_over(task, NULL);
			return;
		}
		if (walk_next(task, &refused) == 0)
			return;
		error = &refused;
	}
}

int file_list(struct sandbox *sandbox, const struct file_place *place, uint32_t depth, uint32_t max,
	      const struct file_records *records, void *data, struct file_task **ret_task,
	      struct error *error)
{
	struct file_task *task = search_new(sandbox, place, FILE_LIST, max, records, data, error);
	if (!task)
		return -1;
	task->depth = MAX(depth, 1);
	task->release = search_release_directories;
	task->on_data = walk_data;
	task->on_done = walk_done;
	search_add_directory(task, "", 1);
	if (walk_next(task, error) < 0) {
		file_task_free(task);
		return -1;
	}
	*ret_task = task;
	return 0;
}

/* --- glob and grep --- */

static uint32_t search_flags(bool sorted, bool skip_generated)
{
	return (sorted ? FILE_SORTED : 0) | (skip_generated ? FILE_SKIP_GENERATED : 0);
}

int file_glob(struct sandbox *sandbox, const struct file_place *place,
	      const struct glob_query *query, const struct file_records *records, void *data,
	      struct file_task **ret_task, struct error *error)
{
	struct file_task *task =
	    search_new(sandbox, place, FILE_GLOB, query->max, records, data, error);
	if (!task)
		return -1;
	task->request.pattern = text_bytes(query->pattern);
	task->request.flags = search_flags(query->sorted, query->skip_generated);
	int result = file_task_first(task, ret_task, error);
	if (result == 0)
		task->request.pattern = text_bytes("");
	return result;
}

int file_grep(struct sandbox *sandbox, const struct file_place *place,
	      const struct grep_query *query, const struct file_records *records, void *data,
	      struct file_task **ret_task, struct error *error)
{
	struct file_task *task =
	    search_new(sandbox, place, FILE_GREP, query->max, records, data, error);
	if (!task)
		return -1;
	task->request.pattern = text_bytes(query->pattern);
	task->request.path2 = text_bytes(query->glob ? query->glob : "");
	task->request.flags = (query->plain ? 0 : FILE_REGEX) |
			      (query->ignore_case ? FILE_IGNORE_CASE : 0) |
			      search_flags(query->sorted, query->skip_generated);
	int result = file_task_first(task, ret_task, error);
	if (result == 0)
		task->request.pattern = task->request.path2 = text_bytes("");
	return result;
}
