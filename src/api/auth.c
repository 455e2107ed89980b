/* Who asks, and may they. Called by the router for every request, before anything else of it is
 * looked at. A token is checked against the store (a fraction of a millisecond). */
#include "api/call.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/text.h"

#define DEFAULT_WORKSPACE "default"

static int by_token(struct call *call, const char *header, struct error *error)
{
	if (strncasecmp(header, "bearer ", 7) != 0)
		return error_set(error, ERROR_UNAUTHENTICATED,
				 "the Authorization header must be `Bearer TOKEN`");
	const char *token = header + 7;
	while (*token == ' ')
		token++;
	return token_check(call->api->core, token, &call->principal, error);
}

/* On the Unix socket the kernel says who the peer is. Whoever could replace the daemon anyway
 * (root, its own user, the owner of the directory that its socket is in) needs no token. */
static bool trusted_peer(const struct api *api, const struct http_peer *peer)
{
	return peer->is_unix &&
	       (peer->uid == 0 || peer->uid == geteuid() || peer->uid == api->owner);
}

int authenticate(struct call *call, struct error *error)
{
	const struct http_peer *peer = &http_request(call->exchange)->peer;
	const char *header = http_header(call->exchange, "authorization");
	if (header) {
		if (by_token(call, header, error) < 0)
			return -1;
	} else if (trusted_peer(call->api, peer)) {
		call->principal =
		    (struct principal){.scopes = SCOPE_READ | SCOPE_WRITE | SCOPE_ADMIN};
		snprintf(call->principal.workspace, sizeof(call->principal.workspace), "%s",
			 DEFAULT_WORKSPACE);
	} else {
		return error_set(error, ERROR_UNAUTHENTICATED, "this request needs a token");
	}
	/* Credentials of a Unix peer count beside a token too: they say whose mounts it brings. */
	call->principal.local = peer->is_unix;
	call->principal.uid = peer->uid;
	call->principal.gid = peer->gid;
	return 0;
}

const char *scope_name(enum scope scope)
{
	return scope == SCOPE_READ    ? "sandboxes:read"
	       : scope == SCOPE_WRITE ? "sandboxes:write"
				      : "admin";
}

int authorize(const struct principal *principal, enum scope scope, struct error *error)
{
	uint32_t enough = scope == SCOPE_READ    ? SCOPE_READ | SCOPE_WRITE | SCOPE_ADMIN
			  : scope == SCOPE_WRITE ? SCOPE_WRITE | SCOPE_ADMIN
						 : SCOPE_ADMIN;
	if (principal->scopes & enough)
		return 0;
	return error_set(error, ERROR_FORBIDDEN, "this needs the scope `%s`", scope_name(scope));
}
