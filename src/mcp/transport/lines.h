/* MCP as lines, for `caisson mcp` (proto/mcp_lines.h). The query says what a command line says of
 * `caisson mcp`: toolsets, readonly, dialect; and `ephemeral` with `connection`: sandboxes made
 * through it end with it, and a bridge that comes back after a restart of the daemon says the same
 * id. */
#pragma once

#include "edge/call.h"
#include "proto/mcp_lines.h"

extern const struct field lines_query[];

struct mcp_server;

void lines_post(struct call *call);
/* Ends those that have nothing under way; with `all` every one. Their clients come back to the next
 * daemon. */
void lines_end(bool all);
