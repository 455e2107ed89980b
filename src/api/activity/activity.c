/* /v1/sandboxes/{sandbox}/activity: pages of a sandbox's timeline, also of an ended one. Also the
 * table of all routes about the activity: events, receipts. Runs on the loop; reads one page of the
 * store. */
#include "api/activity/activity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/routes.h"
#include "base/clock.h"
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

int query_kinds(struct call *call, char list[ACTIVITY_KIND_LIST_MAX], struct error *error)
{
	char text[512] = "";
	list[0] = '\0';
	if (query_text(call, "kind", text, sizeof(text), false, error) < 0)
		return -1;
	return text[0] ? activity_kinds_parse(text, list, ACTIVITY_KIND_LIST_MAX, error) : 0;
}

/* The text after the seconds: a fraction, then 'Z' or an offset. 0 if it is well-formed. */
static int parse_zone(const char *text, int64_t *wall)
{
	int64_t unit = NSEC_PER_SEC;
	if (*text == '.')
		for (text++; *text >= '0' && *text <= '9'; text++)
			*wall += (*text - '0') * (unit /= 10);
	if ((*text == 'Z' || *text == 'z') && text[1] == '\0')
		return 0;
	unsigned hours, minutes;
	char sign = *text;
	if ((sign != '+' && sign != '-') || strlen(text) != 6 ||
	    sscanf(text + 1, "%2u:%2u", &hours, &minutes) != 2 || hours > 23 || minutes > 59)
		return -1;
	int64_t offset = ((int64_t)hours * 3600 + minutes * 60) * NSEC_PER_SEC;
	*wall += sign == '+' ? -offset : offset;
	return 0;
}

int query_time(struct call *call, const char *name, int64_t *wall, struct error *error)
{
	char text[64] = "";
	uint64_t seconds;
	struct tm parts = {0};
	if (query_text(call, name, text, sizeof(text), false, error) < 0)
		return -1;
	if (!text[0])
		return 0;
	if (text_to_u64(text, 0, 9000000000, &seconds) == 0) {
		*wall = MAX((int64_t)seconds * NSEC_PER_SEC, 1);
		return 0;
	}
	if (text_to_seconds(text, &seconds) == 0 && seconds <= 9000000000) {
		*wall = MAX(clock_wall() - (int64_t)seconds * NSEC_PER_SEC, 1);
		return 0;
	}
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
	if (rest && parts.tm_year >= 70 && parts.tm_year < 320) {
		*wall = (int64_t)timegm(&parts) * NSEC_PER_SEC;
		if (parse_zone(rest, wall) == 0 && *wall > 0)
			return 0;
	}
	return error_set(
	    error, ERROR_INVALID,
	    "query parameter `%s` must be a time like 2026-11-15T08:00:00Z, seconds since 1970, "
	    "or an age like 10m",
	    name);
}

/* --- the timeline --- */

bool activity_page_entry(void *data, const struct activity_row *row)
{
	struct activity_page *page = data;
	if (page->count == page->limit) {
		page->more = true;
		return false;
	}
	put_activity(&page->writer, NULL, row);
	page->last = page->by_sequence ? row->sequence : row->number;
	page->count++;
	return true;
}

static int read_query(struct call *call, struct activity_query *query,
		      char kinds[ACTIVITY_KIND_LIST_MAX], struct error *error)
{
	uint64_t limit = ACTIVITY_PAGE_DEFAULT;
	char order[8] = "asc", cursor[ACTIVITY_CURSOR_MAX] = "";
	if (query_uint(call, "limit", 1, ACTIVITY_PAGE_MAX, &limit, error) < 0 ||
	    query_text(call, "cursor", cursor, sizeof(cursor), false, error) < 0 ||
	    (cursor[0] && activity_cursor_parse("query parameter `cursor`", cursor, 1,
						&query->after, error) < 0) ||
	    query_text(call, "order", order, sizeof(order), false, error) < 0 ||
	    query_kinds(call, kinds, error) < 0 ||
	    query_time(call, "since", &query->since_wall, error) < 0 ||
	    query_time(call, "until", &query->to_wall, error) < 0)
		return -1;
	if (strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
		return error_set(error, ERROR_INVALID,
				 "query parameter `order` must be asc or desc");
	query->descending = strcmp(order, "desc") == 0;
	query->kinds = kinds[0] ? kinds : NULL;
	query->limit = (uint32_t)limit + 1; /* one more shows whether there are more */
	return 0;
}

static void reply_page(struct call *call, const struct id *sandbox,
		       const struct activity_query *query)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct activity_page page = {.writer = json_writer_on(&buffer), .limit = query->limit - 1};
	struct error error;
	char cursor[ACTIVITY_CURSOR_MAX];
	put_object(&page.writer, NULL);
	put_text(&page.writer, "sandbox_id", sandbox->text);
	put_array(&page.writer, "items");
	if (activity_each(call->core, query, activity_page_entry, &page, &error) < 0) {
		buffer_done(&buffer);
		reply_error(call, &error);
		return;
	}
	put_array_end(&page.writer);
	activity_cursor_print(page.last, cursor);
	put_text(&page.writer, "next_cursor", page.more ? cursor : NULL);
	put_object_end(&page.writer);
	reply_json(call, 200, &page.writer);
}

void activity_get(struct call *call)
{
	struct core *core = call->core;
	struct activity_query query = {0};
	struct sandbox_row row = {0};
	struct error error;
	char kinds[ACTIVITY_KIND_LIST_MAX];
	if (sandbox_find_row(core, &call->principal, call->parameters[0], &row, &error) < 0 ||
	    read_query(call, &query, kinds, &error) < 0) {
		sandbox_row_done(&row);
		reply_error(call, &error);
		return;
	}
	struct id sandbox = row.id;
	sandbox_row_done(&row);
	query.sandbox = &sandbox;
	activity_flush(core);
	reply_page(call, &sandbox, &query);
}

const struct route activity_routes[] = {
    {"GET", SB "/activity", READ, 0, activity_get, "limit,cursor,order,kind,since,until", 0},
    {"GET", SB "/events", READ, 0, sandbox_events_get, "tail,follow", 0},
    {"GET", "/v1/events", READ, 0, events_get, "after,follow,kind,sandbox,limit", 0},
    {"GET", SB "/execs/{exec}/receipt", READ, 0, receipt_get, NULL, 0},
    {"GET", "/v1/receipts/key", READ, 0, receipt_key_get, NULL, 0},
    {0},
};
