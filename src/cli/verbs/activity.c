/* `caisson activity` and `caisson events`: what happened in a sandbox, and what is happening in the
 * workspace, one line each. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

#define LINE_MAX_BYTES (1024 * 1024)

static struct {
	const char *kind, *since, *until, *count;
	bool follow;
	const char *after, *sandbox;
} options;

static void activity_entry_print(const json_t *entry, bool with_sandbox)
{
	const char *key;
	json_t *value;
	if (with_sandbox)
		printf("%" PRId64 " ", member_integer(entry, "sequence"));
	printf("%s ", member_text(entry, "time"));
	if (with_sandbox)
		printf("%s ", member_text(entry, "sandbox_id"));
	printf("%-16s %s", member_text(entry, "kind"), member_text(entry, "actor"));
	if (*member_text(entry, "exec_id"))
		printf(" exec=%s", member_text(entry, "exec_id"));
	json_object_foreach(json_object_get(entry, "details"), key, value)
	{
		printf(" %s=", key);
		safe_text_print(json_string_value(value) ? json_string_value(value) : "");
	}
	printf("\n");
}

/* --- activity --- */

static const struct option_spec activity_specs[] = {
    {"kind", 0, OPTION_TEXT, &options.kind, "KINDS",
     "only these kinds, separated by commas: exec.ended, or exec for all of execs", "kind"},
    {"last", 'n', OPTION_TEXT, &options.count, "N", "only the newest N", "limit"},
    {"since", 0, OPTION_TEXT, &options.since, "TIME",
     "after this time: 10m, or 2026-11-15T08:00:00Z", "since"},
    {"until", 0, OPTION_TEXT, &options.until, "TIME", "before", "until"},
    {0},
};

static int activity_fetch_page(struct client *client, const char *sandbox, const char *cursor,
			       json_t **ret_answer, struct error *error)
{
	DONE_BUFFER struct buffer path = BUFFER(8192);
	if (sandbox_path(&path, sandbox,
			 options.count ? "/activity?order=desc" : "/activity?limit=1000",
			 error) < 0 ||
	    options_to_path(activity_specs, &path, error) < 0)
		return -1;
	if (buffer_append_parameter(&path, "cursor", cursor) < 0)
		return error_set(error, ERROR_INTERNAL, "the daemon sent an invalid cursor");
	return client_call(client, "GET", path.data, NULL, NULL, 0, ret_answer, error);
}

static int activity_run(struct client *client, int argc, char **argv, struct error *error)
{
	char cursor[32] = "";
	json_t *all = json_array();
	if (argc != 2)
		return error_set(error, ERROR_USAGE, "activity needs a sandbox");
	for (;;) {
		json_t *answer = NULL;
		if (activity_fetch_page(client, argv[1], *cursor ? cursor : NULL, &answer, error) <
		    0) {
			json_decref(all);
			return -1;
		}
		json_t *items = json_object_get(answer, "items");
		size_t count = json_array_size(items);
		for (size_t i = 0; i < count; i++) {
			/* The page has the newest entry first; it is printed oldest first. */
			json_t *entry = json_array_get(items, options.count ? count - 1 - i : i);
			if (cli_json)
				json_array_append(all, entry);
			else
				activity_entry_print(entry, false);
		}
		snprintf(cursor, sizeof(cursor), "%s", member_text(answer, "next_cursor"));
		json_decref(answer);
		if (!*cursor || options.count)
			break;
	}
	if (cli_json)
		json_print(all);
	json_decref(all);
	return 0;
}

const struct verb verb_activity = {
    .name = "activity",
    .sandboxes = true,
    .arguments = "[options] SANDBOX",
    .summary = "Print what happened in a sandbox",
    .help =
	"One line for every command, file change and step of its life, oldest first, also of a\n"
	"sandbox that has ended. Values that look like secrets are left out.\n\n"
	"  caisson activity mybox\n"
	"  caisson activity --kind exec -n 20 mybox",
    .options = activity_specs,
    .run = activity_run,
};

/* --- events --- */

static void event_entry_print(const json_t *entry)
{
	if (cli_json)
		json_line_print(stdout, entry, JSON_COMPACT);
	else
		activity_entry_print(entry, true);
}

static int event_print(const char *text, size_t size, struct error *error)
{
	json_t *entry = json_loadb(text, size, 0, NULL);
	if (!entry)
		return error_set(error, ERROR_INTERNAL,
				 "the daemon sent an event that is not JSON");
	event_entry_print(entry);
	fflush(stdout);
	json_decref(entry);
	return 0;
}

#define CURSOR_MAX 64

struct events_reading {
	bool dropped; /* the current event is `dropped` */
	bool again;
	char last[CURSOR_MAX]; /* the id of the last event */
};

static int events_take_line(struct events_reading *reading, const char *line, size_t size,
			    struct error *error)
{
	if (size >= 7 && memcmp(line, "event: ", 7) == 0)
		reading->dropped = size == 14 && memcmp(line + 7, "dropped", 7) == 0;
	if (size > 4 && size - 4 < CURSOR_MAX && memcmp(line, "id: ", 4) == 0)
		snprintf(reading->last, CURSOR_MAX, "%.*s", (int)size - 4, line + 4);
	if (size < 6 || memcmp(line, "data: ", 6) != 0)
		return 0;
	if (!reading->dropped)
		return event_print(line + 6, size - 6, error);
	reading->again = true;
	return 0;
}

/* Reads lines of the answer until it ends. */
static int events_read(struct exchange *exchange, struct events_reading *reading,
		       struct error *error)
{
	DONE_BUFFER struct buffer text = BUFFER(LINE_MAX_BYTES);
	char piece[16384];
	for (;;) {
		ssize_t got = exchange_read(exchange, piece, sizeof(piece), error);
		if (got <= 0)
			return (int)got;
		if (buffer_append(&text, piece, (size_t)got) < 0)
			return error_set(error, ERROR_INTERNAL, "an event is too long");
		char *end;
		while ((end = memchr(text.data, '\n', text.size))) {
			size_t size = (size_t)(end - text.data);
			if (events_take_line(reading, text.data, size, error) < 0)
				return -1;
			buffer_consume(&text, size + 1);
		}
	}
}

static const struct option_spec events_specs[] = {
    {"follow", 'f', OPTION_FLAG, &options.follow, NULL, "keep printing new events"},
    {"after", 0, OPTION_TEXT, &options.after, "ID",
     "events after this one (the number at the start of each line)", "after"},
    {"kind", 0, OPTION_TEXT, &options.kind, "KINDS",
     "only these kinds, separated by commas: exec.ended, or exec for all of execs", "kind"},
    {"sandbox", 0, OPTION_TEXT, &options.sandbox, "SANDBOX", "only of this sandbox", "sandbox"},
    {0},
};

static int events_path_append(struct buffer *path, struct error *error)
{
	if (buffer_append_text(path, options.follow ? "/v1/events" : "/v1/events?follow=0") < 0)
		return error_set(error, ERROR_USAGE, "an argument is too long");
	return options_to_path(events_specs, path, error);
}

static int events_follow(struct client *client, struct error *error)
{
	struct events_reading reading = {.again = true};
	int result = 0;
	while (result == 0 && reading.again) {
		DONE_BUFFER struct buffer path = BUFFER(8192);
		struct exchange *exchange = exchange_new();
		reading.again = false;
		if (*reading.last)
			options.after = reading.last;
		result = events_path_append(&path, error);
		struct request request = {.method = "GET", .path = path.data};
		if (result == 0)
			result = exchange_begin(client, &request, exchange, error);
		if (result == 0)
			result = exchange_read_head(exchange, error);
		if (result == 0)
			result = events_read(exchange, &reading, error);
		exchange_free(exchange);
	}
	return result;
}

static int events_run(struct client *client, int argc, char **argv UNUSED, struct error *error)
{
	char after[CURSOR_MAX];
	bool more = true;
	if (argc != 1)
		return error_set(error, ERROR_USAGE, "events takes no arguments");
	if (options.follow)
		return events_follow(client, error);
	while (more) {
		DONE_BUFFER struct buffer path = BUFFER(8192);
		json_t *answer = NULL, *entry;
		size_t i;
		if (events_path_append(&path, error) < 0 ||
		    client_call(client, "GET", path.data, NULL, NULL, 0, &answer, error) < 0)
			return -1;
		json_array_foreach(json_object_get(answer, "items"), i, entry)
		    event_entry_print(entry);
		more = json_is_true(json_object_get(answer, "more"));
		/* Sent back unchanged: only the daemon knows its format. */
		char *cursor = json_dumps(json_object_get(answer, "after"), JSON_ENCODE_ANY);
		snprintf(after, sizeof(after), "%s", cursor ? cursor : "");
		options.after = after;
		free(cursor);
		json_decref(answer);
	}
	return 0;
}

const struct verb verb_events = {
    .name = "events",
    .json = "each event, and errors, as one line of JSON",
    .arguments = "[options]",
    .summary = "Print what happens in all sandboxes",
    .help =
	"Prints the stored events, oldest first; with --follow only new ones, or with --after too\n"
	"all since that event.\n"
	"\n"
	"  caisson events -f --kind sandbox",
    .options = events_specs,
    .run = events_run,
};
