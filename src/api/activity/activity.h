/* Shared by the activity's handlers: an entry in JSON, and the parameters of its pages. */
#pragma once

#include "core/activity/activity.h"
#include "edge/call.h"

#define ACTIVITY_PAGE_DEFAULT 100
#define ACTIVITY_PAGE_MAX 1000
/* The maximum of one entry as JSON: every byte of its values may take six. */
#define ACTIVITY_ENTRY_JSON_MAX (8 * ACTIVITY_DETAILS_MAX * (ACTIVITY_VALUE_MAX + 64))

void put_activity(struct json_writer *writer, const char *key, const struct activity_row *row);
void put_details(struct json_writer *writer, const char *key, const struct activity_row *row);

/* A page of entries, written a piece per turn of the loop. */
struct activity_page {
	struct activity_query query; /* its `after` moves on */
	struct buffer buffer;
	struct json_writer writer;
	uint32_t limit, count;
	size_t pause;  /* the piece ends when the buffer has this size */
	uint64_t last; /* its end: a number, or with `by_sequence` a sequence */
	bool more;
};
/* Where a cursor starts a page; `query` says which entries, its texts are borrowed. */
void activity_page_begin(struct activity_page *page, const struct activity_query *query,
			 uint32_t limit);
/* Writes the next piece: 1 if the page is complete, 0 if it goes on, or -1. */
NODISCARD int activity_page_step(struct core *core, struct activity_page *page,
				 struct error *error);

#define ACTIVITY_KINDS_MAX 511
/* A cursor is core's to read. */
#define ACTIVITY_CURSOR_SHAPE(least)                                                               \
	"\"type\":\"integer\",\"minimum\":" least ",\"maximum\":9223372036854775807"

extern const struct field activity_query[], events_query[], sandbox_events_query[];
/* activity.c, events.c, receipts.c */
void activity_get(struct call *call);
void events_get(struct call *call);
void sandbox_events_get(struct call *call);
void receipt_get(struct call *call);
void receipt_key_get(struct call *call);
