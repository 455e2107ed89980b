/* See query.h. Called by the list of sandboxes; pure. */
#include "edge/query.h"

#include <string.h>

#include "http/target.h"

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
