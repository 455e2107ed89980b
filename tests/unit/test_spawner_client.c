/* The client of the spawner: replies find their request, what is late or unasked does no harm, a
 * spawner that is gone fails everything once. */
#include "core/spawner_client.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/clock_advance.h"
#include "base/fd.h"
#include "test.h"

TEST_MAIN

struct answer {
	unsigned count;
	uint32_t tier;
	enum error_kind kind;
	char message[64];
};

struct fixture {
	uv_loop_t loop;
	int peer;
	struct spawner_client *client;
	unsigned ended, counted, listed, reload, quit, lost, late;
};

static void on_ended(void *data, const struct id *id, const struct spawn_ended *ended)
{
	struct fixture *fixture = data;
	CHECK_TEXT(id->text, "abcdefghijklmnop");
	CHECK_INT(ended->cause, END_KILLED);
	CHECK_INT(ended->counters.cpu_ns, 5);
	fixture->ended++;
}

static void on_counted(void *data, const struct id *id, const struct spawn_counters *counters)
{
	CHECK_TEXT(id->text, "abcdefghijklmnop");
	CHECK_INT(counters->memory, 7);
	((struct fixture *)data)->counted++;
}

static void on_listed(void *data, const struct id *id, const struct spawn_listed *listed)
{
	(void)id;
	CHECK_INT(listed->pid, 12);
	((struct fixture *)data)->listed++;
}

static void on_reload(void *data)
{
	((struct fixture *)data)->reload++;
}

static void on_quit(void *data)
{
	((struct fixture *)data)->quit++;
}

static void on_lost(void *data)
{
	((struct fixture *)data)->lost++;
}

static void on_late(void *data, uint32_t type, const struct spawn_message *reply)
{
	CHECK_INT(type, SPAWN_PROBE);
	CHECK_INT(reply->probe.tier, reply->request);
	((struct fixture *)data)->late++;
}

static void on_answer(void *data, const struct spawn_message *reply, const struct error *error)
{
	struct answer *answer = data;
	answer->count++;
	answer->tier = reply ? reply->probe.tier : 0;
	answer->kind = error ? error->kind : ERROR_NONE;
	snprintf(answer->message, sizeof(answer->message), "%s", error ? error->message : "");
}

static void open_fixture(struct fixture *fixture)
{
	static const struct spawner_callbacks callbacks = {
	    on_ended, on_counted, on_listed, on_reload, on_quit, on_lost, on_late};
	int fds[2];
	*fixture = (struct fixture){0};
	uv_loop_init(&fixture->loop);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		abort();
	fixture->peer = fds[1];
	fixture->client = spawner_client_new(&fixture->loop, fds[0], &callbacks, fixture);
}

static void close_fixture(struct fixture *fixture)
{
	spawner_client_free(fixture->client);
	uv_run(&fixture->loop, UV_RUN_DEFAULT);
	CHECK_INT(uv_loop_close(&fixture->loop), 0);
	fd_close(&fixture->peer);
}

static void turn(struct fixture *fixture)
{
	for (int i = 0; i < 5; i++)
		uv_run(&fixture->loop, UV_RUN_NOWAIT);
}

static void ask(struct fixture *fixture, struct answer *answer, uint32_t timeout_ms)
{
	struct spawn_message message = {.type = SPAWN_PROBE, .tier = TIER_NAMESPACE};
	struct error error;
	CHECK_INT(spawner_request(fixture->client, &message, NULL, 0, timeout_ms, on_answer, answer,
				  &error),
		  0);
}

static struct spawn_message receive(struct fixture *fixture)
{
	struct spawn_message message = {0};
	CHECK_INT(fd_receive(fixture->peer, &message, sizeof(message), NULL, NULL),
		  sizeof(message));
	return message;
}

static void reply(struct fixture *fixture, uint32_t request, enum error_kind kind)
{
	struct spawn_message message = {.type = SPAWN_REPLY,
					.request = request,
					.result = kind,
					.message = "no room",
					.probe = {.tier = request}};
	CHECK_INT(fd_send(fixture->peer, &message, sizeof(message), NULL, 0), sizeof(message));
}

TEST(replies_in_any_order)
{
	struct fixture fixture;
	struct answer first = {0}, second = {0};
	open_fixture(&fixture);
	ask(&fixture, &first, 5000);
	ask(&fixture, &second, 5000);
	uint32_t a = receive(&fixture).request, b = receive(&fixture).request;
	reply(&fixture, b, ERROR_NO_SPACE);
	reply(&fixture, 4711, ERROR_NONE);
	reply(&fixture, a, ERROR_NONE);
	reply(&fixture, a, ERROR_NONE);
	turn(&fixture);
	CHECK_INT(first.count, 1);
	CHECK_INT(first.kind, ERROR_NONE);
	CHECK_INT(first.tier, a);
	CHECK_INT(second.count, 1);
	CHECK_INT(second.kind, ERROR_NO_SPACE);
	CHECK_TEXT(second.message, "no room");
	close_fixture(&fixture);
}

TEST(time_out_and_late_reply)
{
	struct fixture fixture;
	struct answer slow = {0}, other = {0};
	open_fixture(&fixture);
	ask(&fixture, &other, 60000);
	ask(&fixture, &slow, 20000);
	turn(&fixture);
	CHECK_INT(slow.count, 0);
	*clock_advance += 20100 * NSEC_PER_MSEC;
	turn(&fixture);
	CHECK_INT(slow.count, 1);
	CHECK_INT(slow.kind, ERROR_TIMED_OUT);
	CHECK_INT(other.count, 0);
	receive(&fixture);
	uint32_t request = receive(&fixture).request;
	reply(&fixture, request, ERROR_NONE);
	turn(&fixture);
	CHECK_INT(slow.count, 1);
	CHECK_INT(fixture.late, 1);
	reply(&fixture, request, ERROR_NONE);
	turn(&fixture);
	CHECK_INT(fixture.late, 1);
	close_fixture(&fixture);
	CHECK_INT(other.count, 1);
	CHECK_INT(other.kind, ERROR_SPAWNER_GONE);
}

TEST(unasked_messages)
{
	struct fixture fixture;
	open_fixture(&fixture);
	struct spawn_message message = {.type = SPAWN_ENDED,
					.ended = {.cause = END_KILLED, .counters.cpu_ns = 5}};
	memcpy(message.sandbox.text, "abcdefghijklmnop", 17);
	CHECK(fd_send(fixture.peer, &message, sizeof(message), NULL, 0) > 0);
	message = (struct spawn_message){.type = SPAWN_LISTED, .listed = {.pid = 12}};
	CHECK(fd_send(fixture.peer, &message, sizeof(message), NULL, 0) > 0);
	message.type = SPAWN_RELOAD;
	CHECK(fd_send(fixture.peer, &message, sizeof(message), NULL, 0) > 0);
	message.type = SPAWN_QUIT;
	CHECK(fd_send(fixture.peer, &message, sizeof(message), NULL, 0) > 0);
	turn(&fixture);
	CHECK_INT(fixture.ended, 1);
	CHECK_INT(fixture.listed, 1);
	CHECK_INT(fixture.reload, 1);
	CHECK_INT(fixture.quit, 1);
	CHECK_INT(fixture.lost, 0);
	close_fixture(&fixture);
}

TEST(spawner_dies)
{
	struct fixture fixture;
	struct answer answers[3] = {0};
	struct spawn_message message = {.type = SPAWN_LIST};
	struct error error;
	open_fixture(&fixture);
	for (int i = 0; i < 3; i++)
		ask(&fixture, &answers[i], 5000);
	fd_close(&fixture.peer);
	turn(&fixture);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(answers[i].count, 1);
		CHECK_INT(answers[i].kind, ERROR_SPAWNER_GONE);
	}
	CHECK_INT(fixture.lost, 1);
	CHECK_INT(
	    spawner_request(fixture.client, &message, NULL, 0, 1, on_answer, &answers[0], &error),
	    -1);
	CHECK_INT(error.kind, ERROR_SPAWNER_GONE);
	CHECK_INT(answers[0].count, 1);
	close_fixture(&fixture);
	CHECK_INT(fixture.lost, 1);
}

TEST(another_version)
{
	struct fixture fixture;
	open_fixture(&fixture);
	CHECK_INT(send(fixture.peer, "short", 5, 0), 5);
	turn(&fixture);
	CHECK_INT(fixture.lost, 1);
	close_fixture(&fixture);
}

/* More than the socket takes at once, with descriptors; all arrive, in order. */
TEST(queue_of_requests)
{
	struct fixture fixture;
	static struct answer answers[2000];
	memset(answers, 0, sizeof(answers));
	open_fixture(&fixture);
	CLOSE_FD int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < 2000; i++) {
		struct spawn_message message = {.type = SPAWN_CREATE};
		struct error error;
		CHECK_INT(spawner_request(fixture.client, &message, &file, 1, 60000, on_answer,
					  &answers[i], &error),
			  0);
	}
	for (int i = 0; i < 2000; i++) {
		struct spawn_message message = {0};
		int fds[2];
		size_t fd_count = 2;
		turn(&fixture);
		CHECK_INT(fd_receive(fixture.peer, &message, sizeof(message), fds, &fd_count),
			  sizeof(message));
		CHECK_INT(fd_count, 1);
		CHECK_INT(message.request, i + 1);
		fd_close(&fds[0]);
		reply(&fixture, message.request, ERROR_NONE);
	}
	turn(&fixture);
	unsigned answered = 0;
	for (int i = 0; i < 2000; i++)
		answered += answers[i].count == 1 && answers[i].kind == ERROR_NONE;
	CHECK_INT(answered, 2000);
	close_fixture(&fixture);
}

/* A process without a free descriptor cannot keep those of a message that has to wait: that message
 * fails, and the spawner is not taken for dead. */
TEST(no_descriptor_free)
{
	struct fixture fixture;
	struct spawn_message message = {.type = SPAWN_CREATE};
	struct answer answers[3] = {0};
	struct error error = {0};
	struct rlimit before, none;
	int sent = 0;
	open_fixture(&fixture);
	CLOSE_FD int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* Until the socket is full: from there on messages wait. */
	CHECK_INT(fd_set_nonblocking(fixture.peer), 0);
	CLOSE_FD int probe = fcntl(file, F_DUPFD_CLOEXEC, 0);
	for (; sent < 2000; sent++)
		CHECK_INT(spawner_request(fixture.client, &message, NULL, 0, 60000, on_answer,
					  &answers[0], &error),
			  0);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)probe;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	int result = spawner_request(fixture.client, &message, &file, 1, 60000, on_answer,
				     &answers[1], &error);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &before), 0);
	CHECK_INT(result, -1);
	CHECK_INT(error.kind, ERROR_NO_MEMORY);
	CHECK_INT(fixture.lost, 0);
	CHECK_INT(answers[1].count, 0);
	/* The next goes through. */
	CHECK_INT(spawner_request(fixture.client, &message, &file, 1, 60000, on_answer, &answers[2],
				  &error),
		  0);
	for (int i = 0; i < sent; i++) {
		struct spawn_message got = {0};
		int fds[2];
		size_t fd_count = 2;
		turn(&fixture);
		while (fd_receive(fixture.peer, &got, sizeof(got), fds, &fd_count) > 0) {
			for (size_t j = 0; j < fd_count; j++)
				fd_close(&fds[j]);
			reply(&fixture, got.request, ERROR_NONE);
			turn(&fixture);
			fd_count = 2;
		}
	}
	CHECK_INT(answers[0].count, sent);
	CHECK_INT(answers[2].count, 1);
	CHECK_INT(answers[2].kind, ERROR_NONE);
	close_fixture(&fixture);
}
