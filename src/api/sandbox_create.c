/* POST /v1/sandboxes. What is asked for is checked field by field here; what this host and its
 * configuration allow is the domain's to say. Runs on the loop; nothing blocks. */
#include "api/call.h"

#include <stdlib.h>
#include <string.h>

#include "api/pairs.h"
#include "api/sandbox_record.h"
#include "base/text.h"
#include "proto/folder_grant.h"
#include "tier/driver.h"

struct create {
	struct sandbox_spec spec;
	struct pair *environment, *metadata;
	struct mount_spec mounts[SANDBOX_MOUNTS_MAX];
};

static void create_free(void *state)
{
	struct create *create = state;
	free(create->environment);
	free(create->metadata);
	free(create);
}

static int parse_size(const char *size, struct limits *limits, struct error *error)
{
	static const struct {
		const char *name;
		uint32_t cpu_millis;
		uint64_t memory;
	} sizes[] = {
	    {"small", 1000, 512 * MIB},
	    {"medium", 2000, 2 * GIB},
	    {"large", 4000, 8 * GIB},
	};
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		if (strcmp(size, sizes[i].name) != 0)
			continue;
		limits->cpu_millis = sizes[i].cpu_millis;
		limits->memory = sizes[i].memory;
		return 0;
	}
	return error_set(error, ERROR_INVALID, "field `size` must be small, medium or large");
}

static int parse_mount(const json_t *json, struct mount_spec *mount, struct error *error)
{
	const char *mode = "ro";
	struct field fields[] = {
	    {"path", FIELD_TEXT, &mount->path, true, 1, GUEST_PATH_MAX - 1},
	    {"mode", FIELD_TEXT, &mode},
	    {"host_path", FIELD_TEXT, &mount->host_path, false, 0, GUEST_PATH_MAX - 1},
	};
	if (!json_is_object(json))
		return error_set(error, ERROR_INVALID, "field `mounts` must hold objects");
	mount->host_path = "";
	if (json_fields(json, fields, ARRAY_SIZE(fields), error) < 0)
		return error_prepend(error, "mounts");
	if (mount->path[0] != '/')
		return error_set(error, ERROR_INVALID, "mounts: `path` must be absolute");
	if (mount_mode_parse(mode, &mount->mode) < 0)
		return error_set(error, ERROR_INVALID, "mounts: `mode` must be ro, rw or cow");
	return 0;
}

/* A mount is a directory that the client opened, as itself, and passed along: no path of the host
 * is ever resolved for somebody else. */
static int parse_mounts(struct call *call, const json_t *json, struct create *create,
			struct error *error)
{
	const struct http_request *request = http_request(call->exchange);
	size_t count = json ? json_array_size(json) : 0;
	if (count > 0 && !request->peer.is_unix)
		return error_set(error, ERROR_INVALID,
				 "mounts: possible over the Unix socket only, where the client "
				 "passes the open directories");
	if (count > SANDBOX_MOUNTS_MAX)
		return error_set(error, ERROR_INVALID, "mounts: at most %d", SANDBOX_MOUNTS_MAX);
	if (count != request->fd_count)
		return error_set(error, ERROR_INVALID,
				 "mounts: %zu of them, but %zu descriptors came with the request",
				 count, request->fd_count);
	for (size_t i = 0; i < count; i++) {
		if (parse_mount(json_array_get(json, i), &create->mounts[i], error) < 0)
			return -1;
		create->mounts[i].fd = request->fds[i];
	}
	create->spec.mounts = create->mounts;
	create->spec.mount_count = count;
	return 0;
}

static int parse_choices(struct sandbox_spec *spec, const char *isolation, const char *network,
			 const char *region, struct error *error)
{
	if (isolation) {
		spec->tier = tier_parse(isolation);
		if (spec->tier == TIER_COUNT)
			return error_set(error, ERROR_INVALID,
					 "field `isolation` must be auto, namespace, gvisor or vm");
	}
	if (network && strcmp(network, "off") != 0) {
		if (strcmp(network, "restricted") == 0 || strcmp(network, "open") == 0)
			return error_set(error, ERROR_UNSUPPORTED,
					 "network `%s` is not available; `off` is", network);
		return error_set(error, ERROR_INVALID,
				 "field `network` must be off, restricted or open");
	}
	if (region)
		return error_set(error, ERROR_UNSUPPORTED,
				 "field `region`: this host is the only one; leave it out");
	return 0;
}

struct sizes {
	double cpu;
	uint64_t memory_mb, disk_mb, pids, timeout, idle_timeout;
	bool cpu_set;
	const char *size;
};

static int parse_limits(const struct sizes *sizes, struct sandbox_spec *spec, struct error *error)
{
	if (sizes->size && parse_size(sizes->size, &spec->limits, error) < 0)
		return -1;
	if (sizes->cpu_set) {
		double millis = sizes->cpu * 1000 + 0.5;
		if (millis < SANDBOX_CPU_MILLIS_MIN || millis > SANDBOX_CPU_MILLIS_MAX + 1)
			return error_set(
			    error, ERROR_INVALID, "field `cpu` must be %.2f to %d (vCPUs)",
			    SANDBOX_CPU_MILLIS_MIN / 1000.0, (int)(SANDBOX_CPU_MILLIS_MAX / 1000));
		spec->limits.cpu_millis = (uint32_t)millis;
	}
	if (sizes->memory_mb)
		spec->limits.memory = sizes->memory_mb * MIB;
	if (sizes->disk_mb)
		spec->limits.disk = sizes->disk_mb * MIB;
	spec->limits.pids = (uint32_t)sizes->pids;
	spec->timeout_seconds = (uint32_t)sizes->timeout;
	spec->idle_timeout_seconds = (uint32_t)sizes->idle_timeout;
	return 0;
}

static int parse(struct call *call, struct create *create, struct error *error)
{
	struct sandbox_spec *spec = &create->spec;
	struct sizes sizes = {0};
	json_t *environment = NULL, *metadata = NULL, *mounts = NULL;
	const char *isolation = NULL, *network = NULL, *region = NULL;
	bool nested = false;
	struct field fields[] = {
	    {"template", FIELD_TEXT, &spec->template, false, 1, 128},
	    {"name", FIELD_TEXT, &spec->name, false, 1, NAME_MAX_LENGTH},
	    {"isolation", FIELD_TEXT, &isolation},
	    {"size", FIELD_TEXT, &sizes.size},
	    {"cpu", FIELD_NUMBER, &sizes.cpu, .present = &sizes.cpu_set},
	    {"memory_mb", FIELD_UINT, &sizes.memory_mb, false, SANDBOX_MEMORY_MIN / MIB,
	     SANDBOX_MEMORY_MAX / MIB},
	    {"disk_mb", FIELD_UINT, &sizes.disk_mb, false, SANDBOX_DISK_MIN / MIB,
	     SANDBOX_DISK_MAX / MIB},
	    {"pids", FIELD_UINT, &sizes.pids, false, SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX},
	    {"timeout_seconds", FIELD_UINT, &sizes.timeout, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &spec->timeout_set},
	    {"idle_timeout_seconds", FIELD_UINT, &sizes.idle_timeout, false, 0,
	     SANDBOX_TIMEOUT_MAX},
	    {"env", FIELD_OBJECT, &environment},
	    {"metadata", FIELD_OBJECT, &metadata},
	    {"mounts", FIELD_ARRAY, &mounts},
	    {"nested_userns", FIELD_BOOL, &nested},
	    {"network", FIELD_TEXT, &network},
	    {"region", FIELD_TEXT, &region},
	};
	if (json_fields(call->body, fields, ARRAY_SIZE(fields), error) < 0 ||
	    parse_choices(spec, isolation, network, region, error) < 0 ||
	    parse_limits(&sizes, spec, error) < 0 || parse_mounts(call, mounts, create, error) < 0)
		return -1;
	if (spec->name && !name_valid(spec->name))
		return error_set(error, ERROR_INVALID,
				 "field `name`: 1 to 63 of a-z, 0-9 and '-', no '-' at either end, "
				 "and not of an id's form");
	if (nested)
		spec->flags |= CREATE_NESTED_USERNS;
	if (parse_environment("env", environment, EXEC_REQUEST_BYTES_MAX, &create->environment,
			      &spec->environment_count, error) < 0 ||
	    parse_pairs("metadata", metadata, SANDBOX_METADATA_MAX, SANDBOX_METADATA_BYTES_MAX,
			&create->metadata, &spec->metadata_count, error) < 0)
		return -1;
	spec->environment = create->environment;
	spec->metadata = create->metadata;
	return 0;
}

static void discard(void *data, const struct error *error)
{
	(void)data;
	(void)error;
}

static void created(void *data, struct sandbox *sandbox, const struct error *error)
{
	struct call *call = data;
	if (error) {
		reply_error(call, error);
	} else if (call->exchange) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_sandbox(&writer, NULL, &sandbox->row, sandbox);
		reply_json(call, 201, &writer);
	} else {
		/* Nobody was told of it, and a client that tries again would get a second one. */
		struct error ignored;
		int result = sandbox_delete(sandbox, END_REASON_USER,
					    "the client that created it went away first", discard,
					    NULL, &ignored);
		(void)result;
	}
	call_release(call);
}

void sandbox_post(struct call *call)
{
	struct error error;
	struct create *create = calloc(1, sizeof(*create));
	if (!create)
		abort();
	call->state = create;
	call->state_free = create_free;
	if (id_is_set(&call->principal.sandbox)) {
		error_set(&error, ERROR_FORBIDDEN, "this token is for one sandbox only");
		reply_error(call, &error);
		return;
	}
	if (parse(call, create, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	call_hold(call);
	if (sandbox_create(call->api->core, &call->principal, &create->spec, created, call,
			   &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}
