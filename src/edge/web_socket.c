/* WebSockets on calls. See web_socket.h. Called by the handlers of terminals and multiplexed execs;
 * nothing blocks. */
#include "edge/web_socket.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

#define PING_MS 20000
#define SILENT_MAX 3
#define SUBPROTOCOL "caisson.v1"

/* Does a header's list (a, b, c) contain a word? */
static bool header_list_has(const char *value, const char *word)
{
	while (value && *value) {
		value += strspn(value, " ,");
		size_t size = strcspn(value, ",");
		size_t trimmed = size;
		while (trimmed > 0 && value[trimmed - 1] == ' ')
			trimmed--;
		if (trimmed == strlen(word) && strncasecmp(value, word, trimmed) == 0)
			return true;
		value += size;
	}
	return false;
}

int web_socket_check(struct call *call, struct error *error)
{
	const char *key = http_header(call->exchange, "sec-websocket-key");
	const char *version = http_header(call->exchange, "sec-websocket-version");
	char accept[WEBSOCKET_ACCEPT_MAX];
	if (!header_list_has(http_header(call->exchange, "upgrade"), "websocket") ||
	    !header_list_has(http_header(call->exchange, "connection"), "upgrade"))
		return error_set(error, ERROR_INVALID,
				 "this is a WebSocket: ask with `Upgrade: websocket` and "
				 "`Connection: Upgrade`");
	if (!version || strcmp(version, "13") != 0)
		return error_set(error, ERROR_INVALID,
				 "`Sec-WebSocket-Version` must be 13 (RFC 6455)");
	if (!key || websocket_accept(key, accept) < 0)
		return error_set(error, ERROR_INVALID,
				 "`Sec-WebSocket-Key` must be 16 bytes in base64");
	return 0;
}

/* The offered subprotocol that we support; a browser that offers some and gets none closes the
 * connection. The one that carries its token is never sent back. */
static const char *web_socket_subprotocol(struct call *call)
{
	const char *offered = http_header(call->exchange, "sec-websocket-protocol");
	return header_list_has(offered, SUBPROTOCOL) ? SUBPROTOCOL : NULL;
}

static bool web_socket_put(struct web_socket *socket, enum websocket_opcode opcode,
			   const void *data, size_t size)
{
	uint8_t header[WEBSOCKET_HEADER_MAX];
	struct http_exchange *exchange = socket->call->exchange;
	if (!exchange)
		return false;
	size_t header_size = websocket_header(opcode, size, header);
	bool room = http_stream_write(exchange, header, header_size);
	if (size > 0)
		room = http_stream_write(exchange, data, size);
	socket->blocked = !room;
	return room;
}

static void web_socket_timer_closed(uv_handle_t *handle)
{
	struct web_socket *socket = container_of((uv_timer_t *)handle, struct web_socket, timer);
	call_release(socket->call);
}

/* Ends the connection; the state lives until libuv has closed the timer. */
static void web_socket_end(struct web_socket *socket)
{
	struct call *call = socket->call;
	socket->over = true;
	websocket_parser_done(&socket->parser);
	uv_close((uv_handle_t *)&socket->timer, web_socket_timer_closed);
	if (call->exchange) {
		http_stream_end(call->exchange);
		call_answered(call);
	}
}

void web_socket_close(struct web_socket *socket, enum websocket_code code, const char *reason)
{
	char payload[WEBSOCKET_CONTROL_MAX];
	if (socket->over || !socket->begun)
		return;
	size_t size = text_utf8_prefix(reason, MIN(strlen(reason), sizeof(payload) - 2));
	payload[0] = (char)((unsigned)code >> 8);
	payload[1] = (char)((unsigned)code & 0xff);
	memcpy(payload + 2, reason, size);
	web_socket_put(socket, WEBSOCKET_CLOSE, payload, size + 2);
	/* The HTTP layer lingers: it reads what the client still sends, its close frame too, until
	 * the client has closed or two seconds have passed. */
	web_socket_end(socket);
}

/* The same when the handler did not ask for it. */
static void web_socket_close_and_tell(struct web_socket *socket, const struct principal *principal,
				      enum websocket_code code, const char *reason)
{
	web_socket_close(socket, code, reason);
	socket->handlers->closed(socket, principal);
}

static void web_socket_send_pong(struct web_socket *socket, const char *data, size_t size)
{
	if (!socket->blocked) {
		web_socket_put(socket, WEBSOCKET_PONG, data, size);
		return;
	}
	/* Only the newest ping needs an answer (RFC 6455, 5.5.3): a client that pings and does not
	 * read costs this one buffer. */
	memcpy(socket->pong, data, size);
	socket->pong_size = (uint8_t)size;
	socket->pong_due = true;
}

static void web_socket_take_event(struct web_socket *socket, const struct websocket_event *event)
{
	switch (event->opcode) {
	case WEBSOCKET_TEXT:
	case WEBSOCKET_BINARY:
		socket->handlers->message(socket, event->opcode == WEBSOCKET_TEXT, event->data,
					  event->size);
		break;
	case WEBSOCKET_PING:
		web_socket_send_pong(socket, event->data, event->size);
		break;
	case WEBSOCKET_CLOSE:
		web_socket_close_and_tell(socket, &socket->call->principal,
					  event->code == 1005 ? WEBSOCKET_NORMAL : event->code, "");
		break;
	case WEBSOCKET_PONG:
	case WEBSOCKET_CONTINUATION:
		break;
	}
}

static void web_socket_data_came(struct call *call, const char *data, size_t size)
{
	struct web_socket *socket = call->state;
	struct websocket_event event;
	const char *reason = "";
	socket->silent = 0;
	/* Any message may end the call. */
	call_hold(call);
	while (size > 0 && !socket->over) {
		int64_t used = websocket_next(&socket->parser, data, size, &event, &reason);
		if (used < 0) {
			web_socket_close_and_tell(socket, &call->principal,
						  (enum websocket_code) - used, reason);
			break;
		}
		data += used;
		size -= (size_t)used;
		web_socket_take_event(socket, &event);
	}
	call_release(call);
}

static void web_socket_drained(struct call *call)
{
	struct web_socket *socket = call->state;
	if (socket->over)
		return;
	socket->blocked = false;
	if (socket->pong_due) {
		socket->pong_due = false;
		web_socket_put(socket, WEBSOCKET_PONG, socket->pong, socket->pong_size);
	}
	if (!socket->blocked && socket->handlers->drained)
		socket->handlers->drained(socket);
}

/* The client is gone, or has closed its half without a close frame. */
static void web_socket_gone(struct call *call)
{
	struct web_socket *socket = call->state;
	if (socket->over)
		return;
	web_socket_end(socket);
	socket->handlers->closed(socket, NULL);
}

static void web_socket_timer_due(uv_timer_t *timer)
{
	struct web_socket *socket = container_of(timer, struct web_socket, timer);
	if (socket->silent++ < SILENT_MAX) {
		/* For a slow client the HTTP layer's deadline for reading applies. */
		if (!socket->blocked)
			web_socket_put(socket, WEBSOCKET_PING, NULL, 0);
		return;
	}
	call_hold(socket->call);
	struct call *call = socket->call;
	web_socket_close_and_tell(socket, NULL, WEBSOCKET_GOING_AWAY, "no answer to pings");
	call_release(call);
}

void web_socket_begin(struct web_socket *socket, struct call *call,
		      const struct web_socket_handlers *handlers, const struct http_header *headers,
		      size_t header_count)
{
	struct http_header all[6];
	char accept[WEBSOCKET_ACCEPT_MAX] = "";
	const char *key = http_header(call->exchange, "sec-websocket-key");
	const char *protocol = web_socket_subprotocol(call);
	size_t count = 0;
	if (!key || websocket_accept(key, accept) < 0)
		abort(); /* web_socket_check() has checked it */
	all[count++] = (struct http_header){"Sec-WebSocket-Accept", accept};
	if (protocol)
		all[count++] = (struct http_header){"Sec-WebSocket-Protocol", protocol};
	for (size_t i = 0; i < header_count && count < ARRAY_SIZE(all); i++)
		all[count++] = headers[i];
	socket->call = call_hold(call);
	socket->handlers = handlers;
	socket->begun = true;
	websocket_parser_init(&socket->parser, WEB_SOCKET_MESSAGE_MAX);
	call->stream.on_data = web_socket_data_came;
	call->stream.on_end = web_socket_gone;
	call->stream.on_drain = web_socket_drained;
	call->on_gone = web_socket_gone;
	uv_timer_init(call->core->loop, &socket->timer);
	uv_timer_start(&socket->timer, web_socket_timer_due, PING_MS, PING_MS);
	http_upgrade(call->exchange, "websocket", all, count);
}

bool web_socket_send(struct web_socket *socket, enum websocket_opcode opcode, const void *data,
		     size_t size)
{
	return !socket->over && web_socket_put(socket, opcode, data, size);
}

void web_socket_pause(struct web_socket *socket)
{
	if (socket->call->exchange)
		http_body_pause(socket->call->exchange);
}

void web_socket_resume(struct web_socket *socket)
{
	if (socket->call->exchange)
		http_body_resume(socket->call->exchange);
}
