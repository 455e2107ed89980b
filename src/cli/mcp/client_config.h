/* `caisson mcp config`: the clients (client_config.c) and their files (client_config_file.c). */
#pragma once

#include "cli/mcp/mcp.h"
#include "proto/mcp_clients.h"

NODISCARD int mcp_config_file_path(const struct mcp_client *client, char *path, size_t room,
				   struct error *error);
/* Creates the client's file with this snippet. An existing file is not changed: if it already has
 * the entry, that is reported; else the snippet and its place are printed and MCP_CONFIG_BY_HAND is
 * returned. */
#define MCP_CONFIG_BY_HAND 1
NODISCARD int mcp_config_file_write(const struct mcp_client *client, const char *name,
				    const json_t *entry, const struct buffer *snippet,
				    struct error *error);
