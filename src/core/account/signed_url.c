/* Signed URLs: made and checked. Called by the edges; costs a read of the secret, and one of the
 * token. */
#include "core/account/signed_url.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/account/mac.h"
#include "proto/codec.h"

/* The signed bytes: every field after its length, so that fields cannot be shifted into each
 * other. */
static int signed_bytes_write(const char *workspace, const struct signed_url *url, uint8_t *room,
			      size_t size, size_t *ret_size)
{
	struct writer writer = writer_on(room, size);
	write_text(&writer, "caisson signed url 1");
	write_text(&writer, workspace);
	write_text(&writer, url->sandbox.text);
	write_text(&writer, url->write ? "PUT" : "GET");
	write_text(&writer, url->path);
	write_text(&writer, url->user);
	write_u64(&writer, url->expires);
	write_u64(&writer, url->max_bytes);
	write_text(&writer, url->token.text);
	int64_t used = writer_finish(&writer);
	if (used < 0)
		return -1;
	*ret_size = (size_t)used;
	return 0;
}

int signed_url_sign(struct core *core, const char *workspace, const struct signed_url *url,
		    char signature[SIGNATURE_SIZE], struct error *error)
{
	uint8_t mac[MAC_SIZE], message[2 * GUEST_PATH_MAX];
	size_t size;
	if (signed_bytes_write(workspace, url, message, sizeof(message), &size) < 0)
		return error_set(error, ERROR_INVALID, "the path is too long to be signed");
	if (core_mac(core, "url", message, size, mac, error) < 0)
		return -1;
	base64url_encode_32(mac, signature);
	return 0;
}

static int url_invalid(struct error *error, const char *why)
{
	return error_set(error, ERROR_URL_INVALID, "%s", why);
}

/* The workspace of a live sandbox or a tombstone: the signature is checked before any answer
 * reveals either. */
static int sandbox_workspace(struct core *core, const struct id *id,
			     char workspace[WORKSPACE_MAX + 1], struct error *error)
{
	struct sandbox *sandbox = sandbox_by_id(core, id);
	struct sandbox_row row = {0};
	int found = sandbox ? 1 : store_sandbox_get(core->store, id, &row, error);
	if (found < 0)
		return -1;
	const char *name = sandbox ? sandbox->row.workspace : row.workspace;
	bool good = found && text_copy(workspace, WORKSPACE_MAX + 1, name) == 0;
	sandbox_row_done(&row);
	return good ? 0 : url_invalid(error, "this URL is not valid");
}

/* The present rights of the token or user that made the URL. */
static int maker_principal(struct core *core, const struct signed_url *url, const char *workspace,
			   struct principal *principal, struct error *error)
{
	struct token_row row = {0};
	*principal = (struct principal){.uid = (uid_t)-1, .gid = (gid_t)-1};
	if (text_copy(principal->workspace, sizeof(principal->workspace), workspace) < 0)
		return url_invalid(error, "this URL is not valid");
	if (!id_is_set(&url->token)) {
		principal->scopes = SCOPE_READ | SCOPE_WRITE;
		principal->uid = geteuid(); /* a local peer without a token has our rights */
		return 0;
	}
	int found = store_token_by_id(core->store, &url->token, &row, error);
	if (found < 0)
		return -1;
	bool good = found && row.revoked_wall == 0 &&
		    (row.expires_wall == 0 || clock_wall() < row.expires_wall) &&
		    strcmp(row.workspace, workspace) == 0 &&
		    (!url->write || (row.scopes & (SCOPE_WRITE | SCOPE_ADMIN)));
	principal->scopes = row.scopes;
	principal->token = row.id;
	principal->sandbox = row.sandbox;
	principal->expires_wall = row.expires_wall;
	token_row_done(&row);
	return good ? 0 : url_invalid(error, "the token that made this URL has ended");
}

int signed_url_check(struct core *core, const struct signed_url *url, const char *signature,
		     struct principal *ret_principal, struct sandbox **ret_sandbox,
		     struct error *error)
{
	char workspace[WORKSPACE_MAX + 1], expected[SIGNATURE_SIZE];
	if (sandbox_workspace(core, &url->sandbox, workspace, error) < 0 ||
	    signed_url_sign(core, workspace, url, expected, error) < 0)
		return -1;
	if (strlen(signature) != SIGNATURE_SIZE - 1 ||
	    CRYPTO_memcmp(signature, expected, SIGNATURE_SIZE - 1) != 0)
		return url_invalid(error, "this URL is not valid");
	if (clock_wall() / NSEC_PER_SEC >= (int64_t)url->expires)
		return error_set(error, ERROR_URL_EXPIRED, "this URL has expired");
	if (maker_principal(core, url, workspace, ret_principal, error) < 0)
		return -1;
	return sandbox_find(core, ret_principal, url->sandbox.text, ret_sandbox, error);
}

/* The characters that may stay unescaped in a query's value (RFC 3986: unreserved, and the
 * slash). */
void signed_url_escape(struct buffer *to, const char *text)
{
	static const char digits[] = "0123456789ABCDEF";
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			     (c >= '0' && c <= '9') || strchr("-._~/", c);
		const char escaped[3] = {'%', digits[c >> 4], digits[c & 15]};
		if (buffer_append(to, plain ? text : escaped, plain ? 1 : 3) < 0)
			abort(); /* its maximum is larger than any path */
	}
}

void signed_url_append(const struct signed_url *url, const char *signature, struct buffer *to)
{
	int result = buffer_printf(to, "/v1/signed/%s?path=", url->sandbox.text);
	signed_url_escape(to, url->path);
	if (url->user[0]) {
		result |= buffer_append_text(to, "&user=");
		signed_url_escape(to, url->user);
	}
	if (url->max_bytes)
		result |= buffer_printf(to, "&max_bytes=%llu", (unsigned long long)url->max_bytes);
	if (id_is_set(&url->token))
		result |= buffer_printf(to, "&by=%s", url->token.text);
	result |= buffer_printf(to, "&expires=%llu&signature=%s", (unsigned long long)url->expires,
				signature);
	if (result < 0)
		abort();
}
