/* Operations between the connection and their runners: what PID 1 does when a runner has answered,
 * or is dead, while the connection has no room. It must not turn in circles. The connection and the
 * launcher are stand-ins here; epoll and the runner's socket are real. */
#include "init/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/connection.h"
#include "init/exec.h"
#include "init/launch.h"
#include "init/loop.h"
#include "test.h"

TEST_MAIN

#define ID (OPERATION_ID_BIT | 1)
#define RUNNER 0

static struct {
	bool room;
	uint8_t outbox[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
	unsigned placed, failed;
	uint16_t type; /* of what was placed last */
	int epoll;
	struct runner runner;
	uint32_t owner;
	unsigned released;
} world;

bool connection_has_room(void)
{
	return world.room;
}

uint8_t *connection_place(void)
{
	return world.outbox;
}

void connection_placed(size_t size)
{
	struct frame frame;
	CHECK_INT(frame_parse(world.outbox, size, &frame), size);
	CHECK(frame.id == ID);
	world.type = frame.type;
	world.placed++;
}

void connection_send_failure(enum frame_type type, uint64_t id, enum error_kind kind, int errnum,
			     const char *message)
{
	(void)kind, (void)errnum, (void)message;
	CHECK_INT(type, FRAME_FAILED);
	CHECK(id == ID);
	world.failed++;
}

void connection_refuse(const char *message)
{
	test_fail(__FILE__, __LINE__, "refused: %s", message);
}

void exec_name_shortly(uint64_t key)
{
	(void)key;
}

bool loop_shutting_down(void)
{
	return false;
}

void launch_submit(enum owner_kind kind, uint32_t owner, const uint8_t *frame, size_t size)
{
	CHECK_INT(kind, OWNER_OPERATION);
	world.owner = owner;
	CHECK(relay_assigned(owner, RUNNER, frame, size));
}

void launch_withdraw(enum owner_kind kind, uint32_t owner)
{
	(void)kind, (void)owner;
}

struct runner *launch_runner(uint32_t index)
{
	CHECK_INT(index, RUNNER);
	return &world.runner;
}

void launch_watch(uint32_t index, uint32_t events)
{
	struct epoll_event event = {.events = events};
	CHECK_INT(index, RUNNER);
	if (events != world.runner.watched)
		CHECK_INT(epoll_ctl(world.epoll,
				    events == 0                 ? EPOLL_CTL_DEL
				    : world.runner.watched == 0 ? EPOLL_CTL_ADD
								: EPOLL_CTL_MOD,
				    world.runner.socket, &event),
			  0);
	world.runner.watched = events;
}

void launch_release(uint32_t index, uint32_t grace_ms)
{
	(void)index, (void)grace_ms;
	fd_close(&world.runner.socket);
	world.released++;
}

/* An operation whose runner has the other end, which is returned. */
static int begin(void)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	world.room = true;
	world.placed = world.failed = world.released = 0;
	world.epoll = epoll_create1(EPOLL_CLOEXEC);
	world.runner = (struct runner){.role = RUNNER_OPERATION, .socket = pair[0]};
	static uint8_t bytes[FRAME_HEADER_SIZE];
	frame_header_write(bytes, FRAME_FILE, ID, 0);
	struct request request = {.type = FRAME_FILE, .id = ID};
	CHECK_INT(frame_parse(bytes, sizeof(bytes), &request.frame), sizeof(bytes));
	request.frame.payload = bytes + FRAME_HEADER_SIZE;
	relay_begin(&request);
	CHECK_INT(world.runner.watched, EPOLLIN);
	return pair[1];
}

static void finish(int runner)
{
	relay_cancel_all();
	fd_close(&world.runner.socket);
	fd_close(&world.epoll);
	fd_close(&runner);
}

/* Serves events as the loop does; how many there were before there was nothing to do. */
static unsigned turns(void)
{
	struct epoll_event event;
	unsigned count = 0;
	while (count < 1000 && epoll_wait(world.epoll, &event, 1, 20) == 1) {
		relay_runner_event(world.owner, event.events);
		count++;
	}
	return count;
}

/* DATA, a byte each time, until the runner's socket is full and the rest is owed. */
static void send_until_owed(void)
{
	static const uint8_t byte;
	struct request request = {
	    .type = FRAME_DATA, .id = ID, .frame = {.type = FRAME_DATA, .id = ID, .size = 1}};
	request.frame.payload = &byte;
	for (int i = 0; i < 100000 && !(world.runner.watched & EPOLLOUT); i++)
		relay_data(&request);
	CHECK(world.runner.watched & EPOLLOUT);
}

/* As operation_result() does it. */
static void answer(int runner)
{
	uint8_t frame[FRAME_HEADER_SIZE], taken[64];
	frame_header_write(frame, FRAME_RESULT, 0, 0);
	CHECK_INT(send(runner, frame, sizeof(frame), 0), sizeof(frame));
	CHECK_INT(shutdown(runner, SHUT_RD), 0);
	while (recv(runner, taken, sizeof(taken), MSG_DONTWAIT) > 0)
		;
}

static void check_answer_comes(void)
{
	world.room = true;
	relay_resume();
	CHECK(turns() < 10);
	CHECK_INT(world.placed, 1);
	CHECK_INT(world.type, FRAME_RESULT);
	CHECK_INT(world.failed, 0);
	CHECK_INT(world.released, 1);
}

TEST(an_answer_waits_while_there_is_no_room)
{
	int runner = begin();
	send_until_owed();
	world.room = false;
	answer(runner);
	CHECK(turns() < 10);
	CHECK_INT(world.placed, 0);
	check_answer_comes();
	finish(runner);
}

TEST(an_answer_of_a_dead_runner_waits_too)
{
	int runner = begin();
	send_until_owed();
	world.room = false;
	answer(runner);
	fd_close(&runner);
	CHECK(turns() < 10);
	CHECK_INT(world.runner.watched, 0);
	/* What comes for it now is dropped, and wakes nobody. */
	relay_credit(ID, 1);
	relay_data_end(ID);
	relay_cancel(ID);
	CHECK(turns() < 10);
	CHECK_INT(world.placed, 0);
	check_answer_comes();
	finish(runner);
}

TEST(a_killed_runner_fails_the_operation)
{
	int runner = begin();
	send_until_owed();
	world.room = false;
	fd_close(&runner);
	CHECK(turns() < 10);
	CHECK_INT(world.failed, 0);
	world.room = true;
	relay_resume();
	CHECK(turns() < 10);
	CHECK_INT(world.failed, 1);
	finish(runner);
}

TEST(what_is_owed_arrives_when_the_runner_reads)
{
	int runner = begin();
	send_until_owed();
	uint8_t frame[FRAME_HEADER_SIZE + 64];
	ssize_t got = recv(runner, frame, sizeof(frame), 0);
	CHECK_INT(got, FRAME_HEADER_SIZE); /* the request itself */
	for (int i = 0; i < 1000 && recv(runner, frame, sizeof(frame), MSG_DONTWAIT) > 0; i++)
		;
	unsigned count = turns();
	CHECK(count > 0 && count < 10);
	CHECK_INT(world.runner.watched, EPOLLIN);
	finish(runner);
}
