/* The common path of every file request: query, ready, one operation in the sandbox, answer. The
 * answer is held back until it is complete or FILE_HOLD_MAX long, so that most failures get a
 * proper status; from then on the credit for the init follows the client's reading. Nothing
 * blocks. */
#include "api/file/call.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static void file_call_free(void *state)
{
	struct file_call *file = state;
	buffer_done(&file->out);
	buffer_done(&file->left);
	compression_free(file->compression);
	free(file);
}

static void file_call_gone(struct call *call)
{
	struct file_call *file = call->state;
	if (file->handle)
		file_cancel(TAKE_PTR(file->handle));
	if (file->measuring)
		file_cancel(TAKE_PTR(file->measuring));
	compression_free(TAKE_PTR(file->compression));
}

static void file_call_drained(struct call *call)
{
	struct file_call *file = call->state;
	file->blocked = false;
	file_give_credit(file);
	if (file->compression)
		compression_hold(file->compression, false);
}

struct file_call *file_call_new(struct call *call, enum file_operation operation,
				const struct file_callbacks *callbacks)
{
	struct file_call *file = calloc(1, sizeof(*file));
	if (!file)
		abort();
	file->call = call;
	file->callbacks = callbacks;
	file->request.operation = (uint8_t)operation;
	file->type = "application/json";
	file->out = BUFFER(REPLY_MAX);
	file->writer = json_writer_on(&file->out);
	file->length = -1;
	call->state = file;
	call->state_free = file_call_free;
	call->on_gone = file_call_gone;
	call->stream.on_drain = file_call_drained;
	return file;
}

struct bytes bytes_from_text(const char *text)
{
	return (struct bytes){(const uint8_t *)text, strlen(text)};
}

int file_user(struct file_call *file, const char *user, struct error *error)
{
	if (text_copy(file->request.user, sizeof(file->request.user), user) < 0)
		return error_set(error, ERROR_INVALID, "`user` is longer than %zu bytes",
				 sizeof(file->request.user) - 1);
	return 0;
}

int file_mode(struct file_call *file, const char *octal, struct error *error)
{
	uint32_t mode = 0;
	size_t size = strlen(octal);
	for (size_t i = 0; i < size && i < 6; i++)
		mode = octal[i] >= '0' && octal[i] <= '7' ? mode << 3 | (uint32_t)(octal[i] - '0')
							  : UINT32_MAX >> 1;
	if (size == 0 || size > 5 || mode > 07777)
		return error_set(error, ERROR_INVALID,
				 "`mode` must be octal digits like \"0644\", at most 7777");
	file->request.mode = mode;
	return 0;
}

bool file_query(struct file_call *file)
{
	struct error error;
	if (call_query(file->call, file, &error) == 0)
		return file_query_take(file);
	reply_error(file->call, &error);
	return false;
}

bool file_query_take(struct file_call *file)
{
	struct error error;
	file->request.path = bytes_from_text(file->path);
	if (file->pattern)
		file->request.pattern = bytes_from_text(file->pattern);
	if (file->glob)
		file->request.path2 = bytes_from_text(file->glob);
	if ((!file->mode || file_mode(file, file->mode, &error) == 0) &&
	    (!file->user || file_user(file, file->user, &error) == 0))
		return true;
	reply_error(file->call, &error);
	return false;
}

static void file_call_start(struct call *call, struct sandbox *sandbox)
{
	struct file_call *file = call->state;
	struct error error;
	if (file_start(sandbox, &call->principal, &file->request, file->callbacks, file,
		       &file->handle, &error) < 0) {
		file->handle = NULL;
		file_fail(file, &error);
	}
}

void file_begin(struct file_call *file)
{
	call_ready(file->call, file_call_start);
}

void file_start_next(struct file_call *file, enum file_operation operation,
		     const struct file_callbacks *callbacks)
{
	struct sandbox *sandbox = call_sandbox(file->call);
	file->request.operation = (uint8_t)operation;
	file->callbacks = callbacks;
	if (sandbox)
		file_call_start(file->call, sandbox);
}

void file_give_credit(struct file_call *file)
{
	uint32_t owed = file->owed;
	file->owed = 0;
	if (file->handle && owed > 0)
		file_credit(file->handle, owed);
}

static void file_answer_begin(struct file_call *file)
{
	if (file->begun)
		return;
	file->begun = true;
	http_stream_begin(file->call->exchange, file->partial ? 206 : 200, file->type, file->length,
			  file->headers, file->header_count);
}

void file_emit(struct file_call *file, uint32_t credit)
{
	file->owed += credit;
	if ((file->begun || file->out.size >= FILE_HOLD_MAX) && file->out.size > 0) {
		file_answer_begin(file);
		file->blocked =
		    !http_stream_write(file->call->exchange, file->out.data, file->out.size);
		buffer_clear(&file->out);
	}
	if (!file->blocked)
		file_give_credit(file);
}

bool file_emit_raw(struct file_call *file, const void *data, size_t size)
{
	if (!file->begun && file->out.size + size < FILE_HOLD_MAX) {
		if (buffer_append(&file->out, data, size) < 0)
			abort(); /* its maximum is much larger */
		return true;
	}
	file_answer_begin(file);
	if (file->out.size > 0)
		http_stream_write(file->call->exchange, file->out.data, file->out.size);
	buffer_done(&file->out);
	file->blocked = !http_stream_write(file->call->exchange, data, size);
	return !file->blocked;
}

void file_emit_bytes(struct file_call *file, const void *data, size_t size)
{
	bool room = file_emit_raw(file, data, size);
	file->owed += (uint32_t)size;
	if (room)
		file_give_credit(file);
}

struct file_call *file_ended(struct file_operation_handle *handle, const struct error *error)
{
	struct file_call *file = file_data(handle);
	file->handle = NULL;
	if (!error)
		return file;
	file_fail(file, error);
	return NULL;
}

struct file_call *file_result(struct file_operation_handle *handle, const void *result, size_t size,
			      const struct error *error, struct file_outcome *ret_outcome)
{
	struct error bad;
	struct file_call *file = file_ended(handle, error);
	if (!file)
		return NULL;
	if (file_outcome_read(file->request.operation, result, size, ret_outcome, &bad) == 0)
		return file;
	file_fail(file, &bad);
	return NULL;
}

void file_finish(struct file_call *file)
{
	struct call *call = file->call;
	if (!file->begun) {
		http_respond(call->exchange, file->partial ? 206 : 200, file->type, file->headers,
			     file->header_count, buffer_text(&file->out), file->out.size);
	} else {
		if (file->out.size > 0)
			http_stream_write(call->exchange, file->out.data, file->out.size);
		http_stream_end(call->exchange);
	}
	call_answered(call);
}

void file_fail(struct file_call *file, const struct error *error)
{
	struct call *call = file->call;
	if (!file->begun) {
		reply_error(call, error);
		return;
	}
	/* Too late for a status: the aborted answer tells the client that it is incomplete. */
	http_stream_abort(call->exchange);
	call_answered(call);
}

void file_bad_answer(struct file_call *file)
{
	struct error error;
	if (file->handle)
		file_cancel(TAKE_PTR(file->handle));
	error_set(&error, ERROR_GUEST_PROTOCOL, "the sandbox's init gave an answer without sense");
	file_fail(file, &error);
}
