/* The connection's parser: bytes to frames to requests. Called by connection.c and by the fuzzer;
 * no I/O, never blocks. */
#include "init/request.h"

#include <errno.h>
#include <string.h>

#define SHUTDOWN_GRACE_DEFAULT_MS 2000

size_t inbox_room(struct inbox *inbox, uint8_t **ret_place)
{
	/* A frame must be contiguous. If the room behind the bytes is too small for the largest
	 * frame, they move to the front: at most one incomplete frame. */
	if (inbox->start == inbox->end)
		inbox->start = inbox->end = 0;
	if (INBOX_SIZE - inbox->start < FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX) {
		memmove(inbox->data, inbox->data + inbox->start, inbox->end - inbox->start);
		inbox->end -= inbox->start;
		inbox->start = 0;
	}
	*ret_place = inbox->data + inbox->end;
	return INBOX_SIZE - inbox->end;
}

int64_t inbox_front(const struct inbox *inbox, struct frame *ret_frame)
{
	return frame_parse(inbox->data + inbox->start, inbox->end - inbox->start, ret_frame);
}

/* Each type of request has its kind of id. The types that only an init sends have none. */
static bool id_is_valid(enum frame_type type, uint64_t id)
{
	switch (type) {
	case FRAME_HELLO:
	case FRAME_CONFIGURE:
	case FRAME_DEADLINE:
	case FRAME_PING:
	case FRAME_SHUTDOWN:
	case FRAME_LIST:
		return id == 0;
	case FRAME_EXEC:
	case FRAME_STDIN:
	case FRAME_STDIN_CLOSE:
	case FRAME_SIGNAL:
	case FRAME_RESIZE:
	case FRAME_CONSUMED:
	case FRAME_FORGET:
	case FRAME_LEFT_RUNNING:
		return id != 0 && !(id & OPERATION_ID_BIT);
	case FRAME_FILE:
	case FRAME_DATA:
	case FRAME_DATA_END:
	case FRAME_CANCEL:
	case FRAME_CONNECT:
	case FRAME_METRICS:
		return id & OPERATION_ID_BIT;
	case FRAME_CREDIT:
	case FRAME_FREEZE:
	case FRAME_THAW:
		return true;
	case FRAME_HELLO_REPLY:
	case FRAME_CONFIGURED:
	case FRAME_REFUSED:
	case FRAME_PONG:
	case FRAME_STARTED:
	case FRAME_START_FAILED:
	case FRAME_PROGRESS:
	case FRAME_OUTPUT:
	case FRAME_EXITED:
	case FRAME_LISTED:
	case FRAME_LIST_END:
	case FRAME_GONE:
	case FRAME_RESULT:
	case FRAME_FAILED:
	case FRAME_FROZEN:
	case FRAME_BEGIN:
		break;
	}
	return false;
}

/* Payloads of one or two numbers. */
static int numbers_parse(const struct frame *frame, struct request *request)
{
	struct reader reader = reader_on(frame->payload, frame->size);
	switch (frame->type) {
	case FRAME_DEADLINE:
		request->deadline = read_i64(&reader);
		if (request->deadline < 0)
			return -EBADMSG;
		break;
	case FRAME_PING:
		request->ping = read_u64(&reader);
		break;
	case FRAME_SHUTDOWN:
		request->grace_ms = frame->size ? read_u32(&reader) : SHUTDOWN_GRACE_DEFAULT_MS;
		break;
	case FRAME_CREDIT:
		request->credit = read_u32(&reader);
		break;
	case FRAME_RESIZE:
		request->size.rows = read_u16(&reader);
		request->size.columns = read_u16(&reader);
		break;
	case FRAME_CONNECT:
		request->connect.port = read_u16(&reader);
		read_text(&reader, request->connect.address, sizeof(request->connect.address));
		if (request->connect.port == 0)
			return -EBADMSG;
		break;
	default:
		/* Empty. */
		break;
	}
	return reader_finish(&reader);
}

int request_parse(const struct frame *frame, struct request *ret_request)
{
	ret_request->type = frame->type;
	ret_request->id = frame->id;
	ret_request->frame = *frame;
	if (!id_is_valid((enum frame_type)frame->type, frame->id))
		return -EBADMSG;
	switch (frame->type) {
	case FRAME_HELLO:
		return hello_read(frame, &ret_request->hello);
	case FRAME_CONFIGURE:
		return configure_read(frame, &ret_request->configure);
	case FRAME_EXEC:
		return exec_request_read(frame, &ret_request->exec);
	case FRAME_SIGNAL:
		return signal_request_read(frame, &ret_request->signal);
	case FRAME_CONSUMED:
		return output_totals_read(frame, &ret_request->consumed);
	case FRAME_FILE:
		return file_request_read(frame, &ret_request->file);
	case FRAME_STDIN:
	case FRAME_DATA:
		return frame->size > FILE_CHUNK_MAX ? -EBADMSG : 0;
	case FRAME_THAW:
		return 0; /* answered with REFUSED whatever its payload is */
	default:
		return numbers_parse(frame, ret_request);
	}
}
