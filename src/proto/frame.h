/* The frame: the unit of the connection to an init, and between PID 1 and its runners.
 *
 *   u32 size      bytes of payload, at most FRAME_PAYLOAD_MAX
 *   u16 type      enum frame_type; an unknown one ends the connection
 *   u16 flags     0 (reserved)
 *   u64 id        which exec or operation; 0 = the connection itself
 *
 * Integers are little-endian. See init_messages.h for the types, payloads and who sends them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/macros.h"

#define FRAME_HEADER_SIZE 16

struct frame {
	uint32_t size;
	uint16_t type;
	uint64_t id;
	const uint8_t *payload; /* into the caller's buffer */
};

void frame_header_write(uint8_t header[FRAME_HEADER_SIZE], uint16_t type, uint64_t id,
			uint32_t size);
/* Parses a frame at the start of `data`: its whole length, 0 if more bytes are needed, or
 * -EBADMSG. */
NODISCARD int64_t frame_parse(const void *data, size_t size, struct frame *ret_frame);
