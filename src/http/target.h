/* The request target taken apart: path and query, percent-decoded. Pure functions. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/macros.h"

/* Decodes the path in target[0..size) (up to '?') into `to`, which has room for size + 1 bytes.
 * 0, or -400 with *ret_reason: a bad escape, a NUL or control character, a segment "." or "..",
 * or what is not UTF-8 after decoding. */
NODISCARD int http_path_decode(const char *target, size_t size, char *to, const char **ret_reason);

/* The value of parameter `name` in a query (NUL-terminated, without '?'), decoded ("+" is a space)
 * and NUL-terminated: its length, -ENOENT, or -EINVAL: a bad escape, a NUL, too long for `room`, or
 * given twice. */
NODISCARD ssize_t http_query_find(const char *query, const char *name, char *to, size_t room);
