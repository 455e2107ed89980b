/* GET /metrics: the daemon's counters, in Prometheus' text format 0.0.4; and the counting of
 * requests, by route and not by path, so that it never contains an id, name or path. Only for
 * administrators, since it covers all workspaces together; `[server] metrics_open` opens it.
 * Answers from memory; nothing blocks. */
#include "api/prometheus.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/routes.h"
#include "base/clock.h"
#include "base/statistics.h"
#include "core/counters.h"
#include "proto/init_messages.h"

#define TEXT_MAX (8 * MIB)
#define STATUS_CLASSES 6

/* One per route, found by its address: routes never move. */
#define ROUTES_MAX 512
static struct route_count {
	const struct route *route; /* NULL: free; the first entry is for requests without a route */
	uint64_t classes[STATUS_CLASSES];
	struct histogram latency;
} route_counts[ROUTES_MAX];

static int64_t daemon_started;
static int statm = -1; /* /proc/self/statm: opened early, since /proc cannot be opened later */

void prometheus_start(void)
{
	daemon_started = clock_monotonic();
	if (statm < 0)
		statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

static struct route_count *route_count_find(const struct route *route)
{
	if (!route)
		return &route_counts[0];
	size_t at = 1 + ((uintptr_t)route / sizeof(*route)) % (ROUTES_MAX - 1);
	for (size_t tries = 0; tries < ROUTES_MAX - 1; tries++) {
		struct route_count *count = &route_counts[at];
		if (!count->route)
			count->route = route;
		if (count->route == route)
			return count;
		at = at + 1 == ROUTES_MAX ? 1 : at + 1;
	}
	return &route_counts[0];
}

void prometheus_answered(void *context UNUSED, struct http_exchange *exchange, int status)
{
	const struct call *call = http_data(exchange);
	if (!call)
		return;
	struct route_count *count = route_count_find(call->route);
	count->classes[status / 100 < STATUS_CLASSES ? status / 100 : 0]++;
	histogram_add(&count->latency, clock_monotonic() - call->began);
}

/* --- the text --- */

/* The buffer's maximum is much larger than all lines together: a line that does not fit is a defect
 * and is omitted. */
#define PUT(text, ...)                                                                             \
	do {                                                                                       \
		if (buffer_printf(text, __VA_ARGS__) < 0)                                          \
			return;                                                                    \
	} while (0)

static void put_head(struct buffer *text, const char *name, const char *type, const char *help)
{
	PUT(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_metric(struct buffer *text, const char *name, const char *type, const char *help,
		       double value)
{
	put_head(text, name, type, help);
	PUT(text, "%s %.17g\n", name, value);
}

/* labels: "" or `key="value"`. */
static void put_histogram(struct buffer *text, const char *name, const char *labels,
			  const struct histogram *histogram)
{
	const char *comma = *labels ? "," : "", *open = *labels ? "{" : "",
		   *close = *labels ? "}" : "";
	uint64_t count = 0;
	for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
		count += histogram->buckets[i];
		PUT(text, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, labels, comma,
		    histogram_bounds[i] / 1e6, (unsigned long long)count);
	}
	count += histogram->buckets[HISTOGRAM_BOUNDS];
	PUT(text, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, labels, comma,
	    (unsigned long long)count);
	PUT(text, "%s_sum%s%s%s %.6f\n", name, open, labels, close, (double)histogram->sum / 1e6);
	PUT(text, "%s_count%s%s%s %llu\n", name, open, labels, close, (unsigned long long)count);
}

static void put_count(struct buffer *text, const char *name, const char *label, const char *value,
		      uint64_t count)
{
	PUT(text, "%s{%s=\"%s\"} %llu\n", name, label, value, (unsigned long long)count);
}

static void put_sandboxes(struct buffer *text, const struct core *core)
{
	uint64_t by_state[SANDBOX_ENDED + 1] = {0};
	char label[64];
	list_each (&core->sandboxes, node) {
		const struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		if (sandbox->row.state <= SANDBOX_ENDED)
			by_state[sandbox->row.state]++;
	}
	put_head(text, "caisson_sandboxes", "gauge", "Sandboxes there are, by state.");
	for (int state = SANDBOX_CREATING; state < SANDBOX_ENDED; state++)
		put_count(text, "caisson_sandboxes", "state",
			  sandbox_state_name((enum sandbox_state)state), by_state[state]);
	put_head(text, "caisson_sandbox_create_seconds", "histogram",
		 "From a create's admission to a sandbox that is ready, by how it came to be.");
	for (uint32_t origin = 0; origin < ORIGIN_COUNT; origin++) {
		snprintf(label, sizeof(label), "boot_mode=\"%s\"",
			 create_origin_facts(origin)->name);
		put_histogram(text, "caisson_sandbox_create_seconds", label,
			      &statistics.creates[origin]);
	}
	put_metric(text, "caisson_sandbox_creates_failed_total", "counter",
		   "Creates that were begun and came to nothing.",
		   (double)statistics.creates_failed);
	put_head(text, "caisson_sandbox_ends_total", "counter", "Sandboxes that ended, by why.");
	for (int reason = END_REASON_USER; reason <= END_REASON_ERROR; reason++)
		if (end_reason_name((enum end_reason)reason)[0] && reason != 4)
			put_count(text, "caisson_sandbox_ends_total", "reason",
				  end_reason_name((enum end_reason)reason),
				  statistics.ends[reason]);
	put_metric(text, "caisson_sandbox_pauses_total", "counter", "Sandboxes that were paused.",
		   (double)statistics.pauses);
	put_metric(text, "caisson_sandbox_resumes_total", "counter", "Sandboxes that were resumed.",
		   (double)statistics.resumes);
	put_metric(text, "caisson_sandbox_reclaimed_bytes_total", "counter",
		   "Memory that pauses gave back to the host.", (double)statistics.reclaimed_bytes);
	put_head(text, "caisson_pool_sandboxes", "gauge",
		 "Sandboxes that are ready before anybody asks, and that are being made.");
	put_count(text, "caisson_pool_sandboxes", "state", "ready", statistics.pool_ready);
	put_count(text, "caisson_pool_sandboxes", "state", "making", statistics.pool_making);
}

static void put_execs(struct buffer *text)
{
	put_head(text, "caisson_exec_seconds", "histogram", "How long commands ran.");
	put_histogram(text, "caisson_exec_seconds", "", &statistics.execs);
	put_head(text, "caisson_execs_total", "counter", "Commands that ended, by how.");
	for (uint32_t end = 0; end < EXEC_ENDS; end++)
		put_count(text, "caisson_execs_total", "end", exec_end_facts(end)->name,
			  statistics.exec_ends[end]);
	put_count(text, "caisson_execs_total", "end", "not_started", statistics.execs_failed);
}

static void put_requests(struct buffer *text, const struct edge *edge)
{
	static const char *const classes[STATUS_CLASSES] = {"other", "1xx", "2xx",
							    "3xx",   "4xx", "5xx"};
	char label[256];
	put_head(text, "caisson_http_requests_total", "counter",
		 "Requests answered, by route and class of status.");
	for (size_t i = 0; i < ROUTES_MAX; i++) {
		const struct route_count *count = &route_counts[i];
		const struct route *route = count->route;
		for (size_t class = 0; class < STATUS_CLASSES; class ++)
			if (count->classes[class])
				PUT(text,
				    "caisson_http_requests_total{method=\"%s\",route=\"%s\","
				    "status=\"%s\"} %llu\n",
				    route ? route->method : "", route ? route->pattern : "none",
				    classes[class], (unsigned long long)count->classes[class]);
	}
	put_head(text, "caisson_http_request_seconds", "histogram",
		 "From a request's head to the head of its answer, by route.");
	for (size_t i = 0; i < ROUTES_MAX; i++) {
		const struct route *route = route_counts[i].route;
		if (histogram_count(&route_counts[i].latency) == 0)
			continue;
		snprintf(label, sizeof(label), "method=\"%s\",route=\"%s\"",
			 route ? route->method : "", route ? route->pattern : "none");
		put_histogram(text, "caisson_http_request_seconds", label,
			      &route_counts[i].latency);
	}
	put_head(text, "caisson_http_errors_total", "counter", "Errors answered, by code.");
	for (int kind = 1; kind < ERROR_KIND_COUNT; kind++)
		if (statistics.errors[kind])
			put_count(text, "caisson_http_errors_total", "code",
				  error_info((enum error_kind)kind)->code, statistics.errors[kind]);
	put_metric(text, "caisson_budget_refusals_total", "counter",
		   "Requests refused for a budget, a full queue or the host's capacity.",
		   (double)(statistics.errors[ERROR_QUOTA_EXCEEDED] +
			    statistics.errors[ERROR_QUEUE_FULL] +
			    statistics.errors[ERROR_HOST_CAPACITY]));
	put_metric(text, "caisson_http_connections", "gauge", "Connections that are open.",
		   edge->server ? (double)http_server_connections(edge->server) : 0);
	put_metric(text, "caisson_http_event_streams", "gauge",
		   "Streams of server-sent events that are open.", (double)statistics.streams);
}

static double resident_bytes(void)
{
	char line[128];
	unsigned long size, resident;
	ssize_t got = statm < 0 ? -1 : pread(statm, line, sizeof(line) - 1, 0);
	if (got <= 0)
		return 0;
	line[got] = '\0';
	if (sscanf(line, "%lu %lu", &size, &resident) != 2)
		return 0;
	return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void put_process(struct buffer *text)
{
	struct rusage usage;
	put_head(text, "caisson_store_write_seconds", "histogram",
		 "How long the store took to write.");
	put_histogram(text, "caisson_store_write_seconds", "", &statistics.store_writes);
	put_metric(text, "caisson_store_failures_total", "counter", "Writes that did not work.",
		   (double)statistics.store_failures);
	put_head(text, "caisson_loop_turn_seconds", "histogram",
		 "How long the daemon's loop was busy before it looked at everybody again.");
	put_histogram(text, "caisson_loop_turn_seconds", "", &statistics.loop_turns);
	put_metric(text, "caisson_loop_longest_turn_seconds", "gauge",
		   "The longest of them since the start.", (double)statistics.loop_longest / 1e9);
	put_metric(text, "process_resident_memory_bytes", "gauge", "Resident memory of the daemon.",
		   resident_bytes());
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		put_metric(text, "process_cpu_seconds_total", "counter", "Cpu time of the daemon.",
			   (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
	put_metric(text, "caisson_uptime_seconds", "gauge", "How long this daemon has run.",
		   (double)(clock_monotonic() - daemon_started) / 1e9);
	put_head(text, "caisson_build_info", "gauge", "Which version it is; always 1.");
	PUT(text, "caisson_build_info{version=\"%s\"} 1\n", CAISSON_VERSION);
}

static void prometheus_get(struct call *call)
{
	DONE_BUFFER struct buffer text = BUFFER(TEXT_MAX);
	put_sandboxes(&text, call->core);
	put_execs(&text);
	put_requests(&text, call->edge);
	put_process(&text);
	http_respond(call->exchange, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0,
		     text.data, text.size);
	call_answered(call);
}

const struct route prometheus_routes[] = {
    {"GET", "/metrics", ADMIN, ROUTE_METRICS, prometheus_get},
    {0},
};
