/* PUT and POST .../files: bytes into a file, atomically. A PUT's body is streamed with the init's
 * credit: neither its size nor a slow disk costs the daemon memory. */
#include "api/file/call.h"

#include <stdlib.h>
#include <string.h>

#include "api/file/files.h"
#include "base/base64.h"
#include "base/text.h"
#include "edge/fields/file_fields.h"

#define LEFT_MAX (1 * MIB) /* larger than any piece of a body */

static void file_write_done(struct file_operation_handle *handle, const void *result, size_t size,
			    const struct error *error)
{
	struct file_outcome outcome;
	struct file_call *file = file_result(handle, result, size, error, &outcome);
	if (!file)
		return;
	put_object(&file->writer, NULL);
	put_bytes(&file->writer, "path", file->request.path.data, file->request.path.size);
	put_uint(&file->writer, "bytes", outcome.count);
	put_object_end(&file->writer);
	file_finish(file);
}

void file_body_failed(struct file_call *file, const struct error *error)
{
	if (file->handle)
		file_cancel(TAKE_PTR(file->handle));
	file_fail(file, error);
}

/* Pauses the body, or the decompression in between. */
static void body_hold(struct file_call *file, bool hold)
{
	if (file->compression)
		compression_hold(file->compression, hold);
	else if (hold)
		http_body_pause(file->call->exchange);
	else
		http_body_resume(file->call->exchange);
}

void file_body_pump(struct file_call *file)
{
	struct error error;
	if (!file->handle)
		return;
	if (file->left.size > file->left_at) {
		ssize_t taken = file_write(file->handle, file->left.data + file->left_at,
					   file->left.size - file->left_at, &error);
		if (taken < 0) {
			file_body_failed(file, &error);
			return;
		}
		file->left_at += (size_t)taken;
	}
	/* Bytes are not moved to the front each time, since there may be megabytes. */
	if (file->left_at == file->left.size) {
		buffer_clear(&file->left);
		file->left_at = 0;
	}
	if (file->left.size > 0) {
		if (!file->whole)
			body_hold(file, true);
	} else if (!file->whole) {
		body_hold(file, false);
	} else if (file_write_end(file->handle, &error) < 0) {
		file_body_failed(file, &error);
	}
}

void file_body_credit(struct file_operation_handle *handle)
{
	struct file_call *file = file_data(handle);
	if (file->left.size > 0)
		file_body_pump(file);
}

static const struct file_callbacks write_callbacks = {.on_credit = file_body_credit,
						      .on_done = file_write_done};

void file_body_data(struct call *call, const char *data, size_t size)
{
	struct file_call *file = call->state;
	struct error error;
	if (!file->handle)
		return;
	/* The common case without a copy. */
	if (file->left.size == 0) {
		ssize_t taken = file_write(file->handle, data, size, &error);
		if (taken < 0) {
			file_body_failed(file, &error);
			return;
		}
		if ((size_t)taken == size)
			return;
		data += taken;
		size -= (size_t)taken;
	}
	if (buffer_append(&file->left, data, size) < 0) {
		error_set(&error, ERROR_INTERNAL, "a body came faster than it was asked for");
		file_body_failed(file, &error);
		return;
	}
	http_body_pause(call->exchange);
}

void file_body_end(struct call *call)
{
	struct file_call *file = call->state;
	file->whole = true;
	if (file->left.size == 0)
		file_body_pump(file);
}

void file_body_begin(struct file_call *file)
{
	if (!file->call->stream.on_data) {
		file->call->stream.on_data = file_body_data;
		file->call->stream.on_end = file_body_end;
	}
	http_body_read(file->call->exchange, file->body_max ? file->body_max : UINT64_MAX);
}

static void file_put_start(struct call *call, struct sandbox *sandbox)
{
	struct file_call *file = call->state;
	struct error error;
	if (file_start(sandbox, &call->principal, &file->request, &write_callbacks, file,
		       &file->handle, &error) < 0) {
		file->handle = NULL;
		file_fail(file, &error);
		return;
	}
	file_body_begin(file);
}

static void write_set_flags(struct file_call *file, bool append, bool parents, bool no_replace)
{
	file->request.operation = append ? FILE_APPEND : FILE_WRITE;
	file->request.flags = (parents ? FILE_PARENTS : 0) | (no_replace ? FILE_NO_REPLACE : 0);
}

struct file_call *file_put_new(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_WRITE, &write_callbacks);
	file->left = BUFFER(LEFT_MAX);
	return file;
}

void file_put_begin(struct file_call *file)
{
	call_ready(file->call, file_put_start);
}

void file_put(struct call *call)
{
	struct file_call *file = file_put_new(call);
	struct error error;
	if (!file_query(file))
		return;
	if (file->append && file->request.offset > 0) {
		error_set(&error, ERROR_INVALID,
			  "`mtime_ns` is for a whole file, not for `append`");
		reply_error(call, &error);
		return;
	}
	if (file->append)
		file->request.operation = FILE_APPEND;
	file_put_begin(file);
}

/* --- the same, as JSON --- */

static int write_take_content(struct file_call *file, const char *text, const char *base64,
			      struct error *error)
{
	if (!text == !base64)
		return error_set(error, ERROR_INVALID, "give `content` or `content_base64`%s",
				 text ? ", not both" : "");
	size_t size = strlen(text ? text : base64);
	file->left = BUFFER(size + 1);
	if (buffer_reserve(&file->left, size) < 0)
		abort(); /* the body's maximum bounds it */
	if (text) {
		memcpy(file->left.data, text, size);
		buffer_grow(&file->left, size);
		return 0;
	}
	ssize_t decoded = base64_decode(base64, size, file->left.data);
	if (decoded < 0)
		return error_set(error, ERROR_INVALID,
				 "field `content_base64` is not base64 (RFC 4648)");
	buffer_grow(&file->left, (size_t)decoded);
	return 0;
}

static void file_post_start(struct call *call, struct sandbox *sandbox)
{
	struct file_call *file = call->state;
	struct error error;
	if (file_start(sandbox, &call->principal, &file->request, &write_callbacks, file,
		       &file->handle, &error) < 0) {
		file->handle = NULL;
		file_fail(file, &error);
		return;
	}
	file->whole = true;
	file_body_pump(file);
}

void file_post(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_WRITE, &write_callbacks);
	struct file_write_fields fields = {.user = "", .parents = true};
	struct error error;
	if (call_fields(call, &fields, &error) < 0 || file_user(file, fields.user, &error) < 0 ||
	    (fields.mode && file_mode(file, fields.mode, &error) < 0) ||
	    write_take_content(file, fields.content, fields.base64, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	file->request.path = bytes_from_text(fields.path);
	write_set_flags(file, fields.append, fields.parents, fields.no_replace);
	call_ready(call, file_post_start);
}
