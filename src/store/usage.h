/* What sandboxes have used and what workspaces may: the tables usage, spent and budgets. Written by
 * core/account/meter.c and core/account/budget.c, read by them and, as sums, by api/. Numbers are
 * absolute, so that writing a row twice is writing it once. */
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
	/* Up to when it is counted, and what its cpu counter and its disk were then: from here the
	 * next daemon goes on. */
	int64_t counted_wall;
	uint64_t cpu_seen_ns, disk_seen;
};

NODISCARD int store_usage_put(struct store *store, const struct usage_row *row,
			      struct error *error);
/* 1: the newest row of a sandbox (its strings are NULL), 0: there is none. */
NODISCARD int store_usage_last(struct store *store, const struct id *sandbox,
			       struct usage_row *ret_row, struct error *error);

enum usage_by { USAGE_BY_SANDBOX, USAGE_BY_WORKSPACE };
#define USAGE_TEXT_MAX 255

/* Sums over the hours from..to (the second is not in it): by sandbox, of one workspace or of all
 * (NULL), in the order of their ids; or by workspace, by name. It is a walk over the rows, some per
 * call, since there may be as many as sandboxes ever were times hours: what it has come to is kept
 * here between the calls. */
struct usage_walk {
	enum usage_by by;
	const char *workspace; /* borrowed */
	int64_t from_hour, to_hour;
	/* Where it is: the sandbox or the workspace (before the first call: behind which to begin,
	 * with at_hour INT64_MAX; "": with the first), the hour, and of a workspace the sandbox. */
	char at[USAGE_TEXT_MAX + 1], at_sandbox[ID_LENGTH + 1];
	int64_t at_hour;
	/* Private: the sum that is being made. */
	struct usage_row sum;
	char sum_workspace[USAGE_TEXT_MAX + 1], sum_name[USAGE_TEXT_MAX + 1];
};
/* Reads so many rows at most, and tells each sum that is whole; what is asked for by workspace has
 * no sandbox. The callback returns false to stop. *ret_more: neither it did, nor is this all. */
NODISCARD int store_usage_walk(struct store *store, struct usage_walk *walk, uint32_t rows,
			       bool (*each)(void *data, const struct usage_row *row), void *data,
			       bool *ret_more, struct error *error);
/* A batch of the oldest rows: how many went. */
NODISCARD int store_usage_prune(struct store *store, int64_t before_hour, struct error *error);

struct spent_row {
	const char *workspace;
	uint32_t what, period;
	int64_t period_wall; /* its beginning */
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
	int64_t maximum; /* BUDGET_UNLIMITED: none, whatever the default says */
};
NODISCARD int store_budget_put(struct store *store, const struct budget_row *row,
			       struct error *error);
/* How many went: one of a workspace, or with what 0 all of them. */
NODISCARD int store_budget_delete(struct store *store, const char *workspace, uint32_t what,
				  uint32_t period, struct error *error);
NODISCARD int store_budget_each(struct store *store,
				bool (*each)(void *data, const struct budget_row *row), void *data,
				struct error *error);
