/* The parts of a receipt, for making and for checking one: the hash of an entry of the activity,
 * the canonical JSON that is signed, the signature. Used by core/, api/ and the command line,
 * which checks receipts without a daemon. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define ACTIVITY_HASH_SIZE 32
#define RECEIPT_KEY_SIZE 32
#define RECEIPT_SIGNATURE_SIZE 64
#define RECEIPT_MAX (64 * 1024 * 1024)
/* Put before the text that is signed, so that a signature is never valid for something else. */
#define RECEIPT_SIGNED_PREFIX "caisson-receipt-1\n"

/* The input of an entry's hash. Borrowed. */
struct activity_entry {
	uint8_t previous[ACTIVITY_HASH_SIZE];
	const char *sandbox;
	uint64_t number;
	int64_t wall;
	const char *kind, *actor;
	const char *exec;    /* "": none */
	const char *details; /* packed "key\0value\0..." */
	size_t details_size;
};
void activity_hash(const struct activity_entry *entry, uint8_t ret_hash[ACTIVITY_HASH_SIZE]);

/* Appends JSON in its canonical form (RFC 8785, without fractions): no blanks, members sorted by
 * the bytes of their names, texts as UTF-8 with the shortest escapes. -1 if it contains a
 * fraction, which a receipt never does, or is too long. */
NODISCARD int canonical_json(const json_t *json, struct buffer *ret_text);

/* The text that is signed: the prefix and the receipt in canonical form. -1 if it is too long. */
NODISCARD int receipt_signed_text(const void *data, size_t size, struct buffer *ret_text);
bool receipt_verify(const uint8_t key[RECEIPT_KEY_SIZE], const void *data, size_t size,
		    const uint8_t signature[RECEIPT_SIGNATURE_SIZE]);
