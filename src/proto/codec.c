/* Converts fields to bytes and back. Used for every message of both ends; allocates nothing,
 * never blocks. A reader's input is hostile: a length is compared with the remaining size before
 * it is used. */
#include "proto/codec.h"

#include <errno.h>
#include <string.h>

struct writer writer_on(void *room, size_t size)
{
	return (struct writer){.data = room, .size = 0, .room = size, .full = false};
}

static void writer_append(struct writer *writer, const void *data, size_t size)
{
	if (writer->full || size > writer->room - writer->size) {
		writer->full = true;
		return;
	}
	if (size > 0)
		memcpy(writer->data + writer->size, data, size);
	writer->size += size;
}

static void writer_append_number(struct writer *writer, uint64_t value, size_t size)
{
	uint8_t bytes[8];
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	writer_append(writer, bytes, size);
}

void write_u8(struct writer *writer, uint8_t value)
{
	writer_append_number(writer, value, 1);
}

void write_u16(struct writer *writer, uint16_t value)
{
	writer_append_number(writer, value, 2);
}

void write_u32(struct writer *writer, uint32_t value)
{
	writer_append_number(writer, value, 4);
}

void write_u64(struct writer *writer, uint64_t value)
{
	writer_append_number(writer, value, 8);
}

void write_i64(struct writer *writer, int64_t value)
{
	writer_append_number(writer, (uint64_t)value, 8);
}

void write_bytes(struct writer *writer, const void *data, size_t size)
{
	if (size > UINT32_MAX) {
		writer->full = true;
		return;
	}
	write_u32(writer, (uint32_t)size);
	writer_append(writer, data, size);
}

void write_text(struct writer *writer, const char *text)
{
	write_bytes(writer, text, text ? strlen(text) : 0);
}

int64_t writer_finish(const struct writer *writer)
{
	return writer->full ? -EMSGSIZE : (int64_t)writer->size;
}

struct reader reader_on(const void *data, size_t size)
{
	return (struct reader){.data = data, .size = size, .at = 0, .bad = false};
}

/* The next `size` bytes, or NULL and a bad reader. */
static const uint8_t *reader_take(struct reader *reader, size_t size)
{
	if (reader->bad || size > reader->size - reader->at) {
		reader->bad = true;
		return NULL;
	}
	const uint8_t *place = reader->data + reader->at;
	reader->at += size;
	return place;
}

static uint64_t reader_take_number(struct reader *reader, size_t size)
{
	const uint8_t *bytes = reader_take(reader, size);
	uint64_t value = 0;
	for (size_t i = 0; bytes && i < size; i++)
		value |= (uint64_t)bytes[i] << (8 * i);
	return value;
}

uint8_t read_u8(struct reader *reader)
{
	return (uint8_t)reader_take_number(reader, 1);
}

uint16_t read_u16(struct reader *reader)
{
	return (uint16_t)reader_take_number(reader, 2);
}

uint32_t read_u32(struct reader *reader)
{
	return (uint32_t)reader_take_number(reader, 4);
}

uint64_t read_u64(struct reader *reader)
{
	return reader_take_number(reader, 8);
}

int64_t read_i64(struct reader *reader)
{
	return (int64_t)reader_take_number(reader, 8);
}

struct bytes read_bytes(struct reader *reader, size_t maximum)
{
	size_t size = read_u32(reader);
	if (size > maximum)
		reader->bad = true;
	const uint8_t *data = reader_take(reader, size);
	return (struct bytes){.data = data, .size = data ? size : 0};
}

void read_text(struct reader *reader, char *to, size_t room)
{
	struct bytes text = read_bytes(reader, room - 1);
	if (text.size > 0 && memchr(text.data, '\0', text.size)) {
		reader->bad = true;
		text.size = 0;
	}
	if (text.size > 0)
		memcpy(to, text.data, text.size);
	to[text.size] = '\0';
}

int reader_finish(const struct reader *reader)
{
	return reader->bad || reader->at != reader->size ? -EBADMSG : 0;
}
