/* Splits the request target into path and query, percent-decoded. Pure functions. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/macros.h"

/* Decodes the path in target[0..size) (up to '?') into `to`, which has room for size + 1 bytes. 0,
 * or -400 with *ret_reason: a bad escape, a NUL or control character, a segment "." or "..", or
 * text that is not UTF-8 after decoding. */
NODISCARD int http_path_decode(const char *target, size_t size, char *to, const char **ret_reason);

/* Decodes the text of a query ("+" is a space) and ends it with a NUL. Returns its length, or
 * -EINVAL for a bad escape, a NUL, or a text that is too long for `room`. */
NODISCARD ssize_t http_query_decode(const char *text, size_t size, char *to, size_t room);

/* The value of parameter `name` in a query (NUL-terminated, without '?'), decoded. Returns its
 * length, -ENOENT, or -EINVAL (as above, or given twice). */
NODISCARD ssize_t http_query_find(const char *query, const char *name, char *to, size_t room);
