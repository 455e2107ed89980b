/* Keys of this installation, made once and kept for good: they sign URLs and receipts. Called
 * when a key is first needed; the caller keeps it in memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

#define SECRET_SIZE_MAX 256

/* The secret of that name, exactly `size` bytes; if there is none, it is made of random bytes. */
NODISCARD int store_secret_get(struct store *store, const char *name, size_t size,
			       uint8_t *ret_value, struct error *error);

/* The same for a key that is not just random bytes (a signature key): `make` fills `value` if
 * there is none yet; 0, or -1 with the error filled. It must not call the store. */
NODISCARD int store_secret_get_or_make(struct store *store, const char *name, size_t size,
				       int (*make)(void *data, uint8_t *value, size_t size,
						   struct error *error),
				       void *data, uint8_t *ret_value, struct error *error);
