/* Budgets: their limits, the amounts spent, the refusals. See budget.h. Called by the creates, the
 * transitions and every exec: a check is a few comparisons in memory. Changes of budgets block for
 * the store's short calls. */
#include "core/account/budget.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/activity/activity.h"
#include "core/core_private.h"
#include "core/sandbox/create_queue.h"
#include "core/account/token.h"

static const struct {
	const char *name;
	uint64_t unit;
	bool held;
} whats[BUDGET_WHATS] = {
    [BUDGET_SANDBOXES] = {"sandboxes", 1, true},
    [BUDGET_VCPUS] = {"vcpus", 1000, true},
    [BUDGET_MEMORY] = {"memory_mb", MIB, true},
    [BUDGET_DISK] = {"disk_mb", MIB, true},
    [BUDGET_CREATES] = {"creates", 1, false},
    [BUDGET_EXECS] = {"execs", 1, false},
    [BUDGET_WALL] = {"wall_seconds", NSEC_PER_SEC, false},
    [BUDGET_CPU] = {"cpu_seconds", NSEC_PER_SEC, false},
};

static const char *const periods[PERIODS] = {
    [PERIOD_NOW] = "now",
    [PERIOD_MINUTE] = "minute",
    [PERIOD_DAY] = "day",
    [PERIOD_MONTH] = "month",
};

const char *budget_what_name(uint32_t what)
{
	return what < BUDGET_WHATS ? whats[what].name : NULL;
}

const char *budget_period_name(uint32_t period)
{
	return period < PERIODS ? periods[period] : NULL;
}

uint32_t budget_what_parse(const char *name)
{
	for (uint32_t what = 1; what < BUDGET_WHATS; what++)
		if (strcmp(whats[what].name, name) == 0)
			return what;
	return 0;
}

uint32_t budget_period_parse(const char *name)
{
	for (uint32_t period = 1; period < PERIODS; period++)
		if (strcmp(periods[period], name) == 0)
			return period;
	return 0;
}

bool budget_possible(uint32_t what, uint32_t period)
{
	return what > 0 && what < BUDGET_WHATS && period > 0 && period < PERIODS &&
	       whats[what].held == (period == PERIOD_NOW);
}

uint64_t budget_unit(uint32_t what)
{
	return what > 0 && what < BUDGET_WHATS ? whats[what].unit : 1;
}

/* --- periods --- */

void budget_bounds(uint32_t period, int64_t wall, int64_t *ret_began, int64_t *ret_ends)
{
	int64_t seconds = wall / NSEC_PER_SEC;
	if (period == PERIOD_MONTH) {
		struct tm time;
		time_t when = (time_t)seconds;
		gmtime_r(&when, &time);
		time.tm_mday = 1;
		time.tm_hour = time.tm_min = time.tm_sec = 0;
		*ret_began = (int64_t)timegm(&time) * NSEC_PER_SEC;
		time.tm_mon++;
		*ret_ends = (int64_t)timegm(&time) * NSEC_PER_SEC;
		return;
	}
	int64_t length = period == PERIOD_MINUTE ? 60 : 86400;
	*ret_began = seconds / length * length * NSEC_PER_SEC;
	*ret_ends = *ret_began + length * NSEC_PER_SEC;
}

/* The amount spent in the current period. A clock that was set back does not begin a new period. */
static struct spent *period_spent(struct workspace *workspace, uint32_t what, uint32_t period)
{
	struct spent *spent = &workspace->spent[what][period];
	int64_t wall = clock_wall();
	if (wall >= spent->ends_wall) {
		*spent = (struct spent){0};
		budget_bounds(period, wall, &spent->began_wall, &spent->ends_wall);
	}
	return spent;
}

void budget_spend(struct workspace *workspace, uint32_t what, uint64_t amount)
{
	if (amount == 0)
		return;
	for (uint32_t period = PERIOD_MINUTE; period < PERIODS; period++) {
		struct spent *spent = period_spent(workspace, what, period);
		spent->amount += amount;
		spent->unsaved = true;
	}
}

/* --- what holds --- */

/* The maximum of a budget, or BUDGET_UNLIMITED. */
static int64_t budget_maximum(const struct core *core, const struct workspace *workspace,
			      uint32_t what, uint32_t period)
{
	const struct budget_defaults *defaults = &core->config.budget;
	uint32_t at = period - PERIOD_MINUTE;
	uint64_t maximum = 0;
	if (workspace->own[what][period] != BUDGET_NOT_SET)
		return workspace->own[what][period];
	switch (what) {
	case BUDGET_SANDBOXES:
		maximum = defaults->sandboxes;
		break;
	case BUDGET_VCPUS:
		maximum = defaults->cpu_millis;
		break;
	case BUDGET_MEMORY:
		maximum = defaults->memory;
		break;
	case BUDGET_DISK:
		maximum = defaults->disk;
		break;
	case BUDGET_CREATES:
		maximum = defaults->creates[at];
		break;
	case BUDGET_EXECS:
		maximum = defaults->execs[at];
		break;
	case BUDGET_WALL:
		maximum = defaults->wall_seconds[at] * (uint64_t)NSEC_PER_SEC;
		break;
	case BUDGET_CPU:
		maximum = defaults->cpu_seconds[at] * (uint64_t)NSEC_PER_SEC;
		break;
	default:
		break;
	}
	return maximum == 0 || maximum > INT64_MAX ? BUDGET_UNLIMITED : (int64_t)maximum;
}

static uint64_t workspace_held(const struct workspace_now *now, uint32_t what)
{
	return what == BUDGET_SANDBOXES ? now->sandboxes
	       : what == BUDGET_VCPUS   ? now->cpu_millis
	       : what == BUDGET_MEMORY  ? now->memory
					: now->disk;
}

void budget_each(struct core *core, struct workspace *workspace,
		 void (*each)(void *data, const struct budget_state *state), void *data)
{
	struct workspace_now now;
	workspace_now(core, workspace, &now);
	for (uint32_t what = 1; what < BUDGET_WHATS; what++) {
		for (uint32_t period = 1; period < PERIODS; period++) {
			if (!budget_possible(what, period))
				continue;
			struct budget_state state = {
			    .what = what,
			    .period = period,
			    .maximum = budget_maximum(core, workspace, what, period),
			    .own = workspace->own[what][period] != BUDGET_NOT_SET,
			};
			if (state.maximum == BUDGET_UNLIMITED && !state.own)
				continue;
			if (period == PERIOD_NOW) {
				state.used = workspace_held(&now, what);
			} else {
				const struct spent *spent = period_spent(workspace, what, period);
				state.used = spent->amount;
				state.resets_wall = spent->ends_wall;
			}
			each(data, &state);
		}
	}
}

/* --- who is refused --- */

static int budget_refuse(const struct workspace *workspace, const struct budget_state *state,
			 uint64_t more, struct error *error)
{
	double unit = (double)whats[state->what].unit;
	char when[CLOCK_TEXT_SIZE + 32] = "";
	int64_t wait_ms = NSEC_PER_SEC / NSEC_PER_MSEC;
	if (state->resets_wall != 0) {
		char text[CLOCK_TEXT_SIZE];
		clock_text(state->resets_wall, text);
		snprintf(when, sizeof(when), "; it resets at %s", text);
		wait_ms = (state->resets_wall - clock_wall()) / NSEC_PER_MSEC + 1;
	}
	error_set(error, ERROR_QUOTA_EXCEEDED,
		  "the budget %s/%s of workspace `%s` does not allow it: %g of %g are used, this "
		  "takes %g more%s",
		  whats[state->what].name, periods[state->period], workspace->name,
		  (double)state->used / unit, (double)state->maximum / unit, (double)more / unit,
		  state->resets_wall != 0 ? when
					  : "; deleting, pausing or stopping sandboxes makes room");
	error->retry_after_ms = (uint32_t)MIN(MAX(wait_ms, 1), (int64_t)UINT32_MAX);
	snprintf(error->limit, sizeof(error->limit), "%s/%s", whats[state->what].name,
		 periods[state->period]);
	return -1;
}

/* Is there room to hold so much more? */
static int budget_check_held(struct core *core, const struct workspace *workspace,
			     const struct workspace_now *wish, bool *ret_never, struct error *error)
{
	const uint64_t more[] = {
	    [BUDGET_SANDBOXES] = wish->sandboxes,
	    [BUDGET_VCPUS] = wish->cpu_millis,
	    [BUDGET_MEMORY] = wish->memory,
	    [BUDGET_DISK] = wish->disk,
	};
	struct workspace_now now;
	bool added = false;
	for (uint32_t what = BUDGET_SANDBOXES; what <= BUDGET_DISK; what++) {
		int64_t maximum = budget_maximum(core, workspace, what, PERIOD_NOW);
		if (maximum == BUDGET_UNLIMITED || more[what] == 0)
			continue;
		if (!added)
			workspace_now(core, workspace, &now);
		added = true;
		uint64_t used = workspace_held(&now, what);
		if (used + more[what] <= (uint64_t)maximum)
			continue;
		*ret_never = more[what] > (uint64_t)maximum;
		const struct budget_state state = {
		    .what = what, .period = PERIOD_NOW, .maximum = maximum, .used = used};
		return budget_refuse(workspace, &state, more[what], error);
	}
	return 0;
}

/* Is one more `what` (0: none) left, which is spent, and is any time left? */
static int budget_check_spent(struct core *core, struct workspace *workspace, uint32_t what,
			      bool *ret_never, struct error *error)
{
	const uint32_t spends[] = {what, BUDGET_WALL, BUDGET_CPU};
	for (size_t i = what == 0; i < ARRAY_SIZE(spends); i++) {
		for (uint32_t period = PERIOD_MINUTE; period < PERIODS; period++) {
			int64_t maximum = budget_maximum(core, workspace, spends[i], period);
			if (maximum == BUDGET_UNLIMITED)
				continue;
			const struct spent *spent = period_spent(workspace, spends[i], period);
			if (spent->amount + 1 <= (uint64_t)maximum)
				continue;
			*ret_never = maximum == 0;
			const struct budget_state state = {.what = spends[i],
							   .period = period,
							   .maximum = maximum,
							   .used = spent->amount,
							   .resets_wall = spent->ends_wall};
			return budget_refuse(workspace, &state, i == 0, error);
		}
	}
	return 0;
}

int budget_check_create(struct core *core, struct workspace *workspace, const struct limits *limits,
			bool *ret_never, struct error *error)
{
	const struct workspace_now wish = {1, limits->cpu_millis, limits->memory, limits->disk};
	*ret_never = false;
	if (budget_check_held(core, workspace, &wish, ret_never, error) < 0 ||
	    budget_check_spent(core, workspace, BUDGET_CREATES, ret_never, error) < 0)
		return -1;
	return 0;
}

static int refusal_record(struct sandbox *sandbox, const char *wish,
			  const struct principal *principal, const struct error *error)
{
	ACTIVITY(sandbox, ACTIVITY_BUDGET_REFUSED, principal, NULL, {"limit", error->limit},
		 {"asked", wish}, {"reason", error->message});
	return -1;
}

int budget_check_wake(struct sandbox *sandbox, const struct principal *principal,
		      struct error *error)
{
	struct core *core = sandbox->core;
	struct workspace *workspace = sandbox->life->workspace;
	const struct limits *limits = &sandbox->row.limits;
	/* It still holds its disk. */
	const struct workspace_now wish = {1, limits->cpu_millis, limits->memory, 0};
	bool never;
	if (budget_check_held(core, workspace, &wish, &never, error) < 0 ||
	    budget_check_spent(core, workspace, 0, &never, error) < 0)
		return refusal_record(sandbox,
				      sandbox->row.state == SANDBOX_PAUSED ? "resume" : "start",
				      principal, error);
	return 0;
}

int budget_check_change(struct sandbox *sandbox, const struct principal *principal,
			const struct limits *limits, struct error *error)
{
	const struct limits *before = &sandbox->row.limits;
	bool never;
	const struct workspace_now wish = {
	    .cpu_millis = limits->cpu_millis - MIN(limits->cpu_millis, before->cpu_millis),
	    .memory = limits->memory - MIN(limits->memory, before->memory),
	};
	/* A sandbox that does not run is checked when it is to run. */
	if (state_facts(sandbox->row.state)->holds &&
	    budget_check_held(sandbox->core, sandbox->life->workspace, &wish, &never, error) < 0)
		return refusal_record(sandbox, "limits", principal, error);
	return 0;
}

int budget_check_exec(struct sandbox *sandbox, const struct principal *principal,
		      struct error *error)
{
	struct core *core = sandbox->core;
	struct workspace *workspace = sandbox->life->workspace;
	bool never;
	if (budget_check_spent(core, workspace, BUDGET_EXECS, &never, error) < 0)
		return refusal_record(sandbox, "exec", principal, error);
	return 0;
}

void budget_count_exec(struct sandbox *sandbox)
{
	budget_spend(sandbox->life->workspace, BUDGET_EXECS, 1);
	sandbox->life->meter.row.execs++;
	sandbox->life->meter.unsaved = true;
}

int budget_take_exec(struct sandbox *sandbox, const struct principal *principal,
		     struct error *error)
{
	if (budget_check_exec(sandbox, principal, error) < 0)
		return -1;
	budget_count_exec(sandbox);
	return 0;
}

/* --- changes --- */

int budget_replace(struct core *core, struct workspace *workspace, const struct budget_wish *wishes,
		   size_t count, struct error *error)
{
	if (store_transaction_begin(core->store, error) < 0)
		return -1;
	int result = store_budget_delete(core->store, workspace->name, 0, 0, error);
	for (size_t i = 0; i < count && result >= 0; i++) {
		const struct budget_row row = {.workspace = workspace->name,
					       .what = wishes[i].what,
					       .period = wishes[i].period,
					       .maximum = wishes[i].maximum};
		result = store_budget_put(core->store, &row, error);
	}
	if (store_transaction_end(core->store, result, error) < 0)
		return -1;
	for (size_t what = 0; what < BUDGET_WHATS; what++)
		for (size_t period = 0; period < PERIODS; period++)
			workspace->own[what][period] = BUDGET_NOT_SET;
	for (size_t i = 0; i < count; i++)
		workspace->own[wishes[i].what][wishes[i].period] = wishes[i].maximum;
	create_queue_turn(core);
	return 0;
}

int budget_remove(struct core *core, struct workspace *workspace, uint32_t what, uint32_t period,
		  struct error *error)
{
	if (what == 0)
		return budget_replace(core, workspace, NULL, 0, error);
	int gone = store_budget_delete(core->store, workspace->name, what, period, error);
	if (gone < 0)
		return -1;
	if (gone == 0)
		return error_set(error, ERROR_BUDGET_NOT_FOUND,
				 "workspace `%s` has no budget %s/%s of its own", workspace->name,
				 budget_what_name(what), budget_period_name(period));
	workspace->own[what][period] = BUDGET_NOT_SET;
	create_queue_turn(core);
	return 0;
}

/* --- the store --- */

static bool budget_load(void *data, const struct budget_row *row)
{
	if (budget_possible(row->what, row->period) && workspace_valid(row->workspace))
		workspace_get(data, row->workspace)->own[row->what][row->period] =
		    MAX(row->maximum, 0);
	return true;
}

static bool budget_load_spent(void *data, const struct spent_row *row)
{
	if (!budget_possible(row->what, row->period) || row->period == PERIOD_NOW ||
	    !workspace_valid(row->workspace))
		return true;
	struct spent *spent = &workspace_get(data, row->workspace)->spent[row->what][row->period];
	spent->amount = row->amount;
	budget_bounds(row->period, row->period_wall, &spent->began_wall, &spent->ends_wall);
	return true;
}

int budgets_load(struct core *core, struct error *error)
{
	if (store_budget_each(core->store, budget_load, core, error) < 0)
		return -1;
	return store_spent_each(core->store, budget_load_spent, core, error);
}

int budget_save(struct store *store, const struct workspace *workspace, struct error *error)
{
	for (uint32_t what = BUDGET_CREATES; what < BUDGET_WHATS; what++) {
		for (uint32_t period = PERIOD_MINUTE; period < PERIODS; period++) {
			const struct spent *spent = &workspace->spent[what][period];
			const struct spent_row row = {.workspace = workspace->name,
						      .what = what,
						      .period = period,
						      .period_wall = spent->began_wall,
						      .amount = spent->amount};
			if (spent->unsaved && store_spent_put(store, &row, error) < 0)
				return -1;
		}
	}
	return 0;
}

void budget_saved(struct workspace *workspace)
{
	for (uint32_t what = BUDGET_CREATES; what < BUDGET_WHATS; what++)
		for (uint32_t period = PERIOD_MINUTE; period < PERIODS; period++)
			workspace->spent[what][period].unsaved = false;
}

int budgets_save(struct core *core, struct error *error)
{
	list_each (&core->private->workspaces, node)
		if (budget_save(core->store, list_entry(node, struct workspace, link), error) < 0)
			return -1;
	return 0;
}

void budgets_saved(struct core *core)
{
	list_each (&core->private->workspaces, node)
		budget_saved(list_entry(node, struct workspace, link));
}

bool budgets_unsaved(const struct core *core)
{
	list_each (&core->private->workspaces, node) {
		const struct workspace *workspace = list_entry(node, struct workspace, link);
		for (uint32_t what = BUDGET_CREATES; what < BUDGET_WHATS; what++)
			for (uint32_t period = PERIOD_MINUTE; period < PERIODS; period++)
				if (workspace->spent[what][period].unsaved)
					return true;
	}
	return false;
}
