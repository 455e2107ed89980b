/* Finds which page made a browser's request (Origin), and what that page may see (CORS). Browsers
 * send Origin with every request that a page could use against us, also with upgrades; other
 * clients do not. Called for every request; nothing blocks. */
#include "http/connection.h"

#include <string.h>
#include <strings.h>

/* Returns whether the page came from this server. Its scheme and Host must be exactly ours; Host
 * was already checked against the names that are served. */
static bool origin_is_own(const struct http_connection *connection, const char *origin,
			  const char *host)
{
	const char *scheme = connection->peer.is_tls ? "https://" : "http://";
	size_t length = strlen(scheme);
	return host && strncasecmp(origin, scheme, length) == 0 &&
	       strcasecmp(origin + length, host) == 0;
}

static bool origin_is_listed(const struct http_server *server, const char *origin)
{
	if (!server->settings.origins)
		return false;
	for (const char *const *listed = server->settings.origins; *listed; listed++)
		if (strcasecmp(*listed, origin) == 0)
			return true;
	return false;
}

void http_origin_note(struct http_exchange *exchange)
{
	const struct http_connection *connection = exchange->connection;
	const char *origin = http_header(exchange, "origin");
	if (!origin || connection->peer.is_unix)
		exchange->origin = HTTP_ORIGIN_NONE;
	else if (origin_is_listed(connection->server, origin))
		exchange->origin = HTTP_ORIGIN_LISTED;
	else if (origin_is_own(connection, origin, http_header(exchange, "host")))
		exchange->origin = HTTP_ORIGIN_OWN;
	else
		exchange->origin = HTTP_ORIGIN_FOREIGN;
}

bool http_origin_known(const struct http_exchange *exchange)
{
	const struct http_connection *connection = exchange->connection;
	const char *origin = http_header(exchange, "origin"), *host = http_header(exchange, "host");
	if (!origin || origin_is_listed(connection->server, origin))
		return true;
	return host && http_host_served(connection->server, host, strlen(host)) &&
	       origin_is_own(connection, origin, host);
}

enum http_origin http_origin(const struct http_exchange *exchange)
{
	return exchange->origin;
}

bool http_is_preflight(const struct http_exchange *exchange)
{
	return exchange->origin == HTTP_ORIGIN_LISTED &&
	       strcmp(exchange->request.method, "OPTIONS") == 0 &&
	       http_header(exchange, "access-control-request-method");
}

void http_respond_preflight(struct http_exchange *exchange)
{
	static const struct http_header headers[] = {
	    {"Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE"},
	    /* The star allows any Mcp-Param-NAME. It does not cover Authorization. */
	    {"Access-Control-Allow-Headers",
	     "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Range, X-Request-Id, "
	     "MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, *"},
	    {"Access-Control-Max-Age", "600"},
	};
	http_respond(exchange, 204, NULL, headers, ARRAY_SIZE(headers), NULL, 0);
}
