/* Strings: bounded copies, strict numbers, sizes and durations, hex, UTF-8. */
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int text_copy(char *to, size_t room, const char *from)
{
	size_t length = strlen(from);
	if (length >= room) {
		if (room > 0)
			to[0] = '\0';
		return -ENAMETOOLONG;
	}
	memcpy(to, from, length + 1);
	return 0;
}

int text_format(char *to, size_t room, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int length = vsnprintf(to, room, format, args);
	va_end(args);
	if (length >= 0 && (size_t)length < room)
		return 0;
	if (room > 0)
		to[0] = '\0';
	return -ENAMETOOLONG;
}

char *text_duplicate(const char *text)
{
	char *copy = strdup(text);
	if (!copy)
		abort();
	return copy;
}

void text_free(char **text)
{
	free(*text);
	*text = NULL;
}

bool text_starts(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

int text_to_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	uint64_t value = 0;
	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return -ERANGE;
	}
	if (value < min || value > max)
		return -ERANGE;
	*ret_value = value;
	return 0;
}

/* Splits "1.5G" into 1500 thousandths and "G". */
static int quantity_split(const char *text, uint64_t *ret_thousandths, const char **ret_unit)
{
	uint64_t value = 0, scale = 1000;
	bool digits = false, point = false;
	for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
		if (*text == '.') {
			point = true;
			continue;
		}
		digits = true;
		if (point && scale == 1)
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return -ERANGE;
		if (point)
			scale /= 10;
	}
	if (!digits || __builtin_mul_overflow(value, scale, &value))
		return digits ? -ERANGE : -EINVAL;
	*ret_thousandths = value;
	*ret_unit = text;
	return 0;
}

struct unit {
	const char *name;
	uint64_t factor;
};

static int quantity_parse(const char *text, const struct unit *units, size_t count,
			  uint64_t *ret_value)
{
	uint64_t thousandths, product;
	const char *name;
	int result = quantity_split(text, &thousandths, &name);
	if (result < 0)
		return result;
	for (size_t i = 0; i < count; i++) {
		if (strcasecmp(name, units[i].name) != 0)
			continue;
		if (__builtin_mul_overflow(thousandths, units[i].factor, &product))
			return -ERANGE;
		*ret_value = product / 1000;
		return 0;
	}
	return -EINVAL;
}

int text_to_bytes(const char *text, uint64_t unit, uint64_t *ret_bytes)
{
	const struct unit units[] = {
	    {"", unit},          {"b", 1},
	    {"k", 1ULL << 10},   {"kb", 1ULL << 10},
	    {"kib", 1ULL << 10}, {"m", 1ULL << 20},
	    {"mb", 1ULL << 20},  {"mib", 1ULL << 20},
	    {"g", 1ULL << 30},   {"gb", 1ULL << 30},
	    {"gib", 1ULL << 30}, {"t", 1ULL << 40},
	    {"tb", 1ULL << 40},  {"tib", 1ULL << 40},
	};
	return quantity_parse(text, units, ARRAY_SIZE(units), ret_bytes);
}

int text_to_seconds(const char *text, uint64_t *ret_seconds)
{
	static const struct unit units[] = {
	    {"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {"w", 7 * 86400},
	};
	return quantity_parse(text, units, ARRAY_SIZE(units), ret_seconds);
}

void text_hex(const void *data, size_t size, char *to)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *bytes = data;
	for (size_t i = 0; i < size; i++) {
		to[2 * i] = digits[bytes[i] >> 4];
		to[2 * i + 1] = digits[bytes[i] & 15];
	}
	to[2 * size] = '\0';
}

/* Length of the UTF-8 character at text: 0: invalid, -1: cut off by size. */
static int utf8_length(const unsigned char *text, size_t size)
{
	unsigned char c = text[0];
	int length = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
	for (int i = 1; i < length; i++) {
		if ((size_t)i >= size)
			return -1;
		unsigned char low = 0x80, high = 0xbf;
		if (i == 1) {
			low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
			high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
		}
		if (text[i] < low || text[i] > high)
			return 0;
	}
	return length;
}

bool text_is_utf8(const char *text, size_t size)
{
	for (size_t at = 0; at < size;) {
		/* Most text is ASCII: check eight bytes at once. */
		uint64_t word;
		if (size - at >= sizeof(word)) {
			memcpy(&word, text + at, sizeof(word));
			if ((word & 0x8080808080808080u) == 0) {
				at += sizeof(word);
				continue;
			}
		}
		int length = utf8_length((const unsigned char *)text + at, size - at);
		if (length <= 0)
			return false;
		at += (size_t)length;
	}
	return true;
}

size_t text_utf8_prefix(const char *text, size_t size)
{
	for (size_t back = 1; back <= 3 && back <= size; back++) {
		unsigned char c = (unsigned char)text[size - back];
		if (c < 0x80)
			return size;
		if (c >= 0xc0) {
			int length = utf8_length((const unsigned char *)text + size - back, back);
			return length < 0 ? size - back : size;
		}
	}
	return size;
}

static bool byte_is_between(unsigned char byte, unsigned char low, unsigned char high)
{
	return byte >= low && byte <= high;
}

size_t text_control_length(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	if (byte_is_between(at[0], 0x01, 0x1f) || at[0] == 0x7f)
		return 1;
	if ((at[0] == 0xc2 && byte_is_between(at[1], 0x80, 0x9f)) ||
	    (at[0] == 0xd8 && at[1] == 0x9c))
		return 2;
	bool turns = at[0] == 0xe2 && ((at[1] == 0x80 && (byte_is_between(at[2], 0x8e, 0x8f) ||
							  byte_is_between(at[2], 0xa8, 0xae))) ||
				       (at[1] == 0x81 && byte_is_between(at[2], 0xa6, 0xa9)));
	return turns ? 3 : 0;
}

unsigned text_control_code(const char *text, size_t length)
{
	unsigned code = (unsigned char)text[0] & (length == 1 ? 0x7fU : 0x3fU >> (length - 1));
	for (size_t i = 1; i < length; i++)
		code = code << 6 | ((unsigned char)text[i] & 0x3fU);
	return code;
}
