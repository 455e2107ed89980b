/* RFC 9728: the information for a client without a token. Open to everybody, as a client asks for
 * it after a 401.
 *
 * There is no authorization server: the operator makes the tokens (`caisson token create`). RFC
 * 9728 lets `authorization_servers` be absent, and a made-up server would lead clients into a
 * log-in that cannot succeed. Nothing blocks. */
#include "mcp/transport/http.h"

#include <stdio.h>
#include <string.h>

bool http_base_url(const struct call *call, char *to, size_t room)
{
	const char *host = http_header(call->exchange, "host");
	bool tls = http_request(call->exchange)->peer.is_tls;
	if (!host || !host[0] ||
	    strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") !=
		strlen(host))
		return false;
	return (size_t)snprintf(to, room, "%s://%s", tls ? "https" : "http", host) < room;
}

void metadata_get(struct call *call)
{
	const char *path = http_request(call->exchange)->path + strlen(METADATA_PATH);
	char base[512] = "http://localhost", resource[1024];
	http_base_url(call, base, sizeof(base));
	snprintf(resource, sizeof(resource), "%s%.400s", base, path[0] ? path : "/mcp");
	struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "resource", resource);
	put_text(&writer, "resource_name", "Caisson");
	put_array(&writer, "bearer_methods_supported");
	put_text(&writer, NULL, "header");
	put_array_end(&writer);
	put_array(&writer, "scopes_supported");
	if (strcmp(path, "/mcp/admin") == 0) {
		put_text(&writer, NULL, scope_name(SCOPE_ADMIN));
	} else {
		put_text(&writer, NULL, scope_name(SCOPE_READ));
		put_text(&writer, NULL, scope_name(SCOPE_WRITE));
	}
	put_array_end(&writer);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}
