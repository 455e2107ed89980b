/* The page at `/`, for a browser that opens the daemon's address: what this is, where a token comes
 * from, the MCP URL and the configuration of each client. Anybody may read it: it contains nothing
 * about sandboxes, tokens or the host. No script, no form, nothing is loaded. Made for each
 * request, from constants and the address of the request; nothing blocks. */
#include "api/routes.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "proto/mcp_clients.h"

#define PAGE_MAX (64 * KIB)

static const char style[] =
    "body{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em}"
    "pre{padding:.7em;overflow:auto;border:1px solid #888;border-radius:4px}"
    ":root{color-scheme:light dark}";

/* The page always fits the buffer, since a Host is bounded. */
static void page_put(struct buffer *page, const char *html)
{
	if (buffer_append_text(page, html) < 0)
		abort();
}

static void put_escaped(struct buffer *page, const char *text)
{
	for (; *text; text++) {
		const char *name = *text == '<'    ? "&lt;"
				   : *text == '>'  ? "&gt;"
				   : *text == '&'  ? "&amp;"
				   : *text == '"'  ? "&quot;"
				   : *text == '\'' ? "&#39;"
						   : (const char[]){*text, '\0'};
		page_put(page, name);
	}
}

/* Text to be copied. */
static void put_code(struct buffer *page, const struct buffer *code)
{
	page_put(page, "<pre>");
	put_escaped(page, buffer_text(code));
	page_put(page, "</pre>\n");
}

/* As `caisson mcp config --http` prints it; a test compares them. */
static int snippet_append_html(struct buffer *to, const struct mcp_client *client, const char *url)
{
	if (!client->key)
		return buffer_printf(to,
				     "[mcp_servers.caisson]\n%s = \"%s/mcp\"\nhttp_headers = { "
				     "\"Authorization\" = \"Bearer TOKEN\" }",
				     client->url_member, url);
	int result = buffer_printf(to, "{\n  \"%s\": {\n    \"caisson\": {\n", client->key);
	if (client->http_type)
		result |= buffer_printf(to, "      \"type\": \"%s\",\n", client->http_type);
	return result | buffer_printf(to,
				      "      \"%s\": \"%s/mcp\",\n      \"headers\": {\n"
				      "        \"Authorization\": \"Bearer TOKEN\"\n      }\n"
				      "    }\n  }\n}",
				      client->url_member, url);
}

static void put_clients(struct buffer *page, const char *url)
{
	for (const struct mcp_client *client = mcp_clients; client->name; client++) {
		DONE_BUFFER struct buffer code = BUFFER(4 * KIB);
		if (!client->url_member)
			continue;
		if (snippet_append_html(&code, client, url) < 0)
			abort();
		page_put(page, "<h3>");
		put_escaped(page, client->title);
		page_put(page, "</h3>\n");
		if (client->file) {
			page_put(page, "<p>In <code>~/");
			put_escaped(page, client->file);
			page_put(page, "</code>:</p>\n");
		}
		put_code(page, &code);
	}
}

static void put_page(struct buffer *page, const char *url)
{
	DONE_BUFFER struct buffer curl = BUFFER(4 * KIB), mcp = BUFFER(4 * KIB);
	if (buffer_printf(&curl,
			  "curl -sS -H 'Authorization: Bearer TOKEN' -d '{\"cmd\":\"uname -a\"}' "
			  "%s/v1/run",
			  url) < 0 ||
	    buffer_printf(&mcp, "%s/mcp", url) < 0)
		abort();
	page_put(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
		       "<meta name=\"viewport\" content=\"width=device-width\">\n"
		       "<title>Caisson</title>\n<style>");
	page_put(page, style);
	page_put(page,
		 "</style></head><body>\n<h1>Caisson</h1>\n"
		 "<p>This daemon gives AI agents safe Linux machines. It has a REST API and an MCP "
		 "server. It shows nothing else to a browser.</p>\n"
		 "<h2>Get a token</h2>\n<p>On the host of this daemon, as its user:</p>\n"
		 "<pre>caisson token create --expires 30d</pre>\n"
		 "<p>Write it in the place of TOKEN below. <code>caisson token revoke</code> ends "
		 "it.</p>\n"
		 "<h2>REST</h2>\n<p>One command in a fresh sandbox:</p>\n");
	put_code(page, &curl);
	page_put(page, "<p>All routes: <a href=\"/v1/openapi.json\">/v1/openapi.json</a></p>\n"
		       "<h2>MCP</h2>\n<p>The URL of the server (Streamable HTTP):</p>\n");
	put_code(page, &mcp);
	page_put(page,
		 "<p>On the host itself no token is needed: <code>caisson mcp config CLIENT</code> "
		 "prints what to add to a client's configuration, and with <code>--write</code> "
		 "creates the file where there is none. CLIENT is one of");
	for (const struct mcp_client *client = mcp_clients; client->name; client++) {
		page_put(page, client == mcp_clients ? " " : ", ");
		page_put(page, client->name);
	}
	page_put(page, ".</p>\n");
	put_clients(page, url);
	page_put(page, "</body></html>\n");
}

static void start_page_get(struct call *call)
{
	uint8_t hash[SHA256_DIGEST_LENGTH];
	char url[SERVER_URL_MAX], digest[BASE64_SIZE(sizeof(hash))], policy[256];
	DONE_BUFFER struct buffer page = BUFFER(PAGE_MAX);
	call_server_url(call, url);
	put_page(&page, url[0] ? url : "http://localhost");
	/* Only the one style sheet is allowed, by its hash. */
	SHA256((const uint8_t *)style, sizeof(style) - 1, hash);
	base64_encode(hash, sizeof(hash), digest);
	snprintf(
	    policy, sizeof(policy),
	    "default-src 'none'; style-src 'sha256-%.*s'; base-uri 'none'; form-action 'none'; "
	    "frame-ancestors 'none'",
	    (int)sizeof(digest), digest);
	const struct http_header headers[] = {
	    {"Content-Security-Policy", policy},
	    {"X-Content-Type-Options", "nosniff"},
	    {"Referrer-Policy", "no-referrer"},
	    /* It depends on the request's Host. */
	    {"Cache-Control", "no-store"},
	};
	http_respond(call->exchange, 200, "text/html; charset=utf-8", headers, ARRAY_SIZE(headers),
		     page.data, page.size);
	call_answered(call);
}

const struct route start_page_routes[] = {
    {"GET", "/", READ, ROUTE_OPEN, start_page_get},
    {0},
};
