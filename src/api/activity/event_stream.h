/* Streams of events as server-sent events: every entry that is recorded goes to each stream that
 * wants it. Used by events.c. */
#pragma once

#include "api/activity/activity.h"
#include "base/list.h"
#include "edge/sse.h"

/* An entry, formatted. */
struct recent {
	struct list link;
	uint64_t sequence;
	char cursor[ACTIVITY_CURSOR_MAX]; /* its cursor */
	uint32_t kind;
	struct id sandbox;
	char *workspace;
	struct buffer event;      /* for /v1/events, as it is sent */
	struct buffer compatible; /* its JSON in PandaStack's form */
};

/* A request for events: a page, or a stream. Belongs to its call. */
struct events {
	struct list link;
	struct call *call;
	struct sse *sse;
	struct activity_page page;
	struct list found; /* struct recent: what comes before the new entries, oldest first */
	uint64_t position;
	char workspace[WORKSPACE_MAX + 1];
	struct id sandbox; /* only this sandbox, or unset */
	char kinds[ACTIVITY_KIND_LIST_MAX];
	bool compatible; /* PandaStack's form */
	bool follow;
	bool ended;     /* the sandbox has: nothing follows `found` */
	uint32_t limit; /* of a page; of `found`, what is left of it */
	const char *kind, *name, *after;
	bool blocked;
	uint32_t behind; /* entries that came while it was blocked */
};

/* A number, not a string: clients rely on it. */
void put_event_cursor(struct json_writer *writer, uint64_t place);

struct recent *recent_new(const struct activity_row *row);
void recent_free_all(struct list *found);

/* The answer is a stream that sends `first` (a list of struct recent, may be NULL) and then new
 * entries; with `last` it ends after `first`, since nothing more will come. */
void events_join(struct events *events, struct list *first, bool last);
