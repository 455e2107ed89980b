/* JSON at the edge. Reading: strict (one object, no duplicate keys, bounded depth; its fields by a
 * table, fields.h). Writing: directly into a bounded buffer, so that an answer needs no tree. */
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
	unsigned depth; /* of nested objects and arrays */
	size_t values;  /* in the whole, itself included */
};
struct json_wrong {
	const char *text; /* NULL: nothing is wrong */
	unsigned line, column;
	bool no_text; /* a string contains something that our texts cannot hold: NUL, half a
			 character */
};
/* One value of any type, which the caller owns; NULL and the error: not JSON, not UTF-8, a
 * duplicate name in an object, an escaped NUL, a number beyond 64 bits or a double, beyond the
 * bounds. May be called in a thread. */
NODISCARD json_t *json_read(const char *data, size_t size, const struct json_bounds *bounds,
			    struct json_wrong *ret_wrong);

/* One JSON object: MALFORMED with the error and its place. The caller owns the object. */
NODISCARD int json_parse(const char *data, size_t size, json_t **ret_object, struct error *error);
/* The same for a message of a WebSocket, which is read on the loop: few values, of any length. */
NODISCARD int json_parse_message(const char *data, size_t size, json_t **ret_object,
				 struct error *error);

/* Drops a reference; takes NULL. Freeing a tree of thousands of values takes milliseconds, so a
 * thread does it, by the share's turns. */
void json_release(json_t *json, struct work_share *share);

/* --- writing --- */

struct json_writer {
	struct buffer *buffer;
	bool comma; /* needed before the next value */
	bool full;  /* the buffer's maximum was exceeded: its content is incomplete */
};

struct json_writer json_writer_on(struct buffer *buffer);
/* `key` is NULL in an array and at the top; it is a constant and needs no escaping. */
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
/* As `key`, or if it is not UTF-8 as `key`_base64. */
void put_bytes(struct json_writer *writer, const char *key, const void *data, size_t size);
/* A wall-clock time in nanoseconds as RFC 3339; 0 is null. */
void put_time(struct json_writer *writer, const char *key, int64_t wall);
/* One JSON value as text, unchanged. */
void put_json(struct json_writer *writer, const char *key, const char *json, size_t size);
/* A key that comes from a user. The value follows with key NULL. */
void put_key(struct json_writer *writer, const char *key);
