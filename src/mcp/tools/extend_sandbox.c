/* extend_sandbox: changing one that is there, above all how long it lives. Called by tools.c;
 * nothing blocks but the store's short calls. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "core/sandbox/labels.h"
#include "core/account/access.h"
#include "mcp/tools/tool.h"

#define LABELS_BYTES_MAX (LABELS_MAX * 2 * (LABEL_MAX + 1))

struct changing {
	struct sandbox_change change;
	struct pair *labels;
};

static void changing_free(void *state)
{
	struct changing *changing = state;
	free(changing->labels);
	free(changing);
}

static void refuse(struct mcp_request *request, const struct error *error)
{
	if (error->kind == ERROR_INVALID || error->kind == ERROR_LIMIT_EXCEEDED ||
	    error->kind == ERROR_NAME_TAKEN)
		content_refuse(request, "%s.", error->message);
	else
		mcp_fail(request, error);
}

static void changed(void *data, const struct error *error)
{
	struct mcp_request *request = data;
	if (!tool_back(request))
		return;
	if (error)
		refuse(request, error);
	else
		target_reply(request);
	tool_done(request);
}

static void act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct changing *changing = request->state;
	struct error error;
	/* Who gives it a longer life or a name keeps it: it is no longer a one-shot run's. */
	changing->change.options_mask = sandbox->row.options & OPTION_DETACHED;
	tool_wait(request, NULL);
	if (sandbox_change(sandbox, &request->principal, &changing->change, changed, request,
			   &error) < 0) {
		refuse(request, &error);
		tool_done(request);
	}
}

static void extend_sandbox(struct mcp_request *request, const json_t *arguments)
{
	struct changing *changing = calloc(1, sizeof(*changing));
	const struct config *config = &request->core->config;
	const char *name = NULL;
	uint64_t timeout = 0, idle = 0;
	json_t *labels = NULL;
	struct error error;
	if (!changing)
		abort();
	request->state = changing;
	request->state_free = changing_free;
	struct sandbox_change *change = &changing->change;
	struct field fields[] = {
	    {"sandbox_id", FIELD_TEXT, &name},
	    {"timeout_seconds", FIELD_UINT, &timeout, false, 1, SANDBOX_TIMEOUT_MAX,
	     .present = &change->timeout_set, .max_here = config->timeout_seconds_max},
	    {"idle_timeout_seconds", FIELD_UINT, &idle, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &change->idle_timeout_set},
	    {"name", FIELD_TEXT, &change->name, false, 1, NAME_MAX_LENGTH,
	     .present = &change->name_set},
	    {"labels", FIELD_OBJECT, &labels},
	};
	if (!tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)))
		return;
	change->timeout_seconds = (uint32_t)timeout;
	change->idle_timeout_seconds = (uint32_t)idle;
	if (tool_pairs("labels", labels, LABELS_MAX, LABELS_BYTES_MAX, &changing->labels,
		       &change->label_count, &error) < 0) {
		refuse(request, &error);
		return;
	}
	change->labels = changing->labels;
	if (change->name_set && strcmp(change->name, TARGET_NEW) == 0)
		content_refuse(request, "field `name`: `" TARGET_NEW "` as sandbox_id stands for a "
					"fresh sandbox; choose another name.");
	else if (!change->timeout_set && !change->idle_timeout_set && !change->name_set &&
		 change->label_count == 0)
		content_refuse(request, "Give what is to become of it: `timeout_seconds`, "
					"`idle_timeout_seconds`, `name` or `labels`.");
	else
		target_ready(request, name, TARGET_ASLEEP, act);
}

const struct mcp_tool more_sandbox_tools[] = {
    {
	.name = "extend_sandbox",
	.title = "Extend a sandbox",
	.description = "Let a sandbox live for timeout_seconds from now on; also its idle time-out "
		       "(0: none), name, labels (merged).",
	.input = "{\"type\":\"object\",\"properties\":{\"sandbox_id\":{\"type\":\"string\"},"
		 "\"timeout_seconds\":{\"type\":\"integer\"},"
		 "\"idle_timeout_seconds\":{\"type\":\"integer\"},"
		 "\"name\":{\"type\":\"string\"},"
		 "\"labels\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}}"
		 "}}",
	.example = "{\"sandbox_id\": \"build\", \"timeout_seconds\": 3600}",
	.scope = SCOPE_WRITE,
	.toolsets = TOOLSET_DEFAULT | TOOLSET_SANDBOXES,
	.hints = TOOL_REPEATABLE,
	.call = extend_sandbox,
    },
    {0},
};
