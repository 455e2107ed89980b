/* MCP as lines, between `caisson mcp` or `caisson wrap` and the daemon: after POST /mcp/lines
 * with `Upgrade: caisson-mcp/1` and `101 Switching Protocols`. One JSON-RPC message per line,
 * both ways; a line to the daemon has at most MCP_LINE_MAX bytes.
 *
 * A sandbox with the label MCP_CONNECTION_LABEL ends with the connection of that id. The
 * request's query names the id (`ephemeral`, `connection`), and the caller must be the same:
 * core/sandbox/ephemeral.h. */
#pragma once

#include "base/limits.h"

#define MCP_LINES_PATH "/mcp/lines"
#define MCP_LINES_PROTOCOL "caisson-mcp/1"
#define MCP_LINE_MAX (4 * MIB)
/* How either side refuses a longer line; the format takes the maximum as unsigned long long. */
#define MCP_TOO_LONG                                                                               \
	"a message has at most %llu bytes; this one was skipped. Send less at once: write_file "   \
	"takes a file in parts, the later ones with `append` true"
#define MCP_CONNECTION_LABEL "caisson.connection"
