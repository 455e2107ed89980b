/* /v1/budgets: the budgets of the caller's workspace and their use;
 * /v1/workspaces/{workspace}/budgets, for admin: those of any workspace, and changes of its own
 * ones. Nothing blocks but the store's short calls. */
#include "api/account/budget_record.h"

#include "api/routes.h"
#include "edge/fields/account_fields.h"

/* All kinds of budgets, and some duplicates. */
#define BUDGETS_MAX 64

void put_amount(struct json_writer *writer, const char *key, uint32_t what, uint64_t amount)
{
	uint64_t unit = budget_unit(what);
	if (unit == 1)
		put_uint(writer, key, amount);
	else
		put_number(writer, key, (double)amount / (double)unit);
}

static void put_budget(void *data, const struct budget_state *state)
{
	struct json_writer *writer = data;
	bool limited = state->maximum != BUDGET_UNLIMITED;
	uint64_t maximum = (uint64_t)state->maximum;
	put_object(writer, NULL);
	put_text(writer, "what", budget_what_name(state->what));
	put_text(writer, "period", budget_period_name(state->period));
	if (limited) {
		put_amount(writer, "maximum", state->what, maximum);
		put_amount(writer, "used", state->what, state->used);
		put_amount(writer, "left", state->what, maximum - MIN(maximum, state->used));
	} else {
		put_null(writer, "maximum");
		put_amount(writer, "used", state->what, state->used);
		put_null(writer, "left");
	}
	put_time(writer, "resets_at", state->resets_wall);
	put_text(writer, "source", state->own ? "workspace" : "default");
	put_object_end(writer);
}

void put_budgets(struct json_writer *writer, struct core *core, struct workspace *workspace)
{
	put_array(writer, "budgets");
	budget_each(core, workspace, put_budget, writer);
	put_array_end(writer);
}

static void budgets_reply_json(struct call *call, const char *name)
{
	struct core *core = call->core;
	struct workspace *workspace = workspace_get(core, name);
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "workspace", name);
	put_budgets(&writer, core, workspace);
	put_uint(&writer, "queue_length", workspace->queue_length);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void budgets_get(struct call *call)
{
	budgets_reply_json(call, call->principal.workspace);
}

/* --- of any workspace --- */

static void workspace_budgets_get(struct call *call)
{
	struct error error;
	if (workspace_check(call->parameters[0], &error) < 0)
		reply_error(call, &error);
	else
		budgets_reply_json(call, call->parameters[0]);
}

struct budget_list {
	json_t *budgets;
};

static const struct field budget_list_fields[] = {
    {"budgets", FIELD_ARRAY_AT(struct budget_list, budgets), FIELD_REQUIRED, .max = BUDGETS_MAX,
     .inner = budget_fields},
    {0},
};

static int budget_parse_fields(const json_t *json, struct budget_wish *wish, struct error *error)
{
	struct budget_fields fields = {0};
	if (!json_is_object(json))
		return error_set(error, ERROR_INVALID, "field `budgets` must hold objects");
	if (fields_parse(json, budget_fields, FIELDS_REST, NULL, &fields, error) < 0)
		return -1;
	return budget_fields_check(&fields, wish, error);
}

static int budgets_parse(const json_t *list, struct budget_wish wishes[BUDGETS_MAX],
			 size_t *ret_count, struct error *error)
{
	size_t count = json_array_size(list);
	if (count > BUDGETS_MAX)
		return error_set(error, ERROR_INVALID, "field `budgets` has more than %d entries",
				 BUDGETS_MAX);
	for (size_t i = 0; i < count; i++) {
		if (budget_parse_fields(json_array_get(list, i), &wishes[i], error) < 0)
			return error_prepend(error, "budget %zu", i + 1);
		for (size_t j = 0; j < i; j++)
			if (wishes[i].what == wishes[j].what &&
			    wishes[i].period == wishes[j].period)
				return error_set(error, ERROR_INVALID,
						 "the budget %s/%s is given twice",
						 budget_what_name(wishes[i].what),
						 budget_period_name(wishes[i].period));
	}
	*ret_count = count;
	return 0;
}

static void workspace_budgets_put(struct call *call)
{
	struct core *core = call->core;
	struct budget_wish wishes[BUDGETS_MAX];
	struct budget_list fields = {0};
	size_t count = 0;
	struct error error;
	if (workspace_check(call->parameters[0], &error) < 0 ||
	    call_fields(call, &fields, &error) < 0 ||
	    budgets_parse(fields.budgets, wishes, &count, &error) < 0 ||
	    budget_replace(core, workspace_get(core, call->parameters[0]), wishes, count, &error) <
		0)
		reply_error(call, &error);
	else
		budgets_reply_json(call, call->parameters[0]);
}

static const struct field budget_query[] = {
    {"what", FIELD_TEXT_AT(struct budget_fields, what), FIELD_WORDS_TOLD, .max = 31,
     .words = BUDGET_WHAT_NAMES},
    {"period", FIELD_TEXT_AT(struct budget_fields, period), FIELD_WORDS_TOLD, .max = 31,
     .words = BUDGET_PERIOD_NAMES},
    {0},
};

static void workspace_budgets_delete(struct call *call)
{
	struct core *core = call->core;
	struct budget_fields fields = {.what = "", .period = ""};
	uint32_t what_number = 0, period_number = 0;
	struct error error;
	int result = workspace_check(call->parameters[0], &error);
	if (result == 0)
		result = call_query(call, &fields, &error);
	if (result == 0 && (*fields.what || *fields.period))
		result = budget_kind_parse(fields.what, fields.period, &what_number, &period_number,
					   &error);
	if (result == 0)
		result = budget_remove(core, workspace_get(core, call->parameters[0]), what_number,
				       period_number, &error);
	if (result < 0)
		reply_error(call, &error);
	else
		reply_empty(call, 204);
}

const struct route budget_routes[] = {
    {"GET", "/v1/budgets", READ, 0, budgets_get},
    {"GET", "/v1/workspaces/{workspace}/budgets", ADMIN, 0, workspace_budgets_get},
    {"PUT", "/v1/workspaces/{workspace}/budgets", ADMIN, ROUTE_JSON, workspace_budgets_put,
     .body = budget_list_fields},
    {"DELETE", "/v1/workspaces/{workspace}/budgets", ADMIN, 0, workspace_budgets_delete,
     budget_query},
    {0},
};
