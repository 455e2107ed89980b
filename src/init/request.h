/* What arrives on the connection, from bytes to checked requests. No I/O and no state beyond the
 * bytes themselves: connection.c feeds it from the socket, a fuzz target from anywhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "proto/init_messages.h"

/* Two frames of the largest size: one being looked at, one on its way. */
#define INBOX_SIZE (2 * (FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX))
#define CONNECT_ADDRESS_MAX 64

struct inbox {
	uint8_t data[INBOX_SIZE];
	size_t start, end; /* the bytes that are not parsed yet */
};

struct request {
	uint16_t type;
	uint64_t id;
	struct frame frame; /* header and payload lie one after the other, see request_bytes() */
	union {
		struct hello hello;
		int64_t deadline;  /* DEADLINE */
		uint64_t ping;     /* PING */
		uint32_t grace_ms; /* SHUTDOWN */
		uint32_t credit;   /* CREDIT */
		struct configure configure;
		struct exec_request exec;
		struct signal_request signal;
		struct output_totals consumed;
		struct file_request file;
		struct {
			uint16_t rows, columns;
		} size; /* RESIZE */
		struct {
			uint16_t port;
			char address[CONNECT_ADDRESS_MAX];
		} connect;
	};
};

/* Where the next bytes go, and how many fit; 0 only while whole frames are waiting. */
size_t inbox_room(struct inbox *inbox, uint8_t **ret_place);
void inbox_filled(struct inbox *inbox, size_t size);
/* The frame at the front: its length, 0 when it is not complete, -EBADMSG. It stays until
 * inbox_taken(). */
NODISCARD int64_t inbox_front(const struct inbox *inbox, struct frame *ret_frame);
void inbox_taken(struct inbox *inbox, int64_t length);
void inbox_clear(struct inbox *inbox);

/* Everything that must hold for a request from outside: a type that the outside may send, the right
 * kind of id, a payload that reads. 0 or -EBADMSG. */
NODISCARD int request_parse(const struct frame *frame, struct request *ret_request);
