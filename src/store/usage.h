/* What sandboxes have used and what workspaces may use: the tables usage, spent and budgets.
 * Called by core/account. Numbers are absolute, so that writing a row twice has no effect. */
#pragma once

#include "store/store.h"

#define NSEC_PER_HOUR (3600LL * 1000000000LL)

/* What one sandbox used within one hour (UTC). Times in nanoseconds. Strings are borrowed. */
struct usage_row {
	struct id sandbox;
	int64_t hour; /* since 1970 */
	const char *workspace, *name;
	uint64_t alive_ns, paused_ns, cpu_ns;
	uint64_t memory_byte_seconds, disk_byte_seconds, snapshot_byte_seconds;
	uint64_t execs;
	/* The time until which usage is counted, and the cpu counter and disk usage at that time.
	 * The next daemon continues from here. */
	int64_t counted_wall;
	uint64_t cpu_seen_ns, disk_seen;
};

NODISCARD int store_usage_put(struct store *store, const struct usage_row *row,
			      struct error *error);
/* 1: the newest row of a sandbox (its strings are NULL), 0: none. */
NODISCARD int store_usage_last(struct store *store, const struct id *sandbox,
			       struct usage_row *ret_row, struct error *error);

enum usage_by { USAGE_BY_SANDBOX, USAGE_BY_WORKSPACE };
#define USAGE_TEXT_MAX 255

/* Sums over the hours from from_hour up to, but not including, to_hour: by sandbox, of one
 * workspace or of all (NULL), in the order of ids; or by workspace, in the order of names. The
 * walk reads some rows per call, because there may be as many as sandboxes ever existed times
 * hours. Its state is kept here between calls. */
struct usage_walk {
	enum usage_by by;
	const char *workspace; /* borrowed */
	int64_t from_hour, to_hour;
	/* Position: the sandbox or the workspace, the hour, and for a workspace the sandbox.
	 * Before the first call: the id or name to continue after, with at_hour INT64_MAX; "":
	 * from the start. */
	char at[USAGE_TEXT_MAX + 1], at_sandbox[ID_LENGTH + 1];
	int64_t at_hour;
	/* Private: the current sum. */
	struct usage_row sum;
	char sum_workspace[USAGE_TEXT_MAX + 1], sum_name[USAGE_TEXT_MAX + 1];
};
/* Reads at most `rows` rows and passes each complete sum; sums by workspace have no sandbox. Stops
 * when the callback returns false. *ret_more: the walk is neither stopped nor finished. */
NODISCARD int store_usage_walk(struct store *store, struct usage_walk *walk, uint32_t rows,
			       bool (*each)(void *data, const struct usage_row *row), void *data,
			       bool *ret_more, struct error *error);
/* Removes a batch of the oldest rows; returns their number. */
NODISCARD int store_usage_prune(struct store *store, int64_t before_hour, struct error *error);

struct spent_row {
	const char *workspace;
	uint32_t what, period;
	int64_t period_wall; /* start of the period */
	uint64_t amount;
};
NODISCARD int store_spent_put(struct store *store, const struct spent_row *row,
			      struct error *error);
NODISCARD int store_spent_each(struct store *store,
			       bool (*each)(void *data, const struct spent_row *row), void *data,
			       struct error *error);

#define BUDGET_UNLIMITED INT64_MAX
struct budget_row {
	const char *workspace;
	uint32_t what, period;
	int64_t maximum; /* BUDGET_UNLIMITED: no limit, whatever the default */
};
NODISCARD int store_budget_put(struct store *store, const struct budget_row *row,
			       struct error *error);
/* Removes one budget of a workspace, or all of them if what is 0; returns the number. */
NODISCARD int store_budget_delete(struct store *store, const char *workspace, uint32_t what,
				  uint32_t period, struct error *error);
NODISCARD int store_budget_each(struct store *store,
				bool (*each)(void *data, const struct budget_row *row), void *data,
				struct error *error);
