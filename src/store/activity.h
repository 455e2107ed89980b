/* The activity of sandboxes (see core/activity/activity.h). Rows are written once, read in two
 * orders (within a sandbox by number, within a workspace by sequence) and pruned from the front.
 * Called by core/activity alone. Blocks for local disk only. */
#pragma once

#include "store/store.h"

struct activity_row {
	uint64_t sequence; /* across all sandboxes; assigned by the insert */
	char *workspace;
	struct id sandbox;
	uint64_t number; /* within the sandbox, from 1 */
	int64_t wall;
	uint32_t kind; /* enum activity_kind */
	char *actor;
	struct id exec; /* unset: none */
	char *details;  /* packed "key\0value\0..." */
	uint32_t details_size;
	uint8_t previous[32], hash[32];
};
void activity_row_done(struct activity_row *row);

/* 0; -1; or 1: the sandbox already has an entry with that number (error says so). */
NODISCARD int store_activity_insert(struct store *store, const struct activity_row *row,
				    uint64_t *ret_sequence, struct error *error);
/* The first and the last entry of a sandbox: 1, or 0: none. */
NODISCARD int store_activity_ends(struct store *store, const struct id *sandbox,
				  uint64_t *ret_first, uint64_t *ret_last, uint8_t ret_hash[32],
				  struct error *error);
/* The entry that records the start of an exec: 1, or 0: none, or pruned. */
NODISCARD int store_activity_started(struct store *store, const struct id *exec,
				     struct id *ret_sandbox, uint64_t *ret_number,
				     struct error *error);

/* Selects at most `limit` entries. */
struct activity_query {
	const char *workspace;    /* by sequence, where sandbox is NULL */
	const struct id *sandbox; /* by number; or with `by_sequence` by sequence */
	bool by_sequence;
	bool descending;
	uint64_t after; /* number or sequence: entries after this one, in the chosen order; 0: from
			 * the start */
	const char *kinds;           /* NULL: all; else ",1,21,": these */
	int64_t since_wall, to_wall; /* from since_wall on, before to_wall; 0: no bound */
	uint32_t limit;
	/* How many entries are examined, matching or not; 0: no bound. A long stretch without a
	 * match must not delay the loop: the caller continues in another turn, after *ret_seen. */
	uint32_t scan;
	uint64_t *ret_seen; /* NULL, or, with `scan`: the last examined entry; `after` if there was
			     * none */
	bool *ret_more;     /* NULL, or: `scan` or `limit` was reached, or `each` ended it */
};
NODISCARD int store_activity_each(struct store *store, const struct activity_query *query,
				  bool (*each)(void *data, const struct activity_row *row),
				  void *data, struct error *error);
/* The highest sequence (0: none ever), and the sequence up to which entries of the workspace
 * were pruned. */
NODISCARD int store_activity_last(struct store *store, uint64_t *ret_sequence, struct error *error);
NODISCARD int store_activity_pruned(struct store *store, const char *workspace,
				    uint64_t *ret_sequence, struct error *error);

/* Both remove a batch of entries per call and return their number. By age: entries before
 * `wall`, the oldest first, from `*cursor` on, which advances. `keep` returns true for entries
 * that stay (the last of a living sandbox, because the next one carries its hash). *ret_more:
 * call again. */
NODISCARD int store_activity_prune_age(struct store *store, int64_t wall, uint64_t *cursor,
				       bool (*keep)(void *data, const struct id *sandbox,
						    uint64_t number),
				       void *data, bool *ret_more, struct error *error);
/* By number: entries of a sandbox below `first`. */
NODISCARD int store_activity_prune_sandbox(struct store *store, const char *workspace,
					   const struct id *sandbox, uint64_t first,
					   struct error *error);
