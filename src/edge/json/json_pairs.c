/* Objects of strings, bounded in number and bytes. Called by the handlers of REST
 * and the tools of MCP that create and run. */
#include "edge/json/json_pairs.h"

#include <stdlib.h>
#include <string.h>

int json_pairs(const char *name, const json_t *json, size_t count_max, size_t bytes_max,
	       struct pair **ret_pairs, size_t *ret_count, struct error *error)
{
	size_t count = json ? json_object_size(json) : 0, at = 0, bytes = 0;
	*ret_count = 0;
	if (count == 0)
		return 0;
	if (count > count_max)
		return error_set(error, ERROR_INVALID, "field `%s` has %zu entries; at most %zu",
				 name, count, count_max);
	struct pair *pairs = calloc(count, sizeof(*pairs));
	if (!pairs)
		abort();
	*ret_pairs = pairs; /* the caller owns it from here on, in every case */
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)json, key, value)
	{
		if (!json_is_string(value))
			return error_set(error, ERROR_INVALID,
					 "field `%s`: the value of `%.100s` must be a string", name,
					 key);
		pairs[at++] = (struct pair){key, json_string_value(value)};
		bytes += strlen(key) + json_string_length(value) + 2;
	}
	if (bytes > bytes_max)
		return error_set(error, ERROR_INVALID, "field `%s` is %zu bytes; at most %zu", name,
				 bytes, bytes_max);
	*ret_count = count;
	return 0;
}

int json_environment(const char *name, const json_t *json, size_t bytes_max,
		     struct pair **ret_pairs, size_t *ret_count, struct error *error)
{
	if (json_pairs(name, json, EXEC_ENV_MAX, bytes_max, ret_pairs, ret_count, error) < 0)
		return -1;
	for (size_t i = 0; i < *ret_count; i++) {
		const char *key = (*ret_pairs)[i].key;
		if (key[0] == '\0' || strchr(key, '='))
			return error_set(error, ERROR_INVALID,
					 "field `%s`: `%.100s` cannot be a variable's name", name,
					 key);
	}
	return 0;
}
