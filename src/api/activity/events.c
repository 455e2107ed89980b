/* GET /v1/events: all events of a workspace, as server-sent events from the client's last position
 * (event_stream.c), or as a page. And GET /v1/sandboxes/{sandbox}/events: the events of one
 * sandbox, in PandaStack's form. */
#include <stdlib.h>
#include <string.h>

#include "api/activity/event_stream.h"

#define TAIL_DEFAULT 50
#define PIECE_ROWS 32 /* formatted in one turn */

static void events_free(void *state)
{
	struct events *events = state;
	buffer_done(&events->page.buffer);
	recent_free_all(&events->found);
	free(events);
}

static struct events *events_new(struct call *call)
{
	struct events *events = calloc(1, sizeof(*events));
	if (!events)
		abort();
	events->call = call;
	list_init(&events->link);
	list_init(&events->found);
	memcpy(events->workspace, call->principal.workspace, sizeof(events->workspace));
	events->sandbox = call->principal.sandbox;
	call->state = events;
	call->state_free = events_free;
	return events;
}

const struct field events_query[] = {
    {"follow", FIELD_BOOL_AT(struct events, follow)},
    {"limit", FIELD_UINT_AT(struct events, limit), .min = 1, .max = ACTIVITY_PAGE_MAX,
     .fallback = ACTIVITY_PAGE_DEFAULT},
    {"kind", FIELD_TEXT_AT(struct events, kind), .max = ACTIVITY_KINDS_MAX},
    {"sandbox", FIELD_TEXT_AT(struct events, name), .max = CALL_PARAMETER_MAX - 1},
    {"after", FIELD_TEXT_AT(struct events, after), .max = ACTIVITY_CURSOR_MAX - 1,
     .shape = ACTIVITY_CURSOR_SHAPE("0")},
    {0},
};

/* The sandbox: `sandbox` of the query, or the one that the token is bound to. */
static int events_read_sandbox(struct call *call, struct events *events, struct error *error)
{
	struct sandbox_row row = {0};
	if (!events->name)
		return 0;
	if (sandbox_find_row(call->core, &call->principal, events->name, &row, error) < 0)
		return -1;
	events->sandbox = row.id;
	sandbox_row_done(&row);
	return 0;
}

/* The position: `after`, else the Last-Event-ID of a client that reconnects. Without either a
 * stream begins with new events, and a page with the oldest. */
static int events_read_position(struct call *call, struct events *events, struct error *error)
{
	const char *last_id = http_header(call->exchange, "last-event-id");
	bool returns = !events->after && last_id && *last_id;
	const char *cursor = returns          ? last_id
			     : events->after  ? events->after
			     : events->follow ? ""
					      : NULL;
	int result = activity_seek(call->core, events->workspace, "query parameter `after`", cursor,
				   &events->position, error);
	if (result < 0 && returns && error->kind == ERROR_INVALID)
		error_set(error, ERROR_INVALID, "Last-Event-ID is not the id of an event");
	return result;
}

static void events_page_turn(struct call *call)
{
	struct events *events = call->state;
	struct activity_page *page = &events->page;
	struct error error;
	int result = activity_page_step(call->core, page, &error);
	if (result < 0) {
		reply_error(call, &error);
	} else if (result == 0) {
		call_next_turn(call, events_page_turn);
	} else {
		put_array_end(&page->writer);
		put_event_cursor(&page->writer, page->more ? page->last : page->query.after);
		put_bool(&page->writer, "more", page->more);
		put_object_end(&page->writer);
		reply_json(call, 200, &page->writer);
	}
}

void events_get(struct call *call)
{
	struct events *events = events_new(call);
	struct error error;
	events->follow = true;
	activity_flush(call->core);
	if (call_query(call, events, &error) < 0 ||
	    (events->kind && activity_kinds_parse(events->kind, events->kinds,
						  sizeof(events->kinds), &error) < 0) ||
	    events_read_sandbox(call, events, &error) < 0 ||
	    events_read_position(call, events, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (events->follow) {
		events_join(events, NULL, false);
		return;
	}
	struct activity_query query = {
	    .workspace = events->workspace,
	    .sandbox = id_is_set(&events->sandbox) ? &events->sandbox : NULL,
	    .by_sequence = true,
	    .after = events->position,
	    .kinds = events->kinds[0] ? events->kinds : NULL,
	};
	activity_page_begin(&events->page, &query, events->limit);
	put_object(&events->page.writer, NULL);
	put_array(&events->page.writer, "items");
	/* The answer is in the call's state. */
	call_hold(call);
	events_page_turn(call);
	call_release(call);
}

/* --- as PandaStack has it --- */

/* Rows come newest first; the page has the oldest first. */
static bool events_take_row_before(void *data, const struct activity_row *row)
{
	struct events *events = data;
	list_append(events->found.next, &recent_new(row)->link);
	events->limit--;
	return true;
}

const struct field sandbox_events_query[] = {
    {"follow", FIELD_BOOL_AT(struct events, follow)},
    {"tail", FIELD_UINT_AT(struct events, limit), .max = ACTIVITY_PAGE_MAX,
     .fallback = TAIL_DEFAULT},
    {0},
};

static void sandbox_events_reply(struct call *call, const struct list *found)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_array(&writer, "events");
	list_each (found, node) {
		struct recent *recent = list_entry(node, struct recent, link);
		put_json(&writer, NULL, recent->compatible.data, recent->compatible.size);
	}
	put_array_end(&writer);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void sandbox_events_turn(struct call *call)
{
	struct events *events = call->state;
	struct activity_query *query = &events->page.query;
	struct error error;
	bool more = false;
	query->limit = MIN(events->limit, (uint32_t)PIECE_ROWS);
	query->ret_more = &more;
	if (query->limit > 0 &&
	    activity_each_written(call->core, query, events_take_row_before, events, &error) < 0) {
		reply_error(call, &error);
	} else if (more && events->limit > 0) {
		call_next_turn(call, sandbox_events_turn);
	} else if (events->follow) {
		events_join(events, &events->found, events->ended);
		recent_free_all(&events->found);
	} else {
		sandbox_events_reply(call, &events->found);
	}
}

void sandbox_events_get(struct call *call)
{
	struct core *core = call->core;
	struct events *events = events_new(call);
	struct sandbox_row row = {0};
	struct error error;
	activity_flush(core);
	if (sandbox_find_row(core, &call->principal, call->parameters[0], &row, &error) < 0 ||
	    call_query(call, events, &error) < 0 ||
	    activity_kinds_parse("sandbox", events->kinds, sizeof(events->kinds), &error) < 0 ||
	    activity_last(core, &events->position, &error) < 0) {
		sandbox_row_done(&row);
		reply_error(call, &error);
		return;
	}
	events->compatible = true;
	events->sandbox = row.id;
	events->ended = row.state == SANDBOX_ENDED;
	sandbox_row_done(&row);
	events->page.query = (struct activity_query){
	    .sandbox = &events->sandbox,
	    .descending = true,
	    .kinds = events->kinds,
	    .scan = ACTIVITY_SCAN,
	    .ret_seen = &events->page.query.after,
	};
	call_hold(call);
	sandbox_events_turn(call);
	call_release(call);
}
