/* Streams of events (event_stream.h). A stream has a position: the sequence of the last entry that
 * it has examined. Later entries come from `recent`, where every entry is formatted once for all
 * streams, or, if `recent` does not reach back that far, from the store, a page per turn. So a slow
 * client costs no memory; a client that is too far behind gets `dropped`, its stream ends, and it
 * reconnects with Last-Event-ID.
 *
 * With many streams, new entries are delayed a little, so that a command does not cause a write to
 * each stream; then each gets all of them in one write, a few streams per turn of the loop, so that
 * other requests are handled in between. Runs on the loop; reads pages of the store. */
#include "api/activity/event_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

#define RECENT_MAX 128  /* entries kept formatted while there are streams */
#define PAGE 64         /* of the store, per turn and stream */
#define BEHIND_MAX 256  /* entries that a blocked client may miss before its stream ends */
#define IMMEDIATE_MAX 8 /* streams served at once; each further one adds to the delay */
#define DELAY_MAX_MS 100
#define SLICE 32              /* streams per turn */
#define WRITE_SIZE (32 * KIB) /* about so much is sent at once */

static struct {
	struct core *core;
	struct activity_listener listener;
	bool listening;
	uv_timer_t *timer; /* NULL: nothing waits */
	struct list streams;
	size_t stream_count;
	struct list recent; /* oldest first */
	size_t recent_count;
	uint64_t reaches; /* every later entry is in `recent` */
	size_t left;      /* streams that are still to be served in this round */
	bool again;       /* there are newer entries: another round follows */
} hub;

/* --- how an entry looks --- */

void put_event_cursor(struct json_writer *writer, uint64_t place)
{
	char cursor[ACTIVITY_CURSOR_MAX];
	activity_cursor_print(place, cursor);
	put_json(writer, "after", cursor, strlen(cursor));
}

static void recent_free(struct recent *recent)
{
	list_remove(&recent->link);
	buffer_done(&recent->event);
	buffer_done(&recent->compatible);
	free(recent->workspace);
	free(recent);
}

void recent_free_all(struct list *found)
{
	while (!list_empty(found))
		recent_free(list_entry(found->next, struct recent, link));
}

struct recent *recent_new(const struct activity_row *row)
{
	struct recent *recent = calloc(1, sizeof(*recent));
	if (!recent)
		abort();
	list_init(&recent->link);
	recent->sequence = row->sequence;
	activity_cursor_print(row->sequence, recent->cursor);
	recent->kind = row->kind;
	recent->sandbox = row->sandbox;
	recent->workspace = text_duplicate(row->workspace);
	DONE_BUFFER struct buffer json = BUFFER(ACTIVITY_ENTRY_JSON_MAX);
	struct json_writer writer = json_writer_on(&json);
	put_activity(&writer, NULL, row);
	recent->event = BUFFER(ACTIVITY_ENTRY_JSON_MAX + KIB);
	sse_format(&recent->event, recent->cursor, activity_kind_name(row->kind), &json);
	recent->compatible = BUFFER(ACTIVITY_ENTRY_JSON_MAX);
	writer = json_writer_on(&recent->compatible);
	/* PandaStack's name for the end of a sandbox. */
	bool ended = row->kind == ACTIVITY_SANDBOX_ENDED;
	put_object(&writer, NULL);
	put_time(&writer, "time", row->wall);
	put_text(&writer, "sandbox_id", row->sandbox.text);
	put_text(&writer, "type", ended ? "sandbox.deleted" : activity_kind_name(row->kind));
	put_details(&writer, "payload", row);
	put_object_end(&writer);
	return recent;
}

static bool events_want(const struct events *events, const struct recent *recent)
{
	char number[16];
	snprintf(number, sizeof(number), ",%u,", recent->kind);
	return strcmp(events->workspace, recent->workspace) == 0 &&
	       (!id_is_set(&events->sandbox) || id_equal(&events->sandbox, &recent->sandbox)) &&
	       (!events->kinds[0] || strstr(events->kinds, number));
}

/* --- streams --- */

static void events_schedule_pump(bool soon);

/* The stream ends here; its state belongs to the call and is freed with it. */
static void events_leave(struct events *events)
{
	if (list_empty(&events->link))
		return;
	list_remove(&events->link);
	hub.stream_count--;
	if (hub.stream_count > 0)
		return;
	activity_unlisten(&hub.listener);
	hub.listening = false;
	recent_free_all(&hub.recent);
	hub.recent_count = hub.left = 0;
	hub.again = false;
}

static void events_end_stream(struct events *events)
{
	struct call *call = events->call;
	events_leave(events);
	sse_end(TAKE_PTR(events->sse));
	call_answered(call);
}

/* The explicit end of a stream that cannot continue. */
static void events_end_dropped(struct events *events, const char *reason)
{
	DONE_BUFFER struct buffer json = BUFFER(8 * KIB);
	struct json_writer writer = json_writer_on(&json);
	log_info("request %s: its stream of events is ended: %s", events->call->request_id, reason);
	put_object(&writer, NULL);
	put_text(&writer, "reason", reason);
	put_event_cursor(&writer, events->position);
	put_object_end(&writer);
	sse_event(events->sse, "dropped", &json);
	events_end_stream(events);
}

/* The data for one write to a stream: begins empty, flushed at the end. */
#define BATCH BUFFER(WRITE_SIZE + ACTIVITY_ENTRY_JSON_MAX + KIB)

static void events_send_batch(struct events *events, struct buffer *batch)
{
	if (batch->size > 0)
		events->blocked = !sse_send(events->sse, batch);
	buffer_clear(batch);
}

/* False: the stream has ended. */
static bool events_send(struct events *events, const struct recent *recent, struct buffer *batch)
{
	if (events->compatible)
		sse_format(batch, recent->cursor, "event", &recent->compatible);
	else if (buffer_append(batch, recent->event.data, recent->event.size) < 0)
		abort(); /* its maximum is sufficient */
	bool last = events->compatible && recent->kind == ACTIVITY_SANDBOX_ENDED;
	if (last || batch->size >= WRITE_SIZE)
		events_send_batch(events, batch);
	if (last)
		events_end_stream(events);
	return !last;
}

/* `data` is a list of struct recent. */
static bool events_take_row(void *data, const struct activity_row *row)
{
	list_append(data, &recent_new(row)->link);
	return true;
}

/* Sends entries from the store that are older than `recent`: false if the stream has ended. */
static bool events_pump_store(struct events *events, bool *ret_more)
{
	struct core *core = hub.core;
	struct list found;
	struct error error;
	uint64_t pruned = 0, seen = events->position;
	bool more = false;
	struct activity_query query = {
	    .workspace = events->workspace,
	    .sandbox = id_is_set(&events->sandbox) ? &events->sandbox : NULL,
	    .by_sequence = true,
	    .after = events->position,
	    .kinds = events->kinds[0] ? events->kinds : NULL,
	    .limit = PAGE,
	    .scan = ACTIVITY_SCAN,
	    .ret_seen = &seen,
	    .ret_more = &more,
	};
	*ret_more = false;
	list_init(&found);
	if (activity_pruned(core, events->workspace, &pruned, &error) < 0 ||
	    activity_each_written(core, &query, events_take_row, &found, &error) < 0) {
		recent_free_all(&found);
		events_end_dropped(events, error.message);
		return false;
	}
	bool alive = true;
	DONE_BUFFER struct buffer batch = BATCH;
	if (pruned > events->position) {
		events_end_dropped(events, "what came next is no longer kept");
		alive = false;
	}
	while (!list_empty(&found)) {
		struct recent *recent = list_entry(found.next, struct recent, link);
		if (alive && !events->blocked) {
			events->position = recent->sequence;
			alive = events_send(events, recent, &batch);
		}
		recent_free(recent);
	}
	if (alive)
		events_send_batch(events, &batch);
	*ret_more = alive && !events->blocked && more;
	if (alive && !events->blocked)
		events->position = more ? seen : MAX(seen, hub.reaches);
	return alive;
}

/* True if it has read from the store: that is enough for one turn. */
static bool events_pump(struct events *events)
{
	DONE_BUFFER struct buffer batch = BATCH;
	bool more, stored = false;
	if (events->blocked)
		return false;
	if (events->position < hub.reaches) {
		stored = true;
		if (!events_pump_store(events, &more))
			return true;
		if (more) {
			hub.again = true;
			events_schedule_pump(true);
			return true;
		}
	}
	list_each (&hub.recent, node) {
		struct recent *recent = list_entry(node, struct recent, link);
		if (events->blocked)
			return stored;
		if (recent->sequence <= events->position)
			continue;
		events->position = recent->sequence;
		if (events_want(events, recent) && !events_send(events, recent, &batch))
			return stored;
	}
	events_send_batch(events, &batch);
	return stored;
}

/* Each is moved to the end of the list and served; one that ends meanwhile removes itself. */
static void streams_pump_some(void)
{
	for (size_t i = 0; i < SLICE && hub.left > 0 && !list_empty(&hub.streams); i++) {
		struct events *events = list_entry(hub.streams.next, struct events, link);
		list_remove(&events->link);
		list_append(&hub.streams, &events->link);
		hub.left--;
		if (events_pump(events))
			break;
	}
	if (hub.left > 0) {
		events_schedule_pump(true);
	} else if (hub.again) {
		hub.again = false;
		events_schedule_pump(false);
	}
}

static void events_timer_closed(uv_handle_t *handle)
{
	free(handle);
}

static void events_on_timer(uv_timer_t *timer)
{
	uv_close((uv_handle_t *)timer, events_timer_closed);
	hub.timer = NULL;
	if (hub.left == 0)
		hub.left = hub.stream_count;
	streams_pump_some();
}

static void events_schedule_pump(bool soon)
{
	size_t delay_ms =
	    soon ? 1 : MAX(MIN(hub.stream_count / IMMEDIATE_MAX, (size_t)DELAY_MAX_MS), 1);
	if (hub.timer)
		return;
	hub.timer = calloc(1, sizeof(*hub.timer));
	if (!hub.timer)
		abort();
	uv_timer_init(hub.core->loop, hub.timer);
	uv_timer_start(hub.timer, events_on_timer, delay_ms, 0);
}

static void activity_recorded(struct activity_listener *listener UNUSED,
			      const struct activity_row *row)
{
	struct recent *recent = recent_new(row);
	list_append(&hub.recent, &recent->link);
	if (hub.recent_count == RECENT_MAX) {
		struct recent *oldest = list_entry(hub.recent.next, struct recent, link);
		hub.reaches = oldest->sequence;
		recent_free(oldest);
	} else {
		hub.recent_count++;
	}
	list_each (&hub.streams, node) {
		struct events *events = list_entry(node, struct events, link);
		if (events->blocked && events_want(events, recent) && ++events->behind > BEHIND_MAX)
			events_end_dropped(events, "the client reads too slowly");
	}
	if (hub.stream_count == 0)
		return;
	if (hub.stream_count <= IMMEDIATE_MAX) {
		hub.left = hub.stream_count;
		streams_pump_some();
	} else if (hub.left > 0) {
		hub.again = true;
	} else {
		events_schedule_pump(false);
	}
}

static void events_drained(struct call *call)
{
	struct events *events = call->state;
	if (!events->sse)
		return;
	sse_drained(events->sse);
	events->blocked = false;
	events->behind = 0;
	events_pump(events);
}

static void events_gone(struct call *call)
{
	struct events *events = call->state;
	events_leave(events);
	sse_drop(TAKE_PTR(events->sse));
}

void events_join(struct events *events, struct list *first, bool last)
{
	DONE_BUFFER struct buffer batch = BATCH;
	struct call *call = events->call;
	struct error error;
	if (!hub.listening) {
		hub.core = call->core;
		list_init(&hub.streams);
		list_init(&hub.recent);
		hub.recent_count = hub.stream_count = 0;
		hub.listener.recorded = activity_recorded;
		if (activity_last(hub.core, &hub.reaches, &error) < 0) {
			reply_error(call, &error);
			return;
		}
		activity_listen(hub.core, &hub.listener);
		hub.listening = true;
	}
	call->on_gone = events_gone;
	call->stream.on_drain = events_drained;
	list_append(&hub.streams, &events->link);
	hub.stream_count++;
	events->sse = sse_begin(call);
	for (struct list *node = first ? first->next : NULL; node && node != first;
	     node = node->next)
		if (!events_send(events, list_entry(node, struct recent, link), &batch))
			return;
	events_send_batch(events, &batch);
	if (last)
		events_end_stream(events);
	else
		events_pump(events);
}
