/* Strings: bounded copies, strict numbers, sizes and durations as people write them, hex, UTF-8. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

/* Copies with its NUL, or leaves `to` empty and returns -ENAMETOOLONG. */
NODISCARD int text_copy(char *to, size_t room, const char *from);
NODISCARD int text_format(char *to, size_t room, const char *format, ...) PRINTF_LIKE(3, 4);
/* Duplicates; without memory it ends the program, so callers bound the length first. */
char *text_duplicate(const char *text);
void text_free(char **text);
#define FREE_TEXT CLEANUP(text_free)
bool text_starts(const char *text, const char *prefix);

/* Decimal digits only, the whole string, within [min, max]; else -EINVAL / -ERANGE. */
NODISCARD int text_to_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);
/* "512", "512k", "512M", "1G", "1.5GiB" in bytes; a bare number counts `unit` bytes. */
NODISCARD int text_to_bytes(const char *text, uint64_t unit, uint64_t *ret_bytes);
/* "90", "90s", "15m", "24h", "7d" in seconds. */
NODISCARD int text_to_seconds(const char *text, uint64_t *ret_seconds);

void text_hex(const void *data, size_t size, char *to); /* 2 * size + 1 bytes */
bool text_is_utf8(const char *text, size_t size);
/* The longest prefix of at most `size` bytes that does not end inside a UTF-8 character. */
size_t text_utf8_prefix(const char *text, size_t size);
/* The length of the control character that the text begins with, 0 if it begins with none: those of
 * ASCII, U+0080 to U+009F, and those that change the text's direction or end a line: U+061C,
 * U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069. */
size_t text_control_length(const char *text);
/* Its code point. */
unsigned text_control_code(const char *text, size_t length);
