/* The frame's header. Called by both ends of the connection to an init, and by runners; never
 * blocks. Invalid bytes end the connection: there is no resynchronization. */
#include "proto/frame.h"

#include <errno.h>
#include <stdbool.h>

#include "proto/codec.h"
#include "proto/init_messages.h"

static bool frame_type_is_known(uint16_t type)
{
	return (type >= FRAME_HELLO && type <= FRAME_SHUTDOWN) ||
	       (type >= FRAME_EXEC && type <= FRAME_GONE) ||
	       (type >= FRAME_FILE && type <= FRAME_METRICS) ||
	       (type >= FRAME_FREEZE && type <= FRAME_THAW) || type == FRAME_BEGIN;
}

void frame_header_write(uint8_t header[FRAME_HEADER_SIZE], uint16_t type, uint64_t id,
			uint32_t size)
{
	struct writer writer = writer_on(header, FRAME_HEADER_SIZE);
	write_u32(&writer, size);
	write_u16(&writer, type);
	write_u16(&writer, 0);
	write_u64(&writer, id);
}

int64_t frame_parse(const void *data, size_t size, struct frame *ret_frame)
{
	if (size < FRAME_HEADER_SIZE)
		return 0;
	struct reader reader = reader_on(data, FRAME_HEADER_SIZE);
	uint32_t payload = read_u32(&reader);
	uint16_t type = read_u16(&reader);
	uint16_t flags = read_u16(&reader);
	uint64_t id = read_u64(&reader);
	/* Refused before its payload arrives: the reader must not wait for the payload of a bad
	 * header. */
	if (payload > FRAME_PAYLOAD_MAX || flags != 0 || !frame_type_is_known(type))
		return -EBADMSG;
	if (size - FRAME_HEADER_SIZE < payload)
		return 0;
	*ret_frame = (struct frame){
	    .size = payload,
	    .type = type,
	    .id = id,
	    .payload = (const uint8_t *)data + FRAME_HEADER_SIZE,
	};
	return FRAME_HEADER_SIZE + (int64_t)payload;
}
