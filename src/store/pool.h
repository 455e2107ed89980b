/* Members of the pool (core/pool/pool.h). A member's row is written before anything of the member
 * exists on the host, so that leftovers of a crash are recognised. Members have a table of their
 * own, because they have no owner, and because lists, budgets and backups must not include them.
 * Written by core/pool/pool.c alone. The row is deleted in the transaction that makes the member a
 * sandbox. */
#pragma once

#include "store/store.h"

struct pool_row {
	struct id id;
	bool ready;     /* false: it was not yet complete, and the fields below are unset */
	uint64_t stamp; /* identifies the versions that it was made with: core/pool/pool.c */
	uint32_t tier, network;
	char *template;
	struct limits limits;
	uint32_t limit_reasons[LIMIT_COUNT];
	char rootfs_digest[ROOTFS_DIGEST_TEXT];
	uint64_t cpu_ns; /* used until it was ready; in memory: until its last sample */
};
void pool_row_done(struct pool_row *row);

/* Inserts the row, or replaces the one with the same id. */
NODISCARD int store_pool_put(struct store *store, const struct pool_row *row, struct error *error);
/* 1, or 0: no such row. */
NODISCARD int store_pool_delete(struct store *store, const struct id *id, struct error *error);
/* 1 or 0. */
NODISCARD int store_pool_has(struct store *store, const struct id *id, struct error *error);
/* A damaged row is passed as one that is not ready. */
NODISCARD int store_pool_each(struct store *store,
			      void (*each)(void *data, const struct pool_row *row), void *data,
			      struct error *error);
