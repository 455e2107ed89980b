/* The bytes that the outside sent to a process (standard input, an operation's DATA) and that it
 * has not taken yet. Credit bounds them to FILE_WINDOW each. Most processes read faster than they
 * are fed: a window is taken from the pool only when something has to wait. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct window {
	int index;   /* in the pool; -1: nothing waits */
	size_t at;   /* of the first byte */
	size_t used; /* at most FILE_WINDOW */
};

#define WINDOW_EMPTY ((struct window){.index = -1})

/* How many bytes were taken; fewer than size only when the sender had more than its credit. */
size_t window_put(struct window *window, const void *data, size_t size);
/* The first piece of what waits; 0 when nothing does. */
size_t window_front(const struct window *window, const uint8_t **ret_data);
void window_drop(struct window *window, size_t size);
void window_clear(struct window *window);
