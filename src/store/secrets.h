/* Keys of this installation, made once and kept for good: what signs URLs and receipts. Called when
 * a key is needed for the first time; its user keeps it in memory from then on. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

#define SECRET_SIZE_MAX 256

/* The secret of that name, exactly `size` bytes of it; made of random bytes where there is none. */
NODISCARD int store_secret_get(struct store *store, const char *name, size_t size,
			       uint8_t *ret_value, struct error *error);

/* The same where not any bytes will do (a signature key): `make` fills `value` when there is none
 * yet; 0, or -1 with the error filled. It must not call the store. */
NODISCARD int store_secret_get_or_make(struct store *store, const char *name, size_t size,
				       int (*make)(void *data, uint8_t *value, size_t size,
						   struct error *error),
				       void *data, uint8_t *ret_value, struct error *error);
