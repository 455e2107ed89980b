/* The results of requests with an Idempotency-Key: one row per workspace and key. */
#pragma once

#include "store/store.h"

#define REQUEST_DIGEST_SIZE 32
#define REQUEST_ANSWER_MAX (256 * 1024)

struct request_row {
	const char *workspace, *key; /* borrowed, not read back */
	const char *operation;       /* for people; not read back */
	uint8_t digest[REQUEST_DIGEST_SIZE];
	struct id sandbox, exec; /* or unset */
	char *answer;            /* NULL, or the answer that was sent; owned by the reader */
	size_t answer_size;
	int64_t created_wall;
};

/* 1 found, 0 not. */
NODISCARD int store_request_get(struct store *store, const char *workspace, const char *key,
				struct request_row *ret_row, struct error *error);
/* Replaces the row of the same workspace and key. */
NODISCARD int store_request_put(struct store *store, const struct request_row *row,
				struct error *error);
NODISCARD int store_request_delete(struct store *store, const char *workspace, const char *key,
				   struct error *error);
/* Removes a batch of the requests made before that time. */
NODISCARD int store_request_prune(struct store *store, int64_t before_wall, struct error *error);
