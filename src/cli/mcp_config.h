/* `caisson mcp config`: the clients (mcp_config.c) and their files (mcp_config_file.c). */
#pragma once

#include "cli/mcp.h"
#include "proto/mcp_clients.h"

/* The entry of a server: {"command":, "args":, "env":} or {"url":, "headers":}, in the client's
 * words. */
NODISCARD int config_path_of(const struct mcp_client *client, char *path, size_t room,
			     struct error *error);
/* The whole snippet: {"mcpServers": {NAME: entry}}, or a section of TOML. */
void config_print(const struct mcp_client *client, const char *name, const json_t *entry);
NODISCARD int config_toml(const char *name, const json_t *entry, struct buffer *to);
/* Merges it into the client's file; says what it did. */
NODISCARD int config_write(const struct mcp_client *client, const char *name, json_t *entry,
			   struct error *error);
