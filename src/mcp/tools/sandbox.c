/* Tools on sandboxes: create, list, pause, resume, terminate, and the limits of a create. Called by
 * tools.c; answers are texts for a model. Nothing blocks but the store's short calls. */
#include "edge/fields/sandbox_fields.h"
#include "mcp/tools/tool.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/account/admission.h"
#include "core/account/budget.h"
#include "core/sandbox/create_queue.h"
#include "core/sandbox/ephemeral.h"
#include "core/sandbox/sizes.h"
#include "core/sandbox/template.h"
#include "core/account/access.h"
#include "proto/tiers.h"

#define ANSWER_MAX (32 * KIB)
#define LISTED_MAX 100
#define ENDED_LISTED_MAX 20

/* --- create_sandbox --- */

struct create_sandbox_state {
	struct sandbox_fields fields;
	struct ephemeral_labels labels;
};

static void create_sandbox_free(void *state)
{
	struct create_sandbox_state *create = state;
	sandbox_fields_done(&create->fields);
	free(create);
}

/* The fields were read; checks their values. */
static int create_sandbox_check(struct mcp_request *request, struct create_sandbox_state *create,
				struct error *error)
{
	struct sandbox_spec *spec = &create->fields.spec;
	if (sandbox_fields_check(&create->fields, FIELDS_MCP, &request->core->config, error) < 0)
		return -1;
	if (spec->name && strcmp(spec->name, TARGET_NEW) == 0)
		return error_set(error, ERROR_INVALID,
				 "field `name`: `" TARGET_NEW "` as sandbox_id stands for a fresh "
				 "sandbox; choose another name");
	/* A template with the name of a kind of machine means that kind. */
	spec->allow_substitute = true;
	if (request->view.ephemeral)
		ephemeral_mark(spec, &request->view.connection, &create->labels);
	return 0;
}

static void sandbox_describe(const struct sandbox_row *row, struct buffer *to)
{
	const struct limits *limits = &row->limits;
	(void)!buffer_printf(to,
			     "template %s, %g cpu, %llu MiB memory, %llu MiB disk, network %s, "
			     "isolation %s",
			     row->template, limits->cpu_millis / 1000.0,
			     (unsigned long long)(limits->memory / MIB),
			     (unsigned long long)(limits->disk / MIB), network_name(row->network),
			     tier_name((enum tier)row->tier));
}

static void sandbox_describe_end(const struct mcp_request *request, const struct sandbox_row *row,
				 struct buffer *to)
{
	int64_t left = sandbox_expires_in(row);
	if (left >= 0)
		(void)!buffer_printf(to, "It ends with all its files in %lld s", (long long)left);
	else
		(void)!buffer_append_text(to, "It stays until it is terminated");
	if (request->view.ephemeral)
		(void)!buffer_append_text(to, left >= 0 ? ", or with this connection"
							: " or this connection ends");
	(void)!buffer_append_text(to, ".\n");
}

static void create_sandbox_reply(struct mcp_request *request, const struct sandbox *sandbox)
{
	const char *region = ((const struct create_sandbox_state *)request->state)->fields.region;
	const struct sandbox_row *row = &sandbox->row;
	struct buffer text DONE_BUFFER = BUFFER(ANSWER_MAX);
	(void)!buffer_printf(&text, "sandbox_id: %s\n", row->id.text);
	if (row->name)
		(void)!buffer_printf(&text, "name: %s\n", row->name);
	(void)!buffer_printf(&text, "%s: ", sandbox_state_name((enum sandbox_state)row->state));
	sandbox_describe(row, &text);
	(void)!buffer_append_text(&text, "\n");
	sandbox_describe_end(request, row, &text);
	if (row->template_asked)
		(void)!buffer_printf(&text, "Warning: " TEMPLATE_WARNING ".\n",
				     row->template_asked);
	if (region && strcmp(region, REGION_LOCAL) != 0)
		(void)!buffer_printf(&text,
				     "Note: region `%.64s` was not used: it runs on this host, "
				     "`" REGION_LOCAL "`, the only one.\n",
				     region);
	content_reply(request, "%s", buffer_text(&text));
}

/* An error that names a field also has an example. */
static void sandbox_refuse(struct mcp_request *request, const struct error *error)
{
	if (error->kind == ERROR_INVALID || error->kind == ERROR_LIMIT_EXCEEDED ||
	    error->kind == ERROR_UNSUPPORTED)
		content_refuse(request, "%s.", error->message);
	else if (error->kind == ERROR_NAME_TAKEN)
		content_refuse(request,
			       "%s: it is a live sandbox of yours. Work in it by that name as "
			       "sandbox_id, or choose another one.",
			       error->message);
	else
		mcp_fail(request, error);
}

static void create_sandbox_created(void *data, struct sandbox *sandbox, const struct error *error)
{
	struct mcp_request *request = data;
	struct error ignored;
	/* The client has not heard of it: it would only take up room. */
	if (!request->open && !error)
		(void)!sandbox_delete(sandbox, &request->principal, END_REASON_USER,
				      "the client that created it went away first", NULL, NULL,
				      &ignored);
	if (!tool_back(request))
		return;
	if (error)
		sandbox_refuse(request, error);
	else
		create_sandbox_reply(request, sandbox);
	mcp_release(request);
}

/* If it waits for room, it leaves the queue; else it is deleted when it has been made. */
static void create_sandbox_cancelled(struct mcp_request *request)
{
	if (create_queue_leave(request->core, request))
		mcp_release(request);
}

static void create_sandbox(struct mcp_request *request, const json_t *arguments)
{
	struct error error;
	struct create_sandbox_state *create = calloc(1, sizeof(*create));
	if (!create)
		abort();
	request->state = create;
	request->state_free = create_sandbox_free;
	if (!tool_arguments(request, arguments, &create->fields))
		return;
	if (create_sandbox_check(request, create, &error) < 0 ||
	    sandbox_create(request->core, &request->principal, &create->fields.spec,
			   create_sandbox_created, request, &error) < 0) {
		sandbox_refuse(request, &error);
		return;
	}
	tool_wait(request, create_sandbox_cancelled);
}

/* --- list_sandboxes --- */

static bool ended_sandbox_list(void *data, const struct sandbox_row *row)
{
	struct buffer *text = data;
	char when[CLOCK_TEXT_SIZE];
	clock_text(row->ended_wall, when);
	(void)!buffer_printf(
	    text, "%s%s%s%s: ended %s (%s%s%s)\n", row->id.text, row->name ? " (" : "",
	    row->name ? row->name : "", row->name ? ")" : "", when,
	    end_reason_name((enum end_reason)row->end_reason), row->end_message ? ": " : "",
	    row->end_message ? row->end_message : "");
	return true;
}

struct list_sandboxes_arguments {
	bool ended;
};
static const struct field list_sandboxes_fields[] = {
    {"ended", FIELD_BOOL_AT(struct list_sandboxes_arguments, ended),
     .mcp = "also those that ended, with when and why"},
    {0},
};

static void list_sandboxes(struct mcp_request *request, const json_t *arguments)
{
	struct list_sandboxes_arguments given = {0};
	struct error error;
	struct buffer text DONE_BUFFER = BUFFER(ANSWER_MAX);
	if (!tool_arguments(request, arguments, &given))
		return;
	target_list(request, LISTED_MAX, &text);
	if (text.size == 0)
		(void)!buffer_append_text(&text, "No sandbox is live.\n");
	/* A bound token's sandbox cannot have ended while the token is valid. */
	if (given.ended && !id_is_set(&request->principal.sandbox)) {
		(void)!buffer_append_text(&text, "Ended, the newest first:\n");
		if (sandbox_ended_each(request->core, &request->principal, ENDED_LISTED_MAX,
				       ended_sandbox_list, &text, &error) < 0) {
			mcp_fail(request, &error);
			return;
		}
	}
	content_reply(request, "%s", buffer_text(&text));
}

/* --- get_sandbox_limits --- */

static void limits_say_sizes(const struct config *config, struct buffer *to)
{
	const char *comma = "";
	(void)!buffer_append_text(to, "sizes: ");
	for (const struct sandbox_size *size = sandbox_sizes; size->name; size++, comma = ", ")
		(void)!buffer_printf(to, "%s%s (%g cpu, %llu MiB%s)", comma, size->name,
				     size->cpu_millis / 1000.0,
				     (unsigned long long)(size->memory / MIB),
				     sandbox_size_fits(size, &config->maximum) ? "" : "; not here");
	(void)!buffer_append_text(to, "\n");
}

static void limits_say_all(const char *name, const struct limits *limits, uint32_t timeout,
			   struct buffer *to)
{
	(void)!buffer_printf(to, "%s: ", name);
	if (limits->cpu_millis)
		(void)!buffer_printf(to, "%g cpu, ", limits->cpu_millis / 1000.0);
	if (limits->memory)
		(void)!buffer_printf(to, "%llu MiB memory, ",
				     (unsigned long long)(limits->memory / MIB));
	if (limits->disk)
		(void)!buffer_printf(to, "%llu MiB disk, ",
				     (unsigned long long)(limits->disk / MIB));
	if (limits->pids)
		(void)!buffer_printf(to, "%u processes, ", limits->pids);
	if (timeout)
		(void)!buffer_printf(to, "timeout_seconds %u\n", timeout);
	else
		(void)!buffer_append_text(to, "no time limit\n");
}

static void limits_say_templates(struct buffer *to)
{
	const char *comma = "";
	(void)!buffer_append_text(to, "templates: " TEMPLATE_HOST
				      " (this machine's own programs); it also stands for ");
	for (const struct template *template = templates; template->name; template ++)
		if (!template->installed) {
			(void)!buffer_printf(to, "%s%s", comma, template->name);
			comma = ", ";
		}
	(void)!buffer_append_text(to, "\n");
}

static void limits_say_budget(void *data, const struct budget_state *state)
{
	struct buffer *to = data;
	double unit = (double)budget_unit(state->what);
	char when[CLOCK_TEXT_SIZE];
	if (state->maximum < 0)
		return;
	(void)!buffer_printf(to, "budget %s/%s: %g of %g used", budget_what_name(state->what),
			     budget_period_name(state->period), (double)state->used / unit,
			     (double)state->maximum / unit);
	if (state->resets_wall) {
		clock_text(state->resets_wall, when);
		(void)!buffer_printf(to, ", resets %s", when);
	}
	(void)!buffer_append_text(to, "\n");
}

static void get_sandbox_limits(struct mcp_request *request, const json_t *arguments)
{
	struct core *core = request->core;
	const struct config *config = &core->config;
	struct buffer text DONE_BUFFER = BUFFER(ANSWER_MAX);
	struct error error;
	struct workspace_now now;
	if (!tool_arguments(request, arguments, NULL))
		return;
	struct workspace *workspace = workspace_get(core, request->principal.workspace);
	workspace_now(core, workspace, &now);
	limits_say_sizes(config, &text);
	limits_say_all("default", &config->defaults, config->timeout_seconds, &text);
	limits_say_all("maximum", &config->maximum, config->timeout_seconds_max, &text);
	limits_say_templates(&text);
	(void)!buffer_printf(
	    &text, "network: " NETWORK_NAMES "\nregions: local\nlive sandboxes: %u of yours\n",
	    now.sandboxes);
	if (admission_check(core, &config->defaults, &error) < 0)
		(void)!buffer_printf(&text, "room: none now: %s\n", error.message);
	budget_each(core, workspace, limits_say_budget, &text);
	content_reply(request, "%s", buffer_text(&text));
}

/* --- pause, resume, terminate --- */

static void sandbox_transition_done(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	if (!tool_back(request))
		return;
	if (error)
		mcp_fail(request, error);
	else
		target_reply(request);
	mcp_release(request);
}

static void sandbox_terminated(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	if (!tool_back(request))
		return;
	if (error)
		mcp_fail(request, error);
	else
		content_reply(request, "sandbox %s is terminated: its processes and files are gone",
			      request->sandbox.text);
	mcp_release(request);
}

static void pause_sandbox_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct error error;
	if (sandbox_pause(sandbox, &request->principal, sandbox_transition_done, request, &error) <
	    0)
		mcp_fail(request, &error);
	else
		tool_wait(request, NULL);
}

static void resume_sandbox_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct error error;
	int result = sandbox->row.state == SANDBOX_STOPPED
			 ? sandbox_start(sandbox, &request->principal, sandbox_transition_done,
					 request, &error)
			 : sandbox_resume(sandbox, &request->principal, sandbox_transition_done,
					  request, &error);
	if (result < 0)
		mcp_fail(request, &error);
	else
		tool_wait(request, NULL);
}

static void terminate_sandbox_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct error error;
	if (sandbox_delete(sandbox, &request->principal, END_REASON_USER, NULL, sandbox_terminated,
			   request, &error) < 0)
		mcp_fail(request, &error);
	else
		tool_wait(request, NULL);
}

static const struct field named_fields[] = {
    {"sandbox_id", FIELD_TEXT_AT(struct tool_sandbox, sandbox), FIELD_REQUIRED_TOLD},
    {0},
};

static void target_named_ready(struct mcp_request *request, const json_t *arguments,
			       void (*act)(struct mcp_request *request, struct sandbox *sandbox))
{
	struct tool_sandbox given = {0};
	if (tool_arguments(request, arguments, &given))
		target_ready(request, given.sandbox, TARGET_NAMED | TARGET_ASLEEP, act);
}

static void pause_sandbox(struct mcp_request *request, const json_t *arguments)
{
	target_named_ready(request, arguments, pause_sandbox_act);
}

static void resume_sandbox(struct mcp_request *request, const json_t *arguments)
{
	target_named_ready(request, arguments, resume_sandbox_act);
}

/* Terminating an ended sandbox succeeds. */
static void terminate_sandbox(struct mcp_request *request, const json_t *arguments)
{
	struct sandbox *sandbox;
	struct error error;
	const char *name = json_string_value(json_object_get(arguments, "sandbox_id"));
	if (name && json_object_size(arguments) == 1 &&
	    sandbox_find(request->core, &request->principal, name, &sandbox, &error) < 0 &&
	    error.kind == ERROR_SANDBOX_ENDED)
		content_reply(request, "%s: nothing was left to terminate", error.message);
	else
		target_named_ready(request, arguments, terminate_sandbox_act);
}

/* --- the table --- */

const struct mcp_tool sandbox_tools[] = {
    {
	.name = "create_sandbox",
	.title = "Create a sandbox",
	.description = "Make a sandbox, a Linux machine without network, for work in several "
		       "steps; ready in milliseconds. Returns its sandbox_id. One run_shell or "
		       "run_code needs none. It ends with its files after timeout_seconds (default "
		       "600 unless this host has another).",
	.fields = sandbox_create_fields,
	.unbound = "cannot make another: leave sandbox_id out and work in that one",
	.example = "{\"size\": \"medium\", \"timeout_seconds\": 3600, \"name\": \"build\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_UNBOUND,
	.call = create_sandbox,
    },
    {
	.name = "list_sandboxes",
	.title = "List sandboxes",
	.description = "Your sandboxes: id, name, state, age, time left. Finds a lost sandbox_id.",
	.fields = list_sandboxes_fields,
	.example = "{}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = list_sandboxes,
    },
    {
	.name = "get_sandbox_limits",
	.title = "Get limits",
	.description = "Sizes, templates, maxima and budgets that create_sandbox has here.",
	.example = "{}",
	.scope = SCOPE_READ,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = get_sandbox_limits,
    },
    {
	.name = "pause_sandbox",
	.title = "Pause a sandbox",
	.description = "Freeze it for later: processes, memory and files stay and its time stands "
		       "still. Any call wakes it.",
	.fields = named_fields,
	.example = "{\"sandbox_id\": \"build\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_REPEATABLE,
	.call = pause_sandbox,
    },
    {
	.name = "resume_sandbox",
	.title = "Resume a sandbox",
	.description = "Wake a paused or stopped sandbox.",
	.fields = named_fields,
	.example = "{\"sandbox_id\": \"build\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_REPEATABLE,
	.call = resume_sandbox,
    },
    {
	.name = "terminate_sandbox",
	.title = "Terminate a sandbox",
	.description = "End a sandbox for good, with its processes and files. Use it when done.",
	.fields = named_fields,
	.example = "{\"sandbox_id\": \"build\"}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_DEFAULT,
	.hints = TOOL_DESTROYS | TOOL_REPEATABLE,
	.call = terminate_sandbox,
    },
    {0},
};
