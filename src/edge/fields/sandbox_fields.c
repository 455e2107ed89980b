/* See sandbox_fields.h. Pure; nothing blocks. */
#include "edge/fields/sandbox_fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "core/sandbox/create_queue.h"
#include "core/sandbox/labels.h"
#include "core/sandbox/sizes.h"
#include "edge/json/json_pairs.h"

/* A shorter life would be over before a model has read the id. */
#define MCP_TIMEOUT_MIN 10

uint64_t sandbox_memory_mb_here(const struct config *config)
{
	return config->maximum.memory / MIB;
}

uint64_t sandbox_disk_mb_here(const struct config *config)
{
	return config->maximum.disk / MIB;
}

uint64_t sandbox_timeout_here(const struct config *config)
{
	return config->timeout_seconds_max;
}

_Static_assert(LABELS_MAX == 32 && LABEL_MAX == 63, "LABELS_SHAPE");

#define AT(kind, member) FIELD_##kind##_AT(struct sandbox_fields, member)
#define OF(member) FIELD_GIVEN(struct sandbox_fields, member)

const struct field mount_fields[] = {
    {"path", FIELD_TEXT_AT(struct mount_fields, path), FIELD_REQUIRED, 1, GUEST_PATH_MAX - 1},
    {"mode", FIELD_TEXT_AT(struct mount_fields, mode), FIELD_WORDS_TOLD, .words = "ro,rw,cow",
     .rest = "Default: ro."},
    {"host_path", FIELD_TEXT_AT(struct mount_fields, host_path), .max = GUEST_PATH_MAX - 1,
     .rest = "For people; never opened."},
    {0},
};

#define UNSUPPORTED(what) "501: there are no " what " yet. null and empty ones are taken for none."

const struct field sandbox_create_fields[] = {
    {"template", AT(TEXT, spec.template), .min = 1, .max = TEMPLATE_NAME_MAX,
     .rest = "Default: host, this machine's own /usr, read-only. GET /v1/templates lists them; one "
	     "that is not installed is 422 unless a substitute is allowed.",
     .mcp = "default host; python-3.12, node-22 and the like are taken as host"},
    {"allow_substitute", AT(BOOL, spec.allow_substitute), FIELD_REST_ONLY,
     .rest = "`host` may stand for a known template that is not installed; the record then has "
	     "template_resolved and warnings. Default: false."},
    {"isolation", AT(TEXT, isolation), FIELD_REST_ONLY, .words = "auto,namespace,gvisor,vm",
     .rest = "Default: auto."},
    {"size", AT(TEXT, size), .words = SANDBOX_SIZE_NAMES,
     .rest = "cpu and memory_mb by name: 1 and 512, 2 and 2048, 4 and 8192. The fields themselves "
	     "win."},
    {"cpu", AT(MILLI, spec.limits.cpu_millis), .min = SANDBOX_CPU_MILLIS_MIN,
     .max = SANDBOX_CPU_MILLIS_MAX, .of = "vCPUs", .rest = "vCPUs"},
    {"memory_mb", AT(UINT, spec.limits.memory), .min = SANDBOX_MEMORY_MIN / MIB,
     .max = SANDBOX_MEMORY_MAX / MIB, .max_here = sandbox_memory_mb_here, .unit = MIB},
    {"disk_mb", AT(UINT, disk_mb), .min = SANDBOX_DISK_MIN / MIB, .max = SANDBOX_DISK_MAX / MIB,
     .max_here = sandbox_disk_mb_here, .unit = MIB},
    {"disk_gb", AT(UINT, disk_gb), FIELD_REST_ONLY, 1, SANDBOX_DISK_MAX / GIB, .unit = GIB,
     .rest = "Instead of disk_mb."},
    {"pids", AT(UINT, spec.limits.pids), FIELD_REST_ONLY, SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX},
    {"network", AT(TEXT, network), FIELD_WORDS_TOLD | FIELD_REST_ONLY, .words = NETWORK_NAMES_KNOWN,
     .rest = "Anything but " NETWORK_OFF_NAME " is 501."},
    {"network", AT(TEXT, network), FIELD_WORDS_TOLD | FIELD_MCP_ONLY, .words = NETWORK_NAMES},
    {"timeout_seconds", AT(UINT, spec.timeout_seconds), FIELD_REST_ONLY, 0, SANDBOX_TIMEOUT_MAX,
     .given = OF(spec.timeout_set),
     .rest = "From the creation, absolute; 0 = none. Default: 600; none where an idle time-out or "
	     "persistent is given."},
    {"timeout_seconds", AT(UINT, spec.timeout_seconds), FIELD_MCP_ONLY | FIELD_MCP_MIN,
     MCP_TIMEOUT_MIN, SANDBOX_TIMEOUT_MAX, .max_here = sandbox_timeout_here,
     .given = OF(spec.timeout_set)},
    {"idle_timeout_seconds", AT(UINT, spec.idle_timeout_seconds), FIELD_REST_ONLY, 0,
     SANDBOX_TIMEOUT_MAX, .given = OF(idle_set),
     .rest = "Without exec or file activity; 0 = the configured default, which is off."},
    {"ttl_seconds", AT(UINT, ttl_seconds), FIELD_REST_ONLY, 0, SANDBOX_TIMEOUT_MAX,
     .given = OF(ttl_set), .rest = "Another name of idle_timeout_seconds."},
    {"auto_pause_seconds", AT(UINT, spec.auto_pause_seconds), FIELD_REST_ONLY, 0,
     SANDBOX_TIMEOUT_MAX, .rest = "Paused when idle for so long; 0 = off."},
    {"wait_ms", AT(UINT, spec.wait_ms), FIELD_REST_ONLY, 0, WAIT_MS_MAX,
     .rest = "Wait so long for room, in a queue, where a budget or the host has none; 0 = do not "
	     "wait."},
    {"persistent", AT(BIT, spec.options), FIELD_REST_ONLY, .bit = OPTION_PERSISTENT,
     .rest = "Its idle time-out pauses it instead of ending it."},
    {"wake_on_read", AT(BIT, spec.options), FIELD_REST_ONLY, .bit = OPTION_WAKE_ON_READ,
     .rest = "A token that may only read wakes it too."},
    {"env", AT(PAIRS, env), .max = EXEC_ENV_MAX},
    {"metadata", AT(PAIRS, metadata), .max = SANDBOX_METADATA_MAX,
     .rest = "The user's own. Keys that begin with `secret.` are never given back."},
    {"labels", AT(PAIRS, labels), FIELD_REST_ONLY, .shape = LABELS_SHAPE,
     .rest = "What lists and selectors choose by."},
    {"mounts", AT(ARRAY, mounts), FIELD_REST_ONLY, .max = SANDBOX_MOUNTS_MAX, .inner = mount_fields,
     .rest = "Over the Unix socket only: each one's open directory is passed with the head of the "
	     "request (SCM_RIGHTS), in order."},
    {"nested_userns", AT(BIT, spec.flags), FIELD_REST_ONLY, .bit = CREATE_NESTED_USERNS,
     .rest = "Allow user namespaces inside."},
    {"region", AT(TEXT, region), .shape = "\"type\":[\"string\",\"null\"]",
     .rest = "null or `local`; anything else is 501."},
    {"name", AT(TEXT, spec.name), .min = 1, .max = NAME_MAX_LENGTH, .shape = NAME_SHAPE,
     .rest = "A DNS label that is not of an id's form.", .mcp = "your own, usable as sandbox_id"},
    {"from_snapshot", AT(ANY, unsupported[0]), FIELD_REST_ONLY, .rest = UNSUPPORTED("snapshots")},
    {"volumes", AT(ANY, unsupported[1]), FIELD_REST_ONLY, .rest = UNSUPPORTED("volumes")},
    {"image", AT(ANY, unsupported[2]), FIELD_REST_ONLY, .rest = UNSUPPORTED("images")},
    {"ports", AT(ANY, unsupported[3]), FIELD_REST_ONLY, .rest = UNSUPPORTED("ports")},
    {"network_policy", AT(ANY, unsupported[4]), FIELD_REST_ONLY,
     .rest = UNSUPPORTED("network policies")},
    {0},
};

/* --- what they say together --- */

void sandbox_fields_done(struct sandbox_fields *fields)
{
	free(fields->environment_pairs);
	free(fields->metadata_pairs);
	free(fields->label_pairs);
	*fields = (struct sandbox_fields){0};
}

/* The error names the alternative: the largest size that fits. */
static int sandbox_size_refuse(const struct config *config, const struct sandbox_size *asked,
			       struct error *error)
{
	const struct limits *maximum = &config->maximum;
	const struct sandbox_size *fitting = NULL;
	for (const struct sandbox_size *size = sandbox_sizes; size->name; size++)
		if (sandbox_size_fits(size, maximum))
			fitting = size;
	return error_set(error, ERROR_LIMIT_EXCEEDED,
			 "size `%s` is %g cpu and %llu MiB of memory; on this host a sandbox may "
			 "have %g and %llu MiB%s%s%s",
			 asked->name, asked->cpu_millis / 1000.0,
			 (unsigned long long)(asked->memory / MIB), maximum->cpu_millis / 1000.0,
			 (unsigned long long)(maximum->memory / MIB), fitting ? ": `" : "",
			 fitting ? fitting->name : "", fitting ? "` fits" : "");
}

int sandbox_size_fill(const char *name, const struct config *config, struct limits *limits,
		      struct error *error)
{
	const struct sandbox_size *size = name ? sandbox_size_find(name) : NULL;
	if (!size)
		return 0;
	if (config && !limits->cpu_millis && !limits->memory &&
	    !sandbox_size_fits(size, &config->maximum))
		return sandbox_size_refuse(config, size, error);
	if (!limits->cpu_millis)
		limits->cpu_millis = size->cpu_millis;
	if (!limits->memory)
		limits->memory = size->memory;
	return 0;
}

static int sandbox_fields_check_network(const char *network, bool mcp, enum network *ret,
					struct error *error)
{
	int known = network ? network_parse(network, ret) : 0;
	if (known == -EOPNOTSUPP && mcp)
		return error_set(error, ERROR_UNSUPPORTED,
				 "network `%s` is not available here: sandboxes have no network. "
				 "Leave it out or say `" NETWORK_OFF_NAME
				 "`, and write what is needed into the "
				 "sandbox with write_file",
				 network);
	if (known == -EOPNOTSUPP)
		return error_set(error, ERROR_UNSUPPORTED,
				 "network `%s` is not available; `" NETWORK_OFF_NAME "` is",
				 network);
	if (known < 0)
		return error_set(error, ERROR_INVALID,
				 "field `network` must be `" NETWORK_OFF_NAME "`%s",
				 mcp ? "" : ": sandboxes have no network in this version");
	return 0;
}

static int sandbox_fields_check_choices(struct sandbox_fields *fields, bool mcp,
					struct error *error)
{
	struct sandbox_spec *spec = &fields->spec;
	if (fields->isolation)
		spec->tier = sandbox_tier_parse(fields->isolation);
	if (sandbox_fields_check_network(fields->network, mcp, &spec->network, error) < 0)
		return -1;
	/* MCP runs it here, and says so. */
	if (fields->region && !mcp && strcmp(fields->region, REGION_LOCAL) != 0)
		return error_set(error, ERROR_UNSUPPORTED,
				 "field `region`: this host is the only one: leave it out, or say "
				 "`" REGION_LOCAL "`");
	if (spec->name && !name_valid(spec->name))
		return error_set(error, ERROR_INVALID,
				 "field `name`: 1 to 63 of a-z, 0-9 and '-', no '-' at either end, "
				 "and not of an id's form");
	return 0;
}

static int sandbox_fields_check_unsupported(const struct sandbox_fields *fields,
					    struct error *error)
{
	static const struct {
		const char *name, *instead;
	} what[SANDBOX_UNSUPPORTED] = {
	    {"from_snapshot", "there are no snapshots; `pause` keeps a sandbox as it is"},
	    {"volumes",
	     "there are no volumes; `mounts` gives folders of the host, over the Unix socket"},
	    {"image", "there are no images; GET /v1/templates lists what a sandbox can begin with"},
	    {"ports", "a sandbox has no network; commands and files are how it is reached"},
	    {"network_policy", "a sandbox has no network: `network` is `" NETWORK_OFF_NAME "`"},
	};
	for (size_t i = 0; i < SANDBOX_UNSUPPORTED; i++) {
		const json_t *value = fields->unsupported[i];
		bool empty = !value || json_is_false(value) ||
			     (json_is_array(value) && json_array_size(value) == 0) ||
			     (json_is_object(value) && json_object_size(value) == 0);
		if (!empty)
			return error_set(error, ERROR_UNSUPPORTED, "field `%s`: %s", what[i].name,
					 what[i].instead);
	}
	return 0;
}

int sandbox_fields_check(struct sandbox_fields *fields, enum field_form form,
			 const struct config *config, struct error *error)
{
	struct sandbox_spec *spec = &fields->spec;
	if (sandbox_fields_check_choices(fields, form == FIELDS_MCP, error) < 0 ||
	    sandbox_size_fill(fields->size, config, &spec->limits, error) < 0)
		return -1;
	if (fields->disk_mb && fields->disk_gb)
		return error_set(error, ERROR_INVALID, "give `disk_mb` or `disk_gb`, not both");
	if (fields->idle_set && fields->ttl_set)
		return error_set(error, ERROR_INVALID,
				 "`ttl_seconds` and `idle_timeout_seconds` are the same: give one");
	spec->limits.disk = fields->disk_mb + fields->disk_gb;
	if (fields->ttl_set)
		spec->idle_timeout_seconds = fields->ttl_seconds;
	if (sandbox_fields_check_unsupported(fields, error) < 0 ||
	    json_environment("env", fields->env, EXEC_REQUEST_BYTES_MAX, &fields->environment_pairs,
			     &spec->environment_count, error) < 0 ||
	    json_pairs("metadata", fields->metadata, SANDBOX_METADATA_MAX,
		       SANDBOX_METADATA_BYTES_MAX, &fields->metadata_pairs, &spec->metadata_count,
		       error) < 0 ||
	    json_pairs("labels", fields->labels, LABELS_MAX, LABELS_BYTES_MAX, &fields->label_pairs,
		       &spec->label_count, error) < 0)
		return -1;
	spec->environment = fields->environment_pairs;
	spec->metadata = fields->metadata_pairs;
	spec->labels = fields->label_pairs;
	return 0;
}

/* --- a change of one --- */

#undef AT
#undef OF
#define AT(kind, member) FIELD_##kind##_AT(struct sandbox_change_fields, member)
#define OF(member) FIELD_GIVEN(struct sandbox_change_fields, member)

const struct field sandbox_change_fields[] = {
    {"timeout_seconds", AT(UINT, change.timeout_seconds), .max = SANDBOX_TIMEOUT_MAX,
     .given = OF(change.timeout_set),
     .rest = "From now; 0 = none. An idle time-out or persistent takes away one that is only the "
	     "default."},
    {"idle_timeout_seconds", AT(UINT, change.idle_timeout_seconds), .max = SANDBOX_TIMEOUT_MAX,
     .given = OF(change.idle_timeout_set), .rest = "0 = off."},
    {"ttl_seconds", AT(UINT, ttl_seconds), FIELD_REST_ONLY, 0, SANDBOX_TIMEOUT_MAX,
     .given = OF(ttl_set), .rest = "Another name of idle_timeout_seconds."},
    {"auto_pause_seconds", AT(UINT, change.auto_pause_seconds), FIELD_REST_ONLY, 0,
     SANDBOX_TIMEOUT_MAX, .given = OF(change.auto_pause_set), .rest = "0 = off."},
    {"name", AT(ANY, name), FIELD_REST_ONLY | FIELD_NULLS, .given = OF(change.name_set),
     .shape = "\"type\":[\"string\",\"null\"]," NAME_PATTERN,
     .rest = "null: none any more. Its host name inside changes with its next start."},
    {"name", AT(TEXT, change.name), FIELD_MCP_ONLY, 1, NAME_MAX_LENGTH,
     .given = OF(change.name_set)},
    {"metadata", AT(PAIRS, metadata), FIELD_REST_ONLY | FIELD_NULLS, .max = SANDBOX_METADATA_MAX,
     .rest = "Merged in; null removes a key."},
    {"labels", AT(PAIRS, labels), .shape = LABELS_SHAPE_OF("[\"string\",\"null\"]"),
     .rest = "Merged in; null removes a key."},
    {"persistent", AT(BIT, change.options), FIELD_REST_ONLY, .bit = OPTION_PERSISTENT,
     .given = FIELD_GIVEN_BIT(struct sandbox_change_fields, change.options_mask)},
    {"wake_on_read", AT(BIT, change.options), FIELD_REST_ONLY, .bit = OPTION_WAKE_ON_READ,
     .given = FIELD_GIVEN_BIT(struct sandbox_change_fields, change.options_mask)},
    {"size", AT(TEXT, size), FIELD_REST_ONLY, .words = SANDBOX_SIZE_NAMES},
    {"cpu", AT(MILLI, change.limits.cpu_millis), FIELD_REST_ONLY, SANDBOX_CPU_MILLIS_MIN,
     SANDBOX_CPU_MILLIS_MAX, .of = "vCPUs"},
    {"memory_mb", AT(UINT, change.limits.memory), FIELD_REST_ONLY, SANDBOX_MEMORY_MIN / MIB,
     SANDBOX_MEMORY_MAX / MIB, .unit = MIB},
    {"pids", AT(UINT, change.limits.pids), FIELD_REST_ONLY, SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX},
    {"disk_mb", AT(ANY, disk), FIELD_REST_ONLY, .given = OF(disk_set),
     .rest = "501: the disk keeps its size."},
    {0},
};

void sandbox_change_done(struct sandbox_change_fields *fields)
{
	free(fields->metadata_pairs);
	free(fields->label_pairs);
}

/* A merge patch (RFC 7396) of strings: null removes a key. */
static int sandbox_fields_merge_pairs(const char *name, const json_t *json, size_t count_max,
				      struct pair **ret_pairs, size_t *ret_count,
				      struct error *error)
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

int sandbox_change_check(struct sandbox_change_fields *fields, struct error *error)
{
	struct sandbox_change *change = &fields->change;
	if (fields->name && !json_is_string(fields->name))
		return error_set(error, ERROR_INVALID,
				 "field `name` must be a string, or null for none");
	if (fields->name)
		change->name = json_string_value(fields->name);
	if (fields->disk_set)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the disk of a sandbox cannot be changed after its creation; cpu, "
				 "memory and pids can");
	if (change->idle_timeout_set && fields->ttl_set)
		return error_set(error, ERROR_INVALID,
				 "`ttl_seconds` and `idle_timeout_seconds` are the same: give one");
	if (fields->ttl_set)
		change->idle_timeout_seconds = fields->ttl_seconds;
	change->idle_timeout_set |= fields->ttl_set;
	if (sandbox_size_fill(fields->size, NULL, &change->limits, error) < 0 ||
	    sandbox_fields_merge_pairs("metadata", fields->metadata, SANDBOX_METADATA_MAX,
				       &fields->metadata_pairs, &change->metadata_count,
				       error) < 0 ||
	    sandbox_fields_merge_pairs("labels", fields->labels, LABELS_MAX, &fields->label_pairs,
				       &change->label_count, error) < 0)
		return -1;
	change->metadata = fields->metadata_pairs;
	change->labels = fields->label_pairs;
	return 0;
}
