/* GET /v1/limits: possible values of a create, the caller's rights, the rest of its budgets, and
 * the room on the host. Answers from memory; nothing blocks but a read of /proc/meminfo. */
#include "api/account/budget_record.h"
#include "api/routes.h"
#include "api/sandbox/create_fields.h"
#include "core/account/admission.h"
#include "core/sandbox/create_queue.h"
#include "core/sandbox/sizes.h"
#include "core/sandbox/template.h"

static void put_sizes(struct json_writer *writer, const struct limits *maximum)
{
	put_array(writer, "sizes");
	for (const struct sandbox_size *size = sandbox_sizes; size->name; size++) {
		put_object(writer, NULL);
		put_text(writer, "name", size->name);
		put_number(writer, "cpu", size->cpu_millis / 1000.0);
		put_uint(writer, "memory_mb", size->memory / MIB);
		put_bool(writer, "fits", sandbox_size_fits(size, maximum));
		put_object_end(writer);
	}
	put_array_end(writer);
}

static void put_templates(struct json_writer *writer, const struct config *config)
{
	put_array(writer, "templates");
	for (const struct template *template = templates; template->name; template ++)
		if (template->installed || template_substituted(config, template))
			put_text(writer, NULL, template->name);
	put_array_end(writer);
}

static void put_limits(struct json_writer *writer, const char *key, const struct limits *limits,
		       uint32_t timeout_seconds)
{
	put_object(writer, key);
	put_number(writer, "cpu", limits->cpu_millis / 1000.0);
	put_uint(writer, "memory_mb", limits->memory / MIB);
	put_uint(writer, "disk_mb", limits->disk / MIB);
	put_uint(writer, "inodes", limits->inodes);
	put_uint(writer, "pids", limits->pids);
	put_uint(writer, "files", limits->files);
	put_uint(writer, "timeout_seconds", timeout_seconds);
	put_object_end(writer);
}

static void put_token(struct json_writer *writer, const struct principal *principal)
{
	static const enum scope scopes[] = {SCOPE_READ, SCOPE_WRITE, SCOPE_ADMIN};
	put_object(writer, "token");
	put_text(writer, "id", id_is_set(&principal->token) ? principal->token.text : NULL);
	put_text(writer, "workspace", principal->workspace);
	/* Including implied ones: write includes read, admin both. */
	put_array(writer, "scopes");
	for (size_t i = 0; i < ARRAY_SIZE(scopes); i++)
		if (principal_may(principal, scopes[i]))
			put_text(writer, NULL, scope_name(scopes[i]));
	put_array_end(writer);
	put_text(writer, "sandbox",
		 id_is_set(&principal->sandbox) ? principal->sandbox.text : NULL);
	put_time(writer, "expires_at", principal->expires_wall);
	put_bool(writer, "may_create",
		 principal_may(principal, SCOPE_WRITE) && !id_is_set(&principal->sandbox));
	put_object_end(writer);
}

static void put_host(struct json_writer *writer, struct core *core)
{
	struct host_room room;
	struct error error;
	bool fits = admission_check(core, &core->config.defaults, &error) == 0;
	admission_room(core, &room);
	put_object(writer, "host");
	put_uint(writer, "sandboxes", core->sandbox_count);
	put_uint(writer, "sandboxes_max", core->config.sandboxes_max);
	put_uint(writer, "memory_total_mb", room.memory_total / MIB);
	put_uint(writer, "memory_available_mb", room.memory_available / MIB);
	put_uint(writer, "memory_reserve_mb", room.memory_reserve / MIB);
	put_uint(writer, "memory_committed_mb", room.memory_committed / MIB);
	if (core->config.memory_overcommit != 0)
		put_uint(writer, "memory_commit_max_mb", room.memory_commit_max / MIB);
	else
		put_null(writer, "memory_commit_max_mb");
	put_uint(writer, "memory_expected_mb", room.memory_expected / MIB);
	put_uint(writer, "disk_free_mb", room.disk_free / MIB);
	put_uint(writer, "disk_reserve_mb", room.disk_reserve / MIB);
	put_bool(writer, "room", fits);
	put_object_end(writer);
}

static void limits_get(struct call *call)
{
	struct core *core = call->core;
	const struct config *config = &core->config;
	struct workspace *workspace = workspace_get(core, call->principal.workspace);
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_sizes(&writer, &config->maximum);
	put_array(&writer, "regions");
	put_text(&writer, NULL, REGION_LOCAL);
	put_array_end(&writer);
	put_templates(&writer, config);
	put_limits(&writer, "defaults", &config->defaults, config->timeout_seconds);
	put_limits(&writer, "maximum", &config->maximum, config->timeout_seconds_max);
	put_token(&writer, &call->principal);
	put_budgets(&writer, core, workspace);
	put_object(&writer, "queue");
	put_uint(&writer, "length", workspace->queue_length);
	put_uint(&writer, "maximum", config->queue_max);
	put_uint(&writer, "wait_ms_max", WAIT_MS_MAX);
	put_object_end(&writer);
	put_host(&writer, core);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

const struct route limits_routes[] = {
    {"GET", "/v1/limits", READ, 0, limits_get},
    {0},
};
