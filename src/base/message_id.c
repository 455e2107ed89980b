/* An id found in a piece of JSON. See message_id.h. Pure. */
#include "base/message_id.h"

#include <stdbool.h>
#include <string.h>

#include "base/macros.h"

#define BLANK " \t\r\n"

static size_t pass(const char *data, size_t size, size_t at, const char *bytes)
{
	while (at < size && data[at] && strchr(bytes, data[at]))
		at++;
	return at;
}

/* Behind the closing quote; `size`: it is not there. */
static size_t string_end(const char *data, size_t size, size_t at)
{
	for (at++; at < size && data[at] != '"'; at++) {
		if (data[at] == '\\')
			at++;
	}
	return at < size ? at + 1 : size;
}

static size_t id_size(const char *data, size_t size, size_t at)
{
	size_t end = at;
	if (data[at] == '"')
		end = string_end(data, size, at);
	else
		end = pass(data, size, at, "-0123456789");
	bool whole = end > at && end < size && strchr(",}" BLANK, data[end]) && data[end];
	return whole && end - at <= MESSAGE_ID_MAX ? end - at : 0;
}

size_t message_id_find(const char *data, size_t size, const char **ret_id)
{
	size_t depth = 0, at = 0;
	size = MIN(size, (size_t)MESSAGE_ID_WITHIN);
	while (at < size) {
		char byte = data[at];
		if (byte != '"') {
			depth += byte == '{' || byte == '[';
			if (byte == '}' || byte == ']') {
				if (depth <= 1)
					return 0;
				depth--;
			}
			/* A batch has no id of its own. */
			if (depth == 1 && byte == '[')
				return 0;
			at++;
			continue;
		}
		size_t end = string_end(data, size, at);
		size_t colon = pass(data, size, end, BLANK);
		bool is_id = depth == 1 && end - at == 4 && memcmp(data + at, "\"id\"", 4) == 0 &&
			     colon < size && data[colon] == ':';
		if (is_id) {
			at = pass(data, size, colon + 1, BLANK);
			*ret_id = data + at;
			return at < size ? id_size(data, size, at) : 0;
		}
		at = end;
	}
	return 0;
}
