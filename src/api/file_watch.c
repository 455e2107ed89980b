/* GET .../files/watch: what changes below a path, as server-sent events (sse.h), until the client
 * goes. Nothing blocks; the client's reading paces the init by credit. */
#include "api/file_call.h"
#include "api/sse.h"

static const char *event_name(uint8_t kind)
{
	switch ((enum watch_kind)kind) {
	case WATCH_READY:
		return "ready";
	case WATCH_CREATED:
		return "created";
	case WATCH_MODIFIED:
		return "modified";
	case WATCH_REMOVED:
		return "removed";
	case WATCH_RENAMED_FROM:
		return "renamed_from";
	case WATCH_RENAMED_TO:
		return "renamed_to";
	case WATCH_ATTRIBUTES:
		return "attributes";
	case WATCH_OVERFLOW:
		return "overflow";
	}
	return NULL;
}

/* The head goes out with the first event, which is `ready`: until then an error has a status. */
static void emit(struct file_call *file, const char *name, const struct buffer *json)
{
	if (!file->events)
		file->events = sse_begin(file->call);
	file->begun = true;
	file->blocked = !sse_event(file->events, name, json);
}

static void watch_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct file_call *file = file_data(handle);
	struct reader reader = reader_on(data, size);
	const char *name = event_name(read_u8(&reader));
	struct bytes path = read_bytes(&reader, GUEST_PATH_MAX);
	if (reader_finish(&reader) < 0 || !name) {
		sse_drop(TAKE_PTR(file->events));
		file_bad_answer(file);
		return;
	}
	buffer_clear(&file->out);
	file->writer = json_writer_on(&file->out);
	put_object(&file->writer, NULL);
	put_text(&file->writer, "event", name);
	put_bytes(&file->writer, "path", path.data, path.size);
	put_object_end(&file->writer);
	emit(file, name, &file->out);
	file->owed += (uint32_t)size;
	if (!file->blocked)
		file_give_credit(file);
}

static void watch_done(struct file_operation_handle *handle, const void *result, size_t size,
		       const struct error *error)
{
	struct file_call *file = file_data(handle);
	struct call *call = file->call;
	(void)result;
	(void)size;
	file->handle = NULL;
	if (!file->events && error) {
		reply_error(call, error);
		return;
	}
	if (!file->events)
		file->events = sse_begin(call);
	if (error) {
		DONE_BUFFER struct buffer text = BUFFER(16 * KIB);
		struct json_writer writer = json_writer_on(&text);
		put_error(&writer, error, call->request_id);
		emit(file, "error", &text);
	}
	sse_end(TAKE_PTR(file->events));
	call_answered(call);
}

static void watch_drain(struct call *call)
{
	struct file_call *file = call->state;
	file->blocked = false;
	if (file->events)
		sse_drained(file->events);
	file_give_credit(file);
}

static void watch_gone(struct call *call)
{
	struct file_call *file = call->state;
	sse_drop(TAKE_PTR(file->events));
	if (file->handle)
		file_cancel(TAKE_PTR(file->handle));
}

static const struct file_callbacks watch_callbacks = {.on_data = watch_data, .on_done = watch_done};

void file_watch_get(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_WATCH, &watch_callbacks);
	bool recursive = false;
	struct error error;
	call->on_gone = watch_gone;
	call->stream.on_drain = watch_drain;
	int result = file_query(file, true, &error);
	if (result == 0)
		result = query_flag(call, "recursive", &recursive, &error);
	file->request.flags = recursive ? FILE_RECURSIVE : 0;
	file_begin(file, result, &error);
}
