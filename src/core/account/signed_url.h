/* Signed URLs: until a time, anybody with the URL may read or write one file of one sandbox. The
 * signature is an HMAC-SHA256, with a secret of this installation, over workspace, sandbox, method,
 * path, user, time, maximum size, and the id of the token that made the URL. Nothing is stored: a
 * URL ends with its time, with the token's end, and with the sandbox's end. It contains only the id
 * of the token, which gives no access. */
#pragma once

#include "base/buffer.h"
#include "core/core.h"
#include "core/sandbox/sandbox.h"

#define SIGNATURE_SIZE 44 /* BASE64URL_32_SIZE: 43 characters, NUL */
#define SIGNED_SECONDS_MAX (7u * 86400)
#define SIGNED_SECONDS_DEFAULT 3600u

struct signed_url {
	struct id sandbox;
	bool write; /* PUT, else GET */
	const char *path, *user;
	uint64_t expires;   /* seconds since 1970 */
	uint64_t max_bytes; /* for a PUT; 0: only the sandbox's disk is the limit */
	struct id token;    /* the token that made it; unset: a local peer */
};

NODISCARD int signed_url_sign(struct core *core, const char *workspace,
			      const struct signed_url *url, char signature[SIGNATURE_SIZE],
			      struct error *error);
/* "/v1/signed/...": its path and query. The buffer has room for SIGNED_TEXT_MAX. */
#define SIGNED_TEXT_MAX (64 * KIB)
void signed_url_append(const struct signed_url *url, const char *signature, struct buffer *to);
/* Escapes a text for the value of a query. */
void signed_url_escape(struct buffer *to, const char *text);
/* Finds the live sandbox and the principal: the present rights of the URL's maker. URL_INVALID,
 * URL_EXPIRED, SANDBOX_ENDED (only for a valid signature). */
NODISCARD int signed_url_check(struct core *core, const struct signed_url *url,
			       const char *signature, struct principal *ret_principal,
			       struct sandbox **ret_sandbox, struct error *error);
