/* GET /v1/sandboxes/{sandbox}/metrics and /v1/metrics: the use of one sandbox, or of all in a
 * workspace. Neither wakes a sandbox nor counts as activity; a sandbox that does not run answers
 * with its last reading. Always one request to the spawner; nothing blocks. */
#include "api/routes.h"

#include <stdlib.h>

#include "base/clock.h"
#include "core/counters.h"

static void put_counter(struct json_writer *writer, const char *key, bool known, uint64_t value)
{
	if (known)
		put_uint(writer, key, value);
	else
		put_null(writer, key);
}

static void put_share(struct json_writer *writer, const char *key, bool known, double value)
{
	if (known)
		put_number(writer, key, value);
	else
		put_null(writer, key);
}

/* The members that samples and the newest reading have in common. */
static void put_counters(struct json_writer *writer, const struct sandbox *sandbox,
			 const struct spawn_counters *counters, double percent)
{
	const uint8_t *known = counters->known;
	const struct limits *limits = &sandbox->row.limits;
	put_share(writer, "cpu_seconds", known[KNOWN_CPU], (double)counters->cpu_ns / NSEC_PER_SEC);
	put_share(writer, "cpu_percent", percent >= 0, percent);
	put_share(writer, "cpu_percent_of_limit", percent >= 0 && limits->cpu_millis,
		  limits->cpu_millis ? percent * 1000 / limits->cpu_millis : 0);
	put_counter(writer, "memory_bytes", known[KNOWN_MEMORY], counters->memory);
	put_counter(writer, "processes", known[KNOWN_PROCESSES], counters->processes);
	put_counter(writer, "disk_bytes", known[KNOWN_DISK], counters->disk);
}

static void put_metrics(struct json_writer *writer, const struct sandbox *sandbox)
{
	const struct spawn_counters *counters = &sandbox->counters;
	const uint8_t *known = counters->known;
	const struct sandbox_row *row = &sandbox->row;
	double percent =
	    state_facts(sandbox->row.state)->lives ? counters_cpu_percent(sandbox) : -1;
	bool alive = state_facts(sandbox->row.state)->lives && row->started_wall != 0;
	put_text(writer, "id", row->id.text);
	put_text(writer, "name", row->name);
	put_text(writer, "status", sandbox_state_name((enum sandbox_state)row->state));
	put_time(writer, "sampled_at", counters_seen(sandbox));
	put_share(writer, "uptime_seconds", alive,
		  (double)MAX(clock_wall() - row->started_wall, 0) / NSEC_PER_SEC);
	put_counters(writer, sandbox, counters, percent);
	put_number(writer, "cpu_limit", row->limits.cpu_millis / 1000.0);
	put_counter(writer, "memory_peak_bytes", known[KNOWN_PEAK], counters->memory_peak);
	put_uint(writer, "memory_limit_bytes", row->limits.memory);
	put_counter(writer, "oom_kills", known[KNOWN_OOM], counters->oom_kills);
	put_uint(writer, "processes_limit", row->limits.pids);
	put_counter(writer, "disk_inodes", known[KNOWN_DISK], counters->disk_inodes);
	put_uint(writer, "disk_limit_bytes", row->limits.disk);
	put_text(writer, "network", network_name(row->network));
	put_uint(writer, "network_rx_bytes", 0);
	put_uint(writer, "network_tx_bytes", 0);
	/* Names that clients of other runtimes look for. */
	put_share(writer, "host_cpu_percent", percent >= 0, percent);
	put_counter(writer, "host_rss_bytes", known[KNOWN_MEMORY], counters->memory);
}

/* --- of one --- */

struct metrics_query {
	uint64_t samples, interval_ms;
};

static void put_samples(struct json_writer *writer, const struct sandbox *sandbox,
			const struct metrics_query *query)
{
	const struct sample *sample;
	int64_t before = INT64_MAX, interval = (int64_t)(query->interval_ms - 500) * NSEC_PER_MSEC;
	uint64_t count = 0;
	put_array(writer, "samples");
	for (size_t back = 0; count < query->samples && (sample = counters_sample(sandbox, back));
	     back++) {
		if (before != INT64_MAX && before - sample->boot < interval)
			continue;
		before = sample->boot;
		count++;
		put_object(writer, NULL);
		put_time(writer, "at", sample->wall);
		put_counters(writer, sandbox, &sample->counters, sample->cpu_percent);
		put_object_end(writer);
	}
	put_array_end(writer);
}

static void metrics_reply(struct call *call, const struct sandbox *sandbox)
{
	const struct metrics_query *query = call->state;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_metrics(&writer, sandbox);
	if (query->samples > 0)
		put_samples(&writer, sandbox, query);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

/* The sandbox may have stopped or ended since: that is no error. */
static void sandbox_counters_refreshed(void *data, const struct error *error)
{
	struct call *call = data;
	bool broken = error && error->kind != ERROR_SANDBOX_STATE &&
		      error->kind != ERROR_SANDBOX_NOT_FOUND && error->kind != ERROR_CONFLICT;
	if (broken) {
		reply_error(call, error);
	} else if (call->exchange) {
		struct sandbox *sandbox = call_sandbox(call);
		if (sandbox)
			metrics_reply(call, sandbox);
	}
	call_release(call);
}

static const struct field metrics_query[] = {
    {"samples", FIELD_UINT_AT(struct metrics_query, samples), .min = 1, .max = SAMPLES_MAX},
    {"interval_ms", FIELD_UINT_AT(struct metrics_query, interval_ms), .min = SAMPLE_INTERVAL_MS,
     .max = (uint64_t)SAMPLES_MAX * SAMPLE_INTERVAL_MS, .fallback = SAMPLE_INTERVAL_MS},
    {0},
};

static void sandbox_metrics_get(struct call *call)
{
	struct error error;
	struct metrics_query *query = calloc(1, sizeof(*query));
	if (!query)
		abort();
	call->state = query;
	call->state_free = free;
	if (call_query(call, query, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (!state_facts(sandbox->row.state)->lives) {
		metrics_reply(call, sandbox);
		return;
	}
	call_hold(call);
	if (sandbox_refresh_counters(sandbox, sandbox_counters_refreshed, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

/* --- of all --- */

static void all_counters_refreshed(void *data, const struct error *error)
{
	struct call *call = data;
	if (error) {
		reply_error(call, error);
	} else if (call->exchange) {
		const struct sandbox *sandbox = NULL;
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		uint64_t count = 0;
		put_object(&writer, NULL);
		put_array(&writer, "items");
		while ((sandbox = sandbox_next(call->core, &call->principal, sandbox))) {
			count++;
			put_object(&writer, NULL);
			put_metrics(&writer, sandbox);
			put_object_end(&writer);
		}
		put_array_end(&writer);
		put_uint(&writer, "count", count);
		put_object_end(&writer);
		reply_json(call, 200, &writer);
	}
	call_release(call);
}

static void metrics_get(struct call *call)
{
	struct error error;
	call_hold(call);
	if (counters_refresh_all(call->core, all_counters_refreshed, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

const struct route metrics_routes[] = {
    {"GET", SB "/metrics", READ, ROUTE_SANDBOX, sandbox_metrics_get, metrics_query},
    {"GET", "/v1/metrics", READ, 0, metrics_get},
    {0},
};
