/* Fields to bytes and back, and readers that are given less or more than they need. */
#include "proto/codec.h"

#include <errno.h>

#include "test.h"

TEST_MAIN

TEST(numbers_are_little_endian)
{
	uint8_t room[32];
	struct writer writer = writer_on(room, sizeof(room));
	write_u8(&writer, 0x01);
	write_u16(&writer, 0x0302);
	write_u32(&writer, 0x07060504);
	write_u64(&writer, 0x0f0e0d0c0b0a0908);
	write_i64(&writer, -2);
	CHECK_INT(writer_finish(&writer), 23);
	for (uint8_t i = 0; i < 15; i++)
		CHECK_INT(room[i], i + 1);
	struct reader reader = reader_on(room, 23);
	CHECK_INT(read_u8(&reader), 0x01);
	CHECK_INT(read_u16(&reader), 0x0302);
	CHECK_INT(read_u32(&reader), 0x07060504);
	CHECK(read_u64(&reader) == 0x0f0e0d0c0b0a0908);
	CHECK_INT(read_i64(&reader), -2);
	CHECK_INT(reader_finish(&reader), 0);
}

TEST(strings_keep_their_bytes)
{
	uint8_t room[64];
	char text[8];
	struct writer writer = writer_on(room, sizeof(room));
	write_bytes(&writer, "a\0b", 3);
	write_text(&writer, "caisson");
	write_text(&writer, NULL);
	struct reader reader = reader_on(room, writer.size);
	struct bytes bytes = read_bytes(&reader, 3);
	CHECK_INT(bytes.size, 3);
	CHECK(memcmp(bytes.data, "a\0b", 3) == 0);
	read_text(&reader, text, sizeof(text));
	CHECK_TEXT(text, "caisson");
	read_text(&reader, text, sizeof(text));
	CHECK_TEXT(text, "");
	CHECK_INT(reader_finish(&reader), 0);
}

TEST(a_writer_that_is_full_stays_full)
{
	uint8_t room[6];
	struct writer writer = writer_on(room, sizeof(room));
	write_u32(&writer, 1);
	write_u32(&writer, 2);
	write_u8(&writer, 3);
	CHECK_INT(writer_finish(&writer), -EMSGSIZE);
	CHECK_INT(writer.size, 4);
}

TEST(a_reader_that_ran_out_gives_zeros)
{
	const uint8_t data[] = {1, 2, 3};
	struct reader reader = reader_on(data, sizeof(data));
	CHECK_INT(read_u32(&reader), 0);
	CHECK_INT(read_u8(&reader), 0);
	CHECK_INT(reader_finish(&reader), -EBADMSG);
}

TEST(bytes_left_over_are_bad)
{
	const uint8_t data[] = {1, 2};
	struct reader reader = reader_on(data, sizeof(data));
	CHECK_INT(read_u8(&reader), 1);
	CHECK_INT(reader_finish(&reader), -EBADMSG);
}

TEST(a_length_beyond_the_message_is_bad)
{
	const uint8_t data[] = {0xff, 0xff, 0xff, 0xff, 'a'};
	struct reader reader = reader_on(data, sizeof(data));
	struct bytes bytes = read_bytes(&reader, SIZE_MAX);
	CHECK_INT(bytes.size, 0);
	CHECK(bytes.data == NULL);
	CHECK(reader.bad);
}

TEST(a_string_longer_than_allowed_is_bad)
{
	uint8_t room[32];
	char text[4];
	struct writer writer = writer_on(room, sizeof(room));
	write_text(&writer, "four");
	struct reader reader = reader_on(room, writer.size);
	read_text(&reader, text, sizeof(text));
	CHECK_TEXT(text, "");
	CHECK_INT(reader_finish(&reader), -EBADMSG);
	reader = reader_on(room, writer.size);
	CHECK_INT(read_bytes(&reader, 3).size, 0);
	CHECK(reader.bad);
}

TEST(a_text_with_a_nul_is_bad)
{
	uint8_t room[32];
	char text[8];
	struct writer writer = writer_on(room, sizeof(room));
	write_bytes(&writer, "a\0b", 3);
	struct reader reader = reader_on(room, writer.size);
	read_text(&reader, text, sizeof(text));
	CHECK_TEXT(text, "");
	CHECK_INT(reader_finish(&reader), -EBADMSG);
}
