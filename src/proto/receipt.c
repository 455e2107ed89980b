/* The parts of a receipt; see receipt.h. docs/activity.md describes them, for checking a receipt
 * without this program. A change here needs a new version of the receipt. Does no I/O. */
#include "proto/receipt.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "proto/init_messages.h"

/* --- the hash of an entry --- */

/* Hashed first, with its NUL, so that no other use of SHA-256 gives the same hash. */
static const char version[] = "caisson-activity-1";

static void hash_add(EVP_MD_CTX *context, const void *data, size_t size)
{
	/* Fails only without memory or without SHA-256: then the program cannot go on. */
	if (EVP_DigestUpdate(context, data, size) != 1)
		abort();
}

static void hash_add_number(EVP_MD_CTX *context, uint64_t value, int size)
{
	uint8_t bytes[8];
	for (int i = 0; i < size; i++)
		bytes[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
	hash_add(context, bytes, (size_t)size);
}

static void hash_add_text(EVP_MD_CTX *context, const char *text)
{
	size_t size = strlen(text);
	hash_add_number(context, size, 4);
	hash_add(context, text, size);
}

void activity_hash(const struct activity_entry *entry, uint8_t ret_hash[ACTIVITY_HASH_SIZE])
{
	static EVP_MD_CTX *context;
	static const EVP_MD *sha256;
	if (!context) {
		context = EVP_MD_CTX_new();
		/* Fetched once, since fetching costs more than hashing. */
		sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	}
	if (!context || !sha256 || EVP_DigestInit_ex(context, sha256, NULL) != 1)
		abort();
	hash_add(context, version, sizeof(version));
	hash_add(context, entry->previous, ACTIVITY_HASH_SIZE);
	hash_add_text(context, entry->sandbox);
	hash_add_number(context, entry->number, 8);
	hash_add_number(context, (uint64_t)entry->wall, 8);
	hash_add_text(context, entry->kind);
	hash_add_text(context, entry->actor);
	hash_add_text(context, entry->exec);
	struct bytes packed = {(const uint8_t *)entry->details, entry->details_size};
	uint32_t count = 0;
	size_t at = 0;
	while (packed_next(packed, &at))
		count++;
	hash_add_number(context, count / 2, 4);
	at = 0;
	for (const char *text; (text = packed_next(packed, &at));)
		hash_add_text(context, text);
	unsigned size = 0;
	if (EVP_DigestFinal_ex(context, ret_hash, &size) != 1 || size != ACTIVITY_HASH_SIZE)
		abort();
}

/* --- canonical JSON --- */

#define DEPTH_MAX 32

static int json_put_string(struct buffer *text, const char *value, size_t size)
{
	static const char short_escapes[] = {
	    ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
	int result = buffer_append(text, "\"", 1);
	for (size_t i = 0; result == 0 && i < size; i++) {
		unsigned char c = (unsigned char)value[i];
		if (c == '"' || c == '\\')
			result = buffer_printf(text, "\\%c", c);
		else if (c < sizeof(short_escapes) && short_escapes[c])
			result = buffer_printf(text, "\\%c", short_escapes[c]);
		else if (c < 0x20)
			result = buffer_printf(text, "\\u%04x", c);
		else
			result = buffer_append(text, &value[i], 1);
	}
	return result < 0 ? -1 : buffer_append(text, "\"", 1);
}

static int member_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int json_put_value(const json_t *json, struct buffer *text, int depth);

static int json_put_members(const json_t *json, struct buffer *text, int depth)
{
	size_t count = json_object_size(json), at = 0;
	const char **names = calloc(count + 1, sizeof(*names)), *name;
	json_t *value;
	if (!names)
		abort();
	json_object_foreach((json_t *)json, name, value) names[at++] = name;
	qsort(names, count, sizeof(*names), member_compare);
	int result = buffer_append(text, "{", 1);
	for (size_t i = 0; result == 0 && i < count; i++) {
		if (i > 0)
			result = buffer_append(text, ",", 1);
		if (result < 0 || json_put_string(text, names[i], strlen(names[i])) < 0 ||
		    buffer_append(text, ":", 1) < 0 ||
		    json_put_value(json_object_get(json, names[i]), text, depth + 1) < 0)
			result = -1;
	}
	free(names);
	return result < 0 ? -1 : buffer_append(text, "}", 1);
}

static int json_put_elements(const json_t *json, struct buffer *text, int depth)
{
	int result = buffer_append(text, "[", 1);
	for (size_t i = 0; result == 0 && i < json_array_size(json); i++) {
		if (i > 0)
			result = buffer_append(text, ",", 1);
		if (result < 0 || json_put_value(json_array_get(json, i), text, depth + 1) < 0)
			result = -1;
	}
	return result < 0 ? -1 : buffer_append(text, "]", 1);
}

static int json_put_value(const json_t *json, struct buffer *text, int depth)
{
	if (!json || depth > DEPTH_MAX)
		return -1;
	switch (json_typeof(json)) {
	case JSON_OBJECT:
		return json_put_members(json, text, depth);
	case JSON_ARRAY:
		return json_put_elements(json, text, depth);
	case JSON_STRING:
		return json_put_string(text, json_string_value(json), json_string_length(json));
	case JSON_INTEGER:
		return buffer_printf(text, "%lld", (long long)json_integer_value(json));
	case JSON_TRUE:
		return buffer_append_text(text, "true");
	case JSON_FALSE:
		return buffer_append_text(text, "false");
	case JSON_NULL:
		return buffer_append_text(text, "null");
	case JSON_REAL:
		break;
	}
	return -1;
}

int canonical_json(const json_t *json, struct buffer *ret_text)
{
	return json_put_value(json, ret_text, 0) < 0 ? -1 : 0;
}

/* --- the signature --- */

int receipt_signed_text(const void *data, size_t size, struct buffer *ret_text)
{
	return buffer_append_text(ret_text, RECEIPT_SIGNED_PREFIX) < 0 ||
		       buffer_append(ret_text, data, size) < 0
		   ? -1
		   : 0;
}

bool receipt_verify(const uint8_t key[RECEIPT_KEY_SIZE], const void *data, size_t size,
		    const uint8_t signature[RECEIPT_SIGNATURE_SIZE])
{
	DONE_BUFFER struct buffer text = BUFFER(RECEIPT_MAX);
	if (receipt_signed_text(data, size, &text) < 0)
		return false;
	EVP_PKEY *public =
	    EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, RECEIPT_KEY_SIZE);
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool good = public && context &&
		    EVP_DigestVerifyInit(context, NULL, NULL, NULL, public) == 1 &&
		    EVP_DigestVerify(context, signature, RECEIPT_SIGNATURE_SIZE,
				     (uint8_t *)text.data, text.size) == 1;
	EVP_MD_CTX_free(context);
	EVP_PKEY_free(public);
	return good;
}
