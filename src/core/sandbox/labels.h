/* Labels and metadata of a sandbox: checks, merging of changes, lookup. Both are packed
 * "key\0value\0..." in a row. Selectors use labels. Metadata is for the user; values of keys that
 * begin with "secret." are never returned. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "core/sandbox/sandbox.h"

#define LABELS_MAX 32
#define LABEL_MAX 63 /* of a key and of a value */
#define LABELS_BYTES_MAX (LABELS_MAX * 2 * (LABEL_MAX + 1))

/* Packs pairs for a row, or fails with LIMIT_EXCEEDED or INVALID. The caller owns *ret_packed; it
 * is NULL without pairs. */
NODISCARD int labels_pack(const struct pair *pairs, size_t count, char **ret_packed,
			  uint32_t *ret_size, struct error *error);
NODISCARD int metadata_pack(const struct pair *pairs, size_t count, char **ret_packed,
			    uint32_t *ret_size, struct error *error);
/* Merges changes into packed pairs; a value of NULL removes its key. The result borrows from both;
 * the caller frees the array. */
void packed_merge(const char *packed, uint32_t size, const struct pair *changes, size_t count,
		  struct pair **ret_pairs, size_t *ret_count);
/* NULL without that key. */
const char *packed_value(const char *packed, uint32_t size, const char *key);
/* Has it all of these? */
bool packed_has(const char *packed, uint32_t size, const struct pair *wanted, size_t count);
bool label_key_valid(const char *key);
bool metadata_secret(const char *key);
