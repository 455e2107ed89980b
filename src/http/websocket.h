/* WebSocket (RFC 6455), the server's side: the handshake's answer, frames in and out. It does not
 * use sockets: its input is bytes in pieces of any size. The client is not trusted: every frame is
 * checked (masked, no reserved bit, lengths in their shortest form, control frames short and
 * unfragmented, text in UTF-8, a message's length), and the first invalid one ends the connection
 * with a close code. No extension is offered, so none is ever used. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

enum websocket_opcode {
	WEBSOCKET_CONTINUATION = 0,
	WEBSOCKET_TEXT = 1,
	WEBSOCKET_BINARY = 2,
	WEBSOCKET_CLOSE = 8,
	WEBSOCKET_PING = 9,
	WEBSOCKET_PONG = 10,
};

enum websocket_code {
	WEBSOCKET_NORMAL = 1000,
	WEBSOCKET_GOING_AWAY = 1001,
	WEBSOCKET_PROTOCOL = 1002,
	WEBSOCKET_UNSUPPORTED = 1003,
	WEBSOCKET_NOT_UTF8 = 1007,
	WEBSOCKET_POLICY = 1008,
	WEBSOCKET_TOO_BIG = 1009,
	WEBSOCKET_INTERNAL = 1011,
};

#define WEBSOCKET_CONTROL_MAX 125
#define WEBSOCKET_HEADER_MAX 10 /* of our frames, which have no mask */
#define WEBSOCKET_ACCEPT_MAX 32

struct websocket_parser {
	struct buffer message; /* the current message; its maximum is that of a message */
	uint8_t header[14];
	uint8_t header_size;   /* bytes of it that have arrived */
	uint8_t header_needed; /* 0: its length is not known yet */
	uint8_t opcode;        /* of the current frame */
	uint8_t message_type;  /* of the current fragmented message; 0: none */
	bool final;
	uint64_t left; /* payload bytes of the frame that have not arrived */
	uint8_t mask[4];
	uint32_t mask_at;
	uint8_t control[WEBSOCKET_CONTROL_MAX];
	uint8_t control_size;
	bool message_told; /* the message in the buffer was delivered: the next one begins empty */
};

/* The result of a step: nothing yet (opcode WEBSOCKET_CONTINUATION), a whole message, or a control
 * frame. The bytes are valid until the next step. */
struct websocket_event {
	enum websocket_opcode opcode;
	const char *data;
	size_t size;
	uint16_t code; /* of a close frame; 1005: it had none */
};

void websocket_parser_init(struct websocket_parser *parser, size_t message_max);
void websocket_parser_done(struct websocket_parser *parser);
/* Takes bytes up to the end of one frame. Returns how many it used (at least one, if there are
 * any), or minus the close code with a reason; after that the parser must not be used again. */
NODISCARD int64_t websocket_next(struct websocket_parser *parser, const char *data, size_t size,
				 struct websocket_event *ret_event, const char **ret_reason);

/* Writes the header of an unfragmented frame of ours; returns its length. */
size_t websocket_header(enum websocket_opcode opcode, size_t size,
			uint8_t header[WEBSOCKET_HEADER_MAX]);
/* Sec-WebSocket-Accept for a Sec-WebSocket-Key, or -EINVAL for an invalid key. */
NODISCARD int websocket_accept(const char *key, char accept[WEBSOCKET_ACCEPT_MAX]);
