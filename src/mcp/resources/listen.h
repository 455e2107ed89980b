/* subscriptions/listen of the modern era: one request that stays open and carries notifications
 * until its client cancels it, its token ends, or the server does. listen.c has them. */
#pragma once

#include "mcp/request.h"

/* Of the whole server, of one workspace, and what one of them may name. */
#define LISTENS_MAX 1024
#define LISTENS_PER_WORKSPACE_MAX 64
#define LISTEN_RESOURCES_MAX 128
#define LISTEN_TASKS_MAX 128

/* The handler. The request is answered at its end alone. */
void listen_begin(struct mcp_request *request);
/* "tools", "prompts" or "resources" of a face whose lists change: told on every stream that asked.
 * Called by mcp_list_changed(). */
void listen_list_changed(struct mcp_server *server, const char *what);
/* The server ends: each gets its result, which is the graceful end. */
void listen_end_all(struct mcp_server *server);
