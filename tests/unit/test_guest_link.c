/* The link to an init: frames whole and in pieces, wrong ones, queues, descriptors, silence. */
#include "core/guest_link.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/clock_advance.h"
#include "base/fd.h"
#include "base/work.h"
#include "test.h"

TEST_MAIN

struct fixture {
	uv_loop_t loop;
	int peer;
	struct guest_link *link;
	unsigned connected, frames, closed, drained;
	uint16_t type;
	uint64_t id;
	uint32_t size;
	struct error error;
	bool free_in_frame, refuse;
};

static void on_connected(void *data, const struct hello_reply *reply)
{
	CHECK_INT(reply->version, INIT_PROTOCOL_VERSION);
	((struct fixture *)data)->connected++;
}

static int on_frame(void *data, const struct frame *frame, struct error *error)
{
	struct fixture *fixture = data;
	fixture->frames++;
	fixture->type = frame->type;
	fixture->id = frame->id;
	fixture->size = frame->size;
	if (fixture->free_in_frame) {
		guest_link_free(fixture->link);
		fixture->link = NULL;
	}
	return fixture->refuse ? error_set(error, ERROR_GUEST_PROTOCOL, "bad payload") : 0;
}

static void on_closed(void *data, const struct error *error)
{
	struct fixture *fixture = data;
	fixture->closed++;
	fixture->error = *error;
}

static void on_drained(void *data)
{
	((struct fixture *)data)->drained++;
}

static const struct guest_link_callbacks callbacks = {on_connected, on_frame, on_closed,
						      on_drained};

/* The time for the hello. */
#define LONG_MS 60000

static void open_fixture(struct fixture *fixture)
{
	int fds[2];
	*fixture = (struct fixture){0};
	uv_loop_init(&fixture->loop);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		abort();
	fixture->peer = fds[1];
	fixture->link = guest_link_open_fd(&fixture->loop, fds[0], LONG_MS, &callbacks, fixture);
}

static void close_fixture(struct fixture *fixture)
{
	guest_link_free(fixture->link);
	uv_run(&fixture->loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&fixture->loop), 0);
	fd_close(&fixture->peer);
}

static void turn(struct fixture *fixture)
{
	for (int i = 0; i < 20; i++)
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
}

static void send_frame(struct fixture *fixture, uint16_t type, uint64_t id, const void *payload,
		       size_t size)
{
	uint8_t frame[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
	frame_header_write(frame, type, id, (uint32_t)size);
	if (size > 0)
		memcpy(frame + FRAME_HEADER_SIZE, payload, size);
	for (size_t sent = 0; sent < FRAME_HEADER_SIZE + size;) {
		ssize_t put = send(fixture->peer, frame + sent, FRAME_HEADER_SIZE + size - sent,
				   MSG_NOSIGNAL);
		if (put > 0)
			sent += (size_t)put;
		else if (errno != EAGAIN)
			return;
		turn(fixture);
	}
}

static void greet(struct fixture *fixture, uint32_t version)
{
	uint8_t room[32];
	struct writer writer = writer_on(room, sizeof(room));
	struct hello_reply reply = {version, 1, 1};
	hello_reply_write(&writer, &reply);
	turn(fixture);
	send_frame(fixture, FRAME_HELLO_REPLY, 0, room, writer.size);
	turn(fixture);
}

/* The next frame that the link sent: its type. */
static uint16_t receive(struct fixture *fixture)
{
	uint8_t header[FRAME_HEADER_SIZE], payload[1024];
	struct frame frame;
	if (recv(fixture->peer, header, sizeof(header), 0) != sizeof(header))
		return 0;
	uint32_t size = (uint32_t)(header[0] | header[1] << 8 | header[2] << 16);
	if (size > 0 && recv(fixture->peer, payload, size, 0) != (ssize_t)size)
		return 0;
	frame_header_write(header, (uint16_t)(header[4] | header[5] << 8), 0, 0);
	return frame_parse(header, sizeof(header), &frame) > 0 ? frame.type : 0;
}

TEST(hello_and_frames)
{
	struct fixture fixture;
	open_fixture(&fixture);
	turn(&fixture);
	CHECK_INT(receive(&fixture), FRAME_HELLO);
	CHECK_INT(guest_link_version(fixture.link), 0);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	CHECK_INT(fixture.connected, 1);
	CHECK_INT(guest_link_version(fixture.link), INIT_PROTOCOL_VERSION);
	char payload[FRAME_PAYLOAD_MAX] = {0};
	send_frame(&fixture, FRAME_PROGRESS, 5, payload, 16);
	turn(&fixture);
	CHECK_INT(fixture.frames, 1);
	CHECK_INT(fixture.id, 5);
	/* The longest there is, and one byte at a time. */
	send_frame(&fixture, FRAME_RESULT, 6, payload, sizeof(payload));
	turn(&fixture);
	CHECK_INT(fixture.size, sizeof(payload));
	uint8_t frame[FRAME_HEADER_SIZE + 4] = {0};
	frame_header_write(frame, FRAME_STARTED, 7, 4);
	for (size_t i = 0; i < sizeof(frame); i++) {
		CHECK_INT(send(fixture.peer, frame + i, 1, 0), 1);
		turn(&fixture);
	}
	CHECK_INT(fixture.frames, 3);
	CHECK_INT(fixture.type, FRAME_STARTED);
	CHECK_INT(fixture.closed, 0);
	close_fixture(&fixture);
}

static void check_broken(uint16_t type, size_t size, const char *what)
{
	struct fixture fixture;
	char payload[64] = {0};
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	send_frame(&fixture, type, 1, payload, size);
	turn(&fixture);
	if (fixture.closed != 1 || fixture.error.kind != ERROR_GUEST_PROTOCOL)
		test_fail(__FILE__, __LINE__, "%s: closed %u, kind %d", what, fixture.closed,
			  fixture.error.kind);
	struct error error;
	CHECK_INT(guest_link_send(fixture.link, FRAME_LIST, 0, NULL, 0, NULL, 0, &error), -1);
	turn(&fixture);
	CHECK_INT(fixture.closed, 1);
	close_fixture(&fixture);
}

TEST(frames_that_may_not_be)
{
	check_broken(0, 0, "type 0");
	check_broken(999, 0, "unknown type");
	check_broken(FRAME_HELLO, 8, "the daemon's own HELLO");
	check_broken(FRAME_EXEC, 4, "EXEC");
	check_broken(FRAME_HELLO_REPLY, 16, "a second HELLO_REPLY");
	check_broken(FRAME_PONG, 8, "a PONG without a PING");
	check_broken(FRAME_OUTPUT, 8, "OUTPUT, since there is always a log");
	check_broken(FRAME_FROZEN, 0, "FROZEN");
}

TEST(header_too_long)
{
	struct fixture fixture;
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	uint8_t header[FRAME_HEADER_SIZE];
	frame_header_write(header, FRAME_RESULT, 1, 0x7fffffff);
	CHECK_INT(send(fixture.peer, header, sizeof(header), 0), sizeof(header));
	turn(&fixture);
	CHECK_INT(fixture.closed, 1);
	CHECK_INT(fixture.error.kind, ERROR_GUEST_PROTOCOL);
	close_fixture(&fixture);
}

TEST(versions_and_refusals)
{
	struct fixture fixture;
	open_fixture(&fixture);
	greet(&fixture, 77);
	CHECK_INT(fixture.connected, 0);
	CHECK_INT(fixture.closed, 1);
	CHECK_INT(fixture.error.kind, ERROR_GUEST_PROTOCOL);
	CHECK(strstr(fixture.error.message, "77") != NULL);
	close_fixture(&fixture);

	uint8_t room[128];
	struct writer writer = writer_on(room, sizeof(room));
	struct failure failure = {.kind = ERROR_UNAUTHENTICATED, .message = "let me in"};
	failure_write(&writer, &failure);
	open_fixture(&fixture);
	turn(&fixture);
	send_frame(&fixture, FRAME_REFUSED, 0, room, writer.size);
	turn(&fixture);
	CHECK_INT(fixture.closed, 1);
	/* What an init may not claim becomes a defect. */
	CHECK_INT(fixture.error.kind, ERROR_INTERNAL);
	CHECK(strstr(fixture.error.message, "let me in") != NULL);
	close_fixture(&fixture);

	/* An init that shares no version with us says so itself. */
	writer = writer_on(room, sizeof(room));
	failure = (struct failure){.kind = ERROR_GUEST_PROTOCOL, .message = "versions 7 to 9"};
	failure_write(&writer, &failure);
	open_fixture(&fixture);
	turn(&fixture);
	send_frame(&fixture, FRAME_REFUSED, 0, room, writer.size);
	turn(&fixture);
	CHECK_INT(fixture.connected, 0);
	CHECK_INT(fixture.error.kind, ERROR_GUEST_PROTOCOL);
	CHECK(strstr(fixture.error.message, "versions 7 to 9") != NULL);
	CHECK(strstr(error_info(fixture.error.kind)->advice, "stop and start") != NULL);
	close_fixture(&fixture);
}

TEST(no_answer_to_hello)
{
	struct fixture fixture;
	open_fixture(&fixture);
	turn(&fixture);
	CHECK_INT(fixture.closed, 0);
	*clock_advance += (LONG_MS + 10) * NSEC_PER_MSEC;
	turn(&fixture);
	CHECK_INT(fixture.closed, 1);
	CHECK_INT(fixture.error.kind, ERROR_GUEST_GONE);
	close_fixture(&fixture);
}

TEST(peer_closes)
{
	struct fixture fixture;
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	fd_close(&fixture.peer);
	turn(&fixture);
	CHECK_INT(fixture.closed, 1);
	CHECK_INT(fixture.error.kind, ERROR_GUEST_GONE);
	close_fixture(&fixture);
}

TEST(bad_payload_and_free_inside)
{
	struct fixture fixture;
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	fixture.refuse = true;
	send_frame(&fixture, FRAME_GONE, 1, NULL, 0);
	turn(&fixture);
	CHECK_INT(fixture.closed, 1);
	CHECK_TEXT(fixture.error.message, "bad payload");
	close_fixture(&fixture);

	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	fixture.free_in_frame = fixture.refuse = true;
	uint8_t two[2 * FRAME_HEADER_SIZE];
	frame_header_write(two, FRAME_GONE, 1, 0);
	frame_header_write(two + FRAME_HEADER_SIZE, FRAME_GONE, 2, 0);
	CHECK_INT(send(fixture.peer, two, sizeof(two), 0), sizeof(two));
	turn(&fixture);
	CHECK_INT(fixture.frames, 1);
	CHECK_INT(fixture.closed, 0);
	close_fixture(&fixture);
}

TEST(guest_that_does_not_read)
{
	struct fixture fixture;
	struct error error;
	char data[FILE_CHUNK_MAX] = {0};
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	size_t sent = 0;
	while (guest_link_room(fixture.link) > 0 && sent < 100 * MIB) {
		CHECK_INT(guest_link_send(fixture.link, FRAME_DATA, 1, data, sizeof(data), NULL, 0,
					  &error),
			  0);
		sent += sizeof(data);
	}
	CHECK(sent < 4 * MIB);
	/* It reads again: the queue drains, and whoever waited is told. */
	char sink[65536];
	for (int i = 0; i < 2000 && fixture.drained == 0; i++) {
		ssize_t got UNUSED = recv(fixture.peer, sink, sizeof(sink), 0);
		turn(&fixture);
	}
	CHECK_INT(fixture.drained, 1);
	CHECK(guest_link_room(fixture.link) > 0);
	/* Control frames are not held back, until there are too many of them. */
	int result = 0;
	unsigned count = 0;
	while (result == 0 && count++ < 1000)
		result = guest_link_send(fixture.link, FRAME_FILE, 1, data, sizeof(data), NULL, 0,
					 &error);
	CHECK_INT(result, -1);
	CHECK_INT(error.kind, ERROR_GUEST_GONE);
	CHECK_INT(fixture.closed, 0);
	turn(&fixture);
	CHECK_INT(fixture.closed, 1);
	close_fixture(&fixture);
}

TEST(descriptors_travel)
{
	struct fixture fixture;
	struct error error;
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	CHECK_INT(receive(&fixture), FRAME_HELLO);
	int fds[2] = {open("/dev/null", O_RDONLY | O_CLOEXEC),
		      open("/dev/zero", O_RDONLY | O_CLOEXEC)};
	CHECK_INT(guest_link_send(fixture.link, FRAME_EXEC, 3, "abc", 3, fds, 2, &error), 0);
	close(fds[0]);
	close(fds[1]);
	uint8_t room[256];
	int got_fds[4];
	size_t fd_count = 4;
	ssize_t got = fd_receive(fixture.peer, room, sizeof(room), got_fds, &fd_count);
	CHECK_INT(got, FRAME_HEADER_SIZE + 3);
	CHECK_INT(fd_count, 2);
	char zero = 1;
	CHECK_INT(read(got_fds[1], &zero, 1), 1);
	CHECK_INT(zero, 0);
	close(got_fds[0]);
	close(got_fds[1]);
	close_fixture(&fixture);
}

/* Sent in one turn of the loop: in order, and each with its own descriptors. */
TEST(frames_of_one_turn)
{
	struct fixture fixture;
	struct error error;
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	CHECK_INT(receive(&fixture), FRAME_HELLO);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (uint64_t i = 0; i < 100; i++) {
		bool with = i == 1 || i == 50;
		CHECK_INT(guest_link_send(fixture.link, with ? FRAME_EXEC : FRAME_FILE, i, &i,
					  sizeof(i), &null, with, &error),
			  0);
	}
	close(null);
	/* The first does not wait. */
	struct frame frame;
	uint8_t first[FRAME_HEADER_SIZE + 8], rest[99 * (FRAME_HEADER_SIZE + 8)];
	CHECK_INT(recv(fixture.peer, first, sizeof(first), 0), sizeof(first));
	CHECK_INT(frame_parse(first, sizeof(first), &frame), sizeof(first));
	CHECK_INT(frame.id, 0);
	CHECK_INT(recv(fixture.peer, rest, sizeof(rest), 0), -1);
	uv_run(&fixture.loop, UV_RUN_NOWAIT);
	size_t size = 0, passed = 0;
	for (int i = 0; i < 10 && size < sizeof(rest); i++) {
		int fds[4];
		size_t count = ARRAY_SIZE(fds);
		ssize_t got =
		    fd_receive(fixture.peer, rest + size, sizeof(rest) - size, fds, &count);
		CHECK(got > 0);
		size += got > 0 ? (size_t)got : 0;
		/* The kernel reads no further than a frame that has some. */
		if (count > 0)
			CHECK_INT(rest[size - 8], passed == 0 ? 1 : 50);
		for (size_t at = 0; at < count; at++)
			close(fds[at]);
		passed += count;
	}
	CHECK_INT(passed, 2);
	CHECK_INT(size, sizeof(rest));
	for (size_t at = 0, i = 1; at < size; i++) {
		int64_t length = frame_parse(rest + at, size - at, &frame);
		CHECK_INT(length, FRAME_HEADER_SIZE + 8);
		CHECK_INT(frame.id, i);
		CHECK_INT(frame.type, i == 1 || i == 50 ? FRAME_EXEC : FRAME_FILE);
		at += (size_t)MAX(length, 1);
	}
	close_fixture(&fixture);
}

/* What was said in the last turn of a link is heard. */
TEST(said_before_the_end)
{
	struct fixture fixture;
	struct error error;
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	CHECK_INT(receive(&fixture), FRAME_HELLO);
	for (uint64_t i = 0; i < 3; i++)
		CHECK_INT(guest_link_send(fixture.link, FRAME_FILE, i, "x", 1, NULL, 0, &error), 0);
	guest_link_free(fixture.link);
	fixture.link = NULL;
	uint8_t room[256];
	CHECK_INT(recv(fixture.peer, room, sizeof(room), 0), 3 * (FRAME_HEADER_SIZE + 1));
	close_fixture(&fixture);
}

TEST(nobody_listens)
{
	uv_loop_t loop;
	struct guest_link *link = NULL;
	struct error error;
	uv_loop_init(&loop);
	CHECK_INT(guest_link_open(&loop, "/tmp/caisson-no-such-socket", 100, &callbacks, NULL,
				  &link, &error),
		  -1);
	CHECK_INT(error.kind, ERROR_GUEST_GONE);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&loop), 0);
}

/* A backlog that is full is waited for, within the time. */
TEST(full_backlog)
{
	struct fixture fixture = {.peer = -1};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct guest_link *links[8] = {0};
	struct error error;
	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/caisson-backlog-%d",
		 (int)getpid());
	uv_loop_init(&fixture.loop);
	CLOSE_FD int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_INT(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	CHECK_INT(listen(listener, 0), 0);
	for (int i = 0; i < 8; i++)
		CHECK_INT(guest_link_open(&fixture.loop, address.sun_path, LONG_MS, &callbacks,
					  &fixture, &links[i], &error),
			  0);
	turn(&fixture);
	CHECK(fixture.closed < 8);
	for (int i = 0; i < 10; i++) {
		*clock_advance += LONG_MS / 8 * NSEC_PER_MSEC;
		turn(&fixture);
	}
	CHECK_INT(fixture.closed, 8);
	CHECK_INT(fixture.error.kind, ERROR_GUEST_GONE);
	for (int i = 0; i < 8; i++)
		guest_link_free(links[i]);
	uv_run(&fixture.loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&fixture.loop), 0);
	unlink(address.sun_path);
}

/* A guest that sends nothing but tiny frames has a piece of a turn, and all of them come, in order,
 * before its end. */
TEST(tiny_frames_in_pieces)
{
	struct fixture fixture;
	static uint8_t frames[2000 * FRAME_HEADER_SIZE];
	open_fixture(&fixture);
	greet(&fixture, INIT_PROTOCOL_VERSION);
	for (size_t i = 0; i < 2000; i++)
		frame_header_write(frames + i * FRAME_HEADER_SIZE, FRAME_DATA_END, i, 0);
	CHECK_INT(send(fixture.peer, frames, sizeof(frames), 0), sizeof(frames));
	struct work_queue *queue = work_queue_of(&fixture.loop);
	int turns = 0;
	for (; fixture.frames < 2000 && turns < 10000; turns++) {
		unsigned before = fixture.frames;
		uint64_t pieces = work_pieces_run(queue);
		uv_run(&fixture.loop, UV_RUN_NOWAIT);
		CHECK(fixture.frames - before <= 128 * (work_pieces_run(queue) - pieces));
	}
	CHECK_INT(fixture.frames, 2000);
	CHECK_INT(fixture.id, 1999);
	CHECK_INT(fixture.closed, 0);
	fd_close(&fixture.peer);
	turn(&fixture);
	CHECK_INT(fixture.closed, 1);
	work_queue_release(queue);
	close_fixture(&fixture);
}
