/* PATCH /v1/sandboxes/{sandbox} and .../lifecycle: what can be changed of one that is there, all of
 * it or nothing. Runs on the loop; nothing blocks but the store's short calls. */
#include "edge/call.h"

#include <stdlib.h>
#include <string.h>

#include "api/sandbox/ask.h"
#include "api/sandbox/record.h"
#include "api/sandbox/sandboxes.h"
#include "base/clock.h"
#include "core/sandbox/labels.h"

struct patch {
	struct sandbox_change change;
	struct pair *metadata, *labels;
};

static void patch_done(struct patch *patch)
{
	free(patch->metadata);
	free(patch->labels);
}

/* A merge patch (RFC 7396) of strings: null removes a key. */
static int parse_merge(const char *name, const json_t *json, size_t count_max,
		       struct pair **ret_pairs, size_t *ret_count, struct error *error)
{
	size_t count = json ? json_object_size(json) : 0, at = 0;
	const char *key;
	json_t *value;
	if (count == 0)
		return 0;
	if (count > count_max)
		return error_set(error, ERROR_INVALID, "field `%s` has %zu entries; at most %zu",
				 name, count, count_max);
	struct pair *pairs = *ret_pairs = calloc(count, sizeof(*pairs));
	if (!pairs)
		abort();
	json_object_foreach((json_t *)json, key, value)
	{
		if (!json_is_string(value) && !json_is_null(value))
			return error_set(error, ERROR_INVALID,
					 "field `%s`: the value of `%.100s` must be a string, or "
					 "null to remove it",
					 name, key);
		pairs[at++] = (struct pair){key, json_string_value(value)};
	}
	*ret_count = count;
	return 0;
}

static int parse_name(const json_t *body, struct sandbox_change *change, struct error *error)
{
	const json_t *name = json_object_get(body, "name");
	if (!name)
		return 0;
	if (!json_is_null(name) && !json_is_string(name))
		return error_set(error, ERROR_INVALID,
				 "field `name` must be a string, or null for none");
	change->name_set = true;
	change->name = json_string_value(name);
	return 0;
}

struct numbers {
	uint64_t timeout, idle, ttl, auto_pause, memory_mb, pids;
	bool ttl_set, cpu_set, disk_set, persistent_set, wake_set;
	bool persistent, wake_on_read;
	double cpu;
	const char *size;
};

static int take_numbers(const struct numbers *numbers, struct sandbox_change *change,
			struct error *error)
{
	if (numbers->disk_set)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the disk of a sandbox cannot be changed after its creation; cpu, "
				 "memory and pids can");
	if (change->idle_timeout_set && numbers->ttl_set)
		return error_set(error, ERROR_INVALID,
				 "`ttl_seconds` and `idle_timeout_seconds` are the same: give one");
	if (numbers->size && parse_size(NULL, numbers->size, &change->limits, error) < 0)
		return -1;
	if (numbers->cpu_set && parse_cpu(numbers->cpu, &change->limits.cpu_millis, error) < 0)
		return -1;
	if (numbers->memory_mb)
		change->limits.memory = numbers->memory_mb * MIB;
	change->limits.pids = (uint32_t)numbers->pids;
	change->timeout_seconds = (uint32_t)numbers->timeout;
	change->idle_timeout_seconds = (uint32_t)(numbers->ttl_set ? numbers->ttl : numbers->idle);
	change->idle_timeout_set |= numbers->ttl_set;
	change->auto_pause_seconds = (uint32_t)numbers->auto_pause;
	change->options_mask = (numbers->persistent_set ? OPTION_PERSISTENT : 0u) |
			       (numbers->wake_set ? OPTION_WAKE_ON_READ : 0u);
	change->options = (numbers->persistent ? OPTION_PERSISTENT : 0u) |
			  (numbers->wake_on_read ? OPTION_WAKE_ON_READ : 0u);
	return 0;
}

static int parse(const json_t *body, struct patch *patch, struct error *error)
{
	struct sandbox_change *change = &patch->change;
	struct numbers numbers = {0};
	json_t *name = NULL, *metadata = NULL, *labels = NULL, *disk = NULL;
	struct field fields[] = {
	    {"name", FIELD_ANY, &name},
	    {"metadata", FIELD_OBJECT, &metadata},
	    {"labels", FIELD_OBJECT, &labels},
	    {"timeout_seconds", FIELD_UINT, &numbers.timeout, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &change->timeout_set},
	    {"idle_timeout_seconds", FIELD_UINT, &numbers.idle, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &change->idle_timeout_set},
	    {"ttl_seconds", FIELD_UINT, &numbers.ttl, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &numbers.ttl_set},
	    {"auto_pause_seconds", FIELD_UINT, &numbers.auto_pause, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &change->auto_pause_set},
	    {"persistent", FIELD_BOOL, &numbers.persistent, .present = &numbers.persistent_set},
	    {"wake_on_read", FIELD_BOOL, &numbers.wake_on_read, .present = &numbers.wake_set},
	    {"size", FIELD_TEXT, &numbers.size},
	    {"cpu", FIELD_NUMBER, &numbers.cpu, .present = &numbers.cpu_set},
	    {"memory_mb", FIELD_UINT, &numbers.memory_mb, false, SANDBOX_MEMORY_MIN / MIB,
	     SANDBOX_MEMORY_MAX / MIB},
	    {"pids", FIELD_UINT, &numbers.pids, false, SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX},
	    {"disk_mb", FIELD_ANY, &disk, .present = &numbers.disk_set},
	};
	if (json_fields(body, fields, ARRAY_SIZE(fields), error) < 0 ||
	    parse_name(body, change, error) < 0 || take_numbers(&numbers, change, error) < 0 ||
	    parse_merge("metadata", metadata, SANDBOX_METADATA_MAX, &patch->metadata,
			&change->metadata_count, error) < 0 ||
	    parse_merge("labels", labels, LABELS_MAX, &patch->labels, &change->label_count, error) <
		0)
		return -1;
	change->metadata = patch->metadata;
	change->labels = patch->labels;
	return 0;
}

void sandbox_patch(struct call *call)
{
	struct patch patch = {0};
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	call_hold(call);
	if (parse(call->body, &patch, &error) < 0 ||
	    sandbox_change(sandbox, &call->principal, &patch.change, reply_sandbox_done, call,
			   &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
	patch_done(&patch);
}

/* --- lifecycle: the same in another service's words --- */

static void reply_lifecycle(struct call *call, const struct sandbox *sandbox)
{
	const struct sandbox_row *row = &sandbox->row;
	int64_t now = row->paused_wall != 0 ? row->paused_wall : clock_wall();
	int64_t idle = sandbox_busy(sandbox) ? 0 : MAX(now - row->active_wall, 0) / NSEC_PER_SEC;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "id", row->id.text);
	put_text(&writer, "status", sandbox_state_name((enum sandbox_state)row->state));
	put_uint(&writer, "ttl_seconds", row->idle_timeout_seconds);
	put_bool(&writer, "persistent", row->options & OPTION_PERSISTENT);
	put_int(&writer, "idle_seconds", idle);
	put_uint(&writer, "timeout_seconds", row->timeout_seconds);
	put_uint(&writer, "auto_pause_seconds", row->auto_pause_seconds);
	put_time(&writer, "expires_at", row->deadline_wall);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

void sandbox_lifecycle_get(struct call *call)
{
	struct sandbox *sandbox = call_sandbox(call);
	if (sandbox)
		reply_lifecycle(call, sandbox);
}

static void lifecycle_changed(void *data, const struct error *error)
{
	struct call *call = data;
	if (error)
		reply_error(call, error);
	else if (call->exchange)
		sandbox_lifecycle_get(call);
	call_release(call);
}

void sandbox_lifecycle_patch(struct call *call)
{
	uint64_t ttl = 0;
	bool persistent = false, persistent_set;
	struct sandbox_change change = {0};
	struct error error;
	struct field fields[] = {
	    {"ttl_seconds", FIELD_UINT, &ttl, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &change.idle_timeout_set},
	    {"persistent", FIELD_BOOL, &persistent, .present = &persistent_set},
	};
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (json_fields(call->body, fields, ARRAY_SIZE(fields), &error) < 0) {
		reply_error(call, &error);
		return;
	}
	change.idle_timeout_seconds = (uint32_t)ttl;
	change.options_mask = persistent_set ? OPTION_PERSISTENT : 0;
	change.options = persistent ? OPTION_PERSISTENT : 0;
	call_hold(call);
	if (sandbox_change(sandbox, &call->principal, &change, lifecycle_changed, call, &error) <
	    0) {
		reply_error(call, &error);
		call_release(call);
	}
}
