/* The MCP server: the data that its files share. Owned by the daemon's main. */
#pragma once

#include "base/list.h"
#include "mcp/alarm.h"
#include "mcp/mcp.h"

#define SESSION_BUCKETS 256
#define SERVER_TEND_MS 5000

struct mcp_server {
	struct core *core;
	bool ending; /* mcp_server_free() was called: nothing new begins */
	int64_t began_wall;
	/* mcp/transport/post.c: answers that become streams when they take long. */
	struct list waiting; /* sorted by their due time */
	struct alarm *waiting_alarm;
	/* mcp/transport/stream.c: connections that are kept alive; mcp/transport/session.c:
	 * sessions that end when idle. */
	struct list streams;
	struct list sessions[SESSION_BUCKETS];
	struct list line_sessions; /* of processes: not found by id */
	size_t session_count;
	size_t kept; /* bytes of events that sessions keep */
	struct alarm *tend_alarm;
	uint8_t key[32]; /* a key of this installation, with which question_state.c signs */
};

/* routes.c. The server that the routes serve; NULL: none. */
struct mcp_server *mcp_served(void);
/* Periodic work, while there is any. */
void server_tend(struct mcp_server *server);
