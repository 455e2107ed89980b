/* The known MCP clients, and how each one's configuration names a server. For `caisson mcp
 * config`, which prints it, and for the page that the daemon shows to a browser. */
#pragma once

struct mcp_client {
	const char *name, *title;
	const char *key;         /* name of the object with the servers; NULL: the file is TOML */
	const char *file;        /* below the home directory; NULL: none */
	const char *environment; /* NULL, or the variable that names the file's directory */
	const char *base;        /* of the file, in that directory */
	/* How an entry names a URL; url_member NULL: the client only starts commands. */
	const char *url_member, *http_type, *stdio_type;
};

/* The last entry has no name. */
extern const struct mcp_client mcp_clients[];
