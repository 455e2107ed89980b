/* Authentication and authorization. Called by the router for every request, before anything else of
 * it is examined. A token is checked against the store (a fraction of a millisecond). */
#include "edge/call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "http/target.h"

#define DEFAULT_WORKSPACE "default"

/* Open streams and waiting requests of the token end as if the client had disconnected. */
static void token_ended(struct token_watcher *watcher)
{
	struct call *call = container_of(watcher, struct call, watcher);
	log_debug("request %s: its token has ended, and with it the connection", call->request_id);
	if (call->exchange)
		http_drop(call->exchange);
}

void call_watch_token(struct call *call, int64_t until_wall)
{
	int64_t expires = call->principal.expires_wall;
	if (until_wall != 0 && (expires == 0 || until_wall < expires))
		expires = until_wall;
	call->watcher.token = call->principal.token;
	call->watcher.expires_wall = expires;
	call->watcher.ended = token_ended;
	token_watch(call->core, &call->watcher);
}

static int call_authenticate_token(struct call *call, const char *header, struct error *error)
{
	if (strncasecmp(header, "bearer ", 7) != 0)
		return error_set(error, ERROR_UNAUTHENTICATED,
				 "the Authorization header must be `Bearer TOKEN`");
	const char *token = header + 7;
	while (*token == ' ')
		token++;
	if (token_check(call->core, token, &call->principal, error) < 0)
		return -1;
	call_watch_token(call, 0);
	return 0;
}

#define BEARER_PROTOCOL "caisson.bearer."
#define BEARER_ROOM 256

/* A browser cannot add headers to a WebSocket: there the token is one of the offered subprotocols
 * (and is never sent back). In the form of the header, or NULL. */
static const char *bearer_of_socket(struct call *call, const char *offered,
				    char header[BEARER_ROOM])
{
	const char *upgrade = http_header(call->exchange, "upgrade");
	const char *found = strstr(offered, BEARER_PROTOCOL);
	if (!found || !upgrade || strcasecmp(upgrade, "websocket") != 0 ||
	    (found != offered && found[-1] != ' ' && found[-1] != ','))
		return NULL;
	found += strlen(BEARER_PROTOCOL);
	snprintf(header, BEARER_ROOM, "Bearer %.*s", (int)strcspn(found, ", "), found);
	return header;
}

int call_authenticate(struct call *call, struct error *error)
{
	const struct http_peer *peer = &http_request(call->exchange)->peer;
	const char *header = http_header(call->exchange, "authorization");
	const char *offered = http_header(call->exchange, "sec-websocket-protocol");
	char room[BEARER_ROOM];
	/* On the Unix socket the kernel reports the peer. A peer that could replace the daemon
	 * anyway (root, its own user, the owner of the socket's directory) needs no token. */
	bool trusted = peer->is_unix &&
		       (peer->uid == 0 || peer->uid == geteuid() || peer->uid == call->edge->owner);
	if (call->authenticated)
		return 0;
	if (!header && offered)
		header = bearer_of_socket(call, offered, room);
	if (header) {
		if (call_authenticate_token(call, header, error) < 0)
			return -1;
	} else if (trusted) {
		call->principal =
		    (struct principal){.scopes = SCOPE_READ | SCOPE_WRITE | SCOPE_ADMIN};
		snprintf(call->principal.workspace, sizeof(call->principal.workspace), "%s",
			 DEFAULT_WORKSPACE);
	} else {
		const char *query = http_request(call->exchange)->query;
		if (http_query_find(query, "access_token", room, sizeof(room)) != -ENOENT)
			return error_set(error, ERROR_UNAUTHENTICATED,
					 "a token is not taken from a URL, which every log keeps: "
					 "send the Authorization header, or to a WebSocket the "
					 "subprotocol " BEARER_PROTOCOL "TOKEN");
		return error_set(error, ERROR_UNAUTHENTICATED, "this request needs a token");
	}
	/* Credentials of a Unix peer also count beside a token: they say whose mounts it brings. */
	call->principal.local = peer->is_unix;
	call->principal.uid = peer->uid;
	call->principal.gid = peer->gid;
	call->authenticated = true;
	return 0;
}

void call_find_share(struct call *call)
{
	struct error ignored; /* reported later */
	if (call_authenticate(call, &ignored) < 0) {
		call->share = work_share_hold(http_share(call->exchange));
		return;
	}
	call->share = core_share(call->core, &call->principal);
	http_set_share(call->exchange, call->share);
}
