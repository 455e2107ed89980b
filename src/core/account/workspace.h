/* A workspace owns sandboxes and tokens. This has the current use of its sandboxes, the amounts
 * spent in the current periods, its budgets, and its waiting creates. Found by name and created at
 * first use; owned by the core until the core stops, so that a sandbox may point to its
 * workspace. */
#pragma once

#include "core/core.h"

/* The numbers are in the database: append only. Amounts have small units: thousandths of vCPUs,
 * bytes, nanoseconds. */
enum budget_what {
	BUDGET_SANDBOXES = 1, /* held */
	BUDGET_VCPUS,
	BUDGET_MEMORY,
	BUDGET_DISK,
	BUDGET_CREATES, /* spent per period */
	BUDGET_EXECS,
	BUDGET_WALL,
	BUDGET_CPU,
	BUDGET_WHATS,
};

/* Calendar periods in UTC; `now` is for held resources. */
enum budget_period {
	PERIOD_NOW = 1,
	PERIOD_MINUTE,
	PERIOD_DAY,
	PERIOD_MONTH,
	PERIODS,
};

struct spent {
	int64_t began_wall, ends_wall; /* of the period; 0: nothing spent yet */
	uint64_t amount;
	bool unsaved;
};

#define BUDGET_NOT_SET (-1)

struct workspace {
	struct list link; /* in core_private.workspaces */
	char name[WORKSPACE_MAX + 1];
	int64_t own[BUDGET_WHATS][PERIODS]; /* own maxima, or BUDGET_NOT_SET */
	struct spent spent[BUDGET_WHATS][PERIODS];
	struct list queue; /* struct queued_create, the oldest first */
	uint32_t queue_length;
};

/* Never NULL. The name is valid (workspace_valid()). */
struct workspace *workspace_get(struct core *core, const char *name);
/* NULL: the name was not used yet. */
struct workspace *workspace_find(const struct core *core, const char *name);
void workspaces_free(struct core *core);

/* The resources that its sandboxes hold. A paused or stopped sandbox only holds its disk, one that
 * is being deleted holds nothing. */
struct workspace_now {
	uint32_t sandboxes;
	uint64_t cpu_millis, memory, disk;
};
void workspace_now(const struct core *core, const struct workspace *workspace,
		   struct workspace_now *ret_now);
