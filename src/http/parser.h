/* The request head and the chunked body: pure functions over bytes, without I/O, so that they can
 * be fuzzed and tested with tables. Accepts a strict subset of RFC 9112; every refusal has a name.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/macros.h"

struct http_parsed_header {
	uint32_t name, name_size, value, value_size; /* offsets into the head */
};

struct http_head {
	uint32_t method, method_size, target, target_size; /* offsets into the head */
	int minor;                                         /* HTTP/1.minor */
	struct http_parsed_header headers[HTTP_HEADERS_MAX];
	size_t header_count;
	bool keep_alive;
	bool chunked;
	bool expect_continue;
	bool upgrade;
	int64_t content_length;   /* -1 when there is none */
	uint32_t host, host_size; /* the Host header's value */
};

/* Parses data[0..size). Returns the length of a complete head (with its empty line), 0 if more
 * bytes are needed, or minus an HTTP status (400, 414, 417, 431, 501, 505) with *ret_reason for
 * people. Header names in `data` are made lower case in place. Nothing is kept between calls. */
NODISCARD int http_head_parse(char *data, size_t size, struct http_head *ret_head,
			      const char **ret_reason);

enum http_chunk_phase {
	CHUNK_SIZE,
	CHUNK_EXTENSION,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_TRAILER,
	CHUNK_DONE,
};

struct http_chunked {
	enum http_chunk_phase phase;
	uint64_t left;
	uint32_t digits, line; /* bounds on the size of a chunk line and of the trailers */
};

/* Consumes bytes of `data` and returns their number; *ret_data and *ret_size are the piece of body
 * in them (may be empty). -400: invalid. Call again until it consumes nothing, or chunked->phase is
 * CHUNK_DONE. */
NODISCARD int64_t http_chunked_next(struct http_chunked *chunked, const char *data, size_t size,
				    const char **ret_data, size_t *ret_size,
				    const char **ret_reason);
