/* What a workspace may: budgets, each of one thing and one period (workspace.h has both lists). A
 * budget of the workspace's own replaces the configured default of the same thing and period; there
 * may be several of one thing, and all must hold.
 *
 * Refused is what is asked for anew: a create, a start, a resume, an exec. What runs is never ended
 * for a budget. Spent amounts are counted in memory and written with the metering
 * (core/account/meter.h), so that a kill -9 costs at most one interval of counts; time and cpu are
 * written in one transaction with the row of usage that the next daemon goes on from, and lose
 * nothing. */
#pragma once

#include "core/account/workspace.h"
#include "store/usage.h"

struct sandbox;

#define BUDGET_WHAT_NAMES "sandboxes,vcpus,memory_mb,disk_mb,creates,execs,wall_seconds,cpu_seconds"
#define BUDGET_PERIOD_NAMES "now,minute,day,month"
/* Names of the API: "creates", "minute". NULL: there is none. */
const char *budget_what_name(uint32_t what);
const char *budget_period_name(uint32_t period);
/* 0: there is none. */
uint32_t budget_what_parse(const char *name);
uint32_t budget_period_parse(const char *name);
/* Held things have the period `now`, spent ones the others. */
bool budget_possible(uint32_t what, uint32_t period);
/* How many of the units it is kept in make one of the API's (a vCPU, a MiB, a second). */
uint64_t budget_unit(uint32_t what);

/* The period (not `now`) that a moment is in, in nanoseconds since 1970. */
void budget_bounds(uint32_t period, int64_t wall, int64_t *ret_began, int64_t *ret_ends);

struct budget_state {
	uint32_t what, period;
	int64_t maximum; /* BUDGET_UNLIMITED: an own one that lifts the default */
	bool own;
	uint64_t used;
	int64_t resets_wall; /* 0: not by time */
};
/* Every budget that a workspace has. */
void budget_each(struct core *core, struct workspace *workspace,
		 void (*each)(void *data, const struct budget_state *state), void *data);

/* QUOTA_EXCEEDED with which one, its maximum, what is used, when it resets. *ret_never: waiting
 * will not help, it asks for more than there may ever be. */
NODISCARD int budget_check_create(struct core *core, struct workspace *workspace,
				  const struct limits *limits, bool *ret_never,
				  struct error *error);
/* A stopped or paused one is to run again. */
NODISCARD int budget_check_wake(struct sandbox *sandbox, const struct principal *principal,
				struct error *error);
/* One that is there is to have other limits. */
NODISCARD int budget_check_change(struct sandbox *sandbox, const struct principal *principal,
				  const struct limits *limits, struct error *error);
/* A command, or a piece of code (of an interpreter the pieces count, not the process): may it be,
 * and, when it has really begun, that it counts. Or both at once. */
NODISCARD int budget_check_exec(struct sandbox *sandbox, const struct principal *principal,
				struct error *error);
void budget_count_exec(struct sandbox *sandbox);
NODISCARD int budget_take_exec(struct sandbox *sandbox, const struct principal *principal,
			       struct error *error);
void budget_spend(struct workspace *workspace, uint32_t what, uint64_t amount);

/* Own budgets of a workspace: all of them become these. */
struct budget_wish {
	uint32_t what, period;
	int64_t maximum;
};
NODISCARD int budget_replace(struct core *core, struct workspace *workspace,
			     const struct budget_wish *wishes, size_t count, struct error *error);
/* One (BUDGET_NOT_FOUND), or with what 0 all. */
NODISCARD int budget_remove(struct core *core, struct workspace *workspace, uint32_t what,
			    uint32_t period, struct error *error);

/* At the start: what an earlier daemon wrote. */
NODISCARD int budgets_load(struct core *core, struct error *error);
/* What one workspace has spent. Within a batch of the meter's; budget_saved() when it was
 * committed. */
NODISCARD int budget_save(struct store *store, const struct workspace *workspace,
			  struct error *error);
void budget_saved(struct workspace *workspace);
/* The same of all. */
NODISCARD int budgets_save(struct core *core, struct error *error);
void budgets_saved(struct core *core);
bool budgets_unsaved(const struct core *core);
