/* The growing byte buffer with a maximum. Not for the init, which does not allocate. */
#include "base/buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_done(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = BUFFER(buffer->maximum);
}

void buffer_clear(struct buffer *buffer)
{
	buffer->size = 0;
	if (buffer->data)
		buffer->data[0] = '\0';
}

int buffer_reserve(struct buffer *buffer, size_t size)
{
	if (size > buffer->maximum || buffer->size > buffer->maximum - size)
		return -EMSGSIZE;
	size_t needed = buffer->size + size + 1;
	if (needed <= buffer->room)
		return 0;
	size_t room = buffer->room ? buffer->room : 256;
	while (room < needed)
		room *= 2;
	room = MIN(room, buffer->maximum + 1);
	char *data = realloc(buffer->data, room);
	if (!data)
		abort();
	buffer->data = data;
	buffer->room = room;
	return 0;
}

void buffer_grow(struct buffer *buffer, size_t size)
{
	buffer->size += size;
	buffer->data[buffer->size] = '\0';
}

int buffer_append(struct buffer *buffer, const void *data, size_t size)
{
	int result = buffer_reserve(buffer, size);
	if (result < 0)
		return result;
	if (size > 0)
		memcpy(buffer->data + buffer->size, data, size);
	buffer_grow(buffer, size);
	return 0;
}

int buffer_append_text(struct buffer *buffer, const char *text)
{
	return buffer_append(buffer, text, strlen(text));
}

int buffer_append_shell_word(struct buffer *buffer, const char *word)
{
	int result = buffer_append_text(buffer, "'");
	for (const char *quote; result == 0 && (quote = strchr(word, '\'')); word = quote + 1) {
		result = buffer_append(buffer, word, (size_t)(quote - word));
		if (result == 0)
			result = buffer_append_text(buffer, "'\\''");
	}
	if (result == 0)
		result = buffer_append_text(buffer, word);
	return result == 0 ? buffer_append_text(buffer, "'") : result;
}

int buffer_printf(struct buffer *buffer, const char *format, ...)
{
	va_list args, again;
	va_start(args, format);
	va_copy(again, args);
	int length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	int result = length < 0 ? -EINVAL : buffer_reserve(buffer, (size_t)length);
	if (result == 0) {
		vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, again);
		buffer_grow(buffer, (size_t)length);
	}
	va_end(again);
	return result;
}

void buffer_consume(struct buffer *buffer, size_t size)
{
	if (size == 0)
		return;
	memmove(buffer->data, buffer->data + size, buffer->size - size);
	buffer->size -= size;
	buffer->data[buffer->size] = '\0';
}

const char *buffer_text(const struct buffer *buffer)
{
	return buffer->data ? buffer->data : "";
}
