/* The character classes of RFC 9110, for the parsers of this folder. */
#pragma once

#include <stdbool.h>

static inline bool http_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool http_is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool http_is_hex(char c)
{
	return http_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static inline unsigned http_hex_value(char c)
{
	return http_is_digit(c) ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10;
}

/* A character of a method or a header name. */
static inline bool http_is_token(char c)
{
	/* One bit per ASCII character: letters, digits and !#$%&'*+-.^_`|~ */
	static const unsigned tokens[4] = {0, 0x03ff6cfa, 0xc7fffffe, 0x57ffffff};
	unsigned char byte = (unsigned char)c;
	return byte < 0x80 && (tokens[byte >> 5] >> (byte & 31) & 1);
}

/* A character of a request id. */
static inline bool http_is_id(char c)
{
	return http_is_digit(c) || http_is_letter(c) || c == '-' || c == '_' || c == '.' ||
	       c == ':';
}

/* A character that may stand inside a line: visible, space, tab, or obs-text (0x80 and above). */
static inline bool http_is_text(char c)
{
	unsigned char byte = (unsigned char)c;
	return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}
