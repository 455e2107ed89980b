/* Seals the state that a modern client keeps between two rounds (question_state.h): base64 of an
 * HMAC-SHA256 and of a JSON object. The key is stored, so that a round survives a restart. Called
 * by questions.c. Nothing blocks. */
#include "mcp/question_state.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/limits.h"
#include "mcp/questions.h"
#include "mcp/server.h"

#define MAC_SIZE 32
#define PAYLOAD_MAX (QUESTION_STATE_MAX / 4 * 3 - MAC_SIZE)

static int json_add_to_digest(const char *data, size_t size, void *digest)
{
	return EVP_DigestUpdate(digest, data, size) == 1 ? 0 : -1;
}

/* Equal for equal arguments, in any notation. */
static void arguments_digest(const struct mcp_request *request, uint8_t digest[MAC_SIZE])
{
	const json_t *arguments = json_object_get(request->params, "arguments");
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool given = json_is_object(arguments) && json_object_size(arguments) > 0;
	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 ||
	    (given && json_dump_callback(arguments, json_add_to_digest, context,
					 JSON_COMPACT | JSON_SORT_KEYS) < 0) ||
	    EVP_DigestFinal_ex(context, digest, NULL) != 1)
		abort();
	EVP_MD_CTX_free(context);
}

/* With its NUL, so that different lists of texts have different bytes. */
static void bound_add_text(struct buffer *to, const char *text)
{
	if (buffer_append(to, text ? text : "", text ? strlen(text) + 1 : 1) < 0)
		abort();
}

/* Covers the caller, the call and the payload. Names and URIs are bounded by the message's size,
 * which is far below the buffer's. */
static void state_sign(const struct mcp_request *request, const char *payload, size_t size,
		       uint8_t mac[MAC_SIZE])
{
	const struct principal *principal = &request->principal;
	const json_t *name = json_object_get(request->params, "name");
	struct buffer bound DONE_BUFFER = BUFFER(MCP_ANSWER_MAX + PAYLOAD_MAX);
	uint8_t digest[MAC_SIZE];
	unsigned mac_size = 0;
	bound_add_text(&bound, principal->workspace);
	bound_add_text(&bound, principal->token.text);
	bound_add_text(&bound, principal->sandbox.text);
	if (buffer_printf(&bound, "%d %u", principal->local, (unsigned)principal->uid) < 0)
		abort();
	bound_add_text(&bound, request->view.face->name);
	bound_add_text(&bound, request->view.sandbox.text);
	bound_add_text(&bound, request->method);
	bound_add_text(&bound, json_string_value(name));
	bound_add_text(&bound, json_string_value(json_object_get(request->params, "uri")));
	arguments_digest(request, digest);
	if (buffer_append(&bound, digest, sizeof(digest)) < 0 ||
	    buffer_append(&bound, payload, size) < 0 ||
	    !HMAC(EVP_sha256(), request->server->key, sizeof(request->server->key),
		  (const uint8_t *)bound.data, bound.size, mac, &mac_size) ||
	    mac_size != MAC_SIZE)
		abort();
}

static int json_add_to_buffer(const char *data, size_t size, void *buffer)
{
	return buffer_append(buffer, data, size) < 0 ? -1 : 0;
}

int question_state_seal(const struct mcp_request *request, const json_t *kept, int64_t now,
			struct buffer *to)
{
	struct buffer sealed DONE_BUFFER = BUFFER(MAC_SIZE + PAYLOAD_MAX);
	uint8_t mac[MAC_SIZE] = {0};
	int64_t until = now / NSEC_PER_SEC + QUESTION_STATE_SECONDS;
	if (buffer_append(&sealed, mac, MAC_SIZE) < 0 ||
	    buffer_printf(&sealed, "{\"until\":%lld,\"kept\":", (long long)until) < 0 ||
	    json_dump_callback(kept, json_add_to_buffer, &sealed, JSON_COMPACT | JSON_ENCODE_ANY) <
		0 ||
	    buffer_append_text(&sealed, "}") < 0)
		return -EMSGSIZE;
	state_sign(request, sealed.data + MAC_SIZE, sealed.size - MAC_SIZE, mac);
	memcpy(sealed.data, mac, MAC_SIZE);
	int result = buffer_reserve(to, BASE64_SIZE(sealed.size));
	if (result < 0)
		return result;
	base64_encode(sealed.data, sealed.size, to->data + to->size);
	buffer_grow(to, BASE64_SIZE(sealed.size));
	return 0;
}

int question_state_unseal(const struct mcp_request *request, const char *text, int64_t now,
			  json_t **ret_kept, struct error *error)
{
	size_t size = strlen(text);
	struct buffer sealed DONE_BUFFER = BUFFER(QUESTION_STATE_MAX);
	uint8_t mac[MAC_SIZE];
	json_t *payload;
	if (size > QUESTION_STATE_MAX || buffer_reserve(&sealed, size + 1) < 0)
		return error_set(error, ERROR_INVALID, "`requestState` is not this server's");
	ssize_t decoded = base64_decode(text, size, sealed.data);
	if (decoded <= MAC_SIZE)
		return error_set(error, ERROR_INVALID, "`requestState` is not this server's");
	buffer_grow(&sealed, (size_t)decoded);
	state_sign(request, sealed.data + MAC_SIZE, sealed.size - MAC_SIZE, mac);
	if (CRYPTO_memcmp(mac, sealed.data, MAC_SIZE) != 0)
		return error_set(error, ERROR_INVALID,
				 "`requestState` is not this server's, or not of this call: begin "
				 "again without it");
	/* From here on it is known to be our own. */
	if (json_parse(sealed.data + MAC_SIZE, sealed.size - MAC_SIZE, &payload, error) < 0)
		return -1;
	if (json_integer_value(json_object_get(payload, "until")) < now / NSEC_PER_SEC) {
		json_decref(payload);
		return error_set(error, ERROR_INVALID,
				 "`requestState` is older than %d s: begin again without it",
				 QUESTION_STATE_SECONDS);
	}
	*ret_kept = json_incref(json_object_get(payload, "kept"));
	json_decref(payload);
	return 0;
}
