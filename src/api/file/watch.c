/* GET .../files/watch: changes below a path, as server-sent events (sse.h), until the client
 * disconnects. Nothing blocks; the credit for the init follows the client's reading. */
#include <string.h>

#include "api/file/call.h"
#include "api/file/files.h"
#include "core/file/records.h"
#include "edge/sse.h"

/* The name of a temporary file of the init (file_temporary_name() there). */
static bool name_is_temporary(const char *base, size_t size)
{
	static const char prefix[] = ".caisson-";
	size_t length = sizeof(prefix) - 1;
	if (size != length + 20 || memcmp(base, prefix, length) != 0)
		return false;
	for (size_t i = length; i < size; i++)
		if (!((base[i] >= 'a' && base[i] <= 'z') || (base[i] >= '0' && base[i] <= '5')))
			return false;
	return true;
}

/* A file without a name (O_TMPFILE) is reported as "#" and its inode, when its mode is set. */
static bool event_is_nameless(const struct file_event *event)
{
	if (event->kind != WATCH_ATTRIBUTES || event->base_size < 2 || event->base[0] != '#')
		return false;
	for (size_t i = 1; i < event->base_size; i++)
		if (event->base[i] < '0' || event->base[i] > '9')
			return false;
	return true;
}

/* Should the event be reported? Our way of writing files should not be visible: events of our
 * temporary names are omitted, and their rename onto a file is a change of that file. */
static bool event_is_told(struct file_call *file, struct file_event *event)
{
	if (name_is_temporary(event->base, event->base_size)) {
		file->replacing |= event->kind == WATCH_RENAMED_FROM;
		return false;
	}
	if (file->replacing && event->kind == WATCH_RENAMED_TO) {
		file->replacing = false;
		event->kind = WATCH_MODIFIED;
	}
	return !event_is_nameless(event);
}

/* The head is sent with the first event, which is `ready`: until then an error has a status. */
static void file_watch_emit(struct file_call *file, const char *name, const struct buffer *json)
{
	if (!file->events)
		file->events = sse_begin(file->call);
	file->begun = true;
	file->blocked = !sse_event(file->events, name, json);
}

static void file_watch_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct file_call *file = file_data(handle);
	struct file_event event;
	if (file_event_read(data, size, &event) < 0) {
		sse_drop(TAKE_PTR(file->events));
		file_bad_answer(file);
		return;
	}
	file->owed += (uint32_t)size;
	if (!event_is_told(file, &event)) {
		if (!file->blocked)
			file_give_credit(file);
		return;
	}
	const char *name = file_event_name(event.kind);
	buffer_clear(&file->out);
	file->writer = json_writer_on(&file->out);
	put_object(&file->writer, NULL);
	put_text(&file->writer, "event", name);
	put_bytes(&file->writer, "path", event.path.data, event.path.size);
	put_object_end(&file->writer);
	file_watch_emit(file, name, &file->out);
	if (!file->blocked)
		file_give_credit(file);
}

static void file_watch_done(struct file_operation_handle *handle, const void *result, size_t size,
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
		file_watch_emit(file, "error", &text);
	}
	sse_end(TAKE_PTR(file->events));
	call_answered(call);
}

static void file_watch_drain(struct call *call)
{
	struct file_call *file = call->state;
	file->blocked = false;
	if (file->events)
		sse_drained(file->events);
	file_give_credit(file);
}

static void file_watch_gone(struct call *call)
{
	struct file_call *file = call->state;
	sse_drop(TAKE_PTR(file->events));
	if (file->handle)
		file_cancel(TAKE_PTR(file->handle));
}

static const struct file_callbacks watch_callbacks = {.on_data = file_watch_data,
						      .on_done = file_watch_done};

void file_watch_get(struct call *call)
{
	struct file_call *file = file_call_new(call, FILE_WATCH, &watch_callbacks);
	call->on_gone = file_watch_gone;
	call->stream.on_drain = file_watch_drain;
	if (file_query(file))
		file_begin(file);
}
