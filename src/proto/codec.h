/* How a message is encoded: fields one after another, integers little-endian, byte strings and
 * lists with a 32-bit count before them. A reader's input is hostile: the first field that does
 * not fit makes the reader bad, a bad reader returns zeros, and the caller checks once, at the
 * end, with reader_finish(). Nothing here allocates: pointers from a reader point into the
 * message. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct writer {
	uint8_t *data;
	size_t size;
	size_t room;
	bool full; /* something did not fit; see writer_finish() */
};

struct reader {
	const uint8_t *data;
	size_t size;
	size_t at;
	bool bad;
};

struct bytes {
	const uint8_t *data;
	size_t size;
};

struct writer writer_on(void *room, size_t size);
void write_u8(struct writer *writer, uint8_t value);
void write_u16(struct writer *writer, uint16_t value);
void write_u32(struct writer *writer, uint32_t value);
void write_u64(struct writer *writer, uint64_t value);
void write_i64(struct writer *writer, int64_t value);
void write_bytes(struct writer *writer, const void *data, size_t size);
void write_text(struct writer *writer, const char *text); /* without its NUL; NULL is empty */
/* The bytes written, or -EMSGSIZE. */
NODISCARD int64_t writer_finish(const struct writer *writer);

struct reader reader_on(const void *data, size_t size);
uint8_t read_u8(struct reader *reader);
uint16_t read_u16(struct reader *reader);
uint32_t read_u32(struct reader *reader);
uint64_t read_u64(struct reader *reader);
int64_t read_i64(struct reader *reader);
/* At most `maximum` bytes, else the reader is bad. */
struct bytes read_bytes(struct reader *reader, size_t maximum);
/* Copies a byte string into `to` and terminates it with a NUL. Bad if it is longer than room - 1
 * or contains a NUL. */
void read_text(struct reader *reader, char *to, size_t room);
/* 0 if every field was valid and no byte is left, else -EBADMSG. */
NODISCARD int reader_finish(const struct reader *reader);
