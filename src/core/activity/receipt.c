/* The key of receipts. See receipt.h. Blocks for one read of the store; a signature takes some
 * fifty microseconds, and 5 ms per MiB. */
#include "core/activity/receipt.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "store/secrets.h"

int receipt_secret_key(struct core *core, uint8_t ret_seed[RECEIPT_KEY_SIZE], struct error *error)
{
	return store_secret_get(core->store, "receipt", RECEIPT_KEY_SIZE, ret_seed, error);
}

static EVP_PKEY *key_of(const uint8_t seed[RECEIPT_KEY_SIZE], struct error *error)
{
	EVP_PKEY *key =
	    EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, RECEIPT_KEY_SIZE);
	if (!key)
		error_set(error, ERROR_INTERNAL, "OpenSSL has no Ed25519");
	return key;
}

int receipt_public_key(struct core *core, uint8_t ret_key[RECEIPT_KEY_SIZE], struct error *error)
{
	size_t size = RECEIPT_KEY_SIZE;
	uint8_t seed[RECEIPT_KEY_SIZE];
	if (receipt_secret_key(core, seed, error) < 0)
		return -1;
	EVP_PKEY *key = key_of(seed, error);
	OPENSSL_cleanse(seed, sizeof(seed));
	if (!key)
		return -1;
	int result = EVP_PKEY_get_raw_public_key(key, ret_key, &size);
	EVP_PKEY_free(key);
	if (result != 1 || size != RECEIPT_KEY_SIZE)
		return error_set(error, ERROR_INTERNAL, "the receipts' key cannot be read");
	return 0;
}

int receipt_sign(const uint8_t seed[RECEIPT_KEY_SIZE], const void *data, size_t size,
		 uint8_t ret_signature[RECEIPT_SIGNATURE_SIZE], struct error *error)
{
	DONE_BUFFER struct buffer text = BUFFER(RECEIPT_MAX);
	size_t length = RECEIPT_SIGNATURE_SIZE;
	if (receipt_signed_text(data, size, &text) < 0)
		return error_set(error, ERROR_TOO_LARGE, "the receipt is too long");
	EVP_PKEY *key = key_of(seed, error);
	if (!key)
		return -1;
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	bool good =
	    context && EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
	    EVP_DigestSign(context, ret_signature, &length, (uint8_t *)text.data, text.size) == 1 &&
	    length == RECEIPT_SIGNATURE_SIZE;
	EVP_MD_CTX_free(context);
	EVP_PKEY_free(key);
	return good ? 0 : error_set(error, ERROR_INTERNAL, "the receipt cannot be signed");
}
