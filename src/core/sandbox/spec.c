/* Checks the request of a create: makes a row from it, or names the wrong field, its value and the
 * allowed values. Called by sandbox_create(); does not block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/sandbox/ephemeral.h"
#include "core/sandbox/labels.h"
#include "core/sandbox/template.h"
#include "proto/folder_grant.h"
#include "proto/tiers.h"

/* The unit of a quantity in the API. */
enum unit { UNIT_COUNT, UNIT_CPUS, UNIT_MEGABYTES };

struct quantity {
	const char *field;
	enum unit unit;
	uint64_t value, minimum, maximum;
};

static void quantity_text(enum unit unit, uint64_t value, char *text, size_t room)
{
	if (unit == UNIT_CPUS)
		snprintf(text, room, "%g", (double)value / 1000);
	else if (unit == UNIT_MEGABYTES)
		snprintf(text, room, "%llu", (unsigned long long)(value / MIB));
	else
		snprintf(text, room, "%llu", (unsigned long long)value);
}

static int quantity_check(const struct quantity *quantity, struct error *error)
{
	if (quantity->value >= quantity->minimum && quantity->value <= quantity->maximum)
		return 0;
	char value[32], minimum[32], maximum[32];
	quantity_text(quantity->unit, quantity->value, value, sizeof(value));
	quantity_text(quantity->unit, quantity->minimum, minimum, sizeof(minimum));
	quantity_text(quantity->unit, quantity->maximum, maximum, sizeof(maximum));
	return error_set(error, ERROR_LIMIT_EXCEEDED, "%s is %s; it must be %s to %s",
			 quantity->field, value, minimum, maximum);
}

/* The value, or the default for 0. */
#define OR(value, otherwise) ((value) ? (value) : (otherwise))

static int check_tier_memory(const struct core *core, uint32_t tier, uint64_t memory,
			     struct error *error)
{
	uint64_t minimum = core->probes[tier].memory_min;
	if (memory >= minimum)
		return 0;
	return error_set(error, ERROR_LIMIT_EXCEEDED,
			 "memory_mb is %llu; isolation `%s` needs at least %llu",
			 (unsigned long long)(memory / MIB), tier_name((enum tier)tier),
			 (unsigned long long)(minimum / MIB));
}

static int spec_check_limits(const struct core *core, uint32_t tier, const struct limits *asked,
			     struct limits *ret_limits, struct error *error)
{
	const struct limits *defaults = &core->config.defaults, *maximum = &core->config.maximum;
	struct limits limits = {
	    .memory = OR(asked->memory, OR(defaults->memory, SANDBOX_MEMORY_DEFAULT)),
	    .disk = OR(asked->disk, OR(defaults->disk, SANDBOX_DISK_DEFAULT)),
	    .cpu_millis =
		OR(asked->cpu_millis, OR(defaults->cpu_millis, SANDBOX_CPU_MILLIS_DEFAULT)),
	    .pids = OR(asked->pids, OR(defaults->pids, SANDBOX_PIDS_DEFAULT)),
	    .files = OR(asked->files, OR(defaults->files, SANDBOX_FILES_DEFAULT)),
	};
	uint64_t inodes_max = OR(maximum->inodes, SANDBOX_INODES_MAX);
	/* A larger disk gets more inodes, unless their number was requested. */
	uint64_t inodes =
	    MAX(OR(defaults->inodes, SANDBOX_INODES_DEFAULT), limits.disk / (16 * KIB));
	limits.inodes = OR(asked->inodes, MIN(inodes, inodes_max));
	const struct quantity quantities[] = {
	    {"cpu", UNIT_CPUS, limits.cpu_millis, SANDBOX_CPU_MILLIS_MIN,
	     OR(maximum->cpu_millis, SANDBOX_CPU_MILLIS_MAX)},
	    {"memory_mb", UNIT_MEGABYTES, limits.memory, SANDBOX_MEMORY_MIN,
	     OR(maximum->memory, SANDBOX_MEMORY_MAX)},
	    {"disk_mb", UNIT_MEGABYTES, limits.disk, SANDBOX_DISK_MIN,
	     OR(maximum->disk, SANDBOX_DISK_MAX)},
	    {"inodes", UNIT_COUNT, limits.inodes, SANDBOX_INODES_MIN, inodes_max},
	    {"pids", UNIT_COUNT, limits.pids, SANDBOX_PIDS_MIN,
	     OR(maximum->pids, SANDBOX_PIDS_MAX)},
	    {"files", UNIT_COUNT, limits.files, SANDBOX_FILES_MIN,
	     OR(maximum->files, SANDBOX_FILES_MAX)},
	};
	for (size_t i = 0; i < ARRAY_SIZE(quantities); i++)
		if (quantity_check(&quantities[i], error) < 0)
			return -1;
	*ret_limits = limits;
	return check_tier_memory(core, tier, limits.memory, error);
}

int limits_check_change(const struct sandbox *sandbox, const struct limits *asked,
			struct error *error)
{
	const struct limits *maximum = &sandbox->core->config.maximum;
	const struct quantity quantities[] = {
	    {"cpu", UNIT_CPUS, asked->cpu_millis, SANDBOX_CPU_MILLIS_MIN,
	     OR(maximum->cpu_millis, SANDBOX_CPU_MILLIS_MAX)},
	    {"memory_mb", UNIT_MEGABYTES, asked->memory, SANDBOX_MEMORY_MIN,
	     OR(maximum->memory, SANDBOX_MEMORY_MAX)},
	    {"pids", UNIT_COUNT, asked->pids, SANDBOX_PIDS_MIN,
	     OR(maximum->pids, SANDBOX_PIDS_MAX)},
	};
	for (size_t i = 0; i < ARRAY_SIZE(quantities); i++)
		if (quantities[i].value != 0 && quantity_check(&quantities[i], error) < 0)
			return -1;
	return asked->memory == 0
		   ? 0
		   : check_tier_memory(sandbox->core, sandbox->row.tier, asked->memory, error);
}

static bool timeout_unlimited(const struct config *config)
{
	return config->timeout_seconds_max == 0 ||
	       config->timeout_seconds_max >= SANDBOX_TIMEOUT_MAX;
}

int timeout_check(const struct config *config, uint32_t seconds, struct error *error)
{
	bool unlimited = timeout_unlimited(config);
	struct quantity quantity = {"timeout_seconds", UNIT_COUNT, seconds, unlimited ? 0 : 1,
				    unlimited ? SANDBOX_TIMEOUT_MAX : config->timeout_seconds_max};
	return quantity_check(&quantity, error);
}

uint32_t timeout_longest(const struct config *config)
{
	return timeout_unlimited(config) ? 0 : config->timeout_seconds_max;
}

static int spec_check_timeouts(const struct config *config, const struct sandbox_spec *spec,
			       struct sandbox_row *row, struct error *error)
{
	uint32_t timeout = spec->timeout_seconds;
	if (!spec->timeout_set && timeout == 0) {
		/* The default time-out is for requests that do not set the sandbox's life: an idle
		 * time-out or `persistent` sets it. */
		bool said = spec->idle_timeout_seconds != 0 || spec->options & OPTION_PERSISTENT;
		timeout = said ? timeout_longest(config) : config->timeout_seconds;
		row->options |= said ? 0u : OPTION_TIMEOUT_UNASKED;
	}
	if (timeout_check(config, timeout, error) < 0)
		return -1;
	uint32_t idle = OR(spec->idle_timeout_seconds, config->idle_timeout_seconds);
	uint32_t pause = OR(spec->auto_pause_seconds, config->auto_pause_seconds);
	const struct quantity quantities[] = {
	    {"idle_timeout_seconds", UNIT_COUNT, idle, 0, SANDBOX_TIMEOUT_MAX},
	    {"auto_pause_seconds", UNIT_COUNT, pause, 0, SANDBOX_TIMEOUT_MAX},
	};
	for (size_t i = 0; i < ARRAY_SIZE(quantities); i++)
		if (quantity_check(&quantities[i], error) < 0)
			return -1;
	row->timeout_seconds = timeout;
	row->idle_timeout_seconds = idle;
	row->auto_pause_seconds = pause;
	row->created_wall = row->active_wall = clock_wall();
	row->deadline_wall = timeout == 0 ? 0 : row->created_wall + timeout * NSEC_PER_SEC;
	return 0;
}

enum tier tier_automatic(const struct core *core)
{
	uint32_t tier = TIER_COUNT - 1;
	while (tier > TIER_AUTO && (!core->probes[tier].available || core->probes[tier].by_name))
		tier--;
	return (enum tier)tier;
}

static int spec_check_tier(const struct core *core, enum tier asked, uint32_t *ret_tier,
			   struct error *error)
{
	if (asked == TIER_AUTO) {
		*ret_tier = tier_automatic(core);
		if (*ret_tier != TIER_AUTO)
			return 0;
		return error_set(error, ERROR_TIER_UNAVAILABLE,
				 "this host has no isolation tier; `%s` misses: %s",
				 tier_name(TIER_AUTO + 1), core->probes[TIER_AUTO + 1].missing);
	}
	if ((unsigned)asked >= TIER_COUNT)
		return error_set(error, ERROR_INVALID, "there is no such isolation tier");
	const struct spawn_probe *probe = &core->probes[asked];
	if (!probe->available)
		return error_set(error, ERROR_TIER_UNAVAILABLE,
				 "isolation `%s` cannot be had on this host: %s", tier_name(asked),
				 probe->missing[0] ? probe->missing : "it is not built in");
	*ret_tier = asked;
	return 0;
}

static int text_pack(struct buffer *buffer, const char *text)
{
	return buffer_append(buffer, text, strlen(text) + 1);
}

static int spec_check_environment(const struct sandbox_spec *spec, struct sandbox_row *row,
				  struct error *error)
{
	DONE_BUFFER struct buffer packed = BUFFER(SANDBOX_ENVIRONMENT_BYTES_MAX);
	/* The template's own environment is added later. */
	const size_t maximum = EXEC_ENV_MAX - 64;
	if (spec->environment_count > maximum)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "env has %zu entries; at most %zu are allowed",
				 spec->environment_count, maximum);
	for (size_t i = 0; i < spec->environment_count; i++) {
		const char *key = spec->environment[i].key, *value = spec->environment[i].value;
		if (!*key || strchr(key, '='))
			return error_set(error, ERROR_INVALID,
					 "env: a name must not be empty or hold `=`: `%.64s`", key);
		if (buffer_append_text(&packed, key) < 0 || buffer_append_text(&packed, "=") < 0 ||
		    text_pack(&packed, value) < 0)
			return error_set(error, ERROR_LIMIT_EXCEEDED, "env has more than %d bytes",
					 SANDBOX_ENVIRONMENT_BYTES_MAX);
	}
	row->environment_size = (uint32_t)packed.size;
	row->environment = TAKE_PTR(packed.data);
	return 0;
}

static int spec_check_pairs(const struct principal *principal, const struct sandbox_spec *spec,
			    struct sandbox_row *row, struct error *error)
{
	struct pair labels[LABELS_MAX + 1]; /* labels_pack() refuses one too many */
	size_t count = MIN(spec->label_count, ARRAY_SIZE(labels));
	struct ephemeral_name name;
	if (metadata_pack(spec->metadata, spec->metadata_count, &row->metadata, &row->metadata_size,
			  error) < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		labels[i] = spec->labels[i];
	ephemeral_name_labels(principal, labels, count, &name);
	return labels_pack(labels, count, &row->labels, &row->labels_size, error);
}

/* An absolute path below the root, without "." and "..". Only for a clear error: the init resolves
 * it in the sandbox's own root. */
static bool mount_path_valid(const char *path)
{
	if (path[0] != '/' || strlen(path) >= GUEST_PATH_MAX)
		return false;
	bool named = false;
	for (const char *part = path; *part;) {
		part += strspn(part, "/");
		size_t length = strcspn(part, "/");
		if ((length == 1 && part[0] == '.') || (length == 2 && strncmp(part, "..", 2) == 0))
			return false;
		named |= length > 0;
		part += length;
	}
	return named;
}

static int spec_check_mounts(const struct principal *principal, const struct sandbox_spec *spec,
			     struct sandbox_row *row, struct error *error)
{
	DONE_BUFFER struct buffer packed = BUFFER(SANDBOX_MOUNTS_MAX * (2 * GUEST_PATH_MAX + 16));
	if (spec->mount_count == 0)
		return 0;
	if (!principal->local)
		return error_set(error, ERROR_FORBIDDEN,
				 "a folder of the host can be given over the Unix socket only");
	if (spec->mount_count > SANDBOX_MOUNTS_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "there are %zu mounts; at most %d are allowed", spec->mount_count,
				 SANDBOX_MOUNTS_MAX);
	for (size_t i = 0; i < spec->mount_count; i++) {
		const struct mount_spec *mount = &spec->mounts[i];
		if (!mount_path_valid(mount->path))
			return error_set(error, ERROR_INVALID,
					 "mounts: `%.200s` is no place for a folder: it must be an "
					 "absolute path below `/`, without `.`, `..` or `//`",
					 mount->path);
		const char *mode = mount_mode_name((uint32_t)mount->mode);
		if (mount->fd < 0 || !mode)
			return error_set(error, ERROR_INVALID, "mounts: entry %zu has no folder",
					 i);
		if (text_pack(&packed, mode) < 0 || text_pack(&packed, mount->path) < 0 ||
		    text_pack(&packed, mount->host_path ? mount->host_path : "") < 0)
			return error_set(error, ERROR_LIMIT_EXCEEDED, "mounts: a path is too long");
	}
	row->mounts_size = (uint32_t)packed.size;
	row->mounts = TAKE_PTR(packed.data);
	return 0;
}

static int spec_check_name(const struct sandbox_spec *spec, struct error *error)
{
	if (!spec->name || name_valid(spec->name))
		return 0;
	if (id_valid(spec->name))
		return error_set(error, ERROR_ID_MALFORMED,
				 "name `%s` has the form of an id; choose one that has not",
				 spec->name);
	return error_set(error, ERROR_ID_MALFORMED,
			 "name `%.80s` is not 1 to %d of a-z, 0-9 and '-', without '-' at its ends",
			 spec->name, NAME_MAX_LENGTH);
}

int spec_check(struct core *core, const struct principal *principal,
	       const struct sandbox_spec *spec, struct sandbox_row *ret_row, struct error *error)
{
	struct sandbox_row row = {.state = SANDBOX_CREATING,
				  .network = (uint32_t)spec->network,
				  .flags = spec->flags,
				  .options = spec->options};
	const struct template *template;
	if (spec_check_name(spec, error) < 0 ||
	    template_resolve(&core->config, spec->template, spec->allow_substitute, &template,
			     error) < 0)
		return -1;
	if (spec->flags & ~(uint32_t)CREATE_NESTED_USERNS)
		return error_set(error, ERROR_INVALID, "an unknown flag is set");
	if (spec_check_tier(core, spec->tier, &row.tier, error) < 0 ||
	    spec_check_limits(core, row.tier, &spec->limits, &row.limits, error) < 0 ||
	    spec_check_timeouts(&core->config, spec, &row, error) < 0)
		return -1;
	if (spec_check_environment(spec, &row, error) < 0 ||
	    spec_check_pairs(principal, spec, &row, error) < 0 ||
	    spec_check_mounts(principal, spec, &row, error) < 0) {
		sandbox_row_done(&row);
		return -1;
	}
	row.id = id_new();
	row.workspace = text_duplicate(principal->workspace);
	row.name = spec->name ? text_duplicate(spec->name) : NULL;
	row.template = text_duplicate(template->name);
	row.rootfs_kind = template->rootfs.kind;
	if (*template->rootfs.digest)
		row.rootfs_digest = text_duplicate(template->rootfs.digest);
	if (spec->template && strcmp(spec->template, template->name) != 0)
		row.template_asked = text_duplicate(spec->template);
	*ret_row = row;
	return 0;
}

enum tier sandbox_tier_parse(const char *isolation)
{
	return tier_parse(isolation);
}
