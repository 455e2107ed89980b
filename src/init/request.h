/* From the bytes that arrive on the connection to checked requests. Does no I/O and has no state
 * but the bytes: connection.c feeds it from the socket, a fuzz target from anywhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "proto/init_messages.h"

/* Two frames of the largest size: one being served, one arriving. */
#define INBOX_SIZE (2 * (FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX))
#define CONNECT_ADDRESS_MAX 64

struct inbox {
	uint8_t data[INBOX_SIZE];
	size_t start, end; /* bytes that are not parsed yet */
};

struct request {
	uint16_t type;
	uint64_t id;
	struct frame frame; /* its payload points into the inbox, right behind the header */
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

/* Where the next bytes go, and how many fit; 0 only while whole frames are waiting. The caller then
 * adds the number of received bytes to `end`. */
size_t inbox_room(struct inbox *inbox, uint8_t **ret_place);
/* The frame at the front: its length, 0 if it is incomplete, or -EBADMSG. It stays until the caller
 * adds its length to `start`. */
NODISCARD int64_t inbox_front(const struct inbox *inbox, struct frame *ret_frame);

/* Checks a request completely: a type that the outside may send, the right kind of id, a valid
 * payload. 0 or -EBADMSG. */
NODISCARD int request_parse(const struct frame *frame, struct request *ret_request);
