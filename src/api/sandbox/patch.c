/* PATCH /v1/sandboxes/{sandbox} and .../lifecycle: changes an existing sandbox, completely or not
 * at all. Runs on the loop; nothing blocks but the store's short calls. */
#include "edge/call.h"

#include <stdlib.h>
#include <string.h>

#include "api/sandbox/record.h"
#include "api/sandbox/sandboxes.h"
#include "base/clock.h"
#include "core/sandbox/labels.h"
#include "core/sandbox/sizes.h"
#include "edge/sandbox_fields.h"

struct patch {
	struct sandbox_change change;
	struct pair *metadata, *labels;
	json_t *name_json, *metadata_json, *labels_json, *disk;
	const char *size;
	uint32_t ttl_seconds;
	bool ttl_set, disk_set;
};

#define AT(kind, member) FIELD_##kind##_AT(struct patch, member)
#define OF(member) FIELD_GIVEN(struct patch, member)
#define MERGED "\"additionalProperties\":{\"type\":[\"string\",\"null\"]"

const struct field sandbox_patch_fields[] = {
    {"name", AT(ANY, name_json), .shape = "\"type\":[\"string\",\"null\"]," NAME_PATTERN,
     .rest = "null: none any more. Its host name inside changes with its next start."},
    {"metadata", AT(OBJECT, metadata_json),
     .shape = "\"type\":\"object\",\"maxProperties\":64," MERGED "}",
     .rest = "Merged in; null removes a key."},
    {"labels", AT(OBJECT, labels_json),
     .shape = "\"type\":\"object\",\"maxProperties\":32,\"propertyNames\":{\"pattern\":"
	      "\"^[a-zA-Z0-9._/-]{1,63}$\"}," MERGED ",\"maxLength\":63}",
     .rest = "Merged in; null removes a key."},
    {"timeout_seconds", AT(UINT, change.timeout_seconds), .max = SANDBOX_TIMEOUT_MAX,
     .given = OF(change.timeout_set),
     .rest = "From now; 0 = none. An idle time-out or persistent takes away one that is only the "
	     "default."},
    {"idle_timeout_seconds", AT(UINT, change.idle_timeout_seconds), .max = SANDBOX_TIMEOUT_MAX,
     .given = OF(change.idle_timeout_set), .rest = "0 = off."},
    {"ttl_seconds", AT(UINT, ttl_seconds), .max = SANDBOX_TIMEOUT_MAX, .given = OF(ttl_set),
     .rest = "Another name of idle_timeout_seconds."},
    {"auto_pause_seconds", AT(UINT, change.auto_pause_seconds), .max = SANDBOX_TIMEOUT_MAX,
     .given = OF(change.auto_pause_set), .rest = "0 = off."},
    {"persistent", AT(BIT, change.options), .bit = OPTION_PERSISTENT,
     .given = FIELD_GIVEN_BIT(struct patch, change.options_mask)},
    {"wake_on_read", AT(BIT, change.options), .bit = OPTION_WAKE_ON_READ,
     .given = FIELD_GIVEN_BIT(struct patch, change.options_mask)},
    {"size", AT(TEXT, size), .words = SANDBOX_SIZE_NAMES},
    {"cpu", AT(MILLI, change.limits.cpu_millis), .min = SANDBOX_CPU_MILLIS_MIN,
     .max = SANDBOX_CPU_MILLIS_MAX, .of = "vCPUs"},
    {"memory_mb", AT(UINT, change.limits.memory), .min = SANDBOX_MEMORY_MIN / MIB,
     .max = SANDBOX_MEMORY_MAX / MIB, .unit = MIB},
    {"pids", AT(UINT, change.limits.pids), .min = SANDBOX_PIDS_MIN, .max = SANDBOX_PIDS_MAX},
    {"disk_mb", AT(ANY, disk), .given = OF(disk_set), .rest = "501: the disk keeps its size."},
    {0},
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

static int parse(const json_t *body, struct patch *patch, struct error *error)
{
	struct sandbox_change *change = &patch->change;
	if (fields_parse(body, sandbox_patch_fields, FIELDS_REST, NULL, patch, error) < 0 ||
	    parse_name(body, change, error) < 0)
		return -1;
	if (patch->disk_set)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the disk of a sandbox cannot be changed after its creation; cpu, "
				 "memory and pids can");
	if (change->idle_timeout_set && patch->ttl_set)
		return error_set(error, ERROR_INVALID,
				 "`ttl_seconds` and `idle_timeout_seconds` are the same: give one");
	if (patch->ttl_set)
		change->idle_timeout_seconds = patch->ttl_seconds;
	change->idle_timeout_set |= patch->ttl_set;
	if (sandbox_size_fill(patch->size, NULL, &change->limits, error) < 0 ||
	    parse_merge("metadata", patch->metadata_json, SANDBOX_METADATA_MAX, &patch->metadata,
			&change->metadata_count, error) < 0 ||
	    parse_merge("labels", patch->labels_json, LABELS_MAX, &patch->labels,
			&change->label_count, error) < 0)
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

const struct field sandbox_lifecycle_fields[] = {
    {"ttl_seconds", FIELD_UINT_AT(struct sandbox_change, idle_timeout_seconds),
     .max = SANDBOX_TIMEOUT_MAX, .given = FIELD_GIVEN(struct sandbox_change, idle_timeout_set)},
    {"persistent", FIELD_BIT_AT(struct sandbox_change, options), .bit = OPTION_PERSISTENT,
     .given = FIELD_GIVEN_BIT(struct sandbox_change, options_mask)},
    {0},
};

void sandbox_lifecycle_patch(struct call *call)
{
	struct sandbox_change change = {0};
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (call_fields(call, &change, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	call_hold(call);
	if (sandbox_change(sandbox, &call->principal, &change, lifecycle_changed, call, &error) <
	    0) {
		reply_error(call, &error);
		call_release(call);
	}
}
