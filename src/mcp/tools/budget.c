/* Budgets of workspaces, for the administration. Called by tools.c; one short write of the store at
 * most. */
#include "base/clock.h"
#include "core/account/budget.h"
#include "edge/fields/account_fields.h"
#include "mcp/tools/admin.h"

#define ANSWER_MAX (16 * KIB)

static void budget_say(void *data, const struct budget_state *state)
{
	struct buffer *to = data;
	double unit = (double)budget_unit(state->what);
	char when[CLOCK_TEXT_SIZE];
	(void)!buffer_printf(to, "%s/%s: %g used of ", budget_what_name(state->what),
			     budget_period_name(state->period), (double)state->used / unit);
	if (state->maximum == BUDGET_UNLIMITED)
		(void)!buffer_append_text(to, "no maximum");
	else
		(void)!buffer_printf(to, "%g", (double)state->maximum / unit);
	if (state->resets_wall) {
		clock_text(state->resets_wall, when);
		(void)!buffer_printf(to, ", resets %s", when);
	}
	(void)!buffer_printf(to, " (%s)\n", state->own ? "its own" : "the default");
}

static void budgets_reply(struct mcp_request *request, const char *name)
{
	struct buffer text DONE_BUFFER = BUFFER(ANSWER_MAX);
	budget_each(request->core, workspace_get(request->core, name), budget_say, &text);
	content_reply(request, "workspace %s:\n%s", name,
		      text.size > 0 ? buffer_text(&text) : "no budgets: everything the host has");
}

struct budget_arguments {
	const char *workspace;
	struct budget_fields budget;
};
static const struct field get_budgets_fields[] = {
    {"workspace", FIELD_TEXT_AT(struct budget_arguments, workspace), .min = 1,
     .max = WORKSPACE_MAX},
    {0},
};

static void get_budgets(struct mcp_request *request, const json_t *arguments)
{
	struct budget_arguments given = {.workspace = request->principal.workspace};
	if (tool_arguments(request, arguments, &given) && admin_workspace(request, given.workspace))
		budgets_reply(request, given.workspace);
}

/* The workspace's own budgets, with the new one replaced. */
struct own_budgets {
	struct budget_wish wishes[BUDGET_WHATS * PERIODS];
	size_t count;
	const struct budget_wish *changed;
};

static void budget_wish_keep(void *data, const struct budget_state *state)
{
	struct own_budgets *own = data;
	if (state->own &&
	    (state->what != own->changed->what || state->period != own->changed->period) &&
	    own->count < ARRAY_SIZE(own->wishes) - 1)
		own->wishes[own->count++] =
		    (struct budget_wish){state->what, state->period, state->maximum};
}

static const struct field set_budget_fields[] = {
    {"workspace", FIELD_TEXT_AT(struct budget_arguments, workspace), FIELD_REQUIRED, 1,
     WORKSPACE_MAX},
    {FIELD_ROWS_AT(struct budget_arguments, budget, struct budget_fields), .inner = budget_fields},
    {0},
};

static void set_budget(struct mcp_request *request, const json_t *arguments)
{
	struct budget_arguments given = {0};
	struct budget_wish wish = {0};
	struct own_budgets own = {.changed = &wish};
	struct error error;
	if (!tool_arguments(request, arguments, &given) ||
	    !admin_workspace(request, given.workspace))
		return;
	if (budget_fields_check(&given.budget, &wish, &error) < 0) {
		content_refuse(request, "%s.", error.message);
		return;
	}
	struct workspace *workspace = workspace_get(request->core, given.workspace);
	budget_each(request->core, workspace, budget_wish_keep, &own);
	own.wishes[own.count++] = wish;
	if (budget_replace(request->core, workspace, own.wishes, own.count, &error) < 0)
		mcp_fail(request, &error);
	else
		budgets_reply(request, given.workspace);
}

static const struct field remove_budget_fields[] = {
    {"workspace", FIELD_TEXT_AT(struct budget_arguments, workspace), FIELD_REQUIRED, 1,
     WORKSPACE_MAX},
    {"what", FIELD_TEXT_AT(struct budget_arguments, budget.what), FIELD_WORDS_TOLD, 1, 32,
     .words = BUDGET_WHAT_NAMES},
    {"period", FIELD_TEXT_AT(struct budget_arguments, budget.period), FIELD_WORDS_TOLD, 1, 32,
     .words = BUDGET_PERIOD_NAMES},
    {0},
};

static void remove_budget(struct mcp_request *request, const json_t *arguments)
{
	struct budget_arguments given = {0};
	struct budget_wish wish = {0};
	struct error error;
	if (!tool_arguments(request, arguments, &given) ||
	    !admin_workspace(request, given.workspace))
		return;
	const char *what = given.budget.what, *period = given.budget.period;
	if (!what != !period) {
		content_refuse(request, "Give `what` and `period`, or neither to remove all.");
		return;
	}
	if (what && budget_kind_parse(what, period, &wish.what, &wish.period, &error) < 0) {
		content_refuse(request, "%s.", error.message);
		return;
	}
	if (budget_remove(request->core, workspace_get(request->core, given.workspace), wish.what,
			  wish.period, &error) < 0)
		mcp_fail(request, &error);
	else
		budgets_reply(request, given.workspace);
}

const struct mcp_tool budget_tools[] = {
    {
	.name = "get_budgets",
	.title = "Get budgets",
	.description = "What a workspace may use at once and per period, and what it has used.",
	.fields = get_budgets_fields,
	.example = "{\"workspace\": \"team-a\"}",
	.scope = SCOPE_ADMIN,
	.hints = TOOL_READS | TOOL_REPEATABLE,
	.call = get_budgets,
    },
    {
	.name = "set_budget",
	.title = "Set a budget",
	.description =
	    "Give a workspace a budget of its own; without maximum it has none, whatever "
	    "the default says. sandboxes, vcpus, memory_mb, disk_mb are held (period "
	    "now), the others spent per period.",
	.fields = set_budget_fields,
	.example = "{\"workspace\": \"team-a\", \"what\": \"creates\", \"period\": \"day\", "
		   "\"maximum\": 100}",
	.scope = SCOPE_ADMIN,
	.hints = TOOL_REPEATABLE,
	.call = set_budget,
    },
    {
	.name = "remove_budget",
	.title = "Remove a budget",
	.description =
	    "Take a workspace's own budget away, or all of them: the defaults hold again.",
	.fields = remove_budget_fields,
	.example = "{\"workspace\": \"team-a\", \"what\": \"creates\", \"period\": \"day\"}",
	.scope = SCOPE_ADMIN,
	.hints = TOOL_DESTROYS,
	.call = remove_budget,
    },
    {0},
};
