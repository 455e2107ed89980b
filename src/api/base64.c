/* Base64 both ways. Called by the JSON helpers and by the handlers that take bytes in JSON. Pure
 * functions over memory; nothing blocks. */
#include "api/base64.h"

#include <errno.h>
#include <stdint.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *data, size_t size, char *to)
{
	const uint8_t *from = data;
	for (; size >= 3; size -= 3, from += 3) {
		uint32_t group = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
		*to++ = alphabet[group >> 18];
		*to++ = alphabet[group >> 12 & 63];
		*to++ = alphabet[group >> 6 & 63];
		*to++ = alphabet[group & 63];
	}
	if (size > 0) {
		uint32_t group = (uint32_t)from[0] << 16 | (size == 2 ? (uint32_t)from[1] << 8 : 0);
		*to++ = alphabet[group >> 18];
		*to++ = alphabet[group >> 12 & 63];
		*to++ = size == 2 ? alphabet[group >> 6 & 63] : '=';
		*to++ = '=';
	}
}

static int digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

ssize_t base64_decode(const char *text, size_t size, void *to)
{
	uint8_t *out = to;
	if (size % 4 != 0)
		return -EINVAL;
	for (size_t at = 0; at < size; at += 4) {
		int padding = 0;
		if (at + 4 == size && text[at + 3] == '=')
			padding = text[at + 2] == '=' ? 2 : 1;
		uint32_t group = 0;
		for (int i = 0; i < 4; i++) {
			int value = i >= 4 - padding ? 0 : digit(text[at + i]);
			if (value < 0)
				return -EINVAL;
			group = group << 6 | (uint32_t)value;
		}
		/* Bits that padding throws away must be zero: one text per sequence of bytes. */
		if ((padding == 1 && (group & 0xff)) || (padding == 2 && (group & 0xffff)))
			return -EINVAL;
		*out++ = (uint8_t)(group >> 16);
		if (padding < 2)
			*out++ = (uint8_t)(group >> 8);
		if (padding < 1)
			*out++ = (uint8_t)group;
	}
	return out - (uint8_t *)to;
}
