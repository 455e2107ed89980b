/* The fields of a create, one by one; what this host and its configuration allow is the domain's to
 * say. Called by the handlers of create and run. Pure; nothing blocks. */
#include "api/sandbox/ask.h"

#include <stdlib.h>
#include <string.h>

#include "api/sandbox/mounts.h"
#include "core/sandbox/create_queue.h"
#include "core/sandbox/labels.h"
#include "core/sandbox/sizes.h"
#include "edge/json_pairs.h"
#include "proto/tiers.h"

void sandbox_ask_done(struct sandbox_ask *ask)
{
	free(ask->environment);
	free(ask->metadata);
	free(ask->labels);
	*ask = (struct sandbox_ask){0};
}

/* What there is instead is said: the largest that fits. */
static int size_too_large(const struct config *config, const struct sandbox_size *asked,
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

int parse_size(const struct config *config, const char *size, struct limits *limits,
	       struct error *error)
{
	const struct sandbox_size *found = sandbox_size_find(size);
	if (!found)
		return error_set(error, ERROR_INVALID,
				 "field `size` must be small, medium or large");
	if (config && !sandbox_size_fits(found, &config->maximum))
		return size_too_large(config, found, error);
	limits->cpu_millis = found->cpu_millis;
	limits->memory = found->memory;
	return 0;
}

int parse_cpu(double cpu, uint32_t *ret_millis, struct error *error)
{
	double millis = cpu * 1000 + 0.5;
	if (millis < SANDBOX_CPU_MILLIS_MIN || millis > SANDBOX_CPU_MILLIS_MAX + 1)
		return error_set(error, ERROR_INVALID, "field `cpu` must be %.2f to %d (vCPUs)",
				 SANDBOX_CPU_MILLIS_MIN / 1000.0,
				 (int)(SANDBOX_CPU_MILLIS_MAX / 1000));
	*ret_millis = (uint32_t)millis;
	return 0;
}

struct choices {
	const char *isolation, *network, *region;
	bool nested, persistent, wake_on_read;
};

static int parse_choices(const struct choices *choices, struct sandbox_spec *spec,
			 struct error *error)
{
	const char *network = choices->network;
	if (choices->isolation) {
		spec->tier = tier_parse(choices->isolation);
		if (spec->tier == TIER_COUNT)
			return error_set(error, ERROR_INVALID,
					 "field `isolation` must be auto, namespace, gvisor or vm");
	}
	int known = network ? network_parse(network, &spec->network) : 0;
	if (known == -EOPNOTSUPP)
		return error_set(error, ERROR_UNSUPPORTED,
				 "network `%s` is not available; `off` is", network);
	if (known < 0)
		return error_set(error, ERROR_INVALID,
				 "field `network` must be `off`: sandboxes have no network in this "
				 "version");
	if (choices->region && strcmp(choices->region, REGION_LOCAL) != 0)
		return error_set(error, ERROR_UNSUPPORTED,
				 "field `region`: this host is the only one: leave it out, or say "
				 "`" REGION_LOCAL "`");
	if (choices->nested)
		spec->flags |= CREATE_NESTED_USERNS;
	if (choices->persistent)
		spec->options |= OPTION_PERSISTENT;
	if (choices->wake_on_read)
		spec->options |= OPTION_WAKE_ON_READ;
	return 0;
}

struct sizes {
	double cpu;
	uint64_t memory_mb, disk_mb, disk_gb, pids, timeout, idle_timeout, ttl, auto_pause, wait_ms;
	bool cpu_set, idle_set, ttl_set;
	const char *size;
};

/* A size is a cpu and a memory by name; a number beside it wins. */
static int parse_limits(const struct config *config, const struct sizes *sizes,
			struct sandbox_spec *spec, struct error *error)
{
	bool alone = !sizes->cpu_set && !sizes->memory_mb;
	if (sizes->size && parse_size(alone ? config : NULL, sizes->size, &spec->limits, error) < 0)
		return -1;
	if (sizes->cpu_set && parse_cpu(sizes->cpu, &spec->limits.cpu_millis, error) < 0)
		return -1;
	if (sizes->disk_mb && sizes->disk_gb)
		return error_set(error, ERROR_INVALID, "give `disk_mb` or `disk_gb`, not both");
	if (sizes->idle_set && sizes->ttl_set)
		return error_set(error, ERROR_INVALID,
				 "`ttl_seconds` and `idle_timeout_seconds` are the same: give one");
	if (sizes->memory_mb)
		spec->limits.memory = sizes->memory_mb * MIB;
	if (sizes->disk_mb)
		spec->limits.disk = sizes->disk_mb * MIB;
	if (sizes->disk_gb)
		spec->limits.disk = sizes->disk_gb * GIB;
	spec->limits.pids = (uint32_t)sizes->pids;
	spec->timeout_seconds = (uint32_t)sizes->timeout;
	spec->idle_timeout_seconds = (uint32_t)(sizes->ttl_set ? sizes->ttl : sizes->idle_timeout);
	spec->auto_pause_seconds = (uint32_t)sizes->auto_pause;
	spec->wait_ms = (uint32_t)sizes->wait_ms;
	return 0;
}

/* What is not there yet: one field each, with what is there instead. */
enum { LATER_COUNT = 5 };
static const struct {
	const char *name, *instead;
} later[LATER_COUNT] = {
    {"from_snapshot", "there are no snapshots; `pause` keeps a sandbox as it is"},
    {"volumes", "there are no volumes; `mounts` gives folders of the host, over the Unix socket"},
    {"image", "there are no images; GET /v1/templates lists what a sandbox can begin with"},
    {"ports", "a sandbox has no network; commands and files are how it is reached"},
    {"network_policy", "a sandbox has no network: `network` is `off`"},
};

static int parse_later(json_t *const values[LATER_COUNT], struct error *error)
{
	for (size_t i = 0; i < LATER_COUNT; i++) {
		const json_t *value = values[i];
		bool empty = !value || json_is_null(value) || json_is_false(value) ||
			     (json_is_array(value) && json_array_size(value) == 0) ||
			     (json_is_object(value) && json_object_size(value) == 0);
		if (!empty)
			return error_set(error, ERROR_UNSUPPORTED, "field `%s`: %s", later[i].name,
					 later[i].instead);
	}
	return 0;
}

static int parse_objects(struct sandbox_ask *ask, const json_t *environment, const json_t *metadata,
			 const json_t *labels, struct error *error)
{
	struct sandbox_spec *spec = &ask->spec;
	if (json_environment("env", environment, EXEC_REQUEST_BYTES_MAX, &ask->environment,
			     &spec->environment_count, error) < 0 ||
	    json_pairs("metadata", metadata, SANDBOX_METADATA_MAX, SANDBOX_METADATA_BYTES_MAX,
		       &ask->metadata, &spec->metadata_count, error) < 0 ||
	    json_pairs("labels", labels, LABELS_MAX, LABELS_MAX * 2 * (LABEL_MAX + 1), &ask->labels,
		       &spec->label_count, error) < 0)
		return -1;
	spec->environment = ask->environment;
	spec->metadata = ask->metadata;
	spec->labels = ask->labels;
	return 0;
}

int sandbox_ask_parse(struct call *call, const json_t *body, struct sandbox_ask *ask,
		      struct error *error)
{
	const struct config *config = &call->core->config;
	struct sandbox_spec *spec = &ask->spec;
	struct sizes sizes = {0};
	struct choices choices = {0};
	json_t *environment = NULL, *metadata = NULL, *labels = NULL, *mounts = NULL;
	json_t *later_values[LATER_COUNT] = {0};
	struct field fields[] = {
	    {"template", FIELD_TEXT, &spec->template, false, 1, 128},
	    {"allow_substitute", FIELD_BOOL, &spec->allow_substitute},
	    {"name", FIELD_TEXT, &spec->name, false, 1, NAME_MAX_LENGTH},
	    {"isolation", FIELD_TEXT, &choices.isolation},
	    {"size", FIELD_TEXT, &sizes.size},
	    {"cpu", FIELD_NUMBER, &sizes.cpu, .present = &sizes.cpu_set},
	    {"memory_mb", FIELD_UINT, &sizes.memory_mb, false, SANDBOX_MEMORY_MIN / MIB,
	     SANDBOX_MEMORY_MAX / MIB, .max_here = config->maximum.memory / MIB},
	    {"disk_mb", FIELD_UINT, &sizes.disk_mb, false, SANDBOX_DISK_MIN / MIB,
	     SANDBOX_DISK_MAX / MIB, .max_here = config->maximum.disk / MIB},
	    {"disk_gb", FIELD_UINT, &sizes.disk_gb, false, 1, SANDBOX_DISK_MAX / GIB},
	    {"pids", FIELD_UINT, &sizes.pids, false, SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX},
	    {"timeout_seconds", FIELD_UINT, &sizes.timeout, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &spec->timeout_set},
	    {"idle_timeout_seconds", FIELD_UINT, &sizes.idle_timeout, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &sizes.idle_set},
	    {"ttl_seconds", FIELD_UINT, &sizes.ttl, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &sizes.ttl_set},
	    {"auto_pause_seconds", FIELD_UINT, &sizes.auto_pause, false, 0, SANDBOX_TIMEOUT_MAX},
	    {"wait_ms", FIELD_UINT, &sizes.wait_ms, false, 0, WAIT_MS_MAX},
	    {"persistent", FIELD_BOOL, &choices.persistent},
	    {"wake_on_read", FIELD_BOOL, &choices.wake_on_read},
	    {"env", FIELD_OBJECT, &environment},
	    {"metadata", FIELD_OBJECT, &metadata},
	    {"labels", FIELD_OBJECT, &labels},
	    {"mounts", FIELD_ARRAY, &mounts},
	    {"nested_userns", FIELD_BOOL, &choices.nested},
	    {"network", FIELD_TEXT, &choices.network},
	    {"region", FIELD_TEXT, &choices.region},
	    {later[0].name, FIELD_ANY, &later_values[0]},
	    {later[1].name, FIELD_ANY, &later_values[1]},
	    {later[2].name, FIELD_ANY, &later_values[2]},
	    {later[3].name, FIELD_ANY, &later_values[3]},
	    {later[4].name, FIELD_ANY, &later_values[4]},
	};
	if (json_fields(body, fields, ARRAY_SIZE(fields), error) < 0 ||
	    parse_choices(&choices, spec, error) < 0 ||
	    parse_limits(config, &sizes, spec, error) < 0 || parse_later(later_values, error) < 0 ||
	    parse_mounts(call, mounts, ask->mounts, &spec->mount_count, error) < 0)
		return -1;
	spec->mounts = ask->mounts;
	if (spec->name && !name_valid(spec->name))
		return error_set(error, ERROR_INVALID,
				 "field `name`: 1 to 63 of a-z, 0-9 and '-', no '-' at either end, "
				 "and not of an id's form");
	return parse_objects(ask, environment, metadata, labels, error);
}
