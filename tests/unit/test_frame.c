/* The frame's header, and every way in which it can be wrong. */
#include "proto/frame.h"

#include <errno.h>

#include "proto/init_messages.h"
#include "test.h"

TEST_MAIN

TEST(a_frame_is_found_when_it_is_whole)
{
	uint8_t data[FRAME_HEADER_SIZE + 5];
	struct frame frame;
	frame_header_write(data, FRAME_STDIN, 0x1122334455667788, 5);
	memcpy(data + FRAME_HEADER_SIZE, "hello", 5);
	for (size_t size = 0; size < sizeof(data); size++)
		CHECK_INT(frame_parse(data, size, &frame), 0);
	CHECK_INT(frame_parse(data, sizeof(data), &frame), sizeof(data));
	CHECK_INT(frame.type, FRAME_STDIN);
	CHECK(frame.id == 0x1122334455667788);
	CHECK_INT(frame.size, 5);
	CHECK(memcmp(frame.payload, "hello", 5) == 0);
}

TEST(the_header_is_laid_out_as_documented)
{
	uint8_t header[FRAME_HEADER_SIZE];
	const uint8_t expected[] = {4, 3, 2, 1, 54, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 0x81};
	frame_header_write(header, FRAME_RESULT, 0x8102030405060708, 0x01020304);
	CHECK(memcmp(header, expected, sizeof(expected)) == 0);
}

TEST(a_bad_header_is_refused_before_its_payload)
{
	uint8_t header[FRAME_HEADER_SIZE];
	struct frame frame;
	frame_header_write(header, FRAME_DATA, 1, FRAME_PAYLOAD_MAX);
	CHECK_INT(frame_parse(header, sizeof(header), &frame), 0);
	frame_header_write(header, FRAME_DATA, 1, FRAME_PAYLOAD_MAX + 1);
	CHECK_INT(frame_parse(header, sizeof(header), &frame), -EBADMSG);
	frame_header_write(header, FRAME_DATA, 1, 0);
	header[6] = 1;
	CHECK_INT(frame_parse(header, sizeof(header), &frame), -EBADMSG);
}

TEST(an_unknown_type_is_refused)
{
	const uint16_t unknown[] = {0, 10, 19, 37, 49, 59, 69, 73, 0xffff};
	uint8_t header[FRAME_HEADER_SIZE];
	struct frame frame;
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		frame_header_write(header, unknown[i], 1, 0);
		CHECK_INT(frame_parse(header, sizeof(header), &frame), -EBADMSG);
	}
}
