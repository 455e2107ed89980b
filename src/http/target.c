/* Path and query, percent-decoded. Called when a request's head is complete and by handlers that
 * ask for a parameter; pure, never blocks. */
#include "http/target.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "http/characters.h"

/* The byte at text[*at] with its escape undone, or -1. */
static int escape_decode(const char *text, size_t size, size_t *at)
{
	unsigned char c = (unsigned char)text[*at];
	if (c != '%') {
		*at += 1;
		return c;
	}
	if (size - *at < 3 || !http_is_hex(text[*at + 1]) || !http_is_hex(text[*at + 2]))
		return -1;
	c = (unsigned char)(http_hex_value(text[*at + 1]) << 4 | http_hex_value(text[*at + 2]));
	*at += 3;
	return c;
}

/* Returns whether any segment is "." or "..". Honest clients resolve those before they send. An
 * attacker leaves them in, hoping that we and the reader behind us resolve them differently. */
static bool path_has_dot_segment(const char *path)
{
	for (const char *at = path; (at = strchr(at, '/'));) {
		at++;
		size_t length = strcspn(at, "/");
		if ((length == 1 && at[0] == '.') || (length == 2 && at[0] == '.' && at[1] == '.'))
			return true;
	}
	return false;
}

int http_path_decode(const char *target, size_t size, char *to, const char **ret_reason)
{
	const char *query = memchr(target, '?', size);
	size_t length = 0;
	if (query)
		size = (size_t)(query - target);
	for (size_t at = 0; at < size;) {
		int byte = escape_decode(target, size, &at);
		if (byte < 0) {
			*ret_reason = "the path has an invalid escape";
			return -400;
		}
		if (byte < 0x20 || byte == 0x7f) {
			*ret_reason = "the path has a control character";
			return -400;
		}
		to[length++] = (char)byte;
	}
	to[length] = '\0';
	if (!text_is_utf8(to, length)) {
		*ret_reason = "the path is not UTF-8";
		return -400;
	}
	if (path_has_dot_segment(to)) {
		*ret_reason = "the path has a segment '.' or '..'";
		return -400;
	}
	return 0;
}

ssize_t http_query_decode(const char *text, size_t size, char *to, size_t room)
{
	size_t length = 0;
	for (size_t at = 0; at < size;) {
		bool plus = text[at] == '+';
		int byte = escape_decode(text, size, &at);
		if (byte <= 0 || length + 1 >= room)
			return -EINVAL;
		to[length++] = plus ? ' ' : (char)byte;
	}
	if (length >= room)
		return -EINVAL;
	to[length] = '\0';
	return (ssize_t)length;
}

/* Returns whether text[0..size), decoded, equals `name`. */
static bool parameter_name_is(const char *text, size_t size, const char *name)
{
	size_t at = 0;
	for (; *name; name++) {
		if (at == size)
			return false;
		bool plus = text[at] == '+';
		int byte = escape_decode(text, size, &at);
		if (byte < 0 || (char)(plus ? ' ' : byte) != *name)
			return false;
	}
	return at == size;
}

ssize_t http_query_find(const char *query, const char *name, char *to, size_t room)
{
	ssize_t found = -ENOENT;
	while (*query) {
		size_t size = strcspn(query, "&");
		const char *equals = memchr(query, '=', size);
		size_t name_size = equals ? (size_t)(equals - query) : size;
		if (parameter_name_is(query, name_size, name)) {
			if (found >= 0)
				return -EINVAL;
			const char *value = equals ? equals + 1 : query + size;
			found = http_query_decode(value, (size_t)(query + size - value), to, room);
			if (found < 0)
				return found;
		}
		query += size + (query[size] == '&');
	}
	return found;
}
