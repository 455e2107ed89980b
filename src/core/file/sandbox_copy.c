/* Copies between sandboxes: two operations, and the bytes that the reader has sent and the writer
 * has not taken. The reader's window bounds these, since its credit is returned only when the
 * writer has taken the bytes. Called by the edges; never blocks. */
#include "core/file/sandbox_copy.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"

struct sandbox_copy {
	struct id from_id, to_id;
	char from_path[GUEST_PATH_MAX], to_path[GUEST_PATH_MAX], user[64];
	uint32_t flags; /* flags of the writer */
	bool recursive;
	struct core *core;
	struct principal principal;
	struct file_operation_handle *from, *to; /* NULL: ended, or not begun */
	struct buffer left;                      /* bytes that the writer has not taken yet */
	bool read;                               /* the reader has sent everything */
	void (*done)(void *data, uint64_t bytes, const struct error *error);
	void *data;
};

static void sandbox_copy_free(struct sandbox_copy *copy)
{
	buffer_done(&copy->left);
	free(copy);
}

void sandbox_copy_cancel(struct sandbox_copy *copy)
{
	if (!copy)
		return;
	if (copy->from)
		file_cancel(TAKE_PTR(copy->from));
	if (copy->to)
		file_cancel(TAKE_PTR(copy->to));
	sandbox_copy_free(copy);
}

/* `side` NULL: neither side. */
static void copy_fail(struct sandbox_copy *copy, const char *side, const struct id *sandbox,
		      const struct error *why)
{
	struct error error = *why;
	if (side)
		error_prepend(&error, "%s sandbox %s", side, sandbox->text);
	copy->done(copy->data, 0, &error);
	sandbox_copy_cancel(copy);
}

static void reader_fail(struct sandbox_copy *copy, const struct error *error)
{
	copy_fail(copy, "in the source", &copy->from_id, error);
}

static void writer_fail(struct sandbox_copy *copy, const struct error *error)
{
	copy_fail(copy, "in the target", &copy->to_id, error);
}

/* Gives the writer the waiting bytes; false if that ended the copy. */
static bool writer_pump(struct sandbox_copy *copy)
{
	struct error error;
	if (copy->left.size > 0) {
		ssize_t taken = file_write(copy->to, copy->left.data, copy->left.size, &error);
		if (taken < 0) {
			writer_fail(copy, &error);
			return false;
		}
		buffer_consume(&copy->left, (size_t)taken);
		if (copy->from && taken > 0)
			file_credit(copy->from, (uint32_t)taken);
	}
	if (copy->left.size == 0 && copy->read && file_write_end(copy->to, &error) < 0) {
		writer_fail(copy, &error);
		return false;
	}
	return true;
}

static void reader_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct sandbox_copy *copy = file_data(handle);
	struct error error;
	if (buffer_append(&copy->left, data, size) < 0) {
		error_set(&error, ERROR_GUEST_PROTOCOL, "it sent more than it was asked for");
		reader_fail(copy, &error);
		return;
	}
	(void)writer_pump(copy);
}

static void reader_done(struct file_operation_handle *handle, const void *result, size_t size,
			const struct error *error)
{
	struct sandbox_copy *copy = file_data(handle);
	(void)result;
	(void)size;
	copy->from = NULL;
	if (error) {
		reader_fail(copy, error);
		return;
	}
	copy->read = true;
	(void)writer_pump(copy);
}

static void writer_credit(struct file_operation_handle *handle)
{
	struct sandbox_copy *copy = file_data(handle);
	if (copy->left.size > 0)
		(void)writer_pump(copy);
}

/* The RESULT of a write is u64 bytes, that of an unpack u64 entries, u64 bytes, u64 skipped. */
static void writer_done(struct file_operation_handle *handle, const void *result, size_t size,
			const struct error *error)
{
	struct sandbox_copy *copy = file_data(handle);
	struct error bad;
	copy->to = NULL;
	if (error) {
		writer_fail(copy, error);
		return;
	}
	struct reader reader = reader_on(result, size);
	uint64_t bytes = read_u64(&reader);
	if (size > 8) {
		bytes = read_u64(&reader);
		read_u64(&reader);
	}
	if (reader_finish(&reader) < 0 || !copy->read) {
		error_set(&bad, ERROR_GUEST_PROTOCOL, "it gave an answer without sense");
		writer_fail(copy, &bad);
		return;
	}
	copy->done(copy->data, bytes, NULL);
	sandbox_copy_cancel(copy);
}

static const struct file_callbacks reader_callbacks = {.on_data = reader_data,
						       .on_done = reader_done};
static const struct file_callbacks writer_callbacks = {.on_credit = writer_credit,
						       .on_done = writer_done};

static struct bytes bytes_from_text(const char *text)
{
	return (struct bytes){(const uint8_t *)text, strlen(text)};
}

/* Begins one side's operation; -1 if that ended the copy. `entry`: the file whose mode and time the
 * copy gets; NULL for an archive, which has those of each file. */
static int copy_begin_side(struct sandbox_copy *copy, bool writer, enum file_operation operation,
			   const struct file_entry *entry)
{
	struct file_request request = {
	    .operation = (uint8_t)operation,
	    .flags = writer ? copy->flags : 0,
	    .mode = entry ? entry->mode & 0777 : 0,
	    .offset = entry && entry->mtime_ns > 0 ? (uint64_t)entry->mtime_ns : 0,
	    .path = bytes_from_text(writer ? copy->to_path : copy->from_path),
	};
	const struct id *id = writer ? &copy->to_id : &copy->from_id;
	struct sandbox *sandbox = sandbox_by_id(copy->core, id);
	struct error error;
	memcpy(request.user, copy->user, sizeof(request.user));
	int result = 0;
	if (!sandbox)
		result = error_set(&error, ERROR_SANDBOX_ENDED, "it ended meanwhile");
	else
		result = file_start(sandbox, &copy->principal, &request,
				    writer ? &writer_callbacks : &reader_callbacks, copy,
				    writer ? &copy->to : &copy->from, &error);
	if (result == 0)
		return 0;
	if (writer) {
		copy->to = NULL;
		writer_fail(copy, &error);
	} else {
		copy->from = NULL;
		reader_fail(copy, &error);
	}
	return -1;
}

/* The type of the source is known. */
static void source_stat_done(struct file_operation_handle *handle, const void *result, size_t size,
			     const struct error *error)
{
	static struct file_entry entry; /* large; one loop */
	struct sandbox_copy *copy = file_data(handle);
	struct error bad;
	copy->from = NULL;
	if (error) {
		reader_fail(copy, error);
		return;
	}
	struct reader reader = reader_on(result, size);
	file_entry_read(&reader, &entry);
	bool directory = entry.type == 'd';
	if (reader_finish(&reader) < 0) {
		error_set(&bad, ERROR_GUEST_PROTOCOL, "it gave an answer without sense");
		reader_fail(copy, &bad);
	} else if (directory && !copy->recursive) {
		error_set(&bad, ERROR_FILE_WRONG_TYPE,
			  "%s: is a directory; only a recursive copy takes it", copy->from_path);
		reader_fail(copy, &bad);
	} else {
		if (copy_begin_side(copy, true, directory ? FILE_UNPACK : FILE_WRITE,
				    directory ? NULL : &entry) == 0)
			(void)copy_begin_side(copy, false, directory ? FILE_PACK : FILE_READ, NULL);
	}
}

static const struct file_callbacks look_callbacks = {.on_done = source_stat_done};

int sandbox_copy_start(const struct sandbox_copy_spec *spec,
		       void (*done)(void *data, uint64_t bytes, const struct error *error),
		       void *data, struct sandbox_copy **ret_copy, struct error *error)
{
	struct sandbox_copy *copy = calloc(1, sizeof(*copy));
	if (!copy)
		abort();
	*copy = (struct sandbox_copy){
	    .from_id = spec->from->row.id,
	    .to_id = spec->to->row.id,
	    .flags = (spec->no_replace ? FILE_NO_REPLACE : 0) | (spec->parents ? FILE_PARENTS : 0),
	    .recursive = spec->recursive,
	    .core = spec->from->core,
	    .principal = *spec->principal,
	    .left = BUFFER(FILE_WINDOW),
	    .done = done,
	    .data = data,
	};
	struct file_request request = {.operation = FILE_STAT,
				       .path = bytes_from_text(spec->from_path)};
	int result = 0;
	if (text_copy(copy->from_path, sizeof(copy->from_path), spec->from_path) < 0 ||
	    text_copy(copy->to_path, sizeof(copy->to_path), spec->to_path) < 0)
		result = error_set(error, ERROR_FILE_INVALID, "a path is longer than %d bytes",
				   GUEST_PATH_MAX - 1);
	else if (text_copy(copy->user, sizeof(copy->user), spec->user) < 0)
		result = error_set(error, ERROR_INVALID, "`user` is longer than %zu bytes",
				   sizeof(copy->user) - 1);
	memcpy(request.user, copy->user, sizeof(request.user));
	if (result == 0)
		result = file_start(spec->from, spec->principal, &request, &look_callbacks, copy,
				    &copy->from, error);
	if (result < 0) {
		sandbox_copy_free(copy);
		return -1;
	}
	*ret_copy = copy;
	return 0;
}
