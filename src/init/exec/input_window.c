/* A pool of rings for bytes on their way in. Static memory: an unused page costs nothing, and
 * used pages go back to the kernel with the window. Called by exec_input.c and relay.c. */
#include "init/exec/input_window.h"

#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"
#include "init/relay.h"

#define WINDOWS_MAX (EXEC_PER_SANDBOX_MAX + OPERATIONS_MAX)

/* Aligned for every possible page size. */
static uint8_t rings[WINDOWS_MAX][FILE_WINDOW] __attribute__((aligned(65536)));
static bool window_taken[WINDOWS_MAX];

/* Never fails: there are as many rings as windows. */
static void window_take_ring(struct window *window)
{
	for (int i = 0; i < WINDOWS_MAX; i++) {
		if (!window_taken[i]) {
			window_taken[i] = true;
			*window = (struct window){.index = i};
			return;
		}
	}
}

size_t window_put(struct window *window, const void *data, size_t size)
{
	const uint8_t *from = data;
	if (window->index < 0 && size > 0)
		window_take_ring(window);
	if (window->index < 0)
		return 0;
	size = MIN(size, FILE_WINDOW - window->used);
	uint8_t *ring = rings[window->index];
	size_t end = (window->at + window->used) % FILE_WINDOW;
	size_t first = MIN(size, FILE_WINDOW - end);
	memcpy(ring + end, from, first);
	memcpy(ring, from + first, size - first);
	window->used += size;
	return size;
}

size_t window_front(const struct window *window, const uint8_t **ret_data)
{
	if (window->index < 0)
		return 0;
	*ret_data = rings[window->index] + window->at;
	return MIN(window->used, FILE_WINDOW - window->at);
}

void window_drop(struct window *window, size_t size)
{
	window->at = (window->at + size) % FILE_WINDOW;
	window->used -= size;
	if (window->used == 0)
		window_clear(window);
}

void window_clear(struct window *window)
{
	if (window->index >= 0) {
		window_taken[window->index] = false;
		madvise(rings[window->index], FILE_WINDOW, MADV_DONTNEED);
	}
	*window = WINDOW_EMPTY;
}
