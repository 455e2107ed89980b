/* MCP for the daemon: both eras of the protocol, over Streamable HTTP and, for `caisson mcp`, as
 * lines over an upgraded connection. One implementation of every method; what differs between
 * transports is behind struct mcp_carrier (request.h), what differs between revisions in
 * mcp/transport/revision.h, what differs between URLs is a view on a face (face.h).
 *
 * A message's way: mcp/transport/http_post.c or mcp/transport/lines.c -> mcp/transport/message.c
 * (JSON-RPC) -> mcp/transport/envelope.c (era, revision, headers) -> mcp/transport/dispatch.c
 * (method table) -> the method's file (mcp/tools/tools.c, mcp/resources/resources.c, prompts.c,
 * completion.c, mcp/resources/listen.c, mcp/tasks/tasks.c, ...) -> for tools/call the tool's own
 * file (tool_*.c, dialects/) -> core.
 *
 * Stands on edge/, beside api/. Nothing blocks. */
#pragma once

#include "core/core.h"
#include "edge/call.h"

extern const struct surface mcp_surface;

struct mcp_server;

struct mcp_server *mcp_server_new(struct core *core);
/* The daemon is about to end: what stays open by itself is ended, so that nobody waits for it. */
void mcp_server_ending(struct mcp_server *server);
/* Before core_stop(): every request under way is dropped, every stream ended. */
void mcp_server_free(struct mcp_server *server);
/* The one that the routes serve. */
void mcp_serve(struct mcp_server *server);
