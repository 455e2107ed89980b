/* Writing JSON answers into a bounded buffer. Called by every handler. The first value that does
 * not fit makes the writer full; reply_json() asks for that once. Nothing blocks. */
#include "api/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/base64.h"
#include "base/clock.h"
#include "base/text.h"

struct json_writer json_writer_on(struct buffer *buffer)
{
	return (struct json_writer){.buffer = buffer};
}

static void raw(struct json_writer *writer, const char *data, size_t size)
{
	if (buffer_append(writer->buffer, data, size) < 0)
		writer->full = true;
}

/* Plain ASCII goes in runs; what needs care is looked at one by one. */
static void quoted(struct json_writer *writer, const char *text, size_t size)
{
	raw(writer, "\"", 1);
	for (size_t at = 0; at < size;) {
		size_t run = at;
		while (run < size && (unsigned char)text[run] >= 0x20 && text[run] != '"' &&
		       text[run] != '\\' && (unsigned char)text[run] < 0x7f)
			run++;
		raw(writer, text + at, run - at);
		at = run;
		if (at == size)
			break;
		unsigned char c = (unsigned char)text[at];
		if (c == '"' || c == '\\') {
			raw(writer, (char[]){'\\', (char)c}, 2);
		} else if (c == '\n' || c == '\t' || c == '\r') {
			raw(writer, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r", 2);
		} else if (c < 0x20 || c == 0x7f) {
			char escape[8];
			snprintf(escape, sizeof(escape), "\\u%04x", c);
			raw(writer, escape, 6);
		} else {
			size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
			if (length <= size - at && text_is_utf8(text + at, length)) {
				raw(writer, text + at, length);
				at += length;
				continue;
			}
			raw(writer, "\xef\xbf\xbd", 3);
		}
		at++;
	}
	raw(writer, "\"", 1);
}

static void before(struct json_writer *writer, const char *key)
{
	if (writer->comma)
		raw(writer, ",", 1);
	if (key) {
		raw(writer, "\"", 1);
		raw(writer, key, strlen(key));
		raw(writer, "\":", 2);
	}
	writer->comma = true;
}

void put_key(struct json_writer *writer, const char *key)
{
	if (writer->comma)
		raw(writer, ",", 1);
	quoted(writer, key, strlen(key));
	raw(writer, ":", 1);
	writer->comma = false;
}

static void open_with(struct json_writer *writer, const char *key, const char *bracket)
{
	before(writer, key);
	raw(writer, bracket, 1);
	writer->comma = false;
}

static void close_with(struct json_writer *writer, const char *bracket)
{
	raw(writer, bracket, 1);
	writer->comma = true;
}

void put_object(struct json_writer *writer, const char *key)
{
	open_with(writer, key, "{");
}

void put_object_end(struct json_writer *writer)
{
	close_with(writer, "}");
}

void put_array(struct json_writer *writer, const char *key)
{
	open_with(writer, key, "[");
}

void put_array_end(struct json_writer *writer)
{
	close_with(writer, "]");
}

void put_null(struct json_writer *writer, const char *key)
{
	before(writer, key);
	raw(writer, "null", 4);
}

void put_bool(struct json_writer *writer, const char *key, bool value)
{
	before(writer, key);
	raw(writer, value ? "true" : "false", value ? 4 : 5);
}

void put_uint(struct json_writer *writer, const char *key, uint64_t value)
{
	char text[24];
	before(writer, key);
	raw(writer, text, (size_t)snprintf(text, sizeof(text), "%" PRIu64, value));
}

void put_int(struct json_writer *writer, const char *key, int64_t value)
{
	char text[24];
	before(writer, key);
	raw(writer, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, value));
}

void put_number(struct json_writer *writer, const char *key, double value)
{
	char text[340];
	int size = snprintf(text, sizeof(text), "%.3f", value);
	while (size > 2 && text[size - 1] == '0' && text[size - 2] != '.')
		size--;
	before(writer, key);
	raw(writer, text, (size_t)size);
}

void put_text_size(struct json_writer *writer, const char *key, const char *text, size_t size)
{
	before(writer, key);
	quoted(writer, text, size);
}

void put_text(struct json_writer *writer, const char *key, const char *text)
{
	if (text)
		put_text_size(writer, key, text, strlen(text));
	else
		put_null(writer, key);
}

void put_base64(struct json_writer *writer, const char *key, const void *data, size_t size)
{
	before(writer, key);
	raw(writer, "\"", 1);
	if (buffer_reserve(writer->buffer, BASE64_SIZE(size)) < 0) {
		writer->full = true;
	} else {
		base64_encode(data, size, writer->buffer->data + writer->buffer->size);
		buffer_grow(writer->buffer, BASE64_SIZE(size));
	}
	raw(writer, "\"", 1);
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
