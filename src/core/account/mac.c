/* Signing with the installation's keys. Called for signed URLs and the ids of tasks; costs a read
 * of the key. */
#include "core/account/mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define KEY_SIZE 32

int core_mac(struct core *core, const char *purpose, const void *message, size_t size,
	     uint8_t mac[MAC_SIZE], struct error *error)
{
	uint8_t key[KEY_SIZE];
	unsigned written = 0;
	if (core_secret(core, purpose, sizeof(key), key, error) < 0)
		return -1;
	bool good = HMAC(EVP_sha256(), key, sizeof(key), message, size, mac, &written) &&
		    written == MAC_SIZE;
	OPENSSL_cleanse(key, sizeof(key));
	return good ? 0 : error_set(error, ERROR_INTERNAL, "HMAC-SHA256 is unavailable");
}
