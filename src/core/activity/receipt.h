/* Signs receipts with an Ed25519 key of this installation, made once and kept in the store. Called
 * by the code that makes receipts; proto/receipt.h describes their content. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/core.h"
#include "proto/receipt.h"

NODISCARD int receipt_public_key(struct core *core, uint8_t ret_key[RECEIPT_KEY_SIZE],
				 struct error *error);
/* Its secret half, for receipt_sign(). */
NODISCARD int receipt_secret_key(struct core *core, uint8_t ret_seed[RECEIPT_KEY_SIZE],
				 struct error *error);
/* Signs RECEIPT_SIGNED_PREFIX and the data. In any thread. */
NODISCARD int receipt_sign(const uint8_t seed[RECEIPT_KEY_SIZE], const void *data, size_t size,
			   uint8_t ret_signature[RECEIPT_SIGNATURE_SIZE], struct error *error);
