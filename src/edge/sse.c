/* Server-sent events. See sse.h. Called by handlers with streaming answers; nothing blocks. */
#include "edge/sse.h"

#include <stdlib.h>
#include <string.h>

#include "base/statistics.h"

#define KEEP_ALIVE_MS 15000

/* Outlives the answer until libuv has closed the timer. */
struct sse {
	uv_timer_t timer;
	struct call *call;
	bool blocked; /* the connection's queue is full */
};

static void sse_put(struct sse *sse, const void *data, size_t size)
{
	sse->blocked = !http_stream_write(sse->call->exchange, data, size);
}

static void sse_keep_alive_due(uv_timer_t *timer)
{
	static const char comment[] = ": keep-alive\n\n";
	struct sse *sse = container_of(timer, struct sse, timer);
	/* A blocked client has enough to read. */
	if (!sse->blocked)
		sse_put(sse, comment, sizeof(comment) - 1);
}

struct sse *sse_begin(struct call *call)
{
	static const struct http_header header = {"Cache-Control", "no-store"};
	struct sse *sse = calloc(1, sizeof(*sse));
	if (!sse)
		abort();
	sse->call = call;
	statistics.streams++;
	http_stream_begin(call->exchange, 200, "text/event-stream", -1, &header, 1);
	uv_timer_init(call->core->loop, &sse->timer);
	uv_timer_start(&sse->timer, sse_keep_alive_due, KEEP_ALIVE_MS, KEEP_ALIVE_MS);
	return sse;
}

/* One write, so that an event is one chunk on the wire and never half of one. */
bool sse_event(struct sse *sse, const char *name, const struct buffer *json)
{
	DONE_BUFFER struct buffer event = BUFFER(json->size + strlen(name) + 32);
	if (buffer_printf(&event, "event: %s\ndata: ", name) < 0 ||
	    buffer_append(&event, json->data, json->size) < 0 ||
	    buffer_append_text(&event, "\n\n") < 0)
		abort(); /* its maximum was made for it */
	sse_put(sse, event.data, event.size);
	return !sse->blocked;
}

void sse_format(struct buffer *to, const char *id, const char *name, const struct buffer *json)
{
	if (buffer_printf(to, "id: %s\nevent: %s\ndata: ", id, name) < 0 ||
	    buffer_append(to, json->data, json->size) < 0 || buffer_append_text(to, "\n\n") < 0)
		abort(); /* its maximum was made for it */
}

bool sse_send(struct sse *sse, const struct buffer *events)
{
	sse_put(sse, events->data, events->size);
	return !sse->blocked;
}

void sse_drained(struct sse *sse)
{
	sse->blocked = false;
}

static void sse_timer_closed(uv_handle_t *handle)
{
	free(container_of((uv_timer_t *)handle, struct sse, timer));
}

void sse_drop(struct sse *sse)
{
	if (!sse)
		return;
	statistics.streams--;
	uv_close((uv_handle_t *)&sse->timer, sse_timer_closed);
}

void sse_end(struct sse *sse)
{
	http_stream_end(sse->call->exchange);
	sse_drop(sse);
}
