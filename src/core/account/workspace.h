/* A workspace: whom sandboxes and tokens belong to, what its sandboxes use now, what it has spent
 * in the periods under way, what it may, and which of its creates wait. Found by name and made when
 * it is first spoken of; owned by the core until that stops, so that a sandbox may point to its
 * own. */
#pragma once

#include "core/core.h"

/* The numbers are in the database: append only. Amounts are kept as small units: thousandths of
 * vCPUs, bytes, nanoseconds. */
enum budget_what {
	BUDGET_SANDBOXES = 1, /* at once */
	BUDGET_VCPUS,
	BUDGET_MEMORY,
	BUDGET_DISK,
	BUDGET_CREATES, /* per period */
	BUDGET_EXECS,
	BUDGET_WALL,
	BUDGET_CPU,
	BUDGET_WHATS,
};

/* Calendar periods of UTC; `now` is for what is held, not spent. */
enum budget_period {
	PERIOD_NOW = 1,
	PERIOD_MINUTE,
	PERIOD_DAY,
	PERIOD_MONTH,
	PERIODS,
};

struct spent {
	int64_t began_wall, ends_wall; /* of the period; 0: nothing was spent yet */
	uint64_t amount;
	bool unsaved;
};

#define BUDGET_NOT_SET (-1)

struct workspace {
	struct list link; /* in core_private.workspaces */
	char name[WORKSPACE_MAX + 1];
	int64_t own[BUDGET_WHATS][PERIODS]; /* maxima of its own, or BUDGET_NOT_SET */
	struct spent spent[BUDGET_WHATS][PERIODS];
	struct list queue; /* struct queued_create, the oldest first */
	uint32_t queue_length;
};

/* Never NULL. The name is valid (workspace_valid()). */
struct workspace *workspace_get(struct core *core, const char *name);
/* NULL: nobody has spoken of it. */
struct workspace *workspace_find(const struct core *core, const char *name);
void workspaces_free(struct core *core);

/* What its sandboxes hold. One that is paused or stopped holds its disk alone, one that is being
 * deleted nothing. */
struct workspace_now {
	uint32_t sandboxes;
	uint64_t cpu_millis, memory, disk;
};
void workspace_now(const struct core *core, const struct workspace *workspace,
		   struct workspace_now *ret_now);
