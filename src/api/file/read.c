/* GET .../files: a file's bytes, whole or a range, or (as the clients of one service expect) the
 * list of a directory. Usually one operation in the sandbox. A Range requests the size first; for a
 * file that is too long to be held, the size is requested in the middle, so that the answer has a
 * length. */
#include "api/file/call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/file/files.h"
#include "base/text.h"

static void file_head_add_header(struct file_call *file, const char *name, const char *value)
{
	char *text = file->header_texts[file->header_count];
	snprintf(text, sizeof(file->header_texts[0]), "%s", value);
	file->headers[file->header_count++] = (struct http_header){name, text};
}

/* --- the bytes --- */

/* The size is known, or will stay unknown: sends the data that was held back, and the init may
 * continue. */
static void file_measured(struct file_operation_handle *handle, const void *result, size_t size,
			  const struct error *error)
{
	struct file_outcome outcome;
	struct error bad;
	struct file_call *file = file_data(handle);
	file->measuring = NULL;
	if (!error && file_outcome_read(FILE_STAT, result, size, &outcome, &bad) == 0) {
		const struct file_entry *entry = outcome.entry;
		uint64_t offset = file->request.offset, length = file->request.length;
		/* A file of /proc has no size, and a replaced file has another one's: no length is
		 * better than a wrong one. */
		if (entry->type == 'f' && entry->size <= INT64_MAX && entry->size >= offset &&
		    entry->size - offset >= file->received) {
			char text[24];
			length = MIN(length ? length : UINT64_MAX, entry->size - offset);
			file->length = (int64_t)length;
			snprintf(text, sizeof(text), "%llu", (unsigned long long)entry->size);
			file_head_add_header(file, "X-File-Size", text);
		}
	}
	file_emit(file, 0);
}

static const struct file_callbacks measure_callbacks = {.on_done = file_measured};

static void file_measure(struct file_call *file)
{
	struct sandbox *sandbox = sandbox_by_id(file->call->core, &file->call->sandbox);
	struct file_request request = file->request;
	struct error error;
	file->measured = true;
	request.operation = FILE_STAT;
	request.offset = request.length = 0;
	if (!sandbox || file_start(sandbox, &file->call->principal, &request, &measure_callbacks,
				   file, &file->measuring, &error) < 0)
		file->measuring = NULL;
}

static void measure_end(struct file_call *file)
{
	if (file->measuring)
		file_cancel(TAKE_PTR(file->measuring));
}

/* Never more than the promised length, whatever an init sends. */
static void file_read_too_much(struct file_call *file, const void *data, size_t size)
{
	uint64_t excess = file->received - (uint64_t)file->length;
	if (file->partial || excess > size) {
		file_bad_answer(file);
		return;
	}
	/* The file has grown since: sends only its earlier length. */
	if (excess < size)
		file_emit_bytes(file, data, size - (size_t)excess);
	file_cancel(TAKE_PTR(file->handle));
	file_finish(file);
}

static void file_read_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct file_call *file = file_data(handle);
	file->received += size;
	if (file->length >= 0 && file->received > (uint64_t)file->length) {
		file_read_too_much(file, data, size);
		return;
	}
	if (file->length < 0 && !file->measured && file->received >= FILE_HOLD_MAX)
		file_measure(file);
	if (!file->measuring) {
		file_emit_bytes(file, data, size);
		return;
	}
	/* Without credit at most a window of data comes. */
	if (buffer_append(&file->out, data, size) < 0) {
		measure_end(file);
		file_bad_answer(file);
		return;
	}
	file->owed += (uint32_t)size;
}

static void directory_list_instead(struct file_call *file)
{
	if (file->only_file) {
		struct error error;
		error_set(&error, ERROR_FILE_WRONG_TYPE, "%s is not a regular file", file->path);
		file_fail(file, &error);
		return;
	}
	file->type = "application/json";
	file_list_open(file);
	file->request.offset = file->request.length = 0;
	file_start_next(file, FILE_LIST, &file_list_callbacks);
}

static void file_read_done(struct file_operation_handle *handle, const void *result, size_t size,
			   const struct error *error)
{
	struct file_outcome outcome;
	struct error bad;
	struct file_call *file = file_data(handle);
	file->handle = NULL;
	measure_end(file);
	if (error) {
		/* A directory is listed; anything else that cannot be read fails as a list too. */
		if (error->kind == ERROR_FILE_WRONG_TYPE && !file->begun && file->length < 0 &&
		    file->received == 0) {
			file->refusal = *error;
			directory_list_instead(file);
			return;
		}
		file_fail(file, error);
		return;
	}
	if (file_outcome_read(FILE_READ, result, size, &outcome, &bad) < 0) {
		file_fail(file, &bad);
		return;
	}
	if (file->length >= 0 && file->received != (uint64_t)file->length) {
		struct error changed;
		error_set(&changed, ERROR_CONFLICT, "%s became shorter while it was read",
			  file->path);
		file_fail(file, &changed);
		return;
	}
	if (!file->begun && file->length < 0) {
		char text[24];
		snprintf(text, sizeof(text), "%llu", (unsigned long long)outcome.count);
		file_head_add_header(file, "X-File-Size", text);
	}
	file_finish(file);
}

static const struct file_callbacks read_callbacks = {.on_data = file_read_data,
						     .on_done = file_read_done};

/* --- ranges --- */

/* "bytes=A-B", "bytes=A-", "bytes=-N": false for anything else (including several ranges), which is
 * then ignored, as RFC 9110 requires. last = UINT64_MAX: to the end; first = UINT64_MAX: the last
 * N. */
static bool range_parse(const char *header, uint64_t *first, uint64_t *last)
{
	char from[24], to[24];
	if (!text_starts(header, "bytes="))
		return false;
	header += 6;
	size_t at = strcspn(header, "-");
	if (header[at] != '-' || at >= sizeof(from) || strlen(header + at + 1) >= sizeof(to))
		return false;
	memcpy(from, header, at);
	from[at] = '\0';
	snprintf(to, sizeof(to), "%s", header + at + 1);
	*first = *last = UINT64_MAX;
	if (from[0] == '\0')
		return text_to_u64(to, 0, INT64_MAX, last) == 0;
	if (text_to_u64(from, 0, INT64_MAX, first) < 0)
		return false;
	return to[0] == '\0' || (text_to_u64(to, 0, INT64_MAX, last) == 0 && *last >= *first);
}

static void file_reply_range_error(struct file_call *file, uint64_t size)
{
	struct call *call = file->call;
	struct error error;
	char text[64];
	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	error_set(&error, ERROR_FILE_INVALID, "%s: the range is outside of its %llu bytes",
		  file->path, (unsigned long long)size);
	put_error(&writer, &error, call->request_id);
	snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)size);
	/* HTTP itself requires this status here. */
	const struct http_header header = {"Content-Range", text};
	http_respond(call->exchange, 416, "application/json", &header, 1, buffer.data, buffer.size);
	call_answered(call);
}

static void range_start(struct file_call *file, uint64_t size)
{
	if (file->first == UINT64_MAX) {
		file->first = size - MIN(size, file->last);
		file->last = UINT64_MAX;
	}
	if (file->first >= size) {
		file_reply_range_error(file, size);
		return;
	}
	file->last = MIN(file->last, size - 1);
	file->partial = true;
	file->length = (int64_t)(file->last - file->first + 1);
	file->request.offset = file->first;
	file->request.length = (uint64_t)file->length;
	char text[64];
	snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)file->first,
		 (unsigned long long)file->last, (unsigned long long)size);
	file_head_add_header(file, "Content-Range", text);
	file_start_next(file, FILE_READ, &read_callbacks);
}

/* HEAD: its size, without reading it. */
static void file_reply_head(struct file_call *file, const struct file_entry *entry)
{
	struct call *call = file->call;
	http_stream_begin(call->exchange, 200, file->type, (int64_t)MIN(entry->size, INT64_MAX),
			  file->headers, file->header_count);
	http_stream_end(call->exchange);
	call_answered(call);
}

static void file_stat_head_done(struct file_operation_handle *handle, const void *result,
				size_t size, const struct error *error)
{
	struct file_outcome outcome;
	struct file_call *file = file_result(handle, result, size, error, &outcome);
	if (!file)
		return;
	if (outcome.entry->type == 'd' || outcome.entry->type == 'l')
		directory_list_instead(file);
	else if (strcmp(http_request(file->call->exchange)->method, "HEAD") == 0)
		file_reply_head(file, outcome.entry);
	else
		range_start(file, outcome.entry->size);
}

static const struct file_callbacks stat_callbacks = {.on_done = file_stat_head_done};

struct file_call *file_get_new(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_READ, &read_callbacks);
	file->type = "application/octet-stream";
	return file;
}

void file_get_begin(struct file_call *file)
{
	struct call *call = file->call;
	const char *range = http_header(call->exchange, "range");
	bool is_head = strcmp(http_request(call->exchange)->method, "HEAD") == 0;
	if (is_head || (range && range_parse(range, &file->first, &file->last))) {
		file->request.operation = FILE_STAT;
		file->callbacks = &stat_callbacks;
	}
	file_begin(file);
}

void file_get(struct call *call)
{
	struct file_call *file = file_get_new(call);
	if (file_query(file))
		file_get_begin(file);
}
