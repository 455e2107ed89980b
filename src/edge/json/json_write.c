/* Writes JSON answers into a bounded buffer. Called by every handler. The first value that does not
 * fit makes the writer full; reply_json() checks that once. Nothing blocks.
 *
 * A record has some sixty small pieces: each is written directly to its place, with one check of
 * the remaining room, and without printf. */
#include "edge/json/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/text.h"

struct json_writer json_writer_on(struct buffer *buffer)
{
	return (struct json_writer){.buffer = buffer};
}

/* Room for that many bytes at the end of the buffer, or NULL: the writer is full. */
static inline char *json_writer_room(struct json_writer *writer, size_t size)
{
	struct buffer *buffer = writer->buffer;
	if (buffer->room - buffer->size > size)
		return buffer->data + buffer->size;
	/* One step of a usual answer's size, rather than many that double. */
	size_t wanted = MAX(size, MIN((size_t)2048, buffer->maximum - buffer->size));
	if (buffer_reserve(buffer, wanted) < 0) {
		writer->full = true;
		return NULL;
	}
	return buffer->data + buffer->size;
}

/* The buffer has grown up to there. */
static inline void json_writer_advance(struct json_writer *writer, char *end)
{
	*end = '\0';
	writer->buffer->size = (size_t)(end - writer->buffer->data);
}

static inline void json_writer_raw(struct json_writer *writer, const char *data, size_t size)
{
	char *to = json_writer_room(writer, size);
	if (!to)
		return;
	if (size > 0)
		memcpy(to, data, size);
	json_writer_advance(writer, to + size);
}

/* ASCII characters that need no escape. */
static const bool plain[256] = {
    [' '] = true, ['!'] = true, ['#' ... '['] = true, [']' ... '~'] = true};

static size_t plain_run(const char *text, size_t size)
{
	size_t run = 0;
	while (run < size && plain[(unsigned char)text[run]])
		run++;
	return run;
}

static void quoted_plain(struct json_writer *writer, const char *text, size_t size)
{
	char *to = json_writer_room(writer, size + 2);
	if (!to)
		return;
	*to++ = '"';
	if (size > 0) /* the text may be NULL */
		memcpy(to, text, size);
	to[size] = '"';
	json_writer_advance(writer, to + size + 1);
}

#define ESCAPE_MAX 6 /* "\\u0001" */

/* Escapes one character, at `to`: returns how much of the text it took. */
static size_t character_escape(const char *text, size_t size, char **to)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char c = (unsigned char)*text;
	char *out = *to;
	size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	if (c >= 0x80) {
		bool good = length <= size && text_is_utf8(text, length);
		memcpy(out, good ? text : "\xef\xbf\xbd", good ? length : 3);
		*to = out + (good ? length : 3);
		return good ? length : 1;
	}
	char letter = c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : (char)c;
	*out++ = '\\';
	if ((c >= 0x20 && c != 0x7f) || letter != (char)c) {
		*out++ = letter;
	} else {
		memcpy(out, "u00", 3);
		out[3] = hex[c >> 4];
		out[4] = hex[c & 15];
		out += 5;
	}
	*to = out;
	return 1;
}

/* Plain ASCII is copied in runs; other characters are checked one by one, and appended some hundred
 * bytes at once: output of a command may be megabytes of them. */
static void json_writer_quoted(struct json_writer *writer, const char *text, size_t size)
{
	size_t run = plain_run(text, size);
	if (run == size) {
		quoted_plain(writer, text, size);
		return;
	}
	json_writer_raw(writer, "\"", 1);
	for (size_t at = 0; at < size && !writer->full; run = plain_run(text + at, size - at)) {
		char escaped[1024], *to = escaped;
		json_writer_raw(writer, text + at, run);
		at += run;
		while (at < size && to <= escaped + sizeof(escaped) - ESCAPE_MAX) {
			if (plain[(unsigned char)text[at]])
				*to++ = text[at++];
			else
				at += character_escape(text + at, size - at, &to);
		}
		json_writer_raw(writer, escaped, (size_t)(to - escaped));
	}
	json_writer_raw(writer, "\"", 1);
}

static void json_writer_before(struct json_writer *writer, const char *key)
{
	size_t size = key ? strlen(key) : 0;
	char *to = json_writer_room(writer, size + 4);
	if (!to)
		return;
	if (writer->comma)
		*to++ = ',';
	if (key) {
		*to++ = '"';
		memcpy(to, key, size);
		to += size;
		*to++ = '"';
		*to++ = ':';
	}
	json_writer_advance(writer, to);
	writer->comma = true;
}

/* Writes the digits of a number before `end`; returns where they begin. */
static char *digits_write(char *end, uint64_t value)
{
	do
		*--end = (char)('0' + value % 10);
	while (value /= 10);
	return end;
}

void put_key(struct json_writer *writer, const char *key)
{
	if (writer->comma)
		json_writer_raw(writer, ",", 1);
	json_writer_quoted(writer, key, strlen(key));
	json_writer_raw(writer, ":", 1);
	writer->comma = false;
}

static void json_writer_open_with(struct json_writer *writer, const char *key, const char *bracket)
{
	json_writer_before(writer, key);
	json_writer_raw(writer, bracket, 1);
	writer->comma = false;
}

static void json_writer_close_with(struct json_writer *writer, const char *bracket)
{
	json_writer_raw(writer, bracket, 1);
	writer->comma = true;
}

void put_object(struct json_writer *writer, const char *key)
{
	json_writer_open_with(writer, key, "{");
}

void put_object_end(struct json_writer *writer)
{
	json_writer_close_with(writer, "}");
}

void put_array(struct json_writer *writer, const char *key)
{
	json_writer_open_with(writer, key, "[");
}

void put_array_end(struct json_writer *writer)
{
	json_writer_close_with(writer, "]");
}

void put_null(struct json_writer *writer, const char *key)
{
	json_writer_before(writer, key);
	json_writer_raw(writer, "null", 4);
}

void put_bool(struct json_writer *writer, const char *key, bool value)
{
	json_writer_before(writer, key);
	json_writer_raw(writer, value ? "true" : "false", value ? 4 : 5);
}

void put_uint(struct json_writer *writer, const char *key, uint64_t value)
{
	char text[20], *end = text + sizeof(text), *begin = digits_write(end, value);
	json_writer_before(writer, key);
	json_writer_raw(writer, begin, (size_t)(end - begin));
}

void put_int(struct json_writer *writer, const char *key, int64_t value)
{
	char text[21], *end = text + sizeof(text);
	char *begin = digits_write(end, value < 0 ? -(uint64_t)value : (uint64_t)value);
	if (value < 0)
		*--begin = '-';
	json_writer_before(writer, key);
	json_writer_raw(writer, begin, (size_t)(end - begin));
}

/* Thousandths that a double holds exactly. */
#define NUMBER_EXACT_MAX 9e12

/* "12.345", "12.5", "12.0" */
static void put_thousandths(struct json_writer *writer, const char *key, uint64_t value)
{
	char text[24], *end = text + sizeof(text);
	uint64_t rest = value % 1000 + 1000; /* keeps the leading zeros */
	while (rest % 10 == 0 && rest > 10)
		rest /= 10;
	char *begin = digits_write(end, rest);
	*begin = '.';
	begin = digits_write(begin, value / 1000);
	json_writer_before(writer, key);
	json_writer_raw(writer, begin, (size_t)(end - begin));
}

void put_number(struct json_writer *writer, const char *key, double value)
{
	if (value >= 0 && value < NUMBER_EXACT_MAX) {
		put_thousandths(writer, key, (uint64_t)(value * 1000 + 0.5));
		return;
	}
	/* JSON has no such number. */
	if (!isfinite(value)) {
		put_null(writer, key);
		return;
	}
	char text[340];
	int size = snprintf(text, sizeof(text), "%.3f", value);
	while (size > 2 && text[size - 1] == '0' && text[size - 2] != '.')
		size--;
	json_writer_before(writer, key);
	json_writer_raw(writer, text, (size_t)size);
}

void put_text_size(struct json_writer *writer, const char *key, const char *text, size_t size)
{
	json_writer_before(writer, key);
	json_writer_quoted(writer, text, size);
}

void put_text(struct json_writer *writer, const char *key, const char *text)
{
	if (text)
		put_text_size(writer, key, text, strlen(text));
	else
		put_null(writer, key);
}

void put_json(struct json_writer *writer, const char *key, const char *json, size_t size)
{
	json_writer_before(writer, key);
	json_writer_raw(writer, json, size);
}

void put_base64(struct json_writer *writer, const char *key, const void *data, size_t size)
{
	json_writer_before(writer, key);
	json_writer_raw(writer, "\"", 1);
	if (buffer_reserve(writer->buffer, BASE64_SIZE(size)) < 0) {
		writer->full = true;
	} else {
		base64_encode(data, size, writer->buffer->data + writer->buffer->size);
		buffer_grow(writer->buffer, BASE64_SIZE(size));
	}
	json_writer_raw(writer, "\"", 1);
}

void put_bytes(struct json_writer *writer, const char *key, const void *data, size_t size)
{
	if (text_is_utf8(data, size)) {
		put_text_size(writer, key, data, size);
		return;
	}
	char name[64];
	snprintf(name, sizeof(name), "%s_base64", key);
	put_base64(writer, name, data, size);
}

void put_time(struct json_writer *writer, const char *key, int64_t wall)
{
	char text[CLOCK_TEXT_SIZE];
	if (wall == 0) {
		put_null(writer, key);
		return;
	}
	clock_text(wall, text);
	put_text(writer, key, text);
}
