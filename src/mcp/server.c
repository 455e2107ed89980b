/* The life of the MCP server: made and freed by the daemon's main, and tended periodically while
 * there are sessions or streams. Nothing blocks. */
#include "mcp/server.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "mcp/transport/lines.h"
#include "mcp/resources/listen.h"
#include "mcp/transport/post.h"
#include "mcp/transport/session_private.h"
#include "mcp/transport/stream.h"
#include "mcp/tasks/task.h"

static void server_tend_due(void *data)
{
	struct mcp_server *server = data;
	int64_t now = clock_monotonic();
	streams_keep_alive(server, now);
	sessions_tend(server, now);
	/* No timer runs without need. */
	if (!list_empty(&server->streams) || server->session_count > 0)
		server_tend(server);
}

void server_tend(struct mcp_server *server)
{
	if (!server->ending && !alarm_is_set(server->tend_alarm))
		alarm_set(server->tend_alarm, SERVER_TEND_MS);
}

struct mcp_server *mcp_server_new(struct core *core)
{
	struct error error;
	struct mcp_server *server = calloc(1, sizeof(*server));
	if (!server)
		abort();
	server->core = core;
	server->began_wall = clock_wall();
	list_init(&server->waiting);
	list_init(&server->streams);
	list_init(&server->line_sessions);
	for (size_t i = 0; i < SESSION_BUCKETS; i++)
		list_init(&server->sessions[i]);
	server->waiting_alarm = alarm_new(core->loop, posts_waited, server);
	server->tend_alarm = alarm_new(core->loop, server_tend_due, server);
	/* Without the store, the states of questions are only valid until this daemon ends. */
	if (core_secret(core, "mcp-ask", sizeof(server->key), server->key, &error) < 0) {
		log_warning("no lasting key for what tools ask: %s", error.message);
		random_bytes(server->key, sizeof(server->key));
	}
	return server;
}

void mcp_server_ending(struct mcp_server *server)
{
	if (!server)
		return;
	listen_end_all(server);
	lines_end(false);
	sessions_detach_all(server);
}

void mcp_server_free(struct mcp_server *server)
{
	if (!server)
		return;
	server->ending = true;
	if (mcp_served() == server)
		mcp_serve(NULL);
	lines_end(true);
	listen_end_all(server);
	tasks_end_all(server);
	sessions_end_all(server);
	alarm_stop(&server->waiting_alarm);
	alarm_stop(&server->tend_alarm);
	free(server);
}
