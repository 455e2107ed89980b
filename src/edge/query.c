/* Query parameters. Called by the router and the handlers; pure. */
#include "edge/query.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "edge/call.h"
#include "http/target.h"

static bool is_secret(const char *name, size_t size)
{
	static const char *const names[] = {"token", "access_token", "api_key", "apikey"};
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strlen(names[i]) == size && memcmp(names[i], name, size) == 0)
			return true;
	}
	return false;
}

int query_check(const struct route *route, const char *query, struct error *error)
{
	if (route->flags & ROUTE_ANY_QUERY)
		return 0;
	while (*query) {
		size_t size = strcspn(query, "&"), name = strcspn(query, "=&");
		bool known = size == 0;
		for (const char *at = route->query; at && *at && !known;) {
			size_t length = strcspn(at, ",");
			known = length == name && memcmp(at, query, name) == 0;
			at += length + (at[length] == ',');
		}
		/* Paths and queries are logged and kept in histories. */
		if (!known && is_secret(query, name))
			return error_set(error, ERROR_INVALID,
					 "a token is not taken from the URL: send it in the header "
					 "`Authorization: Bearer TOKEN`");
		if (!known)
			return error_set(error, ERROR_INVALID, "unknown query parameter `%.*s`",
					 (int)MIN(name, (size_t)100), query);
		query += size + (query[size] == '&');
	}
	return 0;
}

int query_text(struct call *call, const char *name, char *to, size_t room, bool required,
	       struct error *error)
{
	ssize_t size = http_query(call->exchange, name, to, room);
	if (size == -ENOENT) {
		if (required)
			return error_set(error, ERROR_INVALID, "query parameter `%s` is missing",
					 name);
		return 0;
	}
	if (size < 0)
		return error_set(error, ERROR_INVALID,
				 "query parameter `%s` is given twice, is longer than %zu bytes, "
				 "or has a bad escape",
				 name, room - 1);
	if (required && size == 0)
		return error_set(error, ERROR_INVALID, "query parameter `%s` is empty", name);
	return 0;
}

int query_uint(struct call *call, const char *name, uint64_t min, uint64_t max, uint64_t *value,
	       struct error *error)
{
	char text[24] = "";
	if (query_text(call, name, text, sizeof(text), false, error) < 0)
		return -1;
	if (text[0] != '\0' && text_to_u64(text, min, max, value) < 0)
		return error_set(error, ERROR_INVALID,
				 "query parameter `%s` must be a number from %llu to %llu", name,
				 (unsigned long long)min, (unsigned long long)max);
	return 0;
}

int query_flag(struct call *call, const char *name, bool *value, struct error *error)
{
	char text[8] = "";
	if (query_text(call, name, text, sizeof(text), false, error) < 0)
		return -1;
	if (strcmp(text, "1") == 0 || strcmp(text, "true") == 0)
		*value = true;
	else if (strcmp(text, "0") == 0 || strcmp(text, "false") == 0)
		*value = false;
	else if (text[0] != '\0')
		return error_set(error, ERROR_INVALID, "query parameter `%s` must be 1 or 0", name);
	return 0;
}

/* --- those that may be given more than once --- */

/* One "name=key=value", still encoded. */
static int take_pair(const char *name, const char *part, size_t size, struct query_pairs *pairs,
		     struct error *error)
{
	char encoded[3 * QUERY_PAIR_MAX];
	if (pairs->count == QUERY_PAIRS_MAX)
		return error_set(error, ERROR_INVALID, "query parameter `%s`: at most %d", name,
				 QUERY_PAIRS_MAX);
	char *text = pairs->text[pairs->count];
	if (size >= sizeof(encoded))
		return error_set(error, ERROR_INVALID, "query parameter `%s` is too long", name);
	memcpy(encoded, part, size);
	encoded[size] = '\0';
	if (http_query_find(encoded, name, text, QUERY_PAIR_MAX) < 0)
		return error_set(error, ERROR_INVALID,
				 "query parameter `%s` is longer than %d bytes or has a bad escape",
				 name, QUERY_PAIR_MAX - 1);
	char *equals = strchr(text, '=');
	if (!equals || equals == text)
		return error_set(error, ERROR_INVALID,
				 "query parameter `%s` must be of the form KEY=VALUE", name);
	*equals = '\0';
	pairs->pairs[pairs->count++] = (struct pair){text, equals + 1};
	return 0;
}

int query_pairs(struct call *call, const char *name, struct query_pairs *pairs, struct error *error)
{
	const char *query = http_request(call->exchange)->query;
	size_t length = strlen(name);
	pairs->count = 0;
	while (*query) {
		size_t size = strcspn(query, "&");
		if (size > length && memcmp(query, name, length) == 0 && query[length] == '=' &&
		    take_pair(name, query, size, pairs, error) < 0)
			return -1;
		if (size == length && memcmp(query, name, length) == 0)
			return error_set(error, ERROR_INVALID,
					 "query parameter `%s` must be of the form KEY=VALUE",
					 name);
		query += size + (query[size] == '&');
	}
	return 0;
}
