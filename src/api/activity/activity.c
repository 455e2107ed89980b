/* /v1/sandboxes/{sandbox}/activity: pages of a sandbox's timeline, also of an ended one. Also the
 * table of all routes about the activity: events, receipts. Runs on the loop; reads a bounded part
 * of the store per turn. */
#include "api/activity/activity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/routes.h"
#include "base/text.h"
#include "proto/init_messages.h"

void put_details(struct json_writer *writer, const char *name, const struct activity_row *row)
{
	struct bytes packed = {(const uint8_t *)row->details, row->details_size};
	size_t at = 0;
	const char *key, *value;
	put_object(writer, name);
	while ((key = packed_next(packed, &at)) && (value = packed_next(packed, &at))) {
		put_key(writer, key);
		put_text(writer, NULL, value);
	}
	put_object_end(writer);
}

void put_activity(struct json_writer *writer, const char *key, const struct activity_row *row)
{
	char hex[2 * ACTIVITY_HASH_SIZE + 1], number[24];
	put_object(writer, key);
	put_uint(writer, "sequence", row->sequence);
	put_uint(writer, "number", row->number);
	put_text(writer, "sandbox_id", row->sandbox.text);
	put_time(writer, "time", row->wall);
	/* As text: it is part of the hash and too long for a double. */
	snprintf(number, sizeof(number), "%" PRId64, row->wall);
	put_text(writer, "time_ns", number);
	put_text(writer, "kind", activity_kind_name(row->kind));
	put_text(writer, "actor", row->actor);
	put_text(writer, "exec_id", id_is_set(&row->exec) ? row->exec.text : NULL);
	put_details(writer, "details", row);
	text_hex(row->previous, ACTIVITY_HASH_SIZE, hex);
	put_text(writer, "previous", hex);
	text_hex(row->hash, ACTIVITY_HASH_SIZE, hex);
	put_text(writer, "hash", hex);
	put_object_end(writer);
}

/* --- the timeline --- */

/* Of the answer, per piece: its entries take less than a tenth of a millisecond. */
#define PIECE_SIZE (32 * KIB)

static bool activity_page_entry(void *data, const struct activity_row *row)
{
	struct activity_page *page = data;
	page->more = page->count == page->limit;
	if (page->more || page->buffer.size >= page->pause)
		return false;
	put_activity(&page->writer, NULL, row);
	page->last = page->query.by_sequence ? row->sequence : row->number;
	page->count++;
	return true;
}

void activity_page_begin(struct activity_page *page, const struct activity_query *query,
			 uint32_t limit)
{
	page->query = *query;
	page->query.limit = ACTIVITY_PAGE_MAX + 1; /* it ends itself */
	page->query.scan = ACTIVITY_SCAN;
	page->query.ret_seen = &page->query.after;
	page->buffer = BUFFER(REPLY_MAX);
	page->writer = json_writer_on(&page->buffer);
	page->limit = limit;
}

int activity_page_step(struct core *core, struct activity_page *page, struct error *error)
{
	bool more;
	page->query.ret_more = &more;
	page->pause = page->buffer.size + PIECE_SIZE;
	if (activity_each_written(core, &page->query, activity_page_entry, page, error) < 0)
		return -1;
	/* It goes on behind a full page, to see whether there is more. */
	return page->more || !more;
}

struct activity_parameters {
	uint32_t limit;
	int64_t since, until;
	const char *cursor, *order, *kind;
};

const struct field activity_query[] = {
    {"limit", FIELD_UINT_AT(struct activity_parameters, limit), .min = 1, .max = ACTIVITY_PAGE_MAX,
     .fallback = ACTIVITY_PAGE_DEFAULT},
    {"cursor", FIELD_TEXT_AT(struct activity_parameters, cursor), .max = ACTIVITY_CURSOR_MAX - 1,
     .shape = ACTIVITY_CURSOR_SHAPE("1")},
    {"order", FIELD_TEXT_AT(struct activity_parameters, order), .min = 1, .max = 7,
     .words = "asc,desc", .fallback_text = "asc"},
    {"kind", FIELD_TEXT_AT(struct activity_parameters, kind), .max = ACTIVITY_KINDS_MAX},
    {"since", FIELD_TIME_AT(struct activity_parameters, since), .max = 63},
    {"until", FIELD_TIME_AT(struct activity_parameters, until), .max = 63},
    {0},
};

/* A request for a page of a sandbox's entries. Belongs to its call. */
struct activity_call {
	struct activity_page page;
	struct id sandbox;
	char kinds[ACTIVITY_KIND_LIST_MAX];
};

static void activity_call_free(void *state)
{
	struct activity_call *activity = state;
	buffer_done(&activity->page.buffer);
	free(activity);
}

static int activity_read_query(struct call *call, struct activity_call *activity,
			       struct error *error)
{
	struct activity_parameters parameters = {0};
	struct activity_query query = {.sandbox = &activity->sandbox};
	if (call_query(call, &parameters, error) < 0 ||
	    (parameters.cursor &&
	     activity_cursor_parse("query parameter `cursor`", parameters.cursor, 1, &query.after,
				   error) < 0) ||
	    (parameters.kind && activity_kinds_parse(parameters.kind, activity->kinds,
						     ACTIVITY_KIND_LIST_MAX, error) < 0))
		return -1;
	query.since_wall = parameters.since;
	query.to_wall = parameters.until;
	query.descending = strcmp(parameters.order, "desc") == 0;
	query.kinds = activity->kinds[0] ? activity->kinds : NULL;
	activity_page_begin(&activity->page, &query, parameters.limit);
	return 0;
}

static void activity_page_turn(struct call *call)
{
	struct activity_call *activity = call->state;
	struct activity_page *page = &activity->page;
	struct error error;
	char cursor[ACTIVITY_CURSOR_MAX];
	int result = activity_page_step(call->core, page, &error);
	if (result < 0) {
		reply_error(call, &error);
	} else if (result == 0) {
		call_next_turn(call, activity_page_turn);
	} else {
		put_array_end(&page->writer);
		activity_cursor_print(page->last, cursor);
		put_text(&page->writer, "next_cursor", page->more ? cursor : NULL);
		put_object_end(&page->writer);
		reply_json(call, 200, &page->writer);
	}
}

void activity_get(struct call *call)
{
	struct core *core = call->core;
	struct activity_call *activity = calloc(1, sizeof(*activity));
	struct sandbox_row row = {0};
	struct error error;
	if (!activity)
		abort();
	call->state = activity;
	call->state_free = activity_call_free;
	if (sandbox_find_row(core, &call->principal, call->parameters[0], &row, &error) < 0 ||
	    activity_read_query(call, activity, &error) < 0) {
		sandbox_row_done(&row);
		reply_error(call, &error);
		return;
	}
	activity->sandbox = row.id;
	sandbox_row_done(&row);
	put_object(&activity->page.writer, NULL);
	put_text(&activity->page.writer, "sandbox_id", activity->sandbox.text);
	put_array(&activity->page.writer, "items");
	activity_flush(core);
	/* The answer is in the call's state. */
	call_hold(call);
	activity_page_turn(call);
	call_release(call);
}

const struct route activity_routes[] = {
    {"GET", SB "/activity", READ, 0, activity_get, activity_query},
    {"GET", SB "/events", READ, 0, sandbox_events_get, sandbox_events_query},
    {"GET", "/v1/events", READ, 0, events_get, events_query},
    {"GET", SB "/execs/{exec}/receipt", READ, 0, receipt_get},
    {"GET", "/v1/receipts/key", READ, 0, receipt_key_get},
    {0},
};
