/* Budgets of workspaces, for the administration. Called by tools.c; one short write of the store at
 * most. */
#include <string.h>

#include "base/clock.h"
#include "core/account/budget.h"
#include "mcp/tools/admin.h"

#define ANSWER_MAX (16 * KIB)
/* In the units of the API. */
#define MAXIMUM_MAX 1e12

#define WHATS "sandboxes, vcpus, memory_mb, disk_mb, creates, execs, wall_seconds, cpu_seconds"

static void say(void *data, const struct budget_state *state)
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

static void reply(struct mcp_request *request, const char *name)
{
	struct buffer text DONE_BUFFER = BUFFER(ANSWER_MAX);
	budget_each(request->core, workspace_get(request->core, name), say, &text);
	content_reply(request, "workspace %s:\n%s", name,
		      text.size > 0 ? buffer_text(&text) : "no budgets: everything the host has");
}

struct budget_ask {
	const char *workspace, *what, *period;
	double maximum;
	bool limited;
};
static const struct field get_budgets_fields[] = {
    {"workspace", FIELD_TEXT_AT(struct budget_ask, workspace), .min = 1, .max = WORKSPACE_MAX},
    {0},
};

static void get_budgets(struct mcp_request *request, const json_t *arguments)
{
	struct budget_ask asked = {.workspace = request->principal.workspace};
	if (tool_arguments(request, arguments, &asked) && admin_workspace(request, asked.workspace))
		reply(request, asked.workspace);
}

static bool parse_kind(struct mcp_request *request, const char *what, const char *period,
		       struct budget_wish *wish)
{
	wish->what = budget_what_parse(what);
	wish->period = budget_period_parse(period);
	if (wish->what == 0)
		content_refuse(request, "field `what` is \"%.64s\"; it must be one of " WHATS ".",
			       what);
	else if (wish->period == 0)
		content_refuse(request,
			       "field `period` is \"%.64s\"; it must be now, minute, day or month.",
			       period);
	else if (!budget_possible(wish->what, wish->period))
		content_refuse(request, "A budget of %s has the period %s, not %s.", what,
			       budget_possible(wish->what, PERIOD_NOW) ? "now"
								       : "minute, day or month",
			       period);
	else
		return true;
	return false;
}

/* The workspace's own budgets, with the new one replaced. */
struct own_budgets {
	struct budget_wish wishes[BUDGET_WHATS * PERIODS];
	size_t count;
	const struct budget_wish *changed;
};

static void keep(void *data, const struct budget_state *state)
{
	struct own_budgets *own = data;
	if (state->own &&
	    (state->what != own->changed->what || state->period != own->changed->period) &&
	    own->count < ARRAY_SIZE(own->wishes) - 1)
		own->wishes[own->count++] =
		    (struct budget_wish){state->what, state->period, state->maximum};
}

static const struct field set_budget_fields[] = {
    {"workspace", FIELD_TEXT_AT(struct budget_ask, workspace), FIELD_REQUIRED, 1, WORKSPACE_MAX},
    {"what", FIELD_TEXT_AT(struct budget_ask, what), FIELD_REQUIRED | FIELD_WORDS_TOLD, 1, 32,
     .words = BUDGET_WHAT_NAMES},
    {"period", FIELD_TEXT_AT(struct budget_ask, period), FIELD_REQUIRED | FIELD_WORDS_TOLD, 1, 32,
     .words = BUDGET_PERIOD_NAMES},
    {"maximum", FIELD_NUMBER_AT(struct budget_ask, maximum),
     .given = FIELD_GIVEN(struct budget_ask, limited)},
    {0},
};

static void set_budget(struct mcp_request *request, const json_t *arguments)
{
	struct budget_ask asked = {0};
	struct budget_wish wish = {0};
	struct own_budgets own = {.changed = &wish};
	struct error error;
	if (!tool_arguments(request, arguments, &asked) ||
	    !admin_workspace(request, asked.workspace) ||
	    !parse_kind(request, asked.what, asked.period, &wish))
		return;
	double unit = (double)budget_unit(wish.what);
	if (asked.maximum > MAXIMUM_MAX || asked.maximum * unit >= 9e18) {
		content_refuse(request, "field `maximum` is too large; leave it out for none.");
		return;
	}
	wish.maximum = asked.limited ? (int64_t)(asked.maximum * unit + 0.5) : BUDGET_UNLIMITED;
	struct workspace *workspace = workspace_get(request->core, asked.workspace);
	budget_each(request->core, workspace, keep, &own);
	own.wishes[own.count++] = wish;
	if (budget_replace(request->core, workspace, own.wishes, own.count, &error) < 0)
		mcp_fail(request, &error);
	else
		reply(request, asked.workspace);
}

static const struct field remove_budget_fields[] = {
    {"workspace", FIELD_TEXT_AT(struct budget_ask, workspace), FIELD_REQUIRED, 1, WORKSPACE_MAX},
    {"what", FIELD_TEXT_AT(struct budget_ask, what), FIELD_WORDS_TOLD, 1, 32,
     .words = BUDGET_WHAT_NAMES},
    {"period", FIELD_TEXT_AT(struct budget_ask, period), FIELD_WORDS_TOLD, 1, 32,
     .words = BUDGET_PERIOD_NAMES},
    {0},
};

static void remove_budget(struct mcp_request *request, const json_t *arguments)
{
	struct budget_ask asked = {0};
	struct budget_wish wish = {0};
	struct error error;
	if (!tool_arguments(request, arguments, &asked) ||
	    !admin_workspace(request, asked.workspace))
		return;
	if (!asked.what != !asked.period) {
		content_refuse(request, "Give `what` and `period`, or neither to remove all.");
		return;
	}
	if (asked.what && !parse_kind(request, asked.what, asked.period, &wish))
		return;
	if (budget_remove(request->core, workspace_get(request->core, asked.workspace), wish.what,
			  wish.period, &error) < 0)
		mcp_fail(request, &error);
	else
		reply(request, asked.workspace);
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
