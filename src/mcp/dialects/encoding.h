/* Texts of files in the encodings that the peers' tools name, and byte ranges in HTTP's notation.
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/json/json.h"

enum text_encoding { ENCODING_UTF8, ENCODING_ASCII, ENCODING_LATIN1, ENCODING_BASE64 };

/* "utf-8", "UTF8", "latin_1", ...; INVALID lists the known ones. */
NODISCARD int encoding_parse(const char *name, enum text_encoding *ret_encoding,
			     struct error *error);
const char *encoding_name(enum text_encoding encoding);
/* Are these bytes a valid text in that encoding? */
bool encoding_holds(enum text_encoding encoding, const char *data, size_t size);
/* Bytes as a JSON string. */
void encoding_put(struct json_writer *writer, const char *key, enum text_encoding encoding,
		  const char *data, size_t size);
/* Appends the bytes of a text; INVALID if it cannot be encoded. */
NODISCARD int encoding_bytes(enum text_encoding encoding, const char *text, struct buffer *to,
			     struct error *error);

/* "bytes=0-1023", "bytes=100-", "bytes=-50" (the last 50). */
struct byte_range {
	bool given;
	uint64_t offset;
	uint64_t length; /* 0: to the end */
	uint64_t last;   /* 0: it begins at `offset` */
};
/* text NULL: everything. INVALID for an invalid range, several ranges, or one longer than `max`. */
NODISCARD int byte_range_parse(const char *text, uint64_t max, struct byte_range *ret_range,
			       struct error *error);
