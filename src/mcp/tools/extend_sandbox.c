/* extend_sandbox: changes an existing sandbox, above all how long it lives. Called by tools.c;
 * nothing blocks but the store's short calls. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "core/account/access.h"
#include "edge/fields/sandbox_fields.h"
#include "mcp/tools/tool.h"

struct extend_sandbox_state {
	struct sandbox_change_fields fields;
	const char *sandbox;
};

static void changing_free(void *state)
{
	struct extend_sandbox_state *changing = state;
	sandbox_change_done(&changing->fields);
	free(changing);
}

static void change_refuse(struct mcp_request *request, const struct error *error)
{
	if (error->kind == ERROR_INVALID || error->kind == ERROR_LIMIT_EXCEEDED ||
	    error->kind == ERROR_NAME_TAKEN)
		content_refuse(request, "%s.", error->message);
	else
		mcp_fail(request, error);
}

static void sandbox_extended(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	if (!tool_back(request))
		return;
	if (error)
		change_refuse(request, error);
	else
		target_reply(request);
	mcp_release(request);
}

static void extend_sandbox_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct extend_sandbox_state *changing = request->state;
	struct sandbox_change *change = &changing->fields.change;
	struct error error;
	/* A longer life or a name keeps the sandbox: it no longer belongs to a one-shot run. */
	change->options_mask = sandbox->row.options & OPTION_DETACHED;
	tool_wait(request, NULL);
	if (sandbox_change(sandbox, &request->principal, change, sandbox_extended, request,
			   &error) < 0) {
		change_refuse(request, &error);
		mcp_release(request);
	}
}

static const struct field extend_sandbox_fields[] = {
    {"sandbox_id", FIELD_TEXT_AT(struct extend_sandbox_state, sandbox)},
    {FIELD_ROWS_AT(struct extend_sandbox_state, fields, struct sandbox_change_fields),
     .inner = sandbox_change_fields},
    {0},
};

static void extend_sandbox(struct mcp_request *request, const json_t *arguments)
{
	struct extend_sandbox_state *changing = calloc(1, sizeof(*changing));
	struct error error;
	if (!changing)
		abort();
	request->state = changing;
	request->state_free = changing_free;
	const struct sandbox_change *change = &changing->fields.change;
	if (!tool_arguments(request, arguments, changing))
		return;
	if (sandbox_change_check(&changing->fields, &error) < 0) {
		change_refuse(request, &error);
		return;
	}
	if (change->name_set && strcmp(change->name, TARGET_NEW) == 0)
		content_refuse(request, "field `name`: `" TARGET_NEW "` as sandbox_id stands for a "
					"fresh sandbox; choose another name.");
	else if (!change->timeout_set && !change->idle_timeout_set && !change->name_set &&
		 change->label_count == 0)
		content_refuse(request, "Give what is to become of it: `timeout_seconds`, "
					"`idle_timeout_seconds`, `name` or `labels`.");
	else
		target_ready(request, changing->sandbox, TARGET_ASLEEP, extend_sandbox_act);
}

const struct mcp_tool more_sandbox_tools[] = {
    {
	.name = "extend_sandbox",
	.title = "Extend a sandbox",
	.description = "Let a sandbox live for timeout_seconds from now on (0: without end); also "
		       "its idle time-out (0: none), name, labels (merged).",
	.fields = extend_sandbox_fields,
	.example = "{\"sandbox_id\": \"build\", \"timeout_seconds\": 3600}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_DEFAULT | TOOLSET_SANDBOXES,
	.hints = TOOL_REPEATABLE,
	.call = extend_sandbox,
    },
    {0},
};
