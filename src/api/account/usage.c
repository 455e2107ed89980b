/* GET /v1/usage: the use of sandboxes and workspaces, summed over whole hours (UTC). The running
 * hour is counted first, so that the answer is up to date; then it is one query of the store. */
#include "core/account/meter.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/routes.h"
#include "base/clock.h"
#include "base/text.h"

#define USAGE_LIMIT_DEFAULT 100
#define USAGE_LIMIT_MAX 1000

#define ROWS_PER_TURN 100

struct usage_call {
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
    {"from", FIELD_TIME_AT(struct usage_call, from), .max = 39},
    {"to", FIELD_TIME_AT(struct usage_call, to), .max = 39},
    {"workspace", FIELD_TEXT_AT(struct usage_call, name), .max = CALL_PARAMETER_MAX - 1},
    {"by", FIELD_TEXT_AT(struct usage_call, by_name), .min = 1, .max = 15,
     .words = "sandbox,workspace", .fallback_text = "sandbox"},
    {"cursor", FIELD_TEXT_AT(struct usage_call, cursor), .max = WORKSPACE_MAX},
    {"limit", FIELD_UINT_AT(struct usage_call, limit), .min = 1, .max = USAGE_LIMIT_MAX,
     .fallback = USAGE_LIMIT_DEFAULT},
    {0},
};

static int usage_parse_range(struct usage_call *usage, struct error *error)
{
	int64_t now = clock_wall() / NSEC_PER_SEC;
	/* The default is this month. */
	time_t when = (time_t)now;
	struct tm month;
	gmtime_r(&when, &month);
	month.tm_mday = 1;
	month.tm_hour = month.tm_min = month.tm_sec = 0;
	usage->from_hour = (int64_t)timegm(&month) / 3600;
	usage->to_hour = now / 3600 + 1;
	if (usage->from)
		usage->from_hour = usage->from / NSEC_PER_HOUR;
	if (usage->to)
		usage->to_hour = (usage->to + NSEC_PER_HOUR - 1) / NSEC_PER_HOUR;
	if (usage->from_hour > usage->to_hour)
		return error_set(error, ERROR_INVALID, "query parameter `from` is after `to`");
	return 0;
}

/* The caller's own workspace; admin may name another, or `*` for all. */
static int usage_parse_workspace(struct call *call, struct usage_call *usage, struct error *error)
{
	const char *name = usage->name;
	if (text_copy(usage->workspace, sizeof(usage->workspace), call->principal.workspace) < 0)
		return -1;
	if (!name || strcmp(name, usage->workspace) == 0)
		return 0;
	if (token_admit(&call->principal, SCOPE_ADMIN, false, error) < 0)
		return error_prepend(error, "another workspace's usage");
	if (strcmp(name, "*") == 0) {
		usage->workspace[0] = '\0';
		return 0;
	}
	if (workspace_check(name, error) < 0)
		return error_prepend(error, "query parameter `workspace`");
	return text_copy(usage->workspace, sizeof(usage->workspace), name);
}

static int usage_parse(struct call *call, struct usage_call *usage, struct error *error)
{
	if (call_query(call, usage, error) < 0 || usage_parse_range(usage, error) < 0 ||
	    usage_parse_workspace(call, usage, error) < 0)
		return -1;
	usage->by =
	    strcmp(usage->by_name, "workspace") == 0 ? USAGE_BY_WORKSPACE : USAGE_BY_SANDBOX;
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
	struct usage_call *usage = data;
	if (usage->count == usage->limit) {
		usage->more = true;
		return false;
	}
	usage->count++;
	bool sandbox = usage->by == USAGE_BY_SANDBOX;
	(void)!text_copy(usage->last, sizeof(usage->last),
			 sandbox ? row->sandbox.text : row->workspace);
	put_object(&usage->writer, NULL);
	if (sandbox) {
		put_text(&usage->writer, "sandbox", row->sandbox.text);
		put_text(&usage->writer, "name", row->name);
	}
	put_text(&usage->writer, "workspace", row->workspace);
	put_sums(&usage->writer, row);
	put_object_end(&usage->writer);
	return true;
}

static void usage_walk_on(struct call *call)
{
	struct usage_call *usage = call->state;
	struct error error;
	bool more;
	if (meter_walk(call->core, &usage->walk, ROWS_PER_TURN, usage_put_row, usage, &more,
		       &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (more) {
		call_next_turn(call, usage_walk_on);
		return;
	}
	put_array_end(&usage->writer);
	put_text(&usage->writer, "next_cursor", usage->more ? usage->last : NULL);
	put_object_end(&usage->writer);
	reply_json(call, 200, &usage->writer);
}

static void usage_begin(struct call *call)
{
	struct usage_call *usage = call->state;
	usage->buffer = BUFFER(REPLY_MAX);
	usage->writer = json_writer_on(&usage->buffer);
	usage->walk =
	    (struct usage_walk){.by = usage->by,
				.workspace = usage->workspace[0] ? usage->workspace : NULL,
				.from_hour = usage->from_hour,
				.to_hour = usage->to_hour,
				.at_hour = usage->cursor ? INT64_MAX : INT64_MIN};
	snprintf(usage->walk.at, sizeof(usage->walk.at), "%s", usage->cursor ? usage->cursor : "");
	put_object(&usage->writer, NULL);
	put_time(&usage->writer, "from", usage->from_hour * NSEC_PER_HOUR);
	put_time(&usage->writer, "to", usage->to_hour * NSEC_PER_HOUR);
	put_array(&usage->writer, "items");
	usage_walk_on(call);
}

static void usage_call_free(void *state)
{
	struct usage_call *usage = state;
	buffer_done(&usage->buffer);
	free(usage);
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
	struct usage_call *usage = calloc(1, sizeof(*usage));
	if (!usage)
		abort();
	call->state = usage;
	call->state_free = usage_call_free;
	if (usage_parse(call, usage, &error) < 0) {
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
