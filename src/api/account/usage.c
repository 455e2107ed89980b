/* GET /v1/usage: the use of sandboxes and workspaces, summed over whole hours (UTC). The running
 * hour is counted first, so that the answer is up to date; then it is one query of the store. */
#include "store/usage.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/routes.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/account/meter.h"

#define USAGE_LIMIT_DEFAULT 100
#define USAGE_LIMIT_MAX 1000

#define ROWS_PER_TURN 100

struct usage_ask {
	enum usage_by by;
	char workspace[WORKSPACE_MAX + 1]; /* "": all */
	int64_t from_hour, to_hour;
	uint64_t limit;
	int64_t from, to; /* of the query, as these are */
	const char *by_name, *name, *cursor;
	/* The answer that is being written. */
	struct usage_walk walk;
	struct buffer buffer;
	struct json_writer writer;
	uint64_t count;
	char last[WORKSPACE_MAX + 1];
	bool more;
};

static const struct field usage_query[] = {
    {"from", FIELD_TIME_AT(struct usage_ask, from), .max = 39},
    {"to", FIELD_TIME_AT(struct usage_ask, to), .max = 39},
    {"workspace", FIELD_TEXT_AT(struct usage_ask, name), .max = CALL_PARAMETER_MAX - 1},
    {"by", FIELD_TEXT_AT(struct usage_ask, by_name), .min = 1, .max = 15,
     .words = "sandbox,workspace", .fallback_text = "sandbox"},
    {"cursor", FIELD_TEXT_AT(struct usage_ask, cursor), .max = WORKSPACE_MAX},
    {"limit", FIELD_UINT_AT(struct usage_ask, limit), .min = 1, .max = USAGE_LIMIT_MAX,
     .fallback = USAGE_LIMIT_DEFAULT},
    {0},
};

static int parse_range(struct usage_ask *ask, struct error *error)
{
	int64_t now = clock_wall() / NSEC_PER_SEC;
	/* The default is this month. */
	time_t when = (time_t)now;
	struct tm month;
	gmtime_r(&when, &month);
	month.tm_mday = 1;
	month.tm_hour = month.tm_min = month.tm_sec = 0;
	ask->from_hour = (int64_t)timegm(&month) / 3600;
	ask->to_hour = now / 3600 + 1;
	if (ask->from)
		ask->from_hour = ask->from / NSEC_PER_HOUR;
	if (ask->to)
		ask->to_hour = (ask->to + NSEC_PER_HOUR - 1) / NSEC_PER_HOUR;
	if (ask->from_hour > ask->to_hour)
		return error_set(error, ERROR_INVALID, "query parameter `from` is after `to`");
	return 0;
}

/* The caller's own workspace; admin may name another, or `*` for all. */
static int parse_workspace(struct call *call, struct usage_ask *ask, struct error *error)
{
	const char *name = ask->name;
	if (text_copy(ask->workspace, sizeof(ask->workspace), call->principal.workspace) < 0)
		return -1;
	if (!name || strcmp(name, ask->workspace) == 0)
		return 0;
	if (token_admit(&call->principal, SCOPE_ADMIN, false, error) < 0)
		return error_prepend(error, "another workspace's usage");
	if (strcmp(name, "*") == 0) {
		ask->workspace[0] = '\0';
		return 0;
	}
	if (workspace_check(name, error) < 0)
		return error_prepend(error, "query parameter `workspace`");
	return text_copy(ask->workspace, sizeof(ask->workspace), name);
}

static int usage_parse(struct call *call, struct usage_ask *ask, struct error *error)
{
	if (call_query(call, ask, error) < 0 || parse_range(ask, error) < 0 ||
	    parse_workspace(call, ask, error) < 0)
		return -1;
	ask->by = strcmp(ask->by_name, "workspace") == 0 ? USAGE_BY_WORKSPACE : USAGE_BY_SANDBOX;
	return 0;
}

static void put_sums(struct json_writer *writer, const struct usage_row *row)
{
	put_number(writer, "alive_seconds", (double)row->alive_ns / 1e9);
	put_number(writer, "paused_seconds", (double)row->paused_ns / 1e9);
	put_number(writer, "cpu_seconds", (double)row->cpu_ns / 1e9);
	put_uint(writer, "memory_byte_seconds", row->memory_byte_seconds);
	put_uint(writer, "disk_byte_seconds", row->disk_byte_seconds);
	put_number(writer, "snapshot_byte_hours", (double)row->snapshot_byte_seconds / 3600);
	put_uint(writer, "execs", row->execs);
}

static bool usage_put_row(void *data, const struct usage_row *row)
{
	struct usage_ask *ask = data;
	if (ask->count == ask->limit) {
		ask->more = true;
		return false;
	}
	ask->count++;
	bool sandbox = ask->by == USAGE_BY_SANDBOX;
	(void)!text_copy(ask->last, sizeof(ask->last),
			 sandbox ? row->sandbox.text : row->workspace);
	put_object(&ask->writer, NULL);
	if (sandbox) {
		put_text(&ask->writer, "sandbox", row->sandbox.text);
		put_text(&ask->writer, "name", row->name);
	}
	put_text(&ask->writer, "workspace", row->workspace);
	put_sums(&ask->writer, row);
	put_object_end(&ask->writer);
	return true;
}

static void usage_walk_on(struct call *call)
{
	struct usage_ask *ask = call->state;
	struct error error;
	bool more;
	if (meter_walk(call->core, &ask->walk, ROWS_PER_TURN, usage_put_row, ask, &more, &error) <
	    0) {
		reply_error(call, &error);
		return;
	}
	if (more) {
		call_next_turn(call, usage_walk_on);
		return;
	}
	put_array_end(&ask->writer);
	put_text(&ask->writer, "next_cursor", ask->more ? ask->last : NULL);
	put_object_end(&ask->writer);
	reply_json(call, 200, &ask->writer);
}

static void usage_begin(struct call *call)
{
	struct usage_ask *ask = call->state;
	ask->buffer = BUFFER(REPLY_MAX);
	ask->writer = json_writer_on(&ask->buffer);
	ask->walk = (struct usage_walk){.by = ask->by,
					.workspace = ask->workspace[0] ? ask->workspace : NULL,
					.from_hour = ask->from_hour,
					.to_hour = ask->to_hour,
					.at_hour = ask->cursor ? INT64_MAX : INT64_MIN};
	snprintf(ask->walk.at, sizeof(ask->walk.at), "%s", ask->cursor ? ask->cursor : "");
	put_object(&ask->writer, NULL);
	put_time(&ask->writer, "from", ask->from_hour * NSEC_PER_HOUR);
	put_time(&ask->writer, "to", ask->to_hour * NSEC_PER_HOUR);
	put_array(&ask->writer, "items");
	usage_walk_on(call);
}

static void usage_ask_free(void *state)
{
	struct usage_ask *ask = state;
	buffer_done(&ask->buffer);
	free(ask);
}

static void usage_counted(void *data, const struct error *error)
{
	struct call *call = data;
	(void)error; /* the available counts are shown */
	if (call->exchange && core_running(call->core))
		usage_begin(call);
	call_release(call);
}

static void usage_get(struct call *call)
{
	struct error error;
	struct usage_ask *ask = calloc(1, sizeof(*ask));
	if (!ask)
		abort();
	call->state = ask;
	call->state_free = usage_ask_free;
	if (usage_parse(call, ask, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	call_hold(call);
	if (meter_refresh(call->core, usage_counted, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

const struct route usage_routes[] = {
    {"GET", "/v1/usage", READ, ROUTE_UNBOUND, usage_get, usage_query},
    {0},
};
