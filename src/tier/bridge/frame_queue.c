/* Bounded queues of frames. See frame_queue.h. */
#include "tier/bridge/frame_queue.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

size_t frame_queue_free_bytes(const struct frame_queue *queue)
{
	return queue->room - (queue->end - queue->start);
}

void frame_queue_clear(struct frame_queue *queue)
{
	queue->start = queue->end = 0;
}

void frame_queue_compact(struct frame_queue *queue)
{
	memmove(queue->data, queue->data + queue->start, queue->end - queue->start);
	queue->end -= queue->start;
	queue->start = 0;
}

/* Returns `size` contiguous bytes; the caller has checked that the queue has as many free. */
static uint8_t *frame_queue_place(struct frame_queue *queue, size_t size)
{
	if (queue->room - queue->end < size)
		frame_queue_compact(queue);
	return queue->data + queue->end;
}

void frame_queue_add(struct frame_queue *queue, enum frame_type type, uint64_t id,
		     const void *payload, size_t size)
{
	uint8_t *place = frame_queue_place(queue, FRAME_HEADER_SIZE + size);
	frame_header_write(place, (uint16_t)type, id, (uint32_t)size);
	if (size > 0)
		memcpy(place + FRAME_HEADER_SIZE, payload, size);
	queue->end += FRAME_HEADER_SIZE + size;
}

int frame_queue_send(struct frame_queue *queue, int fd)
{
	while (queue->start < queue->end) {
		ssize_t sent = send(fd, queue->data + queue->start, queue->end - queue->start,
				    MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN ? 0 : -errno;
		queue->start += (size_t)sent;
	}
	frame_queue_clear(queue);
	return 0;
}
