/* Encodes and decodes base64. Called by the JSON helpers and by handlers that take bytes in
 * JSON. Pure functions; nothing blocks. */
#include "base/base64.h"

#include <errno.h>

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

void base64url_encode_32(const uint8_t data[32], char to[BASE64URL_32_SIZE])
{
	char text[BASE64_SIZE(32)]; /* with one padding character, which the NUL replaces */
	base64_encode(data, 32, text);
	for (size_t i = 0; i < BASE64URL_32_SIZE - 1; i++)
		to[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
	to[BASE64URL_32_SIZE - 1] = '\0';
}

/* 1 + the value of a digit; 0 for anything else. */
static const uint8_t digits[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64};

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
			uint32_t value =
			    i >= 4 - padding ? 1 : digits[(unsigned char)text[at + (size_t)i]];
			if (value == 0)
				return -EINVAL;
			group = group << 6 | (value - 1);
		}
		/* Bits that padding discards must be zero, so that each byte sequence has one
		 * text. */
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
