/* A fake init: answers the protocol by simple rules. A command named `echo` prints its argument and
 * exits, `missing` is not found, `late` starts when the test says so and outlives every signal,
 * everything else runs until the test says otherwise. */
#include "fake_init.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "proto/tiers.h"
#include "test.h"

void fake_init_reset(struct fake_init *init, struct fake_host *host, const struct id *id)
{
	buffer_done(&init->in);
	buffer_done(&init->written);
	*init = (struct fake_init){.host = host,
				   .id = *id,
				   .used = true,
				   .listener = -1,
				   .connection = -1,
				   .in = BUFFER(1 << 20),
				   .written = BUFFER(8 << 20)};
	for (size_t i = 0; i < FAKE_RECORDS_MAX; i++)
		init->records[i].logs[0] = init->records[i].logs[1] = -1;
}

void fake_init_send(struct fake_init *init, uint16_t type, uint64_t id, const void *payload,
		    size_t size)
{
	uint8_t frame[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
	frame_header_write(frame, type, id, (uint32_t)size);
	if (size > 0)
		memcpy(frame + FRAME_HEADER_SIZE, payload, size);
	size += FRAME_HEADER_SIZE;
	for (size_t sent = 0; sent < size && init->connection >= 0;) {
		ssize_t put = send(init->connection, frame + sent, size - sent, MSG_NOSIGNAL);
		if (put < 0 && errno != EAGAIN)
			return;
		if (put > 0)
			sent += (size_t)put;
	}
}

struct fake_record *fake_record(struct fake_init *init, uint64_t key)
{
	for (size_t i = 0; i < FAKE_RECORDS_MAX; i++)
		if (init->records[i].key == key)
			return &init->records[i];
	return NULL;
}

static void forget(struct fake_record *record)
{
	fd_close(&record->logs[0]);
	fd_close(&record->logs[1]);
	*record = (struct fake_record){.logs = {-1, -1}};
}

static void send_failure(struct fake_init *init, uint16_t type, uint64_t id, enum error_kind kind,
			 const char *message)
{
	uint8_t room[512];
	struct writer writer = writer_on(room, sizeof(room));
	struct failure failure = {.kind = kind};
	(void)!text_copy(failure.message, sizeof(failure.message), message);
	failure_write(&writer, &failure);
	fake_init_send(init, type, id, room, writer.size);
}

void fake_print(struct fake_init *init, uint64_t key, int stream, const char *text, size_t size)
{
	struct fake_record *record = fake_record(init, key);
	struct output_log log;
	uint8_t room[16];
	struct writer writer = writer_on(room, sizeof(room));
	CHECK(record != NULL);
	if (!record)
		return;
	CHECK_INT(output_log_open(record->logs[stream], &log), 0);
	CHECK_INT(output_log_append(&log, text, size), 0);
	struct output_totals *totals = &record->status.result.totals;
	*(stream == 0 ? &totals->out : &totals->err) += size;
	output_totals_write(&writer, totals);
	fake_init_send(init, FRAME_PROGRESS, key, room, writer.size);
}

void fake_exit(struct fake_init *init, uint64_t key, enum exec_end end, uint32_t code,
	       uint32_t left_running)
{
	struct fake_record *record = fake_record(init, key);
	uint8_t room[128];
	struct writer writer = writer_on(room, sizeof(room));
	if (!record)
		return;
	record->status.phase = EXEC_PHASE_ENDED;
	record->status.result.end = end;
	record->status.result.code = code;
	record->status.result.left_running = left_running;
	record->status.result.wall_ns = 5000000;
	exec_result_write(&writer, &record->status.result);
	fake_init_send(init, FRAME_EXITED, key, room, writer.size);
}

void fake_gone(struct fake_init *init, uint64_t key)
{
	fake_init_send(init, FRAME_GONE, key, NULL, 0);
	forget(fake_record(init, key));
}

static void send_number(struct fake_init *init, uint16_t type, uint64_t id, uint32_t number)
{
	uint8_t room[4];
	struct writer writer = writer_on(room, sizeof(room));
	write_u32(&writer, number);
	fake_init_send(init, type, id, room, sizeof(room));
}

void fake_started(struct fake_init *init, uint64_t key)
{
	struct fake_record *record = fake_record(init, key);
	CHECK(record != NULL);
	if (!record)
		return;
	record->status.phase = EXEC_PHASE_RUNNING;
	record->status.pid = 7;
	send_number(init, FRAME_STARTED, key, 7);
}

static void on_exec(struct fake_init *init, const struct frame *frame)
{
	struct exec_request request;
	CHECK_INT(exec_request_read(frame, &request), 0);
	size_t wanted = request.flags & EXEC_TTY ? 1 : 2;
	CHECK(request.flags & EXEC_LOG);
	CHECK_INT(init->fd_count, wanted);
	size_t at = 0;
	const char *program = packed_next(request.argv, &at),
		   *argument = packed_next(request.argv, &at);
	struct fake_record *record = fake_record(init, 0);
	if (!record || init->fd_count < wanted)
		return;
	record->key = frame->id;
	for (size_t i = 0; i < wanted; i++)
		record->logs[i] = init->fds[i];
	init->fd_count = 0;
	if (strcmp(program, "missing") == 0) {
		send_failure(init, FRAME_START_FAILED, frame->id, ERROR_PROGRAM_NOT_FOUND,
			     "there is no program `missing`");
		forget(record);
		return;
	}
	record->late = strcmp(program, "late") == 0;
	if (record->late)
		return;
	fake_started(init, frame->id);
	if (strcmp(program, "echo") == 0) {
		fake_print(init, frame->id, 0, argument, strlen(argument));
		fake_exit(init, frame->id, EXEC_END_EXITED, 0, 0);
	}
}

/* What ended execs had left ends now. */
static void end_left(struct fake_init *init)
{
	for (size_t i = 0; i < FAKE_RECORDS_MAX; i++) {
		struct exec_status *status = &init->records[i].status;
		if (init->records[i].key == 0 || status->phase != EXEC_PHASE_ENDED ||
		    status->result.left_running == 0)
			continue;
		fake_init_send(init, FRAME_GONE, init->records[i].key, NULL, 0);
		status->result.left_running = 0;
	}
}

static void on_list(struct fake_init *init)
{
	if (init->gone_before_list)
		end_left(init);
	for (size_t i = 0; i < FAKE_RECORDS_MAX; i++) {
		uint8_t room[128];
		struct writer writer = writer_on(room, sizeof(room));
		if (init->records[i].key == 0)
			continue;
		exec_status_write(&writer, &init->records[i].status);
		fake_init_send(init, FRAME_LISTED, init->records[i].key, room, writer.size);
	}
	fake_init_send(init, FRAME_LIST_END, 0, NULL, 0);
}

static void on_configure(struct fake_init *init, const struct frame *frame)
{
	struct configure configure;
	CHECK_INT(configure_read(frame, &configure), 0);
	if (init->refuse) {
		send_failure(init, FRAME_REFUSED, 0, ERROR_INVALID, "no such mount point");
		return;
	}
	init->configured = true;
	init->deadline = configure.deadline;
	init->mount_count = configure.mount_count;
	init->environment_size = MIN(configure.environment.size, sizeof(init->environment));
	memcpy(init->environment, configure.environment.data, init->environment_size);
	(void)!text_copy(init->hostname, sizeof(init->hostname), configure.hostname);
	fake_init_send(init, FRAME_CONFIGURED, 0, NULL, 0);
}

static void on_file(struct fake_init *init, const struct frame *frame)
{
	struct file_request request;
	CHECK_INT(file_request_read(frame, &request), 0);
	init->operation = frame->id;
	init->operation_kind = request.operation;
	init->window = FILE_WINDOW;
	if (request.operation == FILE_STAT)
		send_failure(init, FRAME_FAILED, frame->id, ERROR_FILE_NOT_FOUND, "no such file");
}

static void on_data_end(struct fake_init *init, const struct frame *frame)
{
	uint8_t room[8];
	struct writer writer = writer_on(room, sizeof(room));
	write_u64(&writer, init->written.size);
	fake_init_send(init, FRAME_RESULT, frame->id, room, sizeof(room));
}

static void on_signal(struct fake_init *init, const struct frame *frame)
{
	struct signal_request request;
	CHECK_INT(signal_request_read(frame, &request), 0);
	/* This one is counted already. */
	unsigned before = init->frames[FRAME_SIGNAL] - 1;
	if (before < ARRAY_SIZE(init->signals))
		init->signals[before] = request;
}

static void on_exec_frame(struct fake_init *init, const struct frame *frame)
{
	struct reader reader = reader_on(frame->payload, frame->size);
	struct fake_record *record = fake_record(init, frame->id);
	switch (frame->type) {
	case FRAME_STDIN:
		CHECK_INT(buffer_append(&init->written, frame->payload, frame->size), 0);
		return;
	case FRAME_SIGNAL:
		on_signal(init, frame);
		if (record && record->late)
			return;
		fake_exit(init, frame->id, EXEC_END_CANCELLED, 9, 0);
		return;
	case FRAME_CONSUMED:
		init->consumed = read_u64(&reader);
		return;
	case FRAME_FORGET:
		init->forgotten++;
		/* What it left running writes on. */
		if (record && frame->id && record->status.result.left_running == 0)
			forget(record);
		return;
	case FRAME_LEFT_RUNNING: {
		if (init->quiet)
			return;
		uint8_t room[64];
		struct writer writer = writer_on(room, sizeof(room));
		write_u32(&writer, 1);
		write_u32(&writer, 99);
		write_text(&writer, "server\x01");
		fake_init_send(init, FRAME_LEFT_RUNNING, frame->id, room, writer.size);
		return;
	}
	default:
		return;
	}
}

uint32_t fake_init_version = INIT_PROTOCOL_VERSION;

static void on_frame(struct fake_init *init, const struct frame *frame)
{
	struct hello_reply reply = {fake_init_version, init->configured, 1};
	struct reader reader = reader_on(frame->payload, frame->size);
	uint8_t room[32];
	struct writer writer = writer_on(room, sizeof(room));
	if (frame->type < 80)
		init->frames[frame->type]++;
	switch (frame->type) {
	case FRAME_HELLO:
		hello_reply_write(&writer, &reply);
		fake_init_send(init, FRAME_HELLO_REPLY, 0, room, writer.size);
		return;
	case FRAME_CONFIGURE:
		on_configure(init, frame);
		return;
	case FRAME_DEADLINE:
		init->deadline = read_i64(&reader);
		return;
	case FRAME_PING:
		fake_init_send(init, FRAME_PONG, 0, frame->payload, frame->size);
		return;
	case FRAME_SHUTDOWN:
		fake_init_dies(init, END_EXITED);
		return;
	case FRAME_EXEC:
		on_exec(init, frame);
		return;
	case FRAME_LIST:
		on_list(init);
		return;
	case FRAME_FILE:
		on_file(init, frame);
		return;
	case FRAME_DATA:
		CHECK_INT(buffer_append(&init->written, frame->payload, frame->size), 0);
		init->window -= frame->size;
		CHECK(init->window >= 0);
		send_number(init, FRAME_CREDIT, frame->id, frame->size);
		init->window += frame->size;
		return;
	case FRAME_DATA_END:
		on_data_end(init, frame);
		return;
	case FRAME_CREDIT:
		init->window += read_u32(&reader);
		return;
	case FRAME_CANCEL:
		send_failure(init, FRAME_FAILED, frame->id, ERROR_CANCELLED, "cancelled");
		return;
	default:
		on_exec_frame(init, frame);
	}
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct fake_init *init = container_of(poll, struct fake_init, connection_poll);
	size_t room = 8 - init->fd_count;
	if (status < 0 || !(events & UV_READABLE) || init->connection < 0)
		return;
	if (buffer_reserve(&init->in, 65536) < 0)
		abort();
	ssize_t got = fd_receive(init->connection, init->in.data + init->in.size, 65536,
				 init->fds + init->fd_count, &room);
	if (got == -EAGAIN)
		return;
	if (got <= 0) {
		fake_init_disconnect(init);
		return;
	}
	init->fd_count += room;
	buffer_grow(&init->in, (size_t)got);
	size_t at = 0;
	while (!init->silent) {
		struct frame frame;
		int64_t length = frame_parse(init->in.data + at, init->in.size - at, &frame);
		if (length <= 0)
			break;
		on_frame(init, &frame);
		if (init->connection < 0)
			return;
		at += (size_t)length;
	}
	buffer_consume(&init->in, at);
}

static void on_connection_closed(uv_handle_t *handle)
{
	container_of((uv_poll_t *)handle, struct fake_init, connection_poll)->connected = false;
}

static void on_listener_closed(uv_handle_t *handle)
{
	container_of((uv_poll_t *)handle, struct fake_init, listener_poll)->listening = false;
}

void fake_init_disconnect(struct fake_init *init)
{
	if (init->connected && !uv_is_closing((uv_handle_t *)&init->connection_poll)) {
		uv_close((uv_handle_t *)&init->connection_poll, on_connection_closed);
		fd_close(&init->connection);
		buffer_clear(&init->in);
		for (size_t i = 0; i < init->fd_count; i++)
			fd_close(&init->fds[i]);
		init->fd_count = 0;
	}
}

static void on_connect(uv_poll_t *poll, int status, int events)
{
	struct fake_init *init = container_of(poll, struct fake_init, listener_poll);
	(void)events;
	if (status < 0 || init->listener < 0 || init->deaf)
		return;
	/* One at a time; the next waits until the old one's handle is closed. */
	fake_init_disconnect(init);
	if (init->connected)
		return;
	init->connection = accept4(init->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (init->connection < 0)
		return;
	init->connected = true;
	uv_poll_init(init->host->loop, &init->connection_poll, init->connection);
	uv_poll_start(&init->connection_poll, UV_READABLE, on_readable);
}

void fake_init_listen(struct fake_init *init)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[GUEST_SOCKET_PATH_MAX];
	CHECK_INT(guest_socket_path(init->host->runtime, &init->id, path), 0);
	CHECK_INT(text_copy(address.sun_path, sizeof(address.sun_path), path), 0);
	*strrchr(path, '/') = '\0';
	mkdir(path, 0700);
	unlink(address.sun_path);
	init->configured = false;
	init->running = true;
	CHECK(!init->listening && !init->connected);
	init->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK_INT(bind(init->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	CHECK_INT(listen(init->listener, 8), 0);
	init->listening = true;
	uv_poll_init(init->host->loop, &init->listener_poll, init->listener);
	uv_poll_start(&init->listener_poll, UV_READABLE, on_connect);
}

void fake_init_stop(struct fake_init *init)
{
	init->running = init->frozen = false;
	fake_init_disconnect(init);
	for (size_t i = 0; i < FAKE_RECORDS_MAX && init->used; i++)
		forget(&init->records[i]);
	if (init->listening && !uv_is_closing((uv_handle_t *)&init->listener_poll)) {
		uv_close((uv_handle_t *)&init->listener_poll, on_listener_closed);
		fd_close(&init->listener);
	}
}
