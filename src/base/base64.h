/* Base64 (RFC 4648, with padding) for bytes that JSON cannot carry. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

#define BASE64_SIZE(size) (((size) + 2) / 3 * 4)

/* Writes exactly BASE64_SIZE(size) characters, no NUL. */
void base64_encode(const void *data, size_t size, char *to);
/* base64url without padding: 32 bytes become 43 characters and a NUL. */
#define BASE64URL_32_SIZE 44
void base64url_encode_32(const uint8_t data[32], char to[BASE64URL_32_SIZE]);
/* Strict: complete groups, canonical padding, nothing else. `to` has room for size / 4 * 3
 * bytes. Returns the number of bytes, or -EINVAL. */
NODISCARD ssize_t base64_decode(const char *text, size_t size, void *to);
