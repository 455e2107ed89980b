/* subscriptions/listen of the modern era: a request that stays open and carries notifications until
 * its client cancels it, its token ends, or the server ends. Implemented in listen.c. */
#pragma once

#include "mcp/request.h"

/* Maxima of the whole server, of one workspace, and of the items in one listen. */
#define LISTENS_MAX 1024
#define LISTENS_PER_WORKSPACE_MAX 64
#define LISTEN_RESOURCES_MAX 128
#define LISTEN_TASKS_MAX 128

/* The handler. The request is answered only at its end. */
void listen_begin(struct mcp_request *request);
/* "tools", "prompts" or "resources" of a face whose lists change: notifies every stream that
 * subscribed to it. Called by mcp_list_changed(). */
void listen_list_changed(struct mcp_server *server, const char *what);
/* The server ends: each listen gets its result, which is the graceful end. */
void listen_end_all(struct mcp_server *server);
