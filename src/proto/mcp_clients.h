/* The MCP clients that we know, and how a server stands in the configuration of each. For `caisson
 * mcp config`, which prints that, and for the page that the daemon shows a browser. */
#pragma once

struct mcp_client {
	const char *name, *title;
	const char *key;         /* of the object that has the servers; NULL: TOML */
	const char *file;        /* below the home directory; NULL: it has none */
	const char *environment; /* NULL, or the variable that names the file's directory */
	const char *base;        /* of the file, there */
	/* How a URL stands in an entry; url_member NULL: it starts commands only. */
	const char *url_member, *http_type, *stdio_type;
};

/* The last has no name. */
extern const struct mcp_client mcp_clients[];
