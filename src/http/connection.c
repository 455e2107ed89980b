/* The turns of one connection: reads, parses, calls handlers, writes, closes. The loop calls
 * http_connection_run() when the socket is ready, when a handler asked for a turn, or when a
 * deadline has passed. Nothing else calls handlers back (connection.h says why). Nothing here
 * blocks, and a turn is bounded, so that one client cannot starve the others. */
#include "http/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

/* An incomplete head up to this size is parsed again at each byte, so that an invalid head is
 * refused at once. A longer head is parsed again at each line, so that sending byte by byte costs
 * the client more than us. */
#define EAGER_PARSE 1024
#define INPUT_ROOM 2048

static void on_connection_closed(uv_handle_t *handle)
{
	struct http_connection *connection = handle->data;
	struct http_server *server = connection->server;
	http_exchange_free(connection->exchange);
	http_queue_done(&connection->input);
	http_queue_done(&connection->output);
	work_share_release(connection->share);
	http_caller_release(server, connection->caller);
	free(connection);
	http_server_handle_closed(server);
}

/* libuv keeps the handle, and we keep the memory, until the end of this iteration of the loop:
 * functions that are on the stack now may still use it. */
static void connection_close(struct http_connection *connection)
{
	work_cancel(&connection->work);
	http_deadline_clear(&connection->waiting);
	http_deadline_clear(&connection->writing);
	uv_close((uv_handle_t *)&connection->poll, on_connection_closed);
	http_transport_close(connection);
	http_transport_drop_passed(connection);
	http_caller_leave(connection);
	http_server_forget(connection);
}

static void exchange_tell_gone(struct http_exchange *exchange)
{
	if (exchange->callbacks.on_gone)
		exchange->callbacks.on_gone(exchange);
}

void http_connection_lose(struct http_connection *connection)
{
	enum http_action action = http_state_step(&connection->state, HTTP_EVENT_LOSE);
	if (action == HTTP_ACTION_NONE)
		return;
	connection_close(connection);
	if (action == HTTP_ACTION_TELL)
		exchange_tell_gone(connection->exchange);
}

void http_connection_break(struct http_connection *connection)
{
	if (http_state_step(&connection->state, HTTP_EVENT_BREAK) == HTTP_ACTION_WAKE)
		http_connection_wake(connection);
}

void http_drop(struct http_exchange *exchange)
{
	http_connection_lose(exchange->connection);
}

void http_connection_wake(struct http_connection *connection)
{
	if (!connection->running && connection->state != HTTP_CLOSED)
		work_wait(&connection->work, connection->share);
}

static bool connection_wants_input(const struct http_connection *connection)
{
	const struct http_exchange *exchange = connection->exchange;
	if (connection->peer_done)
		return false;
	switch (connection->state) {
	case HTTP_HANDSHAKE:
	case HTTP_ANSWERED:
	case HTTP_SKIP:
	case HTTP_LINGER:
		return true;
	case HTTP_HEAD:
		return connection->output.size <= HTTP_QUEUE_HIGH;
	case HTTP_ASKED:
	case HTTP_ANSWERING:
	case HTTP_REFUSED:
		/* We read on behind a complete request, to notice that the client disconnects. */
		return http_body_complete(exchange->body) || http_body_wanted(exchange);
	case HTTP_UPGRADED:
		return !exchange->body_paused;
	case HTTP_DRAIN:
	case HTTP_BROKEN:
	case HTTP_ABORTED:
	case HTTP_CLOSED:
	case HTTP_STATES:
		break;
	}
	return false;
}

/* Returns whether a handler has the request and its answer is incomplete. */
static bool connection_awaits_answer(const struct http_connection *connection)
{
	return connection->state == HTTP_ASKED || connection->state == HTTP_ANSWERING;
}

/* The client has closed its half. Reading does not show that, because a body is held. */
static bool connection_end_is_hidden(const struct http_connection *connection)
{
	return connection->hung_up && connection_awaits_answer(connection) &&
	       !connection_wants_input(connection);
}

/* Returns whether the producer of an answer was told to wait and there is room again. */
static bool connection_drain_is_due(const struct http_connection *connection)
{
	return http_state_open(connection->state) && connection->exchange->wants_drain &&
	       connection->output.size <= HTTP_QUEUE_LOW;
}

static void connection_drop_exchange(struct http_connection *connection)
{
	http_exchange_free(connection->exchange);
	connection->exchange = NULL;
	http_deadline_stop(connection);
}

static void connection_end_exchange(struct http_connection *connection, enum http_event event)
{
	if (http_state_step(&connection->state, event) == HTTP_ACTION_TELL)
		exchange_tell_gone(connection->exchange);
	connection_drop_exchange(connection);
}

/* The handler has answered: decides whether the connection continues. */
static void connection_finish_exchange(struct http_connection *connection)
{
	struct http_exchange *exchange = connection->exchange;
	bool complete = http_body_complete(exchange->body);
	if (!complete && exchange->body_left > HTTP_SKIP_MAX)
		connection->close_after = true;
	if (connection->close_after) {
		/* A client that did not ask for the close may have sent its next request. */
		connection->lingers |= exchange->keep_alive || !complete;
		connection_end_exchange(connection, HTTP_EVENT_LAST);
	} else if (complete) {
		connection_end_exchange(connection, HTTP_EVENT_KEPT);
	} else {
		(void)http_state_step(&connection->state, HTTP_EVENT_UNREAD);
		exchange->body_maximum = exchange->body_taken + HTTP_SKIP_MAX;
		http_exchange_drop_passed(exchange);
		http_deadline_stop(connection);
	}
}

static bool connection_head_is_worth_parsing(const struct http_connection *connection,
					     const char *data, size_t size)
{
	size_t scanned = connection->scanned;
	if (scanned == size)
		return false;
	return size <= EAGER_PARSE || size >= HTTP_HEAD_MAX ||
	       memchr(data + scanned, '\n', size - scanned);
}

static size_t connection_take_head(struct http_connection *connection, char *data, size_t size)
{
	struct http_server *server = connection->server;
	struct http_head head;
	const char *reason = NULL;
	connection->held = false;
	if (size == 0)
		return 0;
	if (connection->requests_left == 0 || connection->output.size > HTTP_QUEUE_HIGH) {
		connection->held = true;
		return 0;
	}
	if (!connection_head_is_worth_parsing(connection, data, size)) {
		connection->scanned = (uint32_t)size;
		return 0;
	}
	int result = http_head_parse(data, size, &head, &reason);
	if (result == 0) {
		connection->scanned = (uint32_t)size;
		return 0;
	}
	size_t head_size = result > 0 ? (size_t)result : size;
	connection->scanned = 0;
	if (result > 0)
		result = http_exchange_new(connection, data, head_size, &head, &reason);
	if (result < 0) {
		http_refuse(connection, -result, reason);
		return size;
	}
	connection->requests_left--;
	(void)http_state_step(&connection->state, HTTP_EVENT_REQUEST);
	connection->used = true;
	http_deadline_stop(connection);
	http_caller_spare(connection, false);
	server->handlers.handle(server->handlers.context, connection->exchange);
	return head_size;
}

static size_t connection_take_body(struct http_connection *connection, char *data, size_t size)
{
	struct http_exchange *exchange = connection->exchange;
	size_t used = http_body_take(exchange, data, size);
	if (http_exchange_open(exchange) && !exchange->body_paused &&
	    http_body_step(&exchange->body, HTTP_BODY_EVENT_TELL) && exchange->callbacks.on_end)
		exchange->callbacks.on_end(exchange);
	return used;
}

static size_t connection_skip_body(struct http_connection *connection, char *data, size_t size)
{
	struct http_exchange *exchange = connection->exchange;
	size_t used = http_body_take(exchange, data, size);
	if (http_body_complete(exchange->body))
		connection_end_exchange(connection, connection->close_after ? HTTP_EVENT_LAST
									    : HTTP_EVENT_KEPT);
	return used;
}

static size_t connection_take_raw(struct http_connection *connection, char *data, size_t size)
{
	struct http_exchange *exchange = connection->exchange;
	if (size == 0 || exchange->body_paused)
		return 0;
	if (exchange->callbacks.on_data)
		exchange->callbacks.on_data(exchange, data, size);
	return size;
}

/* Takes all bytes that can be processed now, and returns their number. A loop instead of recursion,
 * because a client may pipeline any number of requests. */
static size_t connection_take_bytes(struct http_connection *connection, char *data, size_t size)
{
	size_t used = 0;
	for (;;) {
		enum http_state state = connection->state;
		size_t before = used;
		switch (state) {
		case HTTP_HEAD:
			used += connection_take_head(connection, data + used, size - used);
			break;
		case HTTP_ASKED:
		case HTTP_ANSWERING:
			used += connection_take_body(connection, data + used, size - used);
			break;
		case HTTP_ANSWERED:
			connection_finish_exchange(connection);
			break;
		case HTTP_REFUSED:
			connection_end_exchange(connection, HTTP_EVENT_LAST);
			break;
		case HTTP_SKIP:
			used += connection_skip_body(connection, data + used, size - used);
			break;
		case HTTP_UPGRADED:
			used += connection_take_raw(connection, data + used, size - used);
			break;
		case HTTP_BROKEN:
		case HTTP_ABORTED:
			http_connection_lose(connection);
			return size;
		case HTTP_HANDSHAKE:
		case HTTP_DRAIN:
		case HTTP_LINGER:
		case HTTP_CLOSED:
		case HTTP_STATES:
			return size;
		}
		if (used == before && connection->state == state)
			return used;
	}
}

/* Takes bytes that were read earlier. */
static void connection_take_leftover(struct http_connection *connection)
{
	struct http_queue *input = &connection->input;
	if (input->size == 0)
		(void)connection_take_bytes(connection, connection->server->scratch, 0);
	else
		http_queue_consume(
		    input, connection_take_bytes(connection, http_queue_data(input), input->size));
}

static void connection_end_input(struct http_connection *connection)
{
	struct http_exchange *exchange = connection->exchange;
	connection->peer_done = connection->hung_up = true;
	connection->more = false;
	enum http_action action = http_state_step(&connection->state, HTTP_EVENT_CLIENT_END);
	if (action == HTTP_ACTION_DO) {
		connection_drop_exchange(connection);
		connection->lingers = false;
	} else if (action == HTTP_ACTION_TELL && exchange->callbacks.on_end) {
		exchange->callbacks.on_end(exchange);
	} else {
		http_connection_lose(connection);
	}
}

/* Reads once; returns the number of bytes. When no earlier bytes are left, it reads into the
 * server's scratch memory; only bytes that cannot be taken yet need memory of the connection. */
static size_t connection_read(struct http_connection *connection)
{
	struct http_queue *input = &connection->input;
	bool scratch = input->size == 0;
	char *place = scratch ? connection->server->scratch : http_queue_reserve(input, INPUT_ROOM);
	size_t room = scratch ? HTTP_SCRATCH : http_queue_room(input);
	ssize_t got = place ? http_transport_read(connection, place, room) : -EMSGSIZE;
	if (got == -EAGAIN) {
		connection->more = false;
		return 0;
	}
	if (got <= 0) {
		if (got == 0)
			connection_end_input(connection);
		else
			http_connection_lose(connection);
		return 0;
	}
	/* A short read means that the socket is empty; if not, libuv tells us again. */
	connection->more = connection->ssl || (size_t)got == room;
	if (scratch) {
		size_t used = connection_take_bytes(connection, place, (size_t)got);
		if (http_queue_append(input, place + used, (size_t)got - used) < 0)
			http_connection_break(connection);
	} else {
		input->size += (uint32_t)got;
		connection_take_leftover(connection);
	}
	if (connection_awaits_answer(connection) &&
	    http_body_complete(connection->exchange->body) && input->size > HTTP_AHEAD_MAX)
		http_connection_lose(connection);
	return (size_t)got;
}

static void connection_run_input(struct http_connection *connection)
{
	size_t total = 0;
	for (;;) {
		connection_take_leftover(connection);
		if (!connection->more || !connection_wants_input(connection) ||
		    connection->requests_left == 0 || total >= HTTP_TURN_BYTES)
			return;
		total += connection_read(connection);
	}
}

static void connection_flush(struct http_connection *connection)
{
	if (!http_state_ends(connection->state) && http_transport_write(connection, NULL, 0) < 0)
		http_connection_lose(connection);
}

static void connection_give_drain(struct http_connection *connection)
{
	struct http_exchange *exchange = connection->exchange;
	if (!connection_drain_is_due(connection))
		return;
	exchange->wants_drain = false;
	if (exchange->callbacks.on_drain)
		exchange->callbacks.on_drain(exchange);
}

/* Our last byte has been written. */
static void connection_end_drain(struct http_connection *connection)
{
	if (connection->state != HTTP_DRAIN || connection->output.size > 0)
		return;
	http_transport_shutdown(connection);
	if (connection->lingers && !connection->peer_done) {
		(void)http_state_step(&connection->state, HTTP_EVENT_SENT);
		http_queue_done(&connection->input);
	} else {
		http_connection_lose(connection);
	}
}

/* A connection without a request at its handler can make room for others. It holds only the
 * descriptors of an incomplete head. */
static void connection_update_holdings(struct http_connection *connection)
{
	if (connection->state != HTTP_HEAD)
		http_transport_drop_passed(connection);
	http_caller_spare(connection, !http_state_open(connection->state));
}

static void on_connection_ready(uv_poll_t *poll, int status, int events);

/* uv_poll_start() costs two system calls. So we keep watching for bytes that we do not want yet,
 * and stop when some arrive. */
static void connection_update_interest(struct http_connection *connection)
{
	int wanted = connection->hung_up ? 0 : UV_DISCONNECT;
	if (connection_wants_input(connection) || connection->tls_write_wants_read)
		wanted |= UV_READABLE;
	else if (!connection->disarm && !connection->hung_up)
		wanted |= connection->armed & UV_READABLE;
	if ((connection->output.size > 0 && !connection->tls_write_wants_read) ||
	    connection->tls_read_wants_write)
		wanted |= UV_WRITABLE;
	/* All of the client's bytes are read; only an error or a full hang-up can follow. The
	 * kernel reports those only while we watch for at least one event. */
	if (wanted == 0 && connection->peer_done)
		wanted = UV_PRIORITIZED;
	connection->disarm = false;
	if (wanted == connection->armed)
		return;
	connection->armed = (uint8_t)wanted;
	/* With no events this stops the watching. */
	if (uv_poll_start(&connection->poll, wanted, on_connection_ready) < 0)
		http_connection_lose(connection);
}

/* Returns whether there is work without a further event. */
static bool connection_needs_turn(struct http_connection *connection)
{
	if (connection_end_is_hidden(connection))
		http_connection_break(connection);
	return http_state_ends(connection->state) ||
	       (connection->more && connection_wants_input(connection)) ||
	       (connection->state == HTTP_HEAD && connection->held &&
		connection->output.size <= HTTP_QUEUE_HIGH) ||
	       connection_drain_is_due(connection);
}

static void connection_handshake(struct http_connection *connection)
{
	int result = http_transport_handshake(connection);
	if (result < 0)
		http_connection_lose(connection);
	else if (result == 0)
		connection->more = false;
	else
		(void)http_state_step(&connection->state, HTTP_EVENT_SECURED);
}

void http_connection_run(struct http_connection *connection, int events)
{
	if (connection->state == HTTP_CLOSED)
		return;
	work_cancel(&connection->work);
	events |= connection->events;
	connection->events = 0;
	connection->running = true;
	connection->written = 0;
	connection->requests_left = HTTP_TURN_REQUESTS;
	connection->body_moved = false;
	if ((events & (UV_READABLE | UV_DISCONNECT)) || connection->tls_read_wants_write)
		connection->more = true;
	if ((events & UV_WRITABLE) || connection->tls_write_wants_read)
		connection->blocked = false;
	if (connection->state == HTTP_HANDSHAKE)
		connection_handshake(connection);
	if (connection->state != HTTP_HANDSHAKE) {
		connection_flush(connection);
		connection_give_drain(connection);
		connection_run_input(connection);
		connection_flush(connection);
		connection_end_drain(connection);
	}
	if (connection->state != HTTP_CLOSED) {
		connection_update_holdings(connection);
		http_deadline_update(connection);
	}
	if (connection->state != HTTP_CLOSED)
		connection_update_interest(connection);
	connection->running = false;
	if (connection->state != HTTP_CLOSED && connection_needs_turn(connection))
		work_wait(&connection->work, connection->share);
}

static void on_connection_turn(struct work *work)
{
	http_connection_run(container_of(work, struct http_connection, work), 0);
}

static void on_connection_ready(uv_poll_t *poll, int status, int events)
{
	struct http_connection *connection = poll->data;
	if (status < 0 || events == UV_PRIORITIZED) {
		http_connection_lose(connection);
		return;
	}
	if (events & UV_DISCONNECT) {
		/* libuv would report it again and again, so we stop watching for it: reading finds
		 * the end of the client's bytes. While a body is held nothing is read, so then we
		 * treat the client as gone. */
		connection->hung_up = true;
		if (connection_end_is_hidden(connection)) {
			http_connection_lose(connection);
			return;
		}
	}
	if ((events & UV_READABLE) && !connection_wants_input(connection))
		connection->disarm = true;
	connection->events |= (uint8_t)events;
	work_run(&connection->work, connection->share);
}

void http_connection_expire(struct http_connection *connection, enum http_deadline_kind kind)
{
	if (kind != HTTP_DEADLINE_WRITE)
		connection->waiting_kind = -1;
	if (kind == HTTP_DEADLINE_HEAD || kind == HTTP_DEADLINE_PASSED) {
		http_refuse(connection, 408, "the head took too long");
	} else if (kind == HTTP_DEADLINE_BODY) {
		http_refuse(connection, 408, "the body took too long");
	} else {
		http_connection_lose(connection);
		return;
	}
	http_connection_run(connection, 0);
}

/* Gives the socket to libuv, and counts its peer as a caller. */
static int connection_attach(struct http_server *server, struct http_connection *connection, int fd,
			     SSL_CTX *tls)
{
	struct sockaddr_storage from;
	server->identify(fd, &connection->peer, &from);
	connection->caller = http_caller_join(server, &connection->peer, &from);
	if (!connection->caller)
		return -EBUSY;
	connection->share = work_share_hold(connection->caller->share);
	int result = -ENOMEM;
	if (!tls || http_transport_secure(connection, tls))
		result = uv_poll_init(server->loop, &connection->poll, fd);
	if (result < 0) {
		SSL_free(connection->ssl);
		work_share_release(connection->share);
		http_caller_leave(connection);
		http_caller_release(server, connection->caller);
	}
	return result;
}

int http_connection_open(struct http_server *server, int fd, bool is_unix, SSL_CTX *tls)
{
	struct http_connection *connection = calloc(1, sizeof(*connection));
	if (!connection)
		abort();
	connection->server = server;
	connection->fd = fd;
	connection->state = tls ? HTTP_HANDSHAKE : HTTP_HEAD;
	connection->waiting_kind = -1;
	connection->peer = (struct http_peer){
	    .is_unix = is_unix,
	    .is_tls = tls != NULL,
	    .uid = (uid_t)-1,
	    .gid = (gid_t)-1,
	};
	connection->work.run = on_connection_turn;
	list_init(&connection->spare);
	list_init(&connection->waiting.node);
	list_init(&connection->writing.node);
	int result = connection_attach(server, connection, fd, tls);
	if (result < 0) {
		free(connection);
		return result;
	}
	connection->poll.data = connection;
	list_append(&server->connections, &connection->node);
	server->handle_count++;
	connection_update_holdings(connection);
	http_deadline_update(connection);
	connection_update_interest(connection);
	return 0;
}
