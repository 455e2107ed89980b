/* JSON at the edge. Reading: strict (one object, no duplicate keys, bounded depth; its fields by a
 * table, fields.h). Writing: straight into a bounded buffer, so
 * that an answer costs no tree. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/work.h"

/* --- reading --- */

struct json_bounds {
	unsigned depth; /* of objects and arrays in each other */
	size_t values;  /* in the whole, itself included */
};
struct json_wrong {
	const char *text; /* NULL: nothing is */
	unsigned line, column;
	bool no_text; /* a string holds what no text of ours can: NUL, half a character */
};
/* One value of any type, which the caller owns; NULL and what is wrong: not JSON, not UTF-8, a name
 * twice in an object, an escaped NUL, a number beyond 64 bits or a double, beyond the bounds. May
 * be called in a thread. */
NODISCARD json_t *json_read(const char *data, size_t size, const struct json_bounds *bounds,
			    struct json_wrong *ret_wrong);

/* One JSON object: MALFORMED with what is wrong and where. The caller owns it. */
NODISCARD int json_parse(const char *data, size_t size, json_t **ret_object, struct error *error);
/* The same for a message of a socket, which is read on the loop: of few values, however long. */
NODISCARD int json_parse_message(const char *data, size_t size, json_t **ret_object,
				 struct error *error);

/* Drops a reference; NULL is fine. A tree of thousands of values takes milliseconds to free, so
 * that is done in a thread, by the share's turns. */
void json_release(json_t *json, struct work_share *share);

/* --- writing --- */

struct json_writer {
	struct buffer *buffer;
	bool comma; /* one is due before the next value */
	bool full;  /* the buffer's maximum was passed: what is in it is not whole */
};

struct json_writer json_writer_on(struct buffer *buffer);
/* `key` is NULL in an array and at the top; it is ours and needs no escaping. */
void put_object(struct json_writer *writer, const char *key);
void put_object_end(struct json_writer *writer);
void put_array(struct json_writer *writer, const char *key);
void put_array_end(struct json_writer *writer);
void put_null(struct json_writer *writer, const char *key);
void put_bool(struct json_writer *writer, const char *key, bool value);
void put_uint(struct json_writer *writer, const char *key, uint64_t value);
void put_int(struct json_writer *writer, const char *key, int64_t value);
void put_number(struct json_writer *writer, const char *key, double value); /* three decimals */
/* NULL is null. Bytes that are not UTF-8 become U+FFFD. */
void put_text(struct json_writer *writer, const char *key, const char *text);
void put_text_size(struct json_writer *writer, const char *key, const char *text, size_t size);
void put_base64(struct json_writer *writer, const char *key, const void *data, size_t size);
/* As `key`, or where it is not UTF-8 as `key`_base64. */
void put_bytes(struct json_writer *writer, const char *key, const void *data, size_t size);
/* RFC 3339 of a wall-clock time in nanoseconds; 0 is null. */
void put_time(struct json_writer *writer, const char *key, int64_t wall);
/* One JSON value that is text already, as it is. */
void put_json(struct json_writer *writer, const char *key, const char *json, size_t size);
/* A key that is the user's. The value follows with key NULL. */
void put_key(struct json_writer *writer, const char *key);
