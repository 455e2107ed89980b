/* A growing byte buffer with a fixed maximum. An append beyond the maximum changes nothing and
 * returns -EMSGSIZE; running out of memory below it ends the program. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct buffer {
	char *data; /* NUL-terminated one past size, once anything was appended */
	size_t size;
	size_t room;
	size_t maximum;
};

#define BUFFER(max) ((struct buffer){.maximum = (max)})
void buffer_done(struct buffer *buffer);
#define DONE_BUFFER CLEANUP(buffer_done)

void buffer_clear(struct buffer *buffer);
NODISCARD int buffer_append(struct buffer *buffer, const void *data, size_t size);
NODISCARD int buffer_append_text(struct buffer *buffer, const char *text);
/* As one word for a shell, in single quotes. */
NODISCARD int buffer_append_shell_word(struct buffer *buffer, const char *word);
NODISCARD int buffer_printf(struct buffer *buffer, const char *format, ...) PRINTF_LIKE(2, 3);
/* Reserves `size` more bytes at data + size; buffer_grow() adds what the caller wrote there. */
NODISCARD int buffer_reserve(struct buffer *buffer, size_t size);
void buffer_grow(struct buffer *buffer, size_t size);
/* Drops the first `size` bytes. */
void buffer_consume(struct buffer *buffer, size_t size);
/* The text, never NULL. */
const char *buffer_text(const struct buffer *buffer);
