/* OpenSandbox's tools for one sandbox: connect, kill, info, renew, metrics, health, endpoint. Each
 * finds it, calls the domain, answers; nothing blocks. No tool depends on an earlier call:
 * OpenSandbox's server has a registry, but here the id is sufficient. */
#include "mcp/dialects/opensandbox.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/counters.h"

/* The common arguments. connect_if_missing concerns the registry, which does not exist here. */
struct common_arguments {
	const char *id;
	bool connect;
};
#define FIELD_ID(common)                                                                           \
	{                                                                                          \
		"sandbox_id", FIELD_TEXT, &(common).id, true, 1                                    \
	}
#define FIELD_CONNECT(common)                                                                      \
	{                                                                                          \
		"connect_if_missing", FIELD_BOOL, &(common).connect                                \
	}

/* --- connect, info --- */

static void connect_reply(struct mcp_request *request, struct sandbox *sandbox)
{
	opensandbox_reply_info(request, sandbox);
}

void opensandbox_connect(struct mcp_request *request, const json_t *arguments)
{
	struct common_arguments common = {0};
	double timeout = 30;
	uint64_t interval;
	bool skip = false;
	const struct field_to fields[] = {
	    FIELD_ID(common),
	    {"connect_timeout_seconds", FIELD_NUMBER, &timeout},
	    {"health_check_polling_interval_ms", FIELD_UINT, &interval},
	    {"skip_health_check", FIELD_BOOL, &skip},
	};
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	pending_state(request, sizeof(struct pending_operation), NULL);
	pending_deadline(request, timeout,
			 "the sandbox was not ready within `connect_timeout_seconds`");
	target_ready(request, common.id, TARGET_NAMED | (skip ? TARGET_ASLEEP : 0), connect_reply);
}

static void info_reply(struct mcp_request *request, struct sandbox *sandbox)
{
	DONE_BUFFER struct buffer json = BUFFER(MIB);
	struct json_writer writer = json_writer_on(&json);
	opensandbox_put_info(&writer, NULL, &sandbox->row);
	dialect_reply(request, &writer);
}

void opensandbox_get_info(struct mcp_request *request, const json_t *arguments)
{
	struct common_arguments common = {0};
	const struct field_to fields[] = {FIELD_ID(common)};
	if (dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		target_ready(request, common.id, TARGET_NAMED | TARGET_ASLEEP, info_reply);
}

/* --- kill --- */

static void sandbox_killed(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	if (pending_over(request)) {
		if (error)
			mcp_fail(request, error);
		else
			dialect_reply_status(request, "killed");
	}
	mcp_release(request);
}

static void opensandbox_kill_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct error error;
	pending_state(request, sizeof(struct pending_operation), NULL);
	pending_begin(request);
	if (sandbox_delete(sandbox, &request->principal, END_REASON_USER, NULL, sandbox_killed,
			   request, &error) < 0)
		pending_refused(request, &error);
}

void opensandbox_kill(struct mcp_request *request, const json_t *arguments)
{
	struct common_arguments common = {0};
	const struct field_to fields[] = {FIELD_ID(common)};
	if (dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		target_ready(request, common.id, TARGET_NAMED | TARGET_ASLEEP,
			     opensandbox_kill_act);
}

/* --- renew --- */

struct renew {
	struct pending_operation pending;
	double seconds;
};

static void sandbox_renew(struct mcp_request *request, struct sandbox *sandbox)
{
	const struct renew *renew = request->state;
	struct error error;
	if (sandbox_set_timeout(sandbox, (uint32_t)ceil(renew->seconds), &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	DONE_BUFFER struct buffer json = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&json);
	put_object(&writer, NULL);
	put_time(&writer, "expires_at", sandbox->row.deadline_wall);
	put_object_end(&writer);
	dialect_reply(request, &writer);
}

void opensandbox_renew(struct mcp_request *request, const json_t *arguments)
{
	struct common_arguments common = {0};
	struct renew *renew = pending_state(request, sizeof(*renew), NULL);
	const struct field_to fields[] = {
	    FIELD_ID(common),
	    {"timeout_seconds", FIELD_NUMBER, &renew->seconds, true},
	};
	if (!dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	if (renew->seconds <= 0 || renew->seconds > SANDBOX_TIMEOUT_MAX) {
		content_refuse(request,
			       "field `timeout_seconds` must be more than 0 and at most %u",
			       SANDBOX_TIMEOUT_MAX);
		return;
	}
	target_ready(request, common.id, TARGET_NAMED | TARGET_ASLEEP, sandbox_renew);
}

/* --- metrics --- */

/* Percentage of its limit; without a recent reading, since its start. */
static double cpu_percentage(const struct sandbox *sandbox)
{
	double percent = counters_cpu_percent(sandbox);
	int64_t alive = clock_wall() - sandbox->row.started_wall;
	if (percent < 0 && sandbox->counters.known[KNOWN_CPU] && sandbox->row.started_wall &&
	    alive > 0)
		percent = 100.0 * (double)sandbox->counters.cpu_ns / (double)alive;
	if (sandbox->row.limits.cpu_millis)
		percent = percent * 1000 / sandbox->row.limits.cpu_millis;
	return MIN(MAX(percent, 0), 100);
}

static void opensandbox_metrics_reply(struct mcp_request *request, const struct sandbox *sandbox)
{
	const struct spawn_counters *counters = &sandbox->counters;
	DONE_BUFFER struct buffer json = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&json);
	put_object(&writer, NULL);
	put_number(&writer, "cpu_count", sandbox->row.limits.cpu_millis / 1000.0);
	put_number(&writer, "cpu_used_percentage", cpu_percentage(sandbox));
	put_number(&writer, "memory_total_in_mib", (double)sandbox->row.limits.memory / MIB);
	put_number(&writer, "memory_used_in_mib",
		   counters->known[KNOWN_MEMORY] ? (double)counters->memory / MIB : 0);
	put_int(&writer, "timestamp", clock_wall() / NSEC_PER_MSEC);
	put_object_end(&writer);
	dialect_reply(request, &writer);
}

/* A sandbox that does not run is described by its last reading. */
static void opensandbox_counters_refreshed(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	bool broken = error && error->kind != ERROR_SANDBOX_STATE &&
		      error->kind != ERROR_CONFLICT && error->kind != ERROR_SANDBOX_NOT_FOUND;
	if (pending_over(request)) {
		struct sandbox *sandbox = broken ? NULL : target_again(request);
		if (broken)
			mcp_fail(request, error);
		else if (sandbox)
			opensandbox_metrics_reply(request, sandbox);
	}
	mcp_release(request);
}

static void opensandbox_metrics_act(struct mcp_request *request, struct sandbox *sandbox)
{
	const struct state_facts *facts = state_facts(sandbox->row.state);
	struct error error;
	if (!facts->lives || facts->passing) {
		opensandbox_metrics_reply(request, sandbox);
		return;
	}
	pending_state(request, sizeof(struct pending_operation), NULL);
	pending_begin(request);
	if (sandbox_refresh_counters(sandbox, opensandbox_counters_refreshed, request, &error) < 0)
		pending_refused(request, &error);
}

void opensandbox_metrics(struct mcp_request *request, const json_t *arguments)
{
	struct common_arguments common = {0};
	const struct field_to fields[] = {FIELD_ID(common), FIELD_CONNECT(common)};
	if (dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		target_ready(request, common.id, TARGET_NAMED | TARGET_ASLEEP,
			     opensandbox_metrics_act);
}

/* --- health --- */

static void health_reply(struct mcp_request *request, bool healthy)
{
	DONE_BUFFER struct buffer json = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&json);
	put_object(&writer, NULL);
	put_text(&writer, "sandbox_id", request->sandbox.text);
	put_bool(&writer, "healthy", healthy);
	put_object_end(&writer);
	dialect_reply(request, &writer);
}

static bool entry_ignore(void *data, const struct file_entry *entry)
{
	(void)data, (void)entry;
	return true;
}

static void health_check_done(void *data, uint64_t total, bool cut, const struct error *error)
{
	struct mcp_request *request = data;
	(void)total, (void)cut;
	if (pending_over(request))
		health_reply(request, !error);
	mcp_release(request);
}

/* It is healthy if a process in it answers, whatever its state says. */
static void health_check_begin(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct file_records records = {.entry = entry_ignore,
						    .done = health_check_done};
	const struct file_place root = {.principal = &request->principal, .path = "/"};
	struct error error;
	if (!sandbox_may_exec(sandbox)) {
		health_reply(request, false);
		return;
	}
	struct pending_operation *pending = pending_state(request, sizeof(*pending), NULL);
	pending_begin(request);
	if (file_stat(sandbox, &root, true, &records, request, &pending->task, &error) < 0) {
		request->on_cancel = NULL;
		health_reply(request, false);
		mcp_release(request);
	}
}

void opensandbox_healthcheck(struct mcp_request *request, const json_t *arguments)
{
	struct common_arguments common = {0};
	const struct field_to fields[] = {FIELD_ID(common), FIELD_CONNECT(common)};
	if (dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		target_ready(request, common.id, TARGET_NAMED | TARGET_ASLEEP, health_check_begin);
}

/* --- endpoint --- */

struct endpoint {
	struct pending_operation pending;
	uint64_t port;
};

static void endpoint_refuse(struct mcp_request *request, struct sandbox *sandbox)
{
	const struct endpoint *endpoint = request->state;
	struct error error;
	error_set(&error, ERROR_UNSUPPORTED,
		  "port %llu of sandbox `%s` cannot be reached from outside: sandboxes have no "
		  "network in this version. Talk to the server inside with command_run (curl "
		  "http://127.0.0.1:%llu/)",
		  (unsigned long long)endpoint->port, sandbox->row.id.text,
		  (unsigned long long)endpoint->port);
	mcp_fail(request, &error);
}

void opensandbox_endpoint(struct mcp_request *request, const json_t *arguments)
{
	struct common_arguments common = {0};
	struct endpoint *endpoint = pending_state(request, sizeof(*endpoint), NULL);
	const struct field_to fields[] = {
	    FIELD_ID(common),
	    {"port", FIELD_UINT, &endpoint->port, true, 1, 65535},
	    FIELD_CONNECT(common),
	};
	if (dialect_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		target_ready(request, common.id, TARGET_NAMED | TARGET_ASLEEP, endpoint_refuse);
}
