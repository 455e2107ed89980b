/* See tasks.h: the life of a task, and the tasks that read, write and change files; the searches
 * are in search.c. Called by the edges, on the loop; everything waits through the callbacks of
 * files.h. */
#include "core/file/tasks.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/core_private.h"
#include "core/file/task_private.h"

/* The count stops at so many places above the expected number. */
#define COUNTED_BEYOND UINT64_C(1000)

/* --- the life of a task --- */

struct bytes text_bytes(const char *text)
{
	return (struct bytes){(const uint8_t *)text, strlen(text)};
}

struct file_task *file_task_new(struct sandbox *sandbox, const struct file_place *place, void *data,
				struct error *error)
{
	struct file_task *task = calloc(1, sizeof(*task));
	const char *user = place->user ? place->user : "";
	if (!task)
		abort();
	if (text_copy(task->request.user, sizeof(task->request.user), user) < 0) {
		error_set(error, ERROR_INVALID, "`user` is longer than %zu bytes",
			  sizeof(task->request.user) - 1);
		free(task);
		return NULL;
	}
	if (strlen(place->path) >= GUEST_PATH_MAX) {
		error_set(error, ERROR_FILE_INVALID, "a path is longer than %d bytes",
			  GUEST_PATH_MAX - 1);
		free(task);
		return NULL;
	}
	task->core = sandbox->core;
	task->sandbox = sandbox->row.id;
	task->caller = principal_keep(place->principal);
	task->path = text_duplicate(place->path);
	task->request.path = text_bytes(task->path);
	task->data = data;
	list_init(&task->directories);
	return task;
}

void file_task_free(struct file_task *task)
{
	if (task->release)
		task->release(task);
	buffer_done(&task->bytes);
	free(task->path);
	free(task->old_text);
	free(task->new_text);
	free(task);
}

/* Called at the end of every callback of an operation, after its step. */
static void task_step_done(struct file_task *task)
{
	task->busy = false;
	if (!task->over)
		return;
	if (task->handle)
		file_cancel(TAKE_PTR(task->handle));
	file_task_free(task);
}

void file_task_over(struct file_task *task, const struct error *error)
{
	if (task->over)
		return;
	task->over = true;
	task->tell(task, error);
}

static void file_task_bad_answer(struct file_task *task)
{
	struct error error;
	error_set(&error, ERROR_GUEST_PROTOCOL, "the sandbox's init gave an answer without sense");
	file_task_over(task, &error);
}

static void file_task_data_came(struct file_operation_handle *handle, const void *bytes,
				size_t size)
{
	struct file_task *task = file_data(handle);
	task->busy = true;
	if (!task->on_data || !task->on_data(task, bytes, size))
		file_task_bad_answer(task);
	else if (!task->over)
		file_credit(handle, (uint32_t)size);
	task_step_done(task);
}

static void file_task_credited(struct file_operation_handle *handle)
{
	struct file_task *task = file_data(handle);
	task->busy = true;
	if (task->on_credit)
		task->on_credit(task);
	task_step_done(task);
}

static void file_task_operation_done(struct file_operation_handle *handle, const void *result,
				     size_t size, const struct error *error)
{
	struct file_task *task = file_data(handle);
	struct file_outcome outcome = {0};
	struct error bad;
	task->busy = true;
	task->handle = NULL;
	if (!error && file_outcome_read(task->request.operation, result, size, &outcome, &bad) < 0)
		error = &bad;
	task->on_done(task, &outcome, error);
	task_step_done(task);
}

int file_task_begin(struct file_task *task, struct error *error)
{
	static const struct file_callbacks callbacks = {file_task_data_came, file_task_credited,
							file_task_operation_done};
	struct sandbox *sandbox = sandbox_by_id(task->core, &task->sandbox);
	if (!sandbox)
		return error_set(error, ERROR_SANDBOX_ENDED, "sandbox `%s` has ended",
				 task->sandbox.text);
	return file_start(sandbox, kept_principal_get(&task->caller), &task->request, &callbacks,
			  task, &task->handle, error);
}

int file_task_first(struct file_task *task, struct file_task **ret_task, struct error *error)
{
	if (file_task_begin(task, error) < 0) {
		file_task_free(task);
		return -1;
	}
	*ret_task = task;
	return 0;
}

void file_task_cancel(struct file_task *task)
{
	if (!task)
		return;
	task->over = true;
	if (task->busy)
		return;
	file_cancel(TAKE_PTR(task->handle));
	file_task_free(task);
}

/* --- read --- */

static bool file_task_read_data(struct file_task *task, const void *bytes, size_t size)
{
	return buffer_append(&task->bytes, bytes, size) == 0;
}

static void file_task_read_tell(struct file_task *task, const struct error *error)
{
	struct file_content content = {
	    .data = buffer_text(&task->bytes),
	    .size = MIN(task->bytes.size, task->max),
	    .file_size = task->result,
	    .more = task->bytes.size > task->max,
	};
	/* A file of /proc has no size, and the size of a growing file is old. */
	if (task->bytes.size > 0)
		content.file_size = MAX(task->result, task->offset + task->bytes.size);
	task->done.content(task->data, error ? NULL : &content, error);
}

static void file_task_read_done(struct file_task *task, const struct file_outcome *outcome,
				const struct error *error)
{
	task->result = outcome->count;
	file_task_over(task, error);
}

int file_read_whole(struct sandbox *sandbox, const struct file_place *place, uint64_t offset,
		    uint64_t max,
		    void (*done)(void *data, const struct file_content *content,
				 const struct error *error),
		    void *data, struct file_task **ret_task, struct error *error)
{
	if (max > FILE_WHOLE_MAX)
		return error_set(error, ERROR_FILE_TOO_LARGE,
				 "at most %llu bytes of a file are read at once",
				 (unsigned long long)FILE_WHOLE_MAX);
	struct file_task *task = file_task_new(sandbox, place, data, error);
	if (!task)
		return -1;
	/* Reads one byte more than requested, to know whether there are more. */
	task->request.operation = FILE_READ;
	task->request.offset = offset;
	task->request.length = max + 1;
	task->offset = offset;
	task->max = max;
	task->bytes = BUFFER(max + 1);
	task->on_data = file_task_read_data;
	task->on_done = file_task_read_done;
	task->tell = file_task_read_tell;
	task->done.content = done;
	return file_task_first(task, ret_task, error);
}

/* --- write --- */

static void file_task_write_pump(struct file_task *task)
{
	struct error error;
	if (!task->handle || task->at > task->bytes.size)
		return;
	if (task->at < task->bytes.size) {
		ssize_t taken = file_write(task->handle, task->bytes.data + task->at,
					   task->bytes.size - task->at, &error);
		if (taken < 0) {
			file_task_over(task, &error);
			return;
		}
		task->at += (size_t)taken;
	}
	if (task->at < task->bytes.size)
		return;
	task->at++; /* its end is reported once */
	if (file_write_end(task->handle, &error) < 0)
		file_task_over(task, &error);
}

static void file_task_write_tell(struct file_task *task, const struct error *error)
{
	task->done.written(task->data, error ? 0 : task->result, !error && task->created, error);
}

static void file_task_write_done(struct file_task *task, const struct file_outcome *outcome,
				 const struct error *error)
{
	task->result = outcome->count;
	file_task_over(task, error);
}

/* Did the file exist before? A file whose stat is refused may still be writable. */
static void file_task_write_stat_done(struct file_task *task, const struct file_outcome *outcome,
				      const struct error *error)
{
	struct error refused;
	(void)outcome;
	task->created = error && error->kind == ERROR_FILE_NOT_FOUND;
	if (error && !task->created && error->kind != ERROR_FILE_DENIED) {
		file_task_over(task, error);
		return;
	}
	task->request.operation = task->append ? FILE_APPEND : FILE_WRITE;
	task->request.flags = FILE_PARENTS;
	task->request.mode = task->mode;
	task->on_credit = file_task_write_pump;
	task->on_done = file_task_write_done;
	if (file_task_begin(task, &refused) < 0)
		file_task_over(task, &refused);
	else
		file_task_write_pump(task);
}

int file_write_whole(struct sandbox *sandbox, const struct file_place *place, const void *bytes,
		     size_t size, uint32_t mode, bool append,
		     void (*done)(void *data, uint64_t written, bool created,
				  const struct error *error),
		     void *data, struct file_task **ret_task, struct error *error)
{
	if (size > FILE_WHOLE_MAX)
		return error_set(error, ERROR_FILE_TOO_LARGE,
				 "at most %llu bytes of a file are written at once",
				 (unsigned long long)FILE_WHOLE_MAX);
	struct file_task *task = file_task_new(sandbox, place, data, error);
	if (!task)
		return -1;
	task->bytes = BUFFER(FILE_WHOLE_MAX);
	if (size > 0 && buffer_append(&task->bytes, bytes, size) < 0)
		abort(); /* its maximum was checked */
	task->mode = mode;
	task->append = append;
	task->request.operation = FILE_STAT;
	task->on_done = file_task_write_stat_done;
	task->tell = file_task_write_tell;
	task->done.written = done;
	return file_task_first(task, ret_task, error);
}

/* --- replace --- */

static void replace_tell(struct file_task *task, const struct error *error)
{
	task->done.count(task->data, error ? 0 : task->result, error);
}

static void replace_done(struct file_task *task, const struct file_outcome *outcome,
			 const struct error *error)
{
	struct error changed;
	task->result = outcome->count;
	if (!error && task->expected > 0 && task->result != task->expected) {
		error_set(&changed, ERROR_CONFLICT,
			  "%s changed meanwhile: %llu of %u places were replaced", task->path,
			  (unsigned long long)task->result, task->expected);
		error = &changed;
	}
	file_task_over(task, error);
}

static void replace_request(struct file_task *task)
{
	task->request.operation = FILE_REPLACE;
	task->request.pattern = text_bytes(task->old_text);
	task->request.replacement = text_bytes(task->new_text);
	task->request.limit = task->expected;
	task->on_data = NULL;
	task->on_done = replace_done;
}

/* Compares the number of places before anything is changed; if there are too many, not all were
 * counted. */
static void replace_counted(struct file_task *task, const struct file_outcome *outcome,
			    const struct error *error)
{
	struct error refused;
	(void)outcome;
	if (!error && task->result != task->expected) {
		bool more = task->result > task->expected + COUNTED_BEYOND;
		error_set(&refused, ERROR_INVALID,
			  "the old text is %s%llu times in %s, not %u: nothing was changed",
			  more ? "more than " : "", (unsigned long long)task->result - more,
			  task->path, task->expected);
		error = &refused;
	}
	if (error) {
		file_task_over(task, error);
		return;
	}
	replace_request(task);
	if (file_task_begin(task, &refused) < 0)
		file_task_over(task, &refused);
}

static bool replace_count_data(struct file_task *task, const void *bytes, size_t size)
{
	const uint64_t enough = task->expected + COUNTED_BEYOND;
	size_t length = strlen(task->old_text), at = 0;
	const char *found;
	if (buffer_append(&task->bytes, bytes, size) < 0)
		return false;
	while (task->result <= enough &&
	       (found =
		    memmem(task->bytes.data + at, task->bytes.size - at, task->old_text, length))) {
		at = (size_t)(found - task->bytes.data) + length;
		task->result++;
	}
	if (task->result > enough) {
		replace_counted(task, NULL, NULL);
		return true;
	}
	/* Keeps a possible beginning of another place. */
	size_t kept = MIN(task->bytes.size - at, length - 1);
	buffer_consume(&task->bytes, task->bytes.size - kept);
	return true;
}

int file_replace(struct sandbox *sandbox, const struct file_place *place, const char *old_text,
		 const char *new_text, uint32_t expected,
		 void (*done)(void *data, uint64_t count, const struct error *error), void *data,
		 struct file_task **ret_task, struct error *error)
{
	if (!*old_text)
		return error_set(error, ERROR_INVALID, "the text to be replaced is empty");
	if (strlen(old_text) >= FILE_CHUNK_MAX || strlen(new_text) >= FILE_CHUNK_MAX)
		return error_set(error, ERROR_TOO_LARGE,
				 "the old and the new text may have %d bytes each",
				 FILE_CHUNK_MAX - 1);
	struct file_task *task = file_task_new(sandbox, place, data, error);
	if (!task)
		return -1;
	task->old_text = text_duplicate(old_text);
	task->new_text = text_duplicate(new_text);
	task->expected = expected;
	task->tell = replace_tell;
	task->done.count = done;
	if (expected > 0) {
		task->request.operation = FILE_READ;
		task->bytes = BUFFER(2 * FILE_CHUNK_MAX);
		task->on_data = replace_count_data;
		task->on_done = replace_counted;
	} else {
		replace_request(task);
	}
	return file_task_first(task, ret_task, error);
}

/* --- what has no result --- */

static void file_task_change_tell(struct file_task *task, const struct error *error)
{
	task->done.plain(task->data, error);
}

static void file_task_change_done(struct file_task *task, const struct file_outcome *outcome,
				  const struct error *error)
{
	(void)outcome;
	file_task_over(task, error);
}

int file_change(struct sandbox *sandbox, const struct principal *principal,
		const struct file_request *request,
		void (*done)(void *data, const struct error *error), void *data,
		struct file_task **ret_task, struct error *error)
{
	const struct file_place nowhere = {.principal = principal, .path = ""};
	struct file_task *task = file_task_new(sandbox, &nowhere, data, error);
	if (!task)
		return -1;
	task->request = *request;
	task->on_done = file_task_change_done;
	task->tell = file_task_change_tell;
	task->done.plain = done;
	/* The texts belong to the caller and are only valid until the operation has begun. */
	int result = file_task_first(task, ret_task, error);
	if (result == 0)
		task->request =
		    (struct file_request){.operation = request->operation, .path = text_bytes("")};
	return result;
}
