/* Proof that this installation has written something: HMAC-SHA256 with a key that is made once and
 * kept in the store, one key for each purpose. */
#pragma once

#include "core/core.h"

#define MAC_SIZE 32

/* `purpose` names the key. Costs a read of the store. Compare with CRYPTO_memcmp(). */
NODISCARD int core_mac(struct core *core, const char *purpose, const void *message, size_t size,
		       uint8_t mac[MAC_SIZE], struct error *error);
