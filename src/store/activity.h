/* The activity of sandboxes (core/activity/activity.h says what it is): rows that are written once,
 * read in two orders (within a sandbox by number, within a workspace by sequence) and pruned from
 * the front. Written by core/activity/activity.c alone; api/ reads pages. Blocks for local disk
 * only. */
#pragma once

#include "store/store.h"

struct activity_row {
	uint64_t sequence; /* across all sandboxes; given by the insert */
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

/* 0; -1; or 1 when the sandbox has an entry with that number already (error says so). */
NODISCARD int store_activity_insert(struct store *store, const struct activity_row *row,
				    uint64_t *ret_sequence, struct error *error);
/* The first and the last entry of a sandbox that are kept: 1, or 0 where there is none. */
NODISCARD int store_activity_ends(struct store *store, const struct id *sandbox,
				  uint64_t *ret_first, uint64_t *ret_last, uint8_t ret_hash[32],
				  struct error *error);
/* The entry with which an exec was started: 1, or 0 where there is none (any more). */
NODISCARD int store_activity_started(struct store *store, const struct id *exec,
				     struct id *ret_sandbox, uint64_t *ret_number,
				     struct error *error);

/* Which entries; at most `limit` of them. */
struct activity_query {
	const char *workspace;    /* by sequence, where sandbox is NULL */
	const struct id *sandbox; /* by number; or with `by_sequence` by sequence */
	bool by_sequence;
	bool descending;
	uint64_t
	    after; /* number or sequence: what comes behind it in the order; 0: from its start */
	uint64_t until;              /* number or sequence: none behind it; 0: no matter */
	const char *kinds;           /* NULL: all; else ",1,21,": these */
	int64_t since_wall, to_wall; /* 0: no matter; from since_wall on, before to_wall */
	uint32_t limit;
	/* By sequence: entries of the workspace that are looked at, wanted or not; 0: as many as it
	 * takes. A stretch of others must not hold up the loop: the caller goes on in another turn,
	 * after *ret_seen. */
	uint32_t scan;
	uint64_t *ret_seen; /* NULL, or: the last that was looked at; `after` where none was */
	bool *ret_more;     /* NULL, or: `scan` or `limit` was reached */
};
NODISCARD int store_activity_each(struct store *store, const struct activity_query *query,
				  bool (*each)(void *data, const struct activity_row *row),
				  void *data, struct error *error);
/* The highest sequence there is (0: none ever), and up to which entries of the workspace were
 * pruned. */
NODISCARD int store_activity_last(struct store *store, uint64_t *ret_sequence, struct error *error);
NODISCARD int store_activity_pruned(struct store *store, const char *workspace,
				    uint64_t *ret_sequence, struct error *error);

/* Removes entries, a batch per call; each returns how many went. By age: those before `wall`, the
 * oldest first, from `*cursor` on, which moves along; `keep` says of an entry that it stays (the
 * last of a living sandbox: the next one carries its hash). *ret_more: call again. */
NODISCARD int store_activity_prune_age(struct store *store, int64_t wall, uint64_t *cursor,
				       bool (*keep)(void *data, const struct id *sandbox,
						    uint64_t number),
				       void *data, bool *ret_more, struct error *error);
/* By number: those of a sandbox below `first`. */
NODISCARD int store_activity_prune_sandbox(struct store *store, const char *workspace,
					   const struct id *sandbox, uint64_t first,
					   struct error *error);
