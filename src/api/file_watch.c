/* GET .../files/watch: what changes below a path, as server-sent events, until the client goes. A
 * comment every few seconds keeps middle boxes from closing the connection. */
#include "api/file_call.h"

#include <stdlib.h>
#include <string.h>

#define KEEP_ALIVE_MS 15000

/* Outlives the call until libuv has let go of it. */
struct watch_timer {
	uv_timer_t timer;
	struct file_call *file;
};

static void timer_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void timer_end(struct file_call *file)
{
	struct watch_timer *timer = TAKE_PTR(file->timer);
	if (!timer)
		return;
	timer->file = NULL;
	uv_close((uv_handle_t *)&timer->timer, timer_closed);
}

static void keep_alive(uv_timer_t *handle)
{
	static const char comment[] = ": keep-alive\n\n";
	struct watch_timer *timer = handle->data;
	struct file_call *file = timer->file;
	/* A client that is behind has enough to read. */
	if (!file->blocked)
		file->blocked =
		    !http_stream_write(file->call->exchange, comment, sizeof(comment) - 1);
}

static void timer_begin(struct file_call *file)
{
	struct watch_timer *timer = calloc(1, sizeof(*timer));
	if (!timer)
		abort();
	timer->file = file;
	uv_timer_init(file->call->api->core->loop, &timer->timer);
	timer->timer.data = timer;
	uv_timer_start(&timer->timer, keep_alive, KEEP_ALIVE_MS, KEEP_ALIVE_MS);
	file->timer = timer;
}

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

static void begin(struct file_call *file)
{
	static const struct http_header header = {"Cache-Control", "no-store"};
	if (file->begun)
		return;
	file->begun = true;
	http_stream_begin(file->call->exchange, 200, "text/event-stream", -1, &header, 1);
	timer_begin(file);
}

static void watch_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct file_call *file = file_data(handle);
	struct reader reader = reader_on(data, size);
	const char *name = event_name(read_u8(&reader));
	struct bytes path = read_bytes(&reader, GUEST_PATH_MAX);
	if (reader_finish(&reader) < 0 || !name) {
		timer_end(file);
		file_bad_answer(file);
		return;
	}
	begin(file);
	/* JSON has no line ends of its own, so the event is one line of data. */
	int result = buffer_printf(&file->out, "event: %s\ndata: ", name);
	file->writer.comma = false;
	put_object(&file->writer, NULL);
	put_text(&file->writer, "event", name);
	put_bytes(&file->writer, "path", path.data, path.size);
	put_object_end(&file->writer);
	if (result < 0 || buffer_append_text(&file->out, "\n\n") < 0)
		abort(); /* one event is far below the buffer's maximum */
	file_emit(file, (uint32_t)size);
}

static void watch_done(struct file_operation_handle *handle, const void *result, size_t size,
		       const struct error *error)
{
	struct file_call *file = file_data(handle);
	struct call *call = file->call;
	(void)result;
	(void)size;
	file->handle = NULL;
	timer_end(file);
	if (!file->begun && error) {
		reply_error(call, error);
		return;
	}
	begin(file);
	timer_end(file);
	if (error) {
		DONE_BUFFER struct buffer text = BUFFER(16 * KIB);
		struct json_writer writer = json_writer_on(&text);
		put_error(&writer, error, call->request_id);
		http_stream_write(call->exchange, "event: error\ndata: ", 19);
		http_stream_write(call->exchange, text.data, text.size);
		http_stream_write(call->exchange, "\n\n", 2);
	}
	http_stream_end(call->exchange);
	call_answered(call);
}

static void watch_gone(struct call *call)
{
	struct file_call *file = call->state;
	timer_end(file);
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
	int result = file_query(file, true, &error);
	if (result == 0)
		result = query_flag(call, "recursive", &recursive, &error);
	file->request.flags = recursive ? FILE_RECURSIVE : 0;
	file_begin(file, result, &error);
}
