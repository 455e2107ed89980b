/* Sandboxes of the pool (core/pool/pool.h): a row before anything of one is on the host, so that
 * what a crash leaves is known for what it is. A row of its own table, not of `sandboxes`: nobody
 * owns them, and no list, budget or backup is to see them. Written by core/pool/pool.c alone, and
 * deleted in the transaction that makes one a sandbox. */
#pragma once

#include "store/store.h"

struct pool_row {
	struct id id;
	bool ready;     /* false: it was still being made, and nothing below is set */
	uint64_t stamp; /* of what it was made with: core/pool/pool.c */
	uint32_t tier, network;
	char *template;
	struct limits limits;
	uint32_t limit_reasons[LIMIT_COUNT];
	char rootfs_digest[ROOTFS_DIGEST_TEXT];
	uint64_t cpu_ns; /* what its boot used */
};
void pool_row_done(struct pool_row *row);

/* A new row, or in place of the one with the same id. */
NODISCARD int store_pool_put(struct store *store, const struct pool_row *row, struct error *error);
/* 1, or 0 where there was none. */
NODISCARD int store_pool_delete(struct store *store, const struct id *id, struct error *error);
/* 1 or 0. */
NODISCARD int store_pool_has(struct store *store, const struct id *id, struct error *error);
/* A row that makes no sense is told of as one that is not ready. */
NODISCARD int store_pool_each(struct store *store,
			      void (*each)(void *data, const struct pool_row *row), void *data,
			      struct error *error);
