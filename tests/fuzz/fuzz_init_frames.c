/* The init's side: bytes as they come over the connection, in pieces of any size, through the inbox
 * to checked requests. The first byte of the input chooses the pieces. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "init/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch(const struct request *request, volatile uint8_t *sum)
{
	for (uint32_t i = 0; i < request->frame.size; i++)
		*sum = (uint8_t)(*sum + request->frame.payload[i]);
}

/* What the init relies on without looking again. */
static void check(const struct request *request)
{
	volatile uint8_t sum = 0;
	bool operation = request->id & OPERATION_ID_BIT;
	touch(request, &sum);
	if (request->type == FRAME_EXEC &&
	    (operation || request->id == 0 || request->exec.argc == 0))
		abort();
	if (request->type == FRAME_FILE && !operation)
		abort();
	if ((request->type == FRAME_DATA || request->type == FRAME_STDIN) &&
	    request->frame.size > FILE_CHUNK_MAX)
		abort();
	if (request->type == FRAME_CONNECT &&
	    memchr(request->connect.address, '\0', CONNECT_ADDRESS_MAX) == NULL)
		abort();
	if (request->type == FRAME_STARTED || request->type == FRAME_RESULT)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct inbox inbox;
	static struct request request;
	size_t at = 1;
	if (size == 0)
		return 0;
	size_t piece = data[0] ? data[0] * (size_t)97 : INBOX_SIZE;
	inbox.start = inbox.end = 0;
	while (at < size) {
		uint8_t *place;
		size_t room = inbox_room(&inbox, &place);
		size_t part = MIN(MIN(piece, room), size - at);
		/* Every whole frame has been taken: there must be room for the next. */
		if (part == 0)
			abort();
		memcpy(place, data + at, part);
		inbox.end += part;
		at += part;
		struct frame frame;
		int64_t length;
		while ((length = inbox_front(&inbox, &frame)) > 0) {
			if (request_parse(&frame, &request) == 0)
				check(&request);
			inbox.start += (size_t)length;
		}
		if (length < 0)
			return 0;
	}
	return 0;
}
