/* Is what a create asks for allowed here? Turns a spec into a row, or says which field is wrong,
 * its value and what is allowed. Called by sandbox_create(); does not block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/core_private.h"
#include "tier/driver.h"

#define TEMPLATE_HOST "host"

/* How a quantity is written in the API. */
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
	return error_set(error, ERROR_LIMIT_EXCEEDED, "%s is %s; allowed are %s to %s",
			 quantity->field, value, minimum, maximum);
}

/* What was asked for, else the default; a configured maximum of 0 is the built-in one. */
#define OR(value, otherwise) ((value) ? (value) : (otherwise))

static int check_limits(const struct config *config, const struct limits *asked,
			struct limits *ret_limits, struct error *error)
{
	const struct limits *defaults = &config->defaults, *maximum = &config->maximum;
	struct limits limits = {
	    .memory = OR(asked->memory, OR(defaults->memory, SANDBOX_MEMORY_DEFAULT)),
	    .disk = OR(asked->disk, OR(defaults->disk, SANDBOX_DISK_DEFAULT)),
	    .cpu_millis =
		OR(asked->cpu_millis, OR(defaults->cpu_millis, SANDBOX_CPU_MILLIS_DEFAULT)),
	    .pids = OR(asked->pids, OR(defaults->pids, SANDBOX_PIDS_DEFAULT)),
	    .files = OR(asked->files, OR(defaults->files, SANDBOX_FILES_DEFAULT)),
	};
	uint64_t inodes_max = OR(maximum->inodes, SANDBOX_INODES_MAX);
	/* A larger disk is for more files, unless it is said otherwise. */
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
	return 0;
}

static int check_timeouts(const struct config *config, const struct sandbox_spec *spec,
			  struct sandbox_row *row, struct error *error)
{
	uint32_t maximum = config->timeout_seconds_max;
	bool unlimited = maximum == 0 || maximum >= SANDBOX_TIMEOUT_MAX;
	uint32_t timeout = spec->timeout_set || spec->timeout_seconds != 0
			       ? spec->timeout_seconds
			       : config->timeout_seconds;
	struct quantity quantity = {"timeout_seconds", UNIT_COUNT, timeout, unlimited ? 0 : 1,
				    unlimited ? SANDBOX_TIMEOUT_MAX : maximum};
	if (quantity_check(&quantity, error) < 0)
		return -1;
	uint32_t idle = OR(spec->idle_timeout_seconds, config->idle_timeout_seconds);
	quantity =
	    (struct quantity){"idle_timeout_seconds", UNIT_COUNT, idle, 0, SANDBOX_TIMEOUT_MAX};
	if (quantity_check(&quantity, error) < 0)
		return -1;
	row->timeout_seconds = timeout;
	row->idle_timeout_seconds = idle;
	row->created_wall = row->active_wall = clock_wall();
	row->deadline_wall = timeout == 0 ? 0 : row->created_wall + timeout * NSEC_PER_SEC;
	return 0;
}

static int check_tier(const struct core *core, enum tier asked, uint32_t *ret_tier,
		      struct error *error)
{
	if (asked == TIER_AUTO) {
		for (uint32_t tier = TIER_COUNT - 1; tier > TIER_AUTO; tier--) {
			if (core->probes[tier].available) {
				*ret_tier = tier;
				return 0;
			}
		}
		return error_set(error, ERROR_TIER_UNAVAILABLE,
				 "this host has no isolation tier; `namespace` misses: %s",
				 core->probes[TIER_NAMESPACE].missing);
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

static int pack(struct buffer *buffer, const char *text)
{
	return buffer_append(buffer, text, strlen(text) + 1);
}

/* Hands the buffer's bytes to a row. */
static char *take(struct buffer *buffer, uint32_t *ret_size)
{
	*ret_size = (uint32_t)buffer->size;
	return TAKE_PTR(buffer->data);
}

static int check_environment(const struct sandbox_spec *spec, struct sandbox_row *row,
			     struct error *error)
{
	DONE_BUFFER struct buffer packed = BUFFER(SANDBOX_ENVIRONMENT_BYTES_MAX);
	/* The template's own come on top of it. */
	const size_t maximum = EXEC_ENV_MAX - 64;
	if (spec->environment_count > maximum)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "env has %zu entries; allowed are %zu", spec->environment_count,
				 maximum);
	for (size_t i = 0; i < spec->environment_count; i++) {
		const char *key = spec->environment[i].key, *value = spec->environment[i].value;
		if (!*key || strchr(key, '='))
			return error_set(error, ERROR_INVALID,
					 "env: a name must not be empty or hold `=`: `%.64s`", key);
		if (buffer_append_text(&packed, key) < 0 || buffer_append_text(&packed, "=") < 0 ||
		    pack(&packed, value) < 0)
			return error_set(error, ERROR_LIMIT_EXCEEDED, "env has more than %d bytes",
					 SANDBOX_ENVIRONMENT_BYTES_MAX);
	}
	row->environment = take(&packed, &row->environment_size);
	return 0;
}

static int check_metadata(const struct sandbox_spec *spec, struct sandbox_row *row,
			  struct error *error)
{
	DONE_BUFFER struct buffer packed = BUFFER(SANDBOX_METADATA_BYTES_MAX);
	if (spec->metadata_count > SANDBOX_METADATA_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "metadata has %zu entries; allowed are %d", spec->metadata_count,
				 SANDBOX_METADATA_MAX);
	for (size_t i = 0; i < spec->metadata_count; i++) {
		if (!*spec->metadata[i].key)
			return error_set(error, ERROR_INVALID, "metadata: a key must not be empty");
		if (pack(&packed, spec->metadata[i].key) < 0 ||
		    pack(&packed, spec->metadata[i].value) < 0)
			return error_set(error, ERROR_LIMIT_EXCEEDED,
					 "metadata has more than %d bytes",
					 SANDBOX_METADATA_BYTES_MAX);
	}
	row->metadata = take(&packed, &row->metadata_size);
	return 0;
}

/* Absolute, below the root, without "." and ".." parts: the init resolves it in the sandbox's own
 * root, this is for a clear answer. */
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

static int check_mounts(const struct principal *principal, const struct sandbox_spec *spec,
			struct sandbox_row *row, struct error *error)
{
	static const char *const modes[] = {"ro", "rw", "cow"};
	DONE_BUFFER struct buffer packed = BUFFER(SANDBOX_MOUNTS_MAX * (2 * GUEST_PATH_MAX + 16));
	if (spec->mount_count == 0)
		return 0;
	if (!principal->local)
		return error_set(error, ERROR_FORBIDDEN,
				 "a folder of the host can be given over the Unix socket only");
	if (spec->mount_count > SANDBOX_MOUNTS_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "there are %zu mounts; allowed are %d", spec->mount_count,
				 SANDBOX_MOUNTS_MAX);
	for (size_t i = 0; i < spec->mount_count; i++) {
		const struct mount_spec *mount = &spec->mounts[i];
		if (!mount_path_valid(mount->path))
			return error_set(error, ERROR_INVALID,
					 "mounts: `%.200s` is not an absolute path inside the "
					 "sandbox",
					 mount->path);
		if (mount->fd < 0 || (unsigned)mount->mode >= ARRAY_SIZE(modes))
			return error_set(error, ERROR_INVALID, "mounts: entry %zu has no folder",
					 i);
		if (pack(&packed, modes[mount->mode]) < 0 || pack(&packed, mount->path) < 0 ||
		    pack(&packed, mount->host_path ? mount->host_path : "") < 0)
			return error_set(error, ERROR_LIMIT_EXCEEDED, "mounts: a path is too long");
	}
	row->mounts = take(&packed, &row->mounts_size);
	return 0;
}

static int check_name(const struct sandbox_spec *spec, struct error *error)
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
	struct sandbox_row row = {.state = SANDBOX_CREATING, .flags = spec->flags};
	if (check_name(spec, error) < 0)
		return -1;
	if (spec->template && strcmp(spec->template, TEMPLATE_HOST) != 0)
		return error_set(error, ERROR_TEMPLATE_UNAVAILABLE,
				 "template `%.100s` is not installed", spec->template);
	if (spec->flags & ~(uint32_t)CREATE_NESTED_USERNS)
		return error_set(error, ERROR_INVALID, "an unknown flag is set");
	if (check_tier(core, spec->tier, &row.tier, error) < 0 ||
	    check_limits(&core->config, &spec->limits, &row.limits, error) < 0 ||
	    check_timeouts(&core->config, spec, &row, error) < 0)
		return -1;
	if (check_environment(spec, &row, error) < 0 || check_metadata(spec, &row, error) < 0 ||
	    check_mounts(principal, spec, &row, error) < 0) {
		sandbox_row_done(&row);
		return -1;
	}
	row.id = id_new();
	row.workspace = text_duplicate(principal->workspace);
	row.name = spec->name ? text_duplicate(spec->name) : NULL;
	row.template = text_duplicate(TEMPLATE_HOST);
	*ret_row = row;
	return 0;
}
