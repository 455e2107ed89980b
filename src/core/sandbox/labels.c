/* See labels.h. Called by spec.c, change.c and by everything that filters; pure. */
#include "core/sandbox/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"
#include "proto/init_messages.h"

bool label_key_valid(const char *key)
{
	size_t length = strlen(key);
	return length >= 1 && length <= LABEL_MAX &&
	       key[strspn(key,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-")] ==
		   '\0';
}

bool metadata_secret(const char *key)
{
	return text_starts(key, "secret.");
}

static int pair_pack(struct buffer *buffer, const struct pair *pair)
{
	if (buffer_append(buffer, pair->key, strlen(pair->key) + 1) < 0)
		return -1;
	return buffer_append(buffer, pair->value, strlen(pair->value) + 1);
}

int labels_pack(const struct pair *pairs, size_t count, char **ret_packed, uint32_t *ret_size,
		struct error *error)
{
	DONE_BUFFER struct buffer packed = BUFFER(LABELS_BYTES_MAX);
	if (count > LABELS_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "labels has %zu entries; at most %d are allowed", count,
				 LABELS_MAX);
	for (size_t i = 0; i < count; i++) {
		if (!label_key_valid(pairs[i].key))
			return error_set(error, ERROR_INVALID,
					 "labels: a key is 1 to %d of a-z, A-Z, 0-9, '.', '_', '/' "
					 "and '-', not `%.80s`",
					 LABEL_MAX, pairs[i].key);
		if (strlen(pairs[i].value) > LABEL_MAX)
			return error_set(error, ERROR_INVALID,
					 "labels: the value of `%s` is longer than %d bytes",
					 pairs[i].key, LABEL_MAX);
		if (pair_pack(&packed, &pairs[i]) < 0)
			return error_set(error, ERROR_LIMIT_EXCEEDED, "labels are too long");
	}
	*ret_size = (uint32_t)packed.size;
	*ret_packed = TAKE_PTR(packed.data);
	return 0;
}

int metadata_pack(const struct pair *pairs, size_t count, char **ret_packed, uint32_t *ret_size,
		  struct error *error)
{
	DONE_BUFFER struct buffer packed = BUFFER(SANDBOX_METADATA_BYTES_MAX);
	if (count > SANDBOX_METADATA_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "metadata has %zu entries; at most %d are allowed", count,
				 SANDBOX_METADATA_MAX);
	for (size_t i = 0; i < count; i++) {
		if (!*pairs[i].key)
			return error_set(error, ERROR_INVALID, "metadata: a key must not be empty");
		if (pair_pack(&packed, &pairs[i]) < 0)
			return error_set(error, ERROR_LIMIT_EXCEEDED,
					 "metadata has more than %d bytes",
					 SANDBOX_METADATA_BYTES_MAX);
	}
	*ret_size = (uint32_t)packed.size;
	*ret_packed = TAKE_PTR(packed.data);
	return 0;
}

static const struct pair *pair_find(const struct pair *pairs, size_t count, const char *key)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(pairs[i].key, key) == 0)
			return &pairs[i];
	return NULL;
}

void packed_merge(const char *packed, uint32_t size, const struct pair *changes, size_t count,
		  struct pair **ret_pairs, size_t *ret_count)
{
	struct bytes bytes = {(const uint8_t *)packed, size};
	size_t strings = 0, merged = 0, at = 0;
	const char *key, *value;
	while (packed_next(bytes, &at))
		strings++;
	struct pair *pairs = calloc(strings / 2 + count + 1, sizeof(*pairs));
	if (!pairs)
		abort();
	at = 0;
	while ((key = packed_next(bytes, &at)) && (value = packed_next(bytes, &at)))
		if (!pair_find(changes, count, key))
			pairs[merged++] = (struct pair){key, value};
	for (size_t i = 0; i < count; i++)
		if (changes[i].value)
			pairs[merged++] = changes[i];
	*ret_pairs = pairs;
	*ret_count = merged;
}

const char *packed_value(const char *packed, uint32_t size, const char *wanted)
{
	struct bytes bytes = {(const uint8_t *)packed, size};
	size_t at = 0;
	const char *key, *value;
	while ((key = packed_next(bytes, &at)) && (value = packed_next(bytes, &at)))
		if (strcmp(key, wanted) == 0)
			return value;
	return NULL;
}

bool packed_has(const char *packed, uint32_t size, const struct pair *wanted, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *value = packed_value(packed, size, wanted[i].key);
		if (!value || strcmp(value, wanted[i].value) != 0)
			return false;
	}
	return true;
}
