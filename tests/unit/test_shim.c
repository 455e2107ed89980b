/* The gvisor tier's shim between a daemon and an init that are both played here: what passes, what
 * stays, and what a hostile one of either kind gets. The relay runs as PID 1 of a pid namespace, as
 * it does in a sandbox, so that its peers are outside. Also: which release `auto` takes. */
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "proto/init_messages.h"
#include "proto/output_log.h"
#include "proto/spawner_messages.h"
#include "tier/bridge/relay.h"
#include "tier/gvisor/runsc.h"

TEST_MAIN

#define KEY 7
#define PATIENCE_MS 5000

struct fixture {
	pid_t pid; /* of the process that waits for the relay and ends as it does */
	int guest; /* the init's end */
	struct sockaddr_un address;
	socklen_t address_size;
	uint8_t in[2][FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX]; /* the last frame of each */
};

enum { OF_GUEST, OF_DAEMON };

static _Noreturn void run_relay(int listener, int channel)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	pid_t sentry = fork();
	if (sentry == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	if (sentry < 0 || relay_wait_for_init(channel, clock_boot() + 5 * NSEC_PER_SEC) < 0)
		_exit(99);
	relay_serve(listener, sentry);
}

static int read_full(int fd, void *data, size_t size)
{
	for (size_t at = 0; at < size;) {
		struct pollfd polled = {.fd = fd, .events = POLLIN};
		if (poll(&polled, 1, PATIENCE_MS) <= 0)
			return -1;
		ssize_t got = read(fd, (char *)data + at, size - at);
		if (got <= 0)
			return -1;
		at += (size_t)got;
	}
	return 0;
}

/* The next frame: its type, or -1. */
static int next_frame(struct fixture *fixture, int who, int fd, struct frame *ret_frame)
{
	uint8_t *room = fixture->in[who];
	if (read_full(fd, room, FRAME_HEADER_SIZE) < 0)
		return -1;
	uint32_t size = (uint32_t)room[0] | (uint32_t)room[1] << 8 | (uint32_t)room[2] << 16;
	if (size > FRAME_PAYLOAD_MAX || read_full(fd, room + FRAME_HEADER_SIZE, size) < 0)
		return -1;
	return frame_parse(room, FRAME_HEADER_SIZE + size, ret_frame) > 0 ? ret_frame->type : -1;
}

static bool silent(int fd)
{
	struct pollfd polled = {.fd = fd, .events = POLLIN};
	return poll(&polled, 1, 100) == 0;
}

static void send_frame(int fd, enum frame_type type, uint64_t id, const void *payload, size_t size,
		       const int *fds, size_t fd_count)
{
	static uint8_t room[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
	frame_header_write(room, (uint16_t)type, id, (uint32_t)size);
	if (size > 0)
		memcpy(room + FRAME_HEADER_SIZE, payload, size);
	CHECK_INT(fd_send(fd, room, FRAME_HEADER_SIZE + size, fds, fd_count),
		  FRAME_HEADER_SIZE + size);
}

/* The init's part of FRAME_BEGIN. */
static void echo_begin(struct fixture *fixture)
{
	struct frame frame;
	CHECK_INT(next_frame(fixture, OF_GUEST, fixture->guest, &frame), FRAME_BEGIN);
	send_frame(fixture->guest, FRAME_BEGIN, 0, frame.payload, frame.size, NULL, 0);
}

static bool start(struct fixture *fixture)
{
	int pair[2];
	*fixture = (struct fixture){.address = {.sun_family = AF_UNIX}};
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* A name that the kernel makes up. */
	fixture->address_size = sizeof(fixture->address);
	if (listener < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
	    bind(listener, (struct sockaddr *)&fixture->address, sizeof(sa_family_t)) < 0 ||
	    getsockname(listener, (struct sockaddr *)&fixture->address, &fixture->address_size) <
		0 ||
	    listen(listener, 4) < 0)
		return false;
	fixture->guest = pair[0];
	fixture->pid = fork();
	if (fixture->pid == 0) {
		int status;
		close(pair[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
			_exit(98);
		pid_t relay = fork();
		if (relay == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_relay(listener, pair[1]);
		}
		close(listener);
		close(pair[1]);
		if (relay < 0 || waitpid(relay, &status, 0) != relay)
			_exit(98);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
	}
	close(listener);
	close(pair[1]);
	echo_begin(fixture);
	return fixture->pid > 0;
}

/* How it ended by itself, or -1 when it had to be killed. */
static int finish(struct fixture *fixture, bool kill_it)
{
	int status = 0;
	if (kill_it)
		kill(fixture->pid, SIGKILL);
	for (int i = 0; i < PATIENCE_MS / 10; i++) {
		if (waitpid(fixture->pid, &status, WNOHANG) != 0) {
			close(fixture->guest);
			return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		}
		usleep(10000);
	}
	kill(fixture->pid, SIGKILL);
	waitpid(fixture->pid, &status, 0);
	close(fixture->guest);
	return -1;
}

static int connect_daemon(struct fixture *fixture)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_INT(connect(fd, (struct sockaddr *)&fixture->address, fixture->address_size), 0);
	return fd;
}

/* HELLO through the relay and back. */
static void greet(struct fixture *fixture, int daemon)
{
	struct frame frame;
	uint8_t room[32];
	struct writer writer = writer_on(room, sizeof(room));
	hello_write(&writer, &(struct hello){1, 1});
	send_frame(daemon, FRAME_HELLO, 0, room, writer.size, NULL, 0);
	CHECK_INT(next_frame(fixture, OF_GUEST, fixture->guest, &frame), FRAME_HELLO);
	writer = writer_on(room, sizeof(room));
	hello_reply_write(&writer, &(struct hello_reply){.version = 1, .configured = 1});
	send_frame(fixture->guest, FRAME_HELLO_REPLY, 0, room, writer.size, NULL, 0);
	CHECK_INT(next_frame(fixture, OF_DAEMON, daemon, &frame), FRAME_HELLO_REPLY);
}

static int make_log(void)
{
	int fd = memfd_create("log", MFD_CLOEXEC);
	CHECK_INT(output_log_format(fd, 1 << 20, 1 << 20), 0);
	return fd;
}

/* Begins an exec with logs; the init sees it without. */
static void begin_exec(struct fixture *fixture, int daemon, int logs[2], uint32_t flags)
{
	static uint8_t room[1024];
	static struct exec_request seen;
	struct frame frame;
	struct exec_request request = {
	    .flags = flags, .argc = 1, .argv = {(const uint8_t *)"true", sizeof("true")}};
	struct writer writer = writer_on(room, sizeof(room));
	exec_request_write(&writer, &request);
	logs[0] = make_log();
	logs[1] = make_log();
	send_frame(daemon, FRAME_EXEC, KEY, room, writer.size, logs, 2);
	CHECK_INT(next_frame(fixture, OF_GUEST, fixture->guest, &frame), FRAME_EXEC);
	CHECK_INT(exec_request_read(&frame, &seen), 0);
	CHECK_INT(seen.flags, 0);
	CHECK_INT(seen.argc, 1);
}

static void output(struct fixture *fixture, uint64_t key, int stream, size_t size)
{
	static uint8_t room[FILE_CHUNK_MAX];
	memset(room, 'x', sizeof(room));
	room[0] = (uint8_t)stream;
	send_frame(fixture->guest, FRAME_OUTPUT, key, room, size + 1, NULL, 0);
}

static uint64_t log_total(int fd)
{
	struct output_log log;
	return output_log_open(fd, &log) == 0 ? log.total : 0;
}

static void wait_total(int fd, uint64_t total)
{
	for (int i = 0; i < PATIENCE_MS / 10 && log_total(fd) != total; i++)
		usleep(10000);
	CHECK_INT(log_total(fd), total);
}

static void expect_progress(struct fixture *fixture, int daemon, uint64_t out)
{
	struct frame frame;
	struct output_totals totals = {0};
	while (totals.out < out) {
		if (next_frame(fixture, OF_DAEMON, daemon, &frame) != FRAME_PROGRESS ||
		    output_totals_read(&frame, &totals) < 0) {
			CHECK(!"no PROGRESS");
			return;
		}
	}
	CHECK_INT(totals.out, out);
}

TEST(output_goes_to_the_log_and_totals_are_its_own)
{
	struct fixture fixture;
	struct frame frame;
	struct exec_result result = {.totals = {1u << 30, 5}};
	uint8_t room[128];
	int logs[2];
	if (!start(&fixture))
		SKIP("no pid namespace can be made here");
	int daemon = connect_daemon(&fixture);
	greet(&fixture, daemon);
	begin_exec(&fixture, daemon, logs, EXEC_LOG);
	output(&fixture, KEY, 1, 1000);
	expect_progress(&fixture, daemon, 1000);
	wait_total(logs[0], 1000);
	struct writer writer = writer_on(room, sizeof(room));
	exec_result_write(&writer, &result);
	send_frame(fixture.guest, FRAME_EXITED, KEY, room, writer.size, NULL, 0);
	CHECK_INT(next_frame(&fixture, OF_DAEMON, daemon, &frame), FRAME_EXITED);
	CHECK_INT(exec_result_read(&frame, &result), 0);
	CHECK_INT(result.totals.out, 1000);
	CHECK_INT(result.totals.err, 0);
	close(daemon);
	finish(&fixture, true);
}

TEST(the_next_daemon_waits_for_the_end_of_the_last)
{
	struct fixture fixture;
	struct frame frame;
	int logs[2];
	if (!start(&fixture))
		SKIP("no pid namespace can be made here");
	int first = connect_daemon(&fixture);
	greet(&fixture, first);
	begin_exec(&fixture, first, logs, EXEC_LOG);
	/* Half a frame of a daemon that dies goes nowhere. */
	CHECK_INT(write(first, "\x40\0\0\0\x17\0\0\0", 8), 8);
	close(first);
	CHECK_INT(next_frame(&fixture, OF_GUEST, fixture.guest, &frame), FRAME_BEGIN);
	uint8_t number[4];
	memcpy(number, frame.payload, sizeof(number));
	int second = connect_daemon(&fixture);
	uint8_t hello[8] = {1, 0, 0, 0, 1};
	send_frame(second, FRAME_HELLO, 0, hello, sizeof(hello), NULL, 0);
	/* Nothing of it passes, answers to the old are dropped, output is not. */
	send_frame(fixture.guest, FRAME_STARTED, KEY, "\1\0\0\0", 4, NULL, 0);
	output(&fixture, KEY, 1, 500);
	wait_total(logs[0], 500);
	CHECK(silent(fixture.guest));
	CHECK(silent(second));
	send_frame(fixture.guest, FRAME_BEGIN, 0, number, sizeof(number), NULL, 0);
	CHECK_INT(next_frame(&fixture, OF_GUEST, fixture.guest, &frame), FRAME_HELLO);
	close(second);
	finish(&fixture, true);
}

TEST(credit_comes_back)
{
	struct fixture fixture;
	struct frame frame;
	int logs[2];
	if (!start(&fixture))
		SKIP("no pid namespace can be made here");
	int daemon = connect_daemon(&fixture);
	greet(&fixture, daemon);
	begin_exec(&fixture, daemon, logs, EXEC_LOG);
	for (int i = 0; i < 4; i++)
		output(&fixture, KEY, 1 + i % 2, FILE_CHUNK_MAX - 1);
	uint64_t returned = 0;
	while (returned < FILE_WINDOW &&
	       next_frame(&fixture, OF_GUEST, fixture.guest, &frame) == FRAME_CREDIT) {
		struct reader reader = reader_on(frame.payload, frame.size);
		returned += read_u32(&reader);
	}
	CHECK_INT(returned, FILE_WINDOW);
	close(daemon);
	finish(&fixture, true);
}

/* One exec, then a frame of the guest's that ends all. */
static void hostile(void (*attack)(struct fixture *fixture), uint32_t flags)
{
	struct fixture fixture;
	int logs[2];
	if (!start(&fixture))
		SKIP("no pid namespace can be made here");
	int daemon = connect_daemon(&fixture);
	greet(&fixture, daemon);
	begin_exec(&fixture, daemon, logs, flags);
	attack(&fixture);
	CHECK_INT(finish(&fixture, false), END_KILLED);
	close(daemon);
}

static void send_for_nobody(struct fixture *fixture)
{
	output(fixture, KEY + 1, 1, 10);
}

static void send_third_stream(struct fixture *fixture)
{
	output(fixture, KEY, 3, 10);
}

static void send_garbage(struct fixture *fixture)
{
	CHECK_INT(write(fixture->guest, "\377\377\377\377garbage that is no frame", 28), 28);
}

static void send_begin(struct fixture *fixture)
{
	send_frame(fixture->guest, FRAME_BEGIN, 0, "\1\0\0\0", 4, NULL, 0);
}

static void send_short_result(struct fixture *fixture)
{
	send_frame(fixture->guest, FRAME_EXITED, KEY, "xx", 2, NULL, 0);
}

TEST(a_hostile_guest_ends_its_sandbox)
{
	signal(SIGPIPE, SIG_IGN);
	hostile(send_for_nobody, EXEC_LOG);
	hostile(send_third_stream, EXEC_LOG);
	hostile(send_garbage, EXEC_LOG);
	hostile(send_begin, EXEC_LOG);
	hostile(send_short_result, EXEC_LOG);
}

/* Nobody consumes, so that credit ends where the log does; a guest that goes on ends. */
TEST(a_lossless_log_is_not_overwritten)
{
	static uint8_t room[FRAME_HEADER_SIZE + FILE_CHUNK_MAX];
	struct fixture fixture;
	int logs[2];
	if (!start(&fixture))
		SKIP("no pid namespace can be made here");
	int daemon = connect_daemon(&fixture);
	greet(&fixture, daemon);
	begin_exec(&fixture, daemon, logs, EXEC_LOG | EXEC_LOSSLESS);
	frame_header_write(room, FRAME_OUTPUT, KEY, FILE_CHUNK_MAX);
	room[FRAME_HEADER_SIZE] = 1;
	for (int i = 0; i < 60; i++) {
		if (send(fixture.guest, room, sizeof(room), MSG_NOSIGNAL) != sizeof(room))
			break;
		usleep(2000);
	}
	CHECK_INT(finish(&fixture, false), END_KILLED);
	CHECK(log_total(logs[0]) <= 2 << 20);
	close(daemon);
}

TEST(a_daemon_that_breaks_the_rules_loses_its_connection)
{
	struct fixture fixture;
	struct frame frame;
	char byte;
	if (!start(&fixture))
		SKIP("no pid namespace can be made here");
	int daemon = connect_daemon(&fixture);
	greet(&fixture, daemon);
	/* An exec whose logs did not come. */
	send_frame(daemon, FRAME_EXEC, KEY, "\4\0\0\0", 4, NULL, 0);
	CHECK_INT(read(daemon, &byte, 1), 0);
	close(daemon);
	echo_begin(&fixture);
	daemon = connect_daemon(&fixture);
	greet(&fixture, daemon);
	send_frame(daemon, FRAME_BEGIN, 0, "\1\0\0\0", 4, NULL, 0);
	CHECK_INT(next_frame(&fixture, OF_DAEMON, daemon, &frame), -1);
	close(daemon);
	finish(&fixture, true);
}

TEST(the_deadline_is_the_shims)
{
	struct fixture fixture;
	uint8_t room[8];
	if (!start(&fixture))
		SKIP("no pid namespace can be made here");
	int daemon = connect_daemon(&fixture);
	greet(&fixture, daemon);
	struct writer writer = writer_on(room, sizeof(room));
	write_i64(&writer, clock_boot() + 50 * NSEC_PER_MSEC);
	send_frame(daemon, FRAME_DEADLINE, 0, room, sizeof(room), NULL, 0);
	CHECK_INT(finish(&fixture, false), END_DEADLINE);
	close(daemon);
}

TEST(auto_takes_a_fresh_and_fast_release)
{
	char text[256];
	const int64_t now = 1800000000LL * NSEC_PER_SEC; /* January 2027 */
	struct runsc runsc = {.version = "release-20261102.0", .date = 20261102};
	snprintf(runsc.platform, sizeof(runsc.platform), "systrap");
	runsc_auto_objection(&runsc, now, text, sizeof(text));
	CHECK_TEXT(text, "");
	runsc.date = 20251102;
	runsc_auto_objection(&runsc, now, text, sizeof(text));
	CHECK(strstr(text, "over a year old") && !strstr(text, "slow"));
	runsc.date = 20261102;
	snprintf(runsc.platform, sizeof(runsc.platform), "ptrace");
	runsc_auto_objection(&runsc, now, text, sizeof(text));
	CHECK(strstr(text, "slow platform ptrace") && !strstr(text, "year"));
	runsc.date = 0;
	runsc_auto_objection(&runsc, now, text, sizeof(text));
	CHECK(strstr(text, "no date"));
}
