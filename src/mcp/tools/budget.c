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

static void get_budgets(struct mcp_request *request, const json_t *arguments)
{
	const char *name = request->principal.workspace;
	struct field fields[] = {{"workspace", FIELD_TEXT, &name, false, 1, WORKSPACE_MAX}};
	if (tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)) &&
	    admin_workspace(request, name))
		reply(request, name);
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

/* Those that the workspace has, and the new one in its place. */
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

static void set_budget(struct mcp_request *request, const json_t *arguments)
{
	const char *name = NULL, *what = NULL, *period = NULL;
	struct budget_wish wish = {0};
	struct own_budgets own = {.changed = &wish};
	double maximum = 0;
	bool limited = false;
	struct error error;
	struct field fields[] = {
	    {"workspace", FIELD_TEXT, &name, true, 1, WORKSPACE_MAX},
	    {"what", FIELD_TEXT, &what, true, 1, 32},
	    {"period", FIELD_TEXT, &period, true, 1, 32},
	    {"maximum", FIELD_NUMBER, &maximum, .present = &limited},
	};
	if (!tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)) ||
	    !admin_workspace(request, name) || !parse_kind(request, what, period, &wish))
		return;
	double unit = (double)budget_unit(wish.what);
	if (maximum > MAXIMUM_MAX || maximum * unit >= 9e18) {
		content_refuse(request, "field `maximum` is too large; leave it out for none.");
		return;
	}
	wish.maximum = limited ? (int64_t)(maximum * unit + 0.5) : BUDGET_UNLIMITED;
	struct workspace *workspace = workspace_get(request->core, name);
	budget_each(request->core, workspace, keep, &own);
	own.wishes[own.count++] = wish;
	if (budget_replace(request->core, workspace, own.wishes, own.count, &error) < 0)
		mcp_fail(request, &error);
	else
		reply(request, name);
}

static void remove_budget(struct mcp_request *request, const json_t *arguments)
{
	const char *name = NULL, *what = NULL, *period = NULL;
	struct budget_wish wish = {0};
	struct error error;
	struct field fields[] = {
	    {"workspace", FIELD_TEXT, &name, true, 1, WORKSPACE_MAX},
	    {"what", FIELD_TEXT, &what, false, 1, 32},
	    {"period", FIELD_TEXT, &period, false, 1, 32},
	};
	if (!tool_arguments(request, arguments, fields, ARRAY_SIZE(fields)) ||
	    !admin_workspace(request, name))
		return;
	if (!what != !period) {
		content_refuse(request, "Give `what` and `period`, or neither to remove all.");
		return;
	}
	if (what && !parse_kind(request, what, period, &wish))
		return;
	if (budget_remove(request->core, workspace_get(request->core, name), wish.what, wish.period,
			  &error) < 0)
		mcp_fail(request, &error);
	else
		reply(request, name);
}

#define STRING "{\"type\":\"string\"}"
#define PERIOD_SCHEMA "{\"type\":\"string\",\"enum\":[\"now\",\"minute\",\"day\",\"month\"]}"
#define WHAT_SCHEMA                                                                                \
	"{\"type\":\"string\",\"enum\":[\"sandboxes\",\"vcpus\",\"memory_mb\",\"disk_mb\","        \
	"\"creates\",\"execs\",\"wall_seconds\",\"cpu_seconds\"]}"

const struct mcp_tool budget_tools[] = {
    {
	.name = "get_budgets",
	.title = "Get budgets",
	.description = "What a workspace may use at once and per period, and what it has used.",
	.input = "{\"type\":\"object\",\"properties\":{\"workspace\":" STRING "}}",
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
	.input = "{\"type\":\"object\",\"properties\":{\"workspace\":" STRING
		 ",\"what\":" WHAT_SCHEMA ",\"period\":" PERIOD_SCHEMA
		 ",\"maximum\":{\"type\":\"number\"}},\"required\":[\"workspace\",\"what\","
		 "\"period\"]}",
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
	.input =
	    "{\"type\":\"object\",\"properties\":{\"workspace\":" STRING ",\"what\":" WHAT_SCHEMA
	    ",\"period\":" PERIOD_SCHEMA "},\"required\":[\"workspace\"]}",
	.example = "{\"workspace\": \"team-a\", \"what\": \"creates\", \"period\": \"day\"}",
	.scope = SCOPE_ADMIN,
	.hints = TOOL_DESTROYS,
	.call = remove_budget,
    },
    {0},
};
