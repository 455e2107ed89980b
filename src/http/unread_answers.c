/* Bounds the memory of unread answers. An answer that its client does not read waits in memory, and
 * a client may request many over many connections. When one caller, or all together, have too much
 * waiting, the connection that has read nothing for longest is closed. Called by answer.c after a
 * large piece was queued; the connection closes at a later turn. */
#include "base/log.h"
#include "http/connection.h"

static size_t connection_unread_size(const struct http_connection *connection)
{
	return http_state_ends(connection->state) ? 0 : connection->output.room;
}

/* The memory that the connections of one caller hold, or of all callers (NULL). */
static size_t unread_sum(struct http_server *server, const struct http_caller *caller)
{
	size_t size = 0;
	list_each (&server->connections, node) {
		const struct http_connection *connection =
		    list_entry(node, struct http_connection, node);
		if (!caller || connection->caller == caller)
			size += connection_unread_size(connection);
	}
	return size;
}

/* The list of deadlines is in the order of the last progress. */
static struct http_connection *unread_find_slowest(struct http_server *server,
						   const struct http_caller *caller)
{
	list_each (&server->deadlines[HTTP_DEADLINE_WRITE], node) {
		struct http_deadline *deadline = list_entry(node, struct http_deadline, node);
		struct http_connection *connection =
		    container_of(deadline, struct http_connection, writing);
		if (connection_unread_size(connection) > HTTP_QUEUE_HIGH &&
		    (!caller || connection->caller == caller))
			return connection;
	}
	return NULL;
}

static void unread_keep_below(struct http_server *server, const struct http_caller *caller,
			      size_t maximum)
{
	size_t size = unread_sum(server, caller);
	while (size > maximum) {
		struct http_connection *connection = unread_find_slowest(server, caller);
		if (!connection)
			return;
		size -= connection_unread_size(connection);
		log_warning("http: %zu MiB of answers are unread%s; closing the connection that "
			    "has read nothing for longest",
			    size >> 20, caller ? " by one caller" : "");
		http_connection_break(connection);
	}
}

void http_unread_check(struct http_connection *connection)
{
	unread_keep_below(connection->server, connection->caller, HTTP_UNREAD_CALLER_MAX);
	unread_keep_below(connection->server, NULL, HTTP_UNREAD_MAX);
}
