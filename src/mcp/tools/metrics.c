/* The toolset `metrics`: the present use of sandboxes, their past use, their activity. Called by
 * tools.c. None of it wakes a sandbox or counts as activity. Counters come from the spawner, sums
 * and entries from the store, a bounded batch of rows in each turn of the loop. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/activity/activity.h"
#include "core/counters.h"
#include "core/account/meter.h"
#include "core/account/access.h"
#include "mcp/alarm.h"
#include "mcp/tools/output.h"
#include "mcp/tools/admin.h"

#define ANSWER_MAX (16 * KIB)
/* Room for the note at the end. */
#define ANSWER_NOTE 256

/* --- get_metrics --- */

static void counters_say(const struct sandbox *sandbox, struct buffer *to)
{
	const struct spawn_counters *counters = &sandbox->counters;
	const struct limits *limits = &sandbox->row.limits;
	const uint8_t *known = counters->known;
	double percent = state_facts(sandbox->row.state)->runs ? counters_cpu_percent(sandbox) : -1;
	const char *name = sandbox->row.name;
	(void)!buffer_printf(to, "%s%s%s%s: %s", sandbox->row.id.text, name ? " (" : "",
			     name ? name : "", name ? ")" : "",
			     sandbox_state_name((enum sandbox_state)sandbox->row.state));
	if (percent >= 0)
		(void)!buffer_printf(to, ", cpu %.0f%% of %g", percent,
				     limits->cpu_millis / 1000.0);
	if (known[KNOWN_CPU])
		(void)!buffer_printf(to, ", cpu time %.1f s",
				     (double)counters->cpu_ns / NSEC_PER_SEC);
	if (known[KNOWN_MEMORY])
		(void)!buffer_printf(to, ", memory %llu of %llu MiB",
				     (unsigned long long)(counters->memory / MIB),
				     (unsigned long long)(limits->memory / MIB));
	if (known[KNOWN_PEAK])
		(void)!buffer_printf(to, " (peak %llu)",
				     (unsigned long long)(counters->memory_peak / MIB));
	if (known[KNOWN_DISK])
		(void)!buffer_printf(to, ", disk %llu of %llu MiB",
				     (unsigned long long)(counters->disk / MIB),
				     (unsigned long long)(limits->disk / MIB));
	if (known[KNOWN_PROCESSES])
		(void)!buffer_printf(to, ", %llu of %u processes",
				     (unsigned long long)counters->processes, limits->pids);
	if (known[KNOWN_OOM] && counters->oom_kills > 0)
		(void)!buffer_printf(to, ", out of memory %llu times",
				     (unsigned long long)counters->oom_kills);
	(void)!buffer_append_text(to, "\n");
}

static void metrics_reply_text(struct mcp_request *request)
{
	struct buffer text DONE_BUFFER = BUFFER(ANSWER_MAX), line DONE_BUFFER = BUFFER(KIB);
	struct sandbox *sandbox = NULL;
	size_t left_out = 0;
	if (id_is_set(&request->sandbox)) {
		sandbox = target_again(request);
		if (!sandbox)
			return;
		counters_say(sandbox, &text);
		content_reply(request, "%s", buffer_text(&text));
		return;
	}
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox))) {
		buffer_clear(&line);
		counters_say(sandbox, &line);
		if (text.size + line.size > ANSWER_MAX - ANSWER_NOTE ||
		    buffer_append(&text, line.data, line.size) < 0)
			left_out++;
	}
	if (text.size == 0)
		(void)!buffer_append_text(&text, "No sandbox is live.");
	if (left_out > 0)
		(void)!buffer_printf(&text, "... and %zu more; ask by sandbox_id", left_out);
	content_reply(request, "%s", buffer_text(&text));
}

/* Unknown values, of a sandbox that has stopped meanwhile, are omitted. */
static void metrics_counters_refreshed(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	(void)error;
	if (!tool_back(request))
		return;
	metrics_reply_text(request);
	mcp_release(request);
}

static void counters_refresh(struct mcp_request *request)
{
	struct error error;
	if (counters_refresh_all(request->core, metrics_counters_refreshed, request, &error) < 0)
		mcp_fail(request, &error);
	else
		tool_wait(request, NULL);
}

static void get_metrics_act(struct mcp_request *request, struct sandbox *sandbox)
{
	(void)sandbox;
	counters_refresh(request);
}

const struct field tool_sandbox_fields[] = {
    {"sandbox_id", FIELD_TEXT_AT(struct tool_sandbox, sandbox)},
    {0},
};

static void get_metrics(struct mcp_request *request, const json_t *arguments)
{
	struct tool_sandbox given = {0};
	if (!tool_arguments(request, arguments, &given))
		return;
	if (given.sandbox && given.sandbox[0])
		target_ready(request, given.sandbox, TARGET_ASLEEP, get_metrics_act);
	else
		counters_refresh(request);
}

/* --- get_usage --- */

#define USAGE_DAYS_DEFAULT 30
#define USAGE_DAYS_MAX 3660
#define USAGE_ROWS_PER_TURN 500
#define USAGE_SHOWN 100

struct usage {
	uint64_t days;
	struct usage_walk walk;
	struct buffer text;
	struct usage_row sum;
	size_t count;
	struct alarm *alarm;
};

static void usage_free(void *state)
{
	struct usage *usage = state;
	alarm_stop(&usage->alarm);
	buffer_done(&usage->text);
	free(usage);
}

static void usage_say(const struct usage_row *row, struct buffer *to)
{
	(void)!buffer_printf(
	    to,
	    "alive %.0f s, paused %.0f s, cpu %.1f s, memory %.1f GiB s, disk "
	    "%.1f GiB s, %llu commands",
	    (double)row->alive_ns / 1e9, (double)row->paused_ns / 1e9, (double)row->cpu_ns / 1e9,
	    (double)row->memory_byte_seconds / (double)GIB,
	    (double)row->disk_byte_seconds / (double)GIB, (unsigned long long)row->execs);
}

static bool usage_of_one(void *data, const struct usage_row *row)
{
	struct usage *usage = data;
	struct usage_row *sum = &usage->sum;
	sum->alive_ns += row->alive_ns;
	sum->paused_ns += row->paused_ns;
	sum->cpu_ns += row->cpu_ns;
	sum->memory_byte_seconds += row->memory_byte_seconds;
	sum->disk_byte_seconds += row->disk_byte_seconds;
	sum->execs += row->execs;
	if (usage->count++ >= USAGE_SHOWN || usage->text.size > ANSWER_MAX - 4 * ANSWER_NOTE)
		return true;
	if (usage->walk.by == USAGE_BY_WORKSPACE)
		(void)!buffer_printf(&usage->text, "workspace %s: ", row->workspace);
	else
		(void)!buffer_printf(&usage->text, "%s%s%s%s: ", row->sandbox.text,
				     row->name ? " (" : "", row->name ? row->name : "",
				     row->name ? ")" : "");
	usage_say(row, &usage->text);
	(void)!buffer_append_text(&usage->text, "\n");
	return true;
}

static void usage_tool_walk_on(void *data);

static void usage_cancelled(struct mcp_request *request)
{
	struct usage *usage = request->state;
	alarm_stop(&usage->alarm);
	mcp_release(request);
}

static void usage_step(struct mcp_request *request)
{
	struct usage *usage = request->state;
	struct error error;
	bool more;
	if (meter_walk(request->core, &usage->walk, USAGE_ROWS_PER_TURN, usage_of_one, usage, &more,
		       &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	if (more) {
		/* Other work is done in between. */
		usage->alarm = alarm_after(request->core->loop, 1, usage_tool_walk_on, request);
		tool_wait(request, usage_cancelled);
		return;
	}
	(void)!buffer_printf(&usage->text, "%zu %s in %llu days: ", usage->count,
			     usage->walk.by == USAGE_BY_WORKSPACE ? "workspaces" : "sandboxes",
			     (unsigned long long)usage->days);
	usage_say(&usage->sum, &usage->text);
	content_reply(request, "%s", buffer_text(&usage->text));
}

static void usage_tool_walk_on(void *data)
{
	struct mcp_request *request = data;
	struct usage *usage = request->state;
	alarm_stop(&usage->alarm);
	if (!tool_back(request))
		return;
	usage_step(request);
	mcp_release(request);
}

static void usage_tool_counted(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	(void)error; /* the available counters are shown */
	if (!tool_back(request))
		return;
	usage_step(request);
	mcp_release(request);
}

const struct field usage_fields[] = {
    {"days", FIELD_UINT_AT(struct usage, days), .min = 1, .max = USAGE_DAYS_MAX,
     .fallback = USAGE_DAYS_DEFAULT},
    {0},
};

void usage_tool(struct mcp_request *request, const json_t *arguments, enum usage_by by)
{
	struct error error;
	struct usage *usage = calloc(1, sizeof(*usage));
	if (!usage)
		abort();
	request->state = usage;
	request->state_free = usage_free;
	usage->text = BUFFER(ANSWER_MAX);
	if (!tool_arguments(request, arguments, usage))
		return;
	int64_t hour = clock_wall() / NSEC_PER_SEC / 3600;
	usage->walk = (struct usage_walk){
	    .by = by,
	    .workspace = by == USAGE_BY_SANDBOX ? request->principal.workspace : NULL,
	    .from_hour = hour - (int64_t)usage->days * 24,
	    .to_hour = hour + 1,
	    .at_hour = INT64_MIN};
	if (meter_refresh(request->core, usage_tool_counted, request, &error) < 0)
		mcp_fail(request, &error);
	else
		tool_wait(request, NULL);
}

static void get_usage(struct mcp_request *request, const json_t *arguments)
{
	usage_tool(request, arguments, USAGE_BY_SANDBOX);
}

/* --- get_activity --- */

#define ACTIVITY_DEFAULT 50
#define ACTIVITY_MAX 200

struct activity {
	struct mcp_request *request;
	const char *sandbox, *kinds;
	uint64_t limit; /* what is left of it */
	char kind_list[ACTIVITY_KIND_LIST_MAX];
	struct id id;
	struct activity_query query;
	struct buffer text;
	struct tool_turn turn;
};

static void activity_free(void *state)
{
	struct activity *activity = state;
	tool_turn_cancel(&activity->turn);
	buffer_done(&activity->text);
	free(activity);
}

static bool activity_say_entry(void *data, const struct activity_row *row)
{
	struct activity *activity = data;
	struct buffer *to = &activity->text;
	char when[CLOCK_TEXT_SIZE];
	const char *name = activity_kind_name(row->kind);
	clock_text(row->wall, when);
	(void)!buffer_printf(to, "%s %s by %s", when, name ? name : "?", row->actor);
	if (id_is_set(&row->exec))
		(void)!buffer_printf(to, ", job %s", row->exec.text);
	for (uint32_t at = 0; at < row->details_size;) {
		const char *key = row->details + at;
		at += (uint32_t)strlen(key) + 1;
		if (at >= row->details_size)
			break;
		const char *value = row->details + at;
		size_t size = strlen(value), shown = MIN(size, (size_t)200);
		at += (uint32_t)size + 1;
		/* Digests are only needed to verify receipts. */
		if (strstr(key, "sha256"))
			continue;
		(void)!buffer_printf(to, ", %s ", key);
		output_name(to, value, text_utf8_prefix(value, shown));
		(void)!buffer_append_text(to, shown < size ? "..." : "");
	}
	(void)!buffer_append_text(to, "\n");
	activity->limit = to->size < ANSWER_MAX - 4 * ANSWER_NOTE ? activity->limit - 1 : 0;
	return activity->limit > 0;
}

static void activity_cancelled(struct mcp_request *request)
{
	struct activity *activity = request->state;
	tool_turn_cancel(&activity->turn);
	mcp_release(request);
}

static void activity_step(struct activity *activity)
{
	struct mcp_request *request = activity->request;
	struct error error;
	bool more = false;
	activity->query.limit = (uint32_t)activity->limit;
	activity->query.ret_more = &more;
	if (activity_each_written(request->core, &activity->query, activity_say_entry, activity,
				  &error) < 0) {
		mcp_fail(request, &error);
	} else if (more && activity->limit > 0) {
		tool_wait(request, activity_cancelled);
		tool_turn_wait(request, &activity->turn);
	} else {
		content_reply(request, "sandbox %s, the newest first:\n%s", activity->id.text,
			      activity->text.size > 0 ? buffer_text(&activity->text) : "nothing");
	}
}

static void activity_turn_come(void *data)
{
	struct activity *activity = data;
	struct mcp_request *request = activity->request;
	if (!tool_back(request))
		return;
	activity_step(activity);
	mcp_release(request);
}

static void activity_begin(struct mcp_request *request, const struct id *sandbox)
{
	struct activity *activity = request->state;
	activity->request = request;
	activity->turn = (struct tool_turn){.come = activity_turn_come, .data = activity};
	activity->text = BUFFER(ANSWER_MAX);
	activity->id = *sandbox;
	activity->query = (struct activity_query){
	    .sandbox = &activity->id,
	    .descending = true,
	    .kinds = activity->kinds ? activity->kind_list : NULL,
	    .scan = ACTIVITY_SCAN,
	    .ret_seen = &activity->query.after,
	};
	activity_flush(request->core);
	activity_step(activity);
}

static void get_activity_act(struct mcp_request *request, struct sandbox *sandbox)
{
	activity_begin(request, &sandbox->row.id);
}

static const struct field get_activity_fields[] = {
    {"sandbox_id", FIELD_TEXT_AT(struct activity, sandbox)},
    {"kinds", FIELD_TEXT_AT(struct activity, kinds), .min = 1, .max = 256,
     .mcp = "like exec,file.written"},
    {"limit", FIELD_UINT_AT(struct activity, limit), .min = 1, .max = ACTIVITY_MAX,
     .fallback = ACTIVITY_DEFAULT},
    {0},
};

static void get_activity(struct mcp_request *request, const json_t *arguments)
{
	struct error error;
	struct sandbox_row row = {0};
	struct activity *activity = calloc(1, sizeof(*activity));
	if (!activity)
		abort();
	request->state = activity;
	request->state_free = activity_free;
	if (!tool_arguments(request, arguments, activity))
		return;
	if (activity->kinds && activity_kinds_parse(activity->kinds, activity->kind_list,
						    sizeof(activity->kind_list), &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	/* Also for an ended sandbox, where the activity matters most. */
	if (activity->sandbox && strlen(activity->sandbox) <= NAME_MAX_LENGTH &&
	    sandbox_find_row(request->core, &request->principal, activity->sandbox, &row, &error) ==
		0) {
		struct id id = row.id;
		sandbox_row_done(&row);
		activity_begin(request, &id);
		return;
	}
	target_ready(request, activity->sandbox, TARGET_ASLEEP, get_activity_act);
}

/* --- the table --- */

const struct mcp_tool metrics_tools[] = {
    {
	.name = "get_metrics",
	.title = "Get metrics",
	.description =
	    "What a sandbox uses now: cpu, memory, disk, processes, of how much. Without "
	    "sandbox_id of all of them. Wakes none.",
	.fields = tool_sandbox_fields,
	.example = "{\"sandbox_id\": \"build\"}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_METRICS,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = get_metrics,
    },
    {
	.name = "get_usage",
	.title = "Get usage",
	.description = "What your sandboxes have used in the last days (default 30), each and "
		       "together: time, cpu, memory, disk, commands.",
	.fields = usage_fields,
	.example = "{\"days\": 7}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_METRICS,
	.hints = TOOL_READS | TOOL_REPEATABLE | TOOL_UNBOUND,
	.call = get_usage,
    },
    {
	.name = "get_activity",
	.title = "Get activity",
	.description = "What happened in a sandbox, the newest first: commands, file changes, "
		       "pauses, its end. Also of one that has ended.",
	.fields = get_activity_fields,
	.example = "{\"sandbox_id\": \"build\", \"kinds\": \"exec\"}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_METRICS,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = get_activity,
    },
    {0},
};
