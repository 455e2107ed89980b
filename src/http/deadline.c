/* All deadlines of a server on one timer. Each kind has one duration, so appending keeps the list
 * of each kind sorted, and setting or clearing a deadline is a few stores: no heap, and no libuv
 * timer for each connection. Called by connection.c and transport.c; calls
 * http_connection_expire(). */
#include "http/connection.h"

/* Connections that came together expire together. After this many, other clients have a turn. */
#define EXPIRIES_PER_TURN 256

static uint32_t deadline_duration(const struct http_server *server, enum http_deadline_kind kind)
{
	switch (kind) {
	case HTTP_DEADLINE_HEAD:
		return server->settings.head_timeout_ms;
	case HTTP_DEADLINE_PASSED:
		return MIN(server->settings.head_timeout_ms, (uint32_t)HTTP_PASSED_MS);
	case HTTP_DEADLINE_IDLE:
		return server->settings.idle_timeout_ms;
	case HTTP_DEADLINE_BODY:
		return server->settings.body_timeout_ms;
	case HTTP_DEADLINE_WRITE:
		return server->settings.write_timeout_ms;
	case HTTP_DEADLINE_FIRST:
		return HTTP_LAST_CALL_MS;
	case HTTP_DEADLINE_LINGER:
	case HTTP_DEADLINE_KINDS:
		break;
	}
	return HTTP_LINGER_MS;
}

static struct http_connection *deadline_owner(struct list *node, enum http_deadline_kind kind)
{
	struct http_deadline *deadline = list_entry(node, struct http_deadline, node);
	return kind == HTTP_DEADLINE_WRITE
		   ? container_of(deadline, struct http_connection, writing)
		   : container_of(deadline, struct http_connection, waiting);
}

static void on_deadline_timer(uv_timer_t *timer);

static void deadlines_start_timer(struct http_server *server, uint64_t due)
{
	uint64_t now = uv_now(server->loop);
	server->timer_due = due;
	uv_timer_start(&server->timer, on_deadline_timer, due > now ? due - now : 1, 0);
}

static void on_deadline_timer(uv_timer_t *timer)
{
	struct http_server *server = timer->data;
	uint64_t now = uv_now(server->loop), next = 0;
	int left = EXPIRIES_PER_TURN;
	server->timer_due = 0;
	for (int kind = 0; kind < HTTP_DEADLINE_KINDS; kind++) {
		struct list *list = &server->deadlines[kind];
		while (!list_empty(list)) {
			struct list *node = list->next;
			uint64_t due = list_entry(node, struct http_deadline, node)->due;
			if (due > now || left == 0) {
				next = next == 0 ? due : MIN(next, due);
				break;
			}
			left--;
			list_remove(node);
			http_connection_expire(deadline_owner(node, (enum http_deadline_kind)kind),
					       (enum http_deadline_kind)kind);
		}
	}
	/* Expired connections may have set new deadlines, and so the timer. */
	if (next && (server->timer_due == 0 || next < server->timer_due) && !server->freed)
		deadlines_start_timer(server, next);
}

void http_deadlines_init(struct http_server *server)
{
	for (int kind = 0; kind < HTTP_DEADLINE_KINDS; kind++)
		list_init(&server->deadlines[kind]);
	uv_timer_init(server->loop, &server->timer);
	server->timer.data = server;
}

void http_deadline_set(struct http_server *server, struct http_deadline *deadline,
		       enum http_deadline_kind kind)
{
	list_remove(&deadline->node);
	deadline->due = uv_now(server->loop) + deadline_duration(server, kind);
	list_append(&server->deadlines[kind], &deadline->node);
	if (server->timer_due == 0 || deadline->due < server->timer_due)
		deadlines_start_timer(server, deadline->due);
}

void http_deadline_clear(struct http_deadline *deadline)
{
	list_remove(&deadline->node);
}

/* The kind of deadline that the connection's state requires, or -1. It depends on how much of a
 * head has arrived. */
static int deadline_kind_wanted(const struct http_connection *connection)
{
	bool stopping = connection->server->stopping;
	switch (connection->state) {
	case HTTP_HANDSHAKE:
		return stopping ? HTTP_DEADLINE_FIRST : HTTP_DEADLINE_HEAD;
	case HTTP_HEAD:
		if (connection->passed)
			return HTTP_DEADLINE_PASSED;
		if (connection->held)
			break;
		if (connection->input.size > 0)
			return HTTP_DEADLINE_HEAD;
		return stopping ? HTTP_DEADLINE_FIRST : HTTP_DEADLINE_IDLE;
	case HTTP_ASKED:
	case HTTP_ANSWERING:
		return http_body_wanted(connection->exchange) ? HTTP_DEADLINE_BODY : -1;
	case HTTP_SKIP:
		return HTTP_DEADLINE_BODY;
	case HTTP_LINGER:
		return HTTP_DEADLINE_LINGER;
	case HTTP_UPGRADED:
	case HTTP_REFUSED:
	case HTTP_BROKEN:
	case HTTP_ANSWERED:
	case HTTP_DRAIN:
	case HTTP_ABORTED:
	case HTTP_CLOSED:
	case HTTP_STATES:
		break;
	}
	return -1;
}

void http_deadline_stop(struct http_connection *connection)
{
	http_deadline_clear(&connection->waiting);
	connection->waiting_kind = -1;
}

void http_deadline_update(struct http_connection *connection)
{
	int kind = deadline_kind_wanted(connection);
	/* For a body that is read, the deadline limits each pause; for one that is skipped, the
	 * whole. */
	bool again =
	    kind == HTTP_DEADLINE_BODY && connection->body_moved && connection->state != HTTP_SKIP;
	if (kind < 0) {
		http_deadline_stop(connection);
	} else if (kind != connection->waiting_kind || again) {
		connection->waiting_kind = (int8_t)kind;
		http_deadline_set(connection->server, &connection->waiting,
				  (enum http_deadline_kind)kind);
	}
}
