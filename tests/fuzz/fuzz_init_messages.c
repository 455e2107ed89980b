/* The daemon's side of the init's protocol: a stream of frames from a hostile init, each payload
 * given to the reader of its type and, since a type is only a number, to every other reader too.
 * What a reader accepts must survive being written and read again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/init_messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t room[4 * FRAME_PAYLOAD_MAX];

/* Whatever was read can be written, and reads again. */
#define AGAIN(struct_name, writes, reads)                                                          \
	do {                                                                                       \
		struct struct_name _first, _second;                                                \
		if (reads(frame, &_first) == 0) {                                                  \
			struct writer _writer = writer_on(room, sizeof(room));                     \
			writes(&_writer, &_first);                                                 \
			struct frame _copy = {.size = (uint32_t)_writer.size, .payload = room};    \
			if (writer_finish(&_writer) < 0 || reads(&_copy, &_second) < 0)            \
				abort();                                                           \
		}                                                                                  \
	} while (0)

static void check_packed(struct bytes packed, uint32_t count)
{
	size_t at = 0;
	uint32_t found = 0;
	const char *text;
	while ((text = packed_next(packed, &at))) {
		if (strlen(text) >= packed.size)
			abort();
		found++;
	}
	if (found != count)
		abort();
}

static void check_lists(const struct frame *frame)
{
	static struct exec_request request;
	static struct configure configure;
	if (exec_request_read(frame, &request) == 0) {
		check_packed(request.argv, request.argc);
		check_packed(request.environment, request.environment_count);
		if (request.limit_count > EXEC_RUNLIMITS_MAX || request.cwd.size >= GUEST_PATH_MAX)
			abort();
	}
	if (configure_read(frame, &configure) == 0) {
		check_packed(configure.environment, configure.environment_count);
		if (configure.mount_count > SANDBOX_MOUNTS_MAX)
			abort();
	}
}

static void read_as_everything(const struct frame *frame)
{
	AGAIN(failure, failure_write, failure_read);
	AGAIN(hello, hello_write, hello_read);
	AGAIN(hello_reply, hello_reply_write, hello_reply_read);
	AGAIN(configure, configure_write, configure_read);
	AGAIN(exec_request, exec_request_write, exec_request_read);
	AGAIN(signal_request, signal_request_write, signal_request_read);
	AGAIN(output_totals, output_totals_write, output_totals_read);
	AGAIN(exec_result, exec_result_write, exec_result_read);
	AGAIN(exec_status, exec_status_write, exec_status_read);
	AGAIN(file_request, file_request_write, file_request_read);
	AGAIN(guest_metrics, guest_metrics_write, guest_metrics_read);
	check_lists(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t at = 0;
	struct frame frame;
	int64_t length;
	while ((length = frame_parse(data + at, size - at, &frame)) > 0) {
		if ((size_t)length > size - at || frame.size > FRAME_PAYLOAD_MAX)
			abort();
		read_as_everything(&frame);
		at += (size_t)length;
	}
	/* The rest, as a payload of its own. */
	frame = (struct frame){.size = (uint32_t)(size - at), .payload = data + at};
	read_as_everything(&frame);
	return 0;
}
