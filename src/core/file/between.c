/* Copies between sandboxes: two operations, and the bytes that the reader has sent and the writer
 * has not taken. The reader's window bounds these, since its credit is returned only when the
 * writer has taken the bytes. Called by the edges; never blocks. */
#include "core/file/between.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"

struct between {
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

static void between_free(struct between *between)
{
	buffer_done(&between->left);
	free(between);
}

void between_cancel(struct between *between)
{
	if (!between)
		return;
	if (between->from)
		file_cancel(TAKE_PTR(between->from));
	if (between->to)
		file_cancel(TAKE_PTR(between->to));
	between_free(between);
}

/* `side` NULL: neither side. */
static void fail(struct between *between, const char *side, const struct id *sandbox,
		 const struct error *why)
{
	struct error error = *why;
	if (side)
		error_prepend(&error, "%s sandbox %s", side, sandbox->text);
	between->done(between->data, 0, &error);
	between_cancel(between);
}

static void fail_from(struct between *between, const struct error *error)
{
	fail(between, "in the source", &between->from_id, error);
}

static void fail_to(struct between *between, const struct error *error)
{
	fail(between, "in the target", &between->to_id, error);
}

/* Gives the writer the waiting bytes; false if that ended the copy. */
static bool pump(struct between *between)
{
	struct error error;
	if (between->left.size > 0) {
		ssize_t taken =
		    file_write(between->to, between->left.data, between->left.size, &error);
		if (taken < 0) {
			fail_to(between, &error);
			return false;
		}
		buffer_consume(&between->left, (size_t)taken);
		if (between->from && taken > 0)
			file_credit(between->from, (uint32_t)taken);
	}
	if (between->left.size == 0 && between->read && file_write_end(between->to, &error) < 0) {
		fail_to(between, &error);
		return false;
	}
	return true;
}

static void reader_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct between *between = file_data(handle);
	struct error error;
	if (buffer_append(&between->left, data, size) < 0) {
		error_set(&error, ERROR_GUEST_PROTOCOL, "it sent more than it was asked for");
		fail_from(between, &error);
		return;
	}
	(void)pump(between);
}

static void reader_done(struct file_operation_handle *handle, const void *result, size_t size,
			const struct error *error)
{
	struct between *between = file_data(handle);
	(void)result;
	(void)size;
	between->from = NULL;
	if (error) {
		fail_from(between, error);
		return;
	}
	between->read = true;
	(void)pump(between);
}

static void writer_credit(struct file_operation_handle *handle)
{
	struct between *between = file_data(handle);
	if (between->left.size > 0)
		(void)pump(between);
}

/* The RESULT of a write is u64 bytes, that of an unpack u64 entries, u64 bytes, u64 skipped. */
static void writer_done(struct file_operation_handle *handle, const void *result, size_t size,
			const struct error *error)
{
	struct between *between = file_data(handle);
	struct error bad;
	between->to = NULL;
	if (error) {
		fail_to(between, error);
		return;
	}
	struct reader reader = reader_on(result, size);
	uint64_t bytes = read_u64(&reader);
	if (size > 8) {
		bytes = read_u64(&reader);
		read_u64(&reader);
	}
	if (reader_finish(&reader) < 0 || !between->read) {
		error_set(&bad, ERROR_GUEST_PROTOCOL, "it gave an answer without sense");
		fail_to(between, &bad);
		return;
	}
	between->done(between->data, bytes, NULL);
	between_cancel(between);
}

static const struct file_callbacks reader_callbacks = {.on_data = reader_data,
						       .on_done = reader_done};
static const struct file_callbacks writer_callbacks = {.on_credit = writer_credit,
						       .on_done = writer_done};

static struct bytes bytes_of(const char *text)
{
	return (struct bytes){(const uint8_t *)text, strlen(text)};
}

/* Begins one side's operation; -1 if that ended the copy. `entry`: the file whose mode and time the
 * copy gets; NULL for an archive, which has those of each file. */
static int begin(struct between *between, bool writer, enum file_operation operation,
		 const struct file_entry *entry)
{
	struct file_request request = {
	    .operation = (uint8_t)operation,
	    .flags = writer ? between->flags : 0,
	    .mode = entry ? entry->mode & 0777 : 0,
	    .offset = entry && entry->mtime_ns > 0 ? (uint64_t)entry->mtime_ns : 0,
	    .path = bytes_of(writer ? between->to_path : between->from_path),
	};
	const struct id *id = writer ? &between->to_id : &between->from_id;
	struct sandbox *sandbox = sandbox_by_id(between->core, id);
	struct error error;
	memcpy(request.user, between->user, sizeof(request.user));
	int result = 0;
	if (!sandbox)
		result = error_set(&error, ERROR_SANDBOX_ENDED, "it ended meanwhile");
	else
		result = file_start(sandbox, &between->principal, &request,
				    writer ? &writer_callbacks : &reader_callbacks, between,
				    writer ? &between->to : &between->from, &error);
	if (result == 0)
		return 0;
	if (writer) {
		between->to = NULL;
		fail_to(between, &error);
	} else {
		between->from = NULL;
		fail_from(between, &error);
	}
	return -1;
}

/* The type of the source is known. */
static void looked(struct file_operation_handle *handle, const void *result, size_t size,
		   const struct error *error)
{
	static struct file_entry entry; /* large; one loop */
	struct between *between = file_data(handle);
	struct error bad;
	between->from = NULL;
	if (error) {
		fail_from(between, error);
		return;
	}
	struct reader reader = reader_on(result, size);
	file_entry_read(&reader, &entry);
	bool directory = entry.type == 'd';
	if (reader_finish(&reader) < 0) {
		error_set(&bad, ERROR_GUEST_PROTOCOL, "it gave an answer without sense");
		fail_from(between, &bad);
	} else if (directory && !between->recursive) {
		error_set(&bad, ERROR_FILE_WRONG_TYPE,
			  "%s: is a directory; only a recursive copy takes it", between->from_path);
		fail_from(between, &bad);
	} else {
		if (begin(between, true, directory ? FILE_UNPACK : FILE_WRITE,
			  directory ? NULL : &entry) == 0)
			(void)begin(between, false, directory ? FILE_PACK : FILE_READ, NULL);
	}
}

static const struct file_callbacks look_callbacks = {.on_done = looked};

int between_start(const struct between_spec *spec,
		  void (*done)(void *data, uint64_t bytes, const struct error *error), void *data,
		  struct between **ret_between, struct error *error)
{
	struct between *between = calloc(1, sizeof(*between));
	if (!between)
		abort();
	*between = (struct between){
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
	struct file_request request = {.operation = FILE_STAT, .path = bytes_of(spec->from_path)};
	int result = 0;
	if (text_copy(between->from_path, sizeof(between->from_path), spec->from_path) < 0 ||
	    text_copy(between->to_path, sizeof(between->to_path), spec->to_path) < 0)
		result = error_set(error, ERROR_FILE_INVALID, "a path is longer than %d bytes",
				   GUEST_PATH_MAX - 1);
	else if (text_copy(between->user, sizeof(between->user), spec->user) < 0)
		result = error_set(error, ERROR_INVALID, "`user` is longer than %zu bytes",
				   sizeof(between->user) - 1);
	memcpy(request.user, between->user, sizeof(request.user));
	if (result == 0)
		result = file_start(spec->from, spec->principal, &request, &look_callbacks, between,
				    &between->from, error);
	if (result < 0) {
		between_free(between);
		return -1;
	}
	*ret_between = between;
	return 0;
}
