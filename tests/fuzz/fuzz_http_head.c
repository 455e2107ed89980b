/* The request head, its path and its query, from any bytes. Beyond not crashing: what is accepted
 * lies within the input, and no prefix of an accepted head is refused, so that it cannot matter in
 * which pieces a head arrives. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/parser.h"
#include "http/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

/* A copy of exactly that size, as the parser writes to it and must not read past it. */
static int parse(const uint8_t *data, size_t size, struct http_head *head, char **ret_copy)
{
	const char *reason = NULL;
	char *copy = malloc(size ? size : 1);
	require(copy != NULL);

	if (size > 0)
		memcpy(copy, data, size);
	int result = http_head_parse(copy, size, head, &reason);
	require(result >= 0 || reason);
	require(result >= -599 && result <= (int)MIN(size, (size_t)HTTP_HEAD_MAX));
	*ret_copy = copy;
	return result;
}

static void check_target(const char *target, size_t size)
{
	const char *reason = NULL;
	char *path = malloc(size + 1), *query = strndup(target, size), value[16];
	require(path && query);
	if (http_path_decode(target, size, path, &reason) == 0)
		require(path[0] == '/' && strlen(path) <= size);
	ssize_t length = http_query_find(query, "a", value, sizeof(value));
	require(length < (ssize_t)sizeof(value));
	free(path);
	free(query);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_head head, part;
	char *copy, *prefix;
	int length = parse(data, size, &head, &copy);
	if (length > 0) {
		require(head.method_size > 0 && head.target_size > 0);
		require(copy[head.target] == '/');
		require(head.target + head.target_size < (uint32_t)length);
		require(!(head.chunked && head.content_length >= 0));
		for (size_t i = 0; i < head.header_count; i++) {
			struct http_parsed_header *header = &head.headers[i];
			require(header->name_size > 0);
			require(header->value >= header->name + header->name_size);
			require(header->value + header->value_size < (uint32_t)length);
			require(!memchr(copy + header->value, '\n', header->value_size));
		}
		check_target(copy + head.target, head.target_size);
		for (size_t cut = 0; cut < (size_t)length; cut += 1 + cut / 8) {
			require(parse(data, cut, &part, &prefix) == 0);
			free(prefix);
		}
	}
	free(copy);
	return 0;
}
