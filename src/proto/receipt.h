/* What a receipt is made of, for those who make one and those who check it: the hash of an entry of
 * the activity, the one form of JSON that is signed, the signature. Used by core/, api/ and the
 * command line, which checks receipts without a daemon. */
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
/* Stands in front of what is signed: a signature of ours says nothing about anything else. */
#define RECEIPT_SIGNED_PREFIX "caisson-receipt-1\n"

/* What an entry's hash is made of. Borrowed. */
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

/* Appends JSON in its one canonical form (RFC 8785, without fractions): no blanks, members in the
 * order of their names' bytes, texts as UTF-8 with the shortest escapes. -1 when it holds a
 * fraction (which has no place in a receipt), or is too long. */
NODISCARD int canonical_json(const json_t *json, struct buffer *ret_text);

/* What is signed: the prefix and the receipt in canonical form. -1 when it is too long. */
NODISCARD int receipt_signed_text(const void *data, size_t size, struct buffer *ret_text);
bool receipt_verify(const uint8_t key[RECEIPT_KEY_SIZE], const void *data, size_t size,
		    const uint8_t signature[RECEIPT_SIGNATURE_SIZE]);
