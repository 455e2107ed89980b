/* MCP as lines, for `caisson mcp` (proto/mcp_lines.h). The query has the options of the command
 * line `caisson mcp`: toolsets, readonly, dialect; and `ephemeral` with `connection`: sandboxes
 * that this connection makes end with it, and a bridge that reconnects after a restart of the
 * daemon sends the same id. */
#pragma once

#include "edge/call.h"
#include "proto/mcp_lines.h"

extern const struct field lines_query[];

struct mcp_server;

void lines_post(struct call *call);
/* Ends the connections without running requests; with `all` every one. Their clients reconnect to
 * the next daemon. */
void lines_end(bool all);
