/* MCP as lines: what `caisson mcp` and `caisson wrap` speak with the daemon after `101 Switching
 * Protocols` to POST /mcp/lines with `Upgrade: caisson-mcp/1`. One JSON-RPC message a line, both
 * ways; a line is at most MCP_LINE_MAX bytes towards the daemon.
 *
 * Sandboxes that carry the label MCP_CONNECTION_LABEL end with the connection of that id, which the
 * query of the request names (`ephemeral`, `connection`) and the same caller holds:
 * core/sandbox/ephemeral.h. */
#pragma once

#include "base/limits.h"

#define MCP_LINES_PATH "/mcp/lines"
#define MCP_LINES_PROTOCOL "caisson-mcp/1"
#define MCP_LINE_MAX (4 * MIB)
/* How a longer one is refused, by either side; of the maximum as unsigned long long. */
#define MCP_TOO_LONG                                                                               \
	"a message has at most %llu bytes; this one was skipped. Send less at once: write_file "   \
	"takes a file in parts, the later ones with `append` true"
#define MCP_CONNECTION_LABEL "caisson.connection"
