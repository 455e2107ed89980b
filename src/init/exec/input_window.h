/* Bytes that the outside sent to a process (standard input, an operation's DATA) and that it has
 * not read yet. Credit bounds them to FILE_WINDOW. Most processes read faster than bytes arrive,
 * so a window takes a ring from the pool only when bytes have to wait. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct window {
	int index;   /* of its ring in the pool; -1: no bytes wait */
	size_t at;   /* of the first byte */
	size_t used; /* at most FILE_WINDOW */
};

#define WINDOW_EMPTY ((struct window){.index = -1})

/* How many bytes were taken: fewer than `size` only if the sender exceeded its credit. */
size_t window_put(struct window *window, const void *data, size_t size);
/* The size of the first contiguous piece of the waiting bytes; 0 if there are none. */
size_t window_front(const struct window *window, const uint8_t **ret_data);
void window_drop(struct window *window, size_t size);
void window_clear(struct window *window);
