/* A request that became a WebSocket: messages both ways instead of one answer. Frames are
 * http/websocket.h's; here are the connection's rules: a ping every 20 s (a client that is silent
 * for three of them is disconnected), a closing handshake with a time limit, never more than one
 * answer waiting for a client that pings and does not read.
 *
 *     web_socket_check -> (the handler gets ready) -> web_socket_begin -> messages... -> one of
 *         web_socket_close     we end it: a close frame, then the connection
 *         handlers->closed     the client has ended it, or is gone
 *
 * struct web_socket is the first member of the handler's state, which is call->state; the call is
 * held until the socket's timer is gone. */
#pragma once

#include "edge/call.h"
#include "http/websocket.h"

#define WEB_SOCKET_MESSAGE_MAX (256 * 1024)

struct web_socket;

struct web_socket_handlers {
	/* A complete message. The socket may be closed in it. */
	void (*message)(struct web_socket *socket, bool text, const char *data, size_t size);
	/* There is room again after a send returned false. May be NULL. */
	void (*drained)(struct web_socket *socket);
	/* The last call: the client is gone, has closed, or broke the protocol. Not after
	 * web_socket_close(). `principal` is NULL if the client sent nothing to say so. */
	void (*closed)(struct web_socket *socket, const struct principal *principal);
};

struct web_socket {
	struct call *call;
	const struct web_socket_handlers *handlers;
	struct websocket_parser parser;
	uv_timer_t timer;
	bool begun;   /* the timer runs and the call is held */
	bool over;    /* no message is delivered any more */
	bool blocked; /* the connection's queue is full */
	bool pong_due;
	uint8_t silent; /* pings since the last data came */
	uint8_t pong_size;
	char pong[WEBSOCKET_CONTROL_MAX];
};

/* Is it a valid handshake? INVALID says what is wrong with it. */
NODISCARD int web_socket_check(struct call *call, struct error *error);
/* Sends the 101. `headers` are extra ones. */
void web_socket_begin(struct web_socket *socket, struct call *call,
		      const struct web_socket_handlers *handlers, const struct http_header *headers,
		      size_t header_count);
/* One message. False: the queue is full, and the source waits for `drained`. */
bool web_socket_send(struct web_socket *socket, enum websocket_opcode opcode, const void *data,
		     size_t size);
/* Ends it: no further message, no further callback. The reason is cut to fit a close frame. */
void web_socket_close(struct web_socket *socket, enum websocket_code code, const char *reason);
/* Stops and continues reading the client's data. */
void web_socket_pause(struct web_socket *socket);
void web_socket_resume(struct web_socket *socket);
