/* MCP for the daemon: both eras of the protocol, over Streamable HTTP and, for `caisson mcp`, as
 * lines over an upgraded connection. One implementation of every method; struct mcp_carrier
 * (request.h) hides the differences between transports, mcp/transport/revision.h has those between
 * revisions, and a view on a face (face.h) describes those between URLs.
 *
 * The path of a message: mcp/transport/http_post.c or mcp/transport/lines.c ->
 * mcp/transport/message.c (JSON-RPC) -> mcp/transport/envelope.c (era, revision, headers) ->
 * mcp/transport/dispatch.c (method table) -> the method's file (mcp/tools/tools.c,
 * mcp/resources/resources.c, prompts.c, completion.c, mcp/resources/listen.c, mcp/tasks/tasks.c,
 * ...) -> for tools/call the tool's own file (tools/, dialects/) -> core.
 *
 * Uses edge/, as api/ does. Nothing blocks. */
#pragma once

#include "core/core.h"
#include "edge/call.h"

extern const struct surface mcp_surface;

struct mcp_server;

struct mcp_server *mcp_server_new(struct core *core);
/* The daemon is about to end: ends streams that stay open, so that nothing waits for them. */
void mcp_server_ending(struct mcp_server *server);
/* Call it before core_stop(): drops every request under way and ends every stream. */
void mcp_server_free(struct mcp_server *server);
/* The routes serve this server. */
void mcp_serve(struct mcp_server *server);
