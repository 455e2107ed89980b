/* `caisson mcp config`: the clients (config.c) and their files (config_file.c). */
#pragma once

#include "cli/mcp/mcp.h"
#include "proto/mcp_clients.h"

NODISCARD int mcp_config_file_path(const struct mcp_client *client, char *path, size_t room,
				   struct error *error);
/* Creates the client's file with this snippet in it. A file that exists is not changed: where it
 * has the entry already that is said, else the snippet is printed with where it belongs, and the
 * exit code MCP_CONFIG_BY_HAND comes back. */
#define MCP_CONFIG_BY_HAND 1
NODISCARD int mcp_config_file_write(const struct mcp_client *client, const char *name,
				    const json_t *entry, const struct buffer *snippet,
				    struct error *error);
