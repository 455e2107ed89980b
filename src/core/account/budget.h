/* The budgets of a workspace, each for one resource and one period (workspace.h lists both). A
 * workspace's own budget replaces the configured default for the same resource and period. A
 * resource may have several budgets, and all of them apply.
 *
 * A budget refuses new requests: a create, a start, a resume, an exec. It never ends running work.
 * Spent amounts are counted in memory and written with the metering (core/account/meter.h), so that
 * a kill -9 loses at most one interval of counts. Time and cpu lose nothing: they are written in
 * one transaction with the row of usage from which the next daemon continues. */
#pragma once

#include "core/account/workspace.h"
#include "store/usage.h"

struct sandbox;

#define BUDGET_WHAT_NAMES "sandboxes,vcpus,memory_mb,disk_mb,creates,execs,wall_seconds,cpu_seconds"
#define BUDGET_PERIOD_NAMES "now,minute,day,month"
/* Names in the API: "creates", "minute". NULL: no such value. */
const char *budget_what_name(uint32_t what);
const char *budget_period_name(uint32_t period);
/* 0: no such name. */
uint32_t budget_what_parse(const char *name);
uint32_t budget_period_parse(const char *name);
/* Is the combination possible? Held resources have the period `now`, spent ones the others. */
bool budget_possible(uint32_t what, uint32_t period);
/* How many internal units make one unit of the API (a vCPU, a MiB, a second). */
uint64_t budget_unit(uint32_t what);

/* The bounds of the period (not `now`) that contains a moment, in nanoseconds since 1970. */
void budget_bounds(uint32_t period, int64_t wall, int64_t *ret_began, int64_t *ret_ends);

struct budget_state {
	uint32_t what, period;
	int64_t maximum; /* BUDGET_UNLIMITED: an own budget that removes the default */
	bool own;
	uint64_t used;
	int64_t resets_wall; /* 0: it does not reset */
};
/* Calls `each` for every budget of a workspace. */
void budget_each(struct core *core, struct workspace *workspace,
		 void (*each)(void *data, const struct budget_state *state), void *data);

/* QUOTA_EXCEEDED names the budget, its maximum, the use and the time of its reset. *ret_never:
 * waiting will not help, since the request exceeds the maximum itself. */
NODISCARD int budget_check_create(struct core *core, struct workspace *workspace,
				  const struct limits *limits, bool *ret_never,
				  struct error *error);
/* Checks a start or resume of a stopped or paused sandbox. */
NODISCARD int budget_check_wake(struct sandbox *sandbox, const struct principal *principal,
				struct error *error);
/* Checks a change of an existing sandbox's limits. */
NODISCARD int budget_check_change(struct sandbox *sandbox, const struct principal *principal,
				  const struct limits *limits, struct error *error);
/* A command or a piece of code (an interpreter is not counted, only its pieces): may it run? After
 * it has really begun, it is counted. Or both at once. */
NODISCARD int budget_check_exec(struct sandbox *sandbox, const struct principal *principal,
				struct error *error);
void budget_count_exec(struct sandbox *sandbox);
NODISCARD int budget_take_exec(struct sandbox *sandbox, const struct principal *principal,
			       struct error *error);
void budget_spend(struct workspace *workspace, uint32_t what, uint64_t amount);

/* A workspace's own budgets: these replace all of them. */
struct budget_wish {
	uint32_t what, period;
	int64_t maximum;
};
NODISCARD int budget_replace(struct core *core, struct workspace *workspace,
			     const struct budget_wish *wishes, size_t count, struct error *error);
/* Removes one budget (BUDGET_NOT_FOUND), or with what 0 all. */
NODISCARD int budget_remove(struct core *core, struct workspace *workspace, uint32_t what,
			    uint32_t period, struct error *error);

/* At start-up: loads the amounts that an earlier daemon wrote. */
NODISCARD int budgets_load(struct core *core, struct error *error);
/* Writes the amounts that one workspace has spent. Called in a batch of the meter; call
 * budget_saved() after the commit. */
NODISCARD int budget_save(struct store *store, const struct workspace *workspace,
			  struct error *error);
void budget_saved(struct workspace *workspace);
/* The same for all workspaces. */
NODISCARD int budgets_save(struct core *core, struct error *error);
void budgets_saved(struct core *core);
bool budgets_unsaved(const struct core *core);
