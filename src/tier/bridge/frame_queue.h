/* A bounded queue of bytes that begin at a frame, in the caller's memory. Called by relay.c;
 * never waits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "proto/init_messages.h"

#define FRAME_MAX (FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX)

struct frame_queue {
	uint8_t *data;
	size_t room, start, end;
};

size_t frame_queue_free_bytes(const struct frame_queue *queue);
void frame_queue_clear(struct frame_queue *queue);
/* Moves the queued bytes to the front of the memory. */
void frame_queue_compact(struct frame_queue *queue);
/* The caller has checked that the frame fits. */
void frame_queue_add(struct frame_queue *queue, enum frame_type type, uint64_t id,
		     const void *payload, size_t size);
/* 0: all was sent, or the socket is full; -errno. */
NODISCARD int frame_queue_send(struct frame_queue *queue, int fd);
