/* Streams of server-sent events (stream.h). Called by http_post.c, http_get.c and session.c, on the
 * loop; nothing blocks: data that a client does not read waits in its connection's queue, whose
 * limits and deadlines belong to the HTTP layer. */
#include "mcp/transport/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/statistics.h"
#include "mcp/transport/session_private.h"

/* The overhead of a kept event. */
#define EVENT_OVERHEAD (sizeof(struct stream_event) + 32)

struct mcp_stream *stream_new(struct mcp_server *server, struct mcp_session *session)
{
	struct mcp_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		abort();
	stream->server = server;
	stream->session = session;
	stream->next = 1;
	list_init(&stream->link);
	list_init(&stream->attached);
	list_init(&stream->events);
	if (session) {
		stream->number = session->next_stream++;
		list_append(&session->streams, &stream->link);
	}
	return stream;
}

static void event_free(struct stream_event *event)
{
	struct mcp_session *session = event->stream->session;
	size_t size = event->size + EVENT_OVERHEAD;
	list_remove(&event->in_stream);
	list_remove(&event->in_session);
	session->kept -= size;
	session->server->kept -= size;
	session->event_count--;
	free(event);
}

/* The connection does not belong to the stream any more. */
static struct call *stream_release_call(struct mcp_stream *stream)
{
	struct call *call = stream->call;
	stream->call = NULL;
	list_remove(&stream->attached);
	statistics.streams--;
	call->on_gone = NULL;
	call->state = NULL;
	if (stream->session)
		session_touch(stream->session);
	return call;
}

void stream_detach(struct mcp_stream *stream)
{
	if (!stream->call)
		return;
	struct call *call = stream_release_call(stream);
	http_stream_end(call->exchange);
	call_answered(call);
}

void stream_free(struct mcp_stream *stream)
{
	stream_detach(stream);
	list_each (&stream->events, node)
		event_free(list_entry(node, struct stream_event, in_stream));
	list_remove(&stream->link);
	struct mcp_session *session = stream->session;
	if (session && stream->unanswered)
		session->unanswered[session->unanswered_count++ % UNANSWERED_KEPT] =
		    stream->number + 1;
	free(stream);
}

void stream_finish(struct mcp_stream *stream)
{
	stream->finished = true;
	stream->gone = NULL;
	stream_detach(stream);
	if (list_empty(&stream->events))
		stream_free(stream);
}

static void stream_forget_oldest(struct mcp_session *session)
{
	struct stream_event *event =
	    list_entry(session->events.next, struct stream_event, in_session);
	struct mcp_stream *stream = event->stream;
	event_free(event);
	if (stream->finished && !stream->call && list_empty(&stream->events))
		stream_free(stream);
}

/* Removes the oldest events until the session keeps no more than its share. */
static void session_trim_events(struct mcp_session *session)
{
	size_t most =
	    session->server->kept > SERVER_REPLAY_MAX ? SESSION_REPLAY_LEAST : SESSION_REPLAY_MAX;
	while (session->kept > most || session->event_count > SESSION_EVENTS_MAX)
		stream_forget_oldest(session);
}

void streams_expire(struct mcp_session *session, int64_t now)
{
	int64_t before = now - (int64_t)SESSION_REPLAY_MS * NSEC_PER_MSEC;
	while (session->event_count > 0 &&
	       list_entry(session->events.next, struct stream_event, in_session)->at < before)
		stream_forget_oldest(session);
}

static void stream_put(struct mcp_stream *stream, const void *data, size_t size)
{
	stream->spoken = clock_monotonic();
	http_stream_write(stream->call->exchange, data, size);
}

static void event_keep(struct mcp_stream *stream, const struct buffer *text, uint64_t number)
{
	struct mcp_session *session = stream->session;
	struct stream_event *event = malloc(sizeof(*event) + text->size);
	if (!event)
		abort();
	event->stream = stream;
	event->number = number;
	event->at = clock_monotonic();
	event->size = text->size;
	memcpy(event->data, text->data, text->size);
	list_append(&stream->events, &event->in_stream);
	list_append(&session->events, &event->in_session);
	session->event_count++;
	session->kept += event->size + EVENT_OVERHEAD;
	session->server->kept += event->size + EVENT_OVERHEAD;
	session_trim_events(session);
}

void stream_send(struct mcp_stream *stream, const struct buffer *message)
{
	struct buffer text DONE_BUFFER = BUFFER(message->size + 128);
	uint64_t number = stream->next++;
	if ((stream->session &&
	     buffer_printf(&text, "id: %llu-%llu\n", (unsigned long long)stream->number,
			   (unsigned long long)number) < 0) ||
	    buffer_append_text(&text, "event: message\ndata: ") < 0 ||
	    buffer_append(&text, message->data, message->size) < 0 ||
	    buffer_append_text(&text, "\n\n") < 0)
		abort(); /* its maximum is sufficient */
	if (stream->call)
		stream_put(stream, text.data, text.size);
	if (stream->session && text.size + EVENT_OVERHEAD <= SESSION_REPLAY_MAX)
		event_keep(stream, &text, number);
}

static void stream_call_gone(struct call *call)
{
	struct mcp_stream *stream = call->state;
	stream_release_call(stream);
	if (stream->gone)
		stream->gone(stream);
	else if (stream->finished && list_empty(&stream->events))
		stream_free(stream);
}

/* From the first event a client learns how to reconnect, before there is any message. */
static void stream_prime(struct mcp_stream *stream)
{
	char text[96];
	int size = snprintf(text, sizeof(text), "id: %llu-%llu\nretry: %d\ndata: \n\n",
			    (unsigned long long)stream->number,
			    (unsigned long long)stream->next - 1, STREAM_RETRY_MS);
	stream_put(stream, text, (size_t)size);
}

void stream_attach(struct mcp_stream *stream, struct call *call, uint64_t after)
{
	static const struct http_header headers[] = {
	    {"Cache-Control", "no-cache, no-transform"},
	    {"X-Accel-Buffering", "no"},
	};
	struct mcp_session *session = stream->session;
	stream_detach(stream);
	stream->call = call;
	call->state = stream;
	call->on_gone = stream_call_gone;
	list_append(&stream->server->streams, &stream->attached);
	statistics.streams++;
	server_tend(stream->server);
	http_stream_begin(call->exchange, 200, "text/event-stream", -1, headers,
			  ARRAY_SIZE(headers));
	stream_put(stream, ": open\n\n", 8);
	if (session && session->revision >= MCP_2025_11_25 && after == STREAM_ANEW)
		stream_prime(stream);
	list_each (&stream->events, node) {
		struct stream_event *event = list_entry(node, struct stream_event, in_stream);
		if (event->number > after)
			stream_put(stream, event->data, event->size);
	}
	if (stream->finished)
		stream_detach(stream);
}

void streams_keep_alive(struct mcp_server *server, int64_t now)
{
	static const char comment[] = ": keep-alive\n\n";
	list_each (&server->streams, node) {
		struct mcp_stream *stream = list_entry(node, struct mcp_stream, attached);
		if (now - stream->spoken >= (STREAM_KEEP_ALIVE_MS - SERVER_TEND_MS) * NSEC_PER_MSEC)
			stream_put(stream, comment, sizeof(comment) - 1);
	}
}
