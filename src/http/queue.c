/* A growing byte queue: bytes are appended at the end and consumed at the front. An empty queue
 * frees its memory, so that an idle connection holds none. Called by the files of this folder. */
#include "http/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 512

void http_queue_done(struct http_queue *queue)
{
	free(queue->data);
	*queue = (struct http_queue){0};
}

size_t http_queue_room(const struct http_queue *queue)
{
	return queue->room - queue->start - queue->size;
}

char *http_queue_reserve(struct http_queue *queue, size_t size)
{
	if (size > HTTP_QUEUE_MAX || queue->size > HTTP_QUEUE_MAX - size)
		return NULL;
	if (http_queue_room(queue) < size && queue->start > 0) {
		/* Moving costs little: at least as many bytes were consumed before, or the room is
		 * needed now. */
		memmove(queue->data, queue->data + queue->start, queue->size);
		queue->start = 0;
	}
	if (http_queue_room(queue) < size) {
		size_t room = queue->room ? queue->room : ROOM_FIRST;
		while (room - queue->size < size)
			room *= 2;
		char *data = realloc(queue->data, room);
		if (!data)
			abort();
		queue->data = data;
		queue->room = (uint32_t)room;
	}
	return queue->data + queue->start + queue->size;
}

int http_queue_append(struct http_queue *queue, const void *data, size_t size)
{
	if (size == 0)
		return 0;
	char *place = http_queue_reserve(queue, size);
	if (!place)
		return -EMSGSIZE;
	memcpy(place, data, size);
	queue->size += (uint32_t)size;
	return 0;
}

void http_queue_consume(struct http_queue *queue, size_t size)
{
	queue->start += (uint32_t)size;
	queue->size -= (uint32_t)size;
	if (queue->size == 0)
		http_queue_done(queue);
}
