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
#include "init/exec/exec.h"
#include "init/runner/runners.h"
#include "init/file/operation.h"
#include "init/loop.h"
#include "test.h"

TEST_MAIN

#define ID (OPERATION_ID_BIT | 1)
#define EXEC_KEY 7
#define RUNNER 0

static struct {
	bool room;
	uint8_t outbox[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
	size_t used; /* of it, since it was asked for */
	unsigned placed, failed;
	uint16_t type; /* of what was placed last */
	int epoll;
	struct runner runner;
	uint32_t owner;
	unsigned released;
	bool kept;
	unsigned again;
	unsigned stayed;
	unsigned named_shortly;
} world;

bool connection_has_room(void)
{
	return world.room;
}

uint8_t *connection_reserve(void)
{
	world.used = 0;
	return world.outbox;
}

void connection_commit(size_t size)
{
	struct frame frame;
	CHECK_INT(frame_parse(world.outbox + world.used, size, &frame), size);
	world.used += size;
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

void exec_send_left_running_names(uint64_t key)
{
	CHECK_INT(key, EXEC_KEY);
	world.named_shortly++;
}

bool loop_shutting_down(void)
{
	return false;
}

void runner_request_submit(const struct runner_request *request, const uint8_t *frame)
{
	CHECK_INT(request->kind, OWNER_OPERATION);
	world.owner = request->owner;
	CHECK(relay_send_to_runner(request->owner, RUNNER, frame, request->size));
}

void runner_request_withdraw(enum owner_kind kind, uint32_t owner)
{
	(void)kind, (void)owner;
}

struct runner *runner_at(uint32_t index)
{
	CHECK_INT(index, RUNNER);
	return &world.runner;
}

void runner_watch(uint32_t index, uint32_t events)
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

void runner_release(uint32_t index, uint32_t grace_ms)
{
	(void)index, (void)grace_ms;
	fd_close(&world.runner.socket);
	world.released++;
}

bool runner_stay(uint32_t index)
{
	CHECK_INT(index, RUNNER);
	world.stayed++;
	return true;
}

void runner_request_read(uint32_t index)
{
	(void)index;
	world.kept = false;
}

bool runner_request_may_retry(uint32_t index)
{
	(void)index;
	return world.kept;
}

void runner_request_retry(uint32_t index)
{
	runner_release(index, 0);
	world.kept = false;
	world.again++;
}

/* An operation of that id whose runner has the other end, which is returned. */
static int begin_as(uint64_t id)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	world.room = true;
	world.placed = world.failed = world.released = world.again = world.stayed = 0;
	world.kept = true;
	world.named_shortly = 0;
	world.epoll = epoll_create1(EPOLL_CLOEXEC);
	world.runner = (struct runner){.role = RUNNER_OPERATION, .socket = pair[0]};
	static uint8_t bytes[FRAME_HEADER_SIZE];
	frame_header_write(bytes, FRAME_FILE, id, 0);
	struct request request = {.type = FRAME_FILE, .id = id};
	CHECK_INT(frame_parse(bytes, sizeof(bytes), &request.frame), sizeof(bytes));
	request.frame.payload = bytes + FRAME_HEADER_SIZE;
	if (id == EXEC_KEY)
		CHECK(relay_begin_left_running(id, bytes, sizeof(bytes)));
	else
		relay_begin(&request);
	CHECK_INT(world.runner.watched, EPOLLIN);
	return pair[1];
}

static int begin(void)
{
	return begin_as(ID);
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

static void answer_staying(int runner)
{
	uint8_t frame[FRAME_HEADER_SIZE];
	frame_header_write(frame, FRAME_RESULT, OPERATION_STAYS, 0);
	CHECK_INT(send(runner, frame, sizeof(frame), 0), sizeof(frame));
	CHECK(turns() < 10);
	CHECK_INT(world.placed, 1);
}

TEST(a_runner_that_stays_is_kept)
{
	int runner = begin();
	answer_staying(runner);
	CHECK_INT(world.stayed, 1);
	CHECK_INT(world.released, 0);
	finish(runner);
}

TEST(a_runner_that_was_cancelled_does_not_stay)
{
	int runner = begin();
	relay_cancel(ID);
	answer_staying(runner);
	CHECK_INT(world.stayed, 0);
	CHECK_INT(world.released, 1);
	finish(runner);
}

/* A message of these frames, with so many bytes of the last one missing. */
static void send_together(int runner, const uint16_t types[], size_t count, size_t missing)
{
	uint8_t message[8 * (FRAME_HEADER_SIZE + 3)];
	size_t size = 0;
	for (size_t i = 0; i < count; i++) {
		uint32_t length = types[i] == FRAME_DATA ? 3 : 0;
		frame_header_write(message + size, types[i], 0, length);
		memset(message + size + FRAME_HEADER_SIZE, 'x', length);
		size += FRAME_HEADER_SIZE + length;
	}
	CHECK_INT(send(runner, message, size - missing, 0), size - missing);
	CHECK(turns() < 10);
}

TEST(data_and_the_answer_in_one_message)
{
	int runner = begin();
	send_together(runner, (uint16_t[]){FRAME_DATA, FRAME_RESULT}, 2, 0);
	CHECK_INT(world.placed, 2);
	CHECK_INT(world.type, FRAME_RESULT);
	CHECK_INT(world.released, 1);
	CHECK_INT(world.failed, 0);
	finish(runner);
}

TEST(nothing_is_taken_behind_the_answer)
{
	int runner = begin();
	send_together(runner, (uint16_t[]){FRAME_RESULT, FRAME_DATA, FRAME_RESULT}, 3, 0);
	CHECK_INT(world.placed, 1);
	CHECK_INT(world.released, 1);
	CHECK_INT(world.failed, 0);
	finish(runner);
}

TEST(nonsense_behind_data_fails_the_operation)
{
	int runner = begin();
	send_together(runner, (uint16_t[]){FRAME_DATA, FRAME_DATA, FRAME_RESULT}, 3, 5);
	CHECK_INT(world.placed, 2);
	CHECK_INT(world.failed, 1);
	CHECK_INT(world.released, 1);
	finish(runner);
}

/* The daemon would end the whole link for it. */
TEST(data_after_its_end_fails_the_operation)
{
	int runner = begin();
	send_together(runner, (uint16_t[]){FRAME_DATA_END, FRAME_DATA}, 2, 0);
	CHECK_INT(world.placed, 1);
	CHECK_INT(world.failed, 1);
	finish(runner);
	runner = begin();
	send_together(runner, (uint16_t[]){FRAME_DATA_END, FRAME_DATA_END}, 2, 0);
	CHECK_INT(world.placed, 1);
	CHECK_INT(world.failed, 1);
	finish(runner);
}

/* What an exec's id goes by is its own: of the process that names what it left running nothing else
 * is passed on. */
TEST(only_names_from_who_was_asked_for_names)
{
	static const uint16_t types[] = {FRAME_DATA, FRAME_DATA_END, FRAME_CREDIT, FRAME_RESULT,
					 FRAME_FAILED};
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		int runner = begin_as(EXEC_KEY);
		send_together(runner, &types[i], 1, 0);
		CHECK_INT(world.placed, 0);
		CHECK_INT(world.failed, 0);
		CHECK_INT(world.named_shortly, 1);
		finish(runner);
	}
	int runner = begin();
	send_together(runner, (uint16_t[]){FRAME_LEFT_RUNNING}, 1, 0);
	CHECK_INT(world.placed, 0);
	CHECK_INT(world.failed, 1);
	finish(runner);
}

/* Nothing of the request was done, so that another runner may do it. */
TEST(a_request_that_was_not_read_goes_to_another_runner)
{
	int runner = begin();
	fd_close(&runner);
	CHECK(turns() < 10);
	CHECK_INT(world.again, 1);
	CHECK_INT(world.failed, 0);
	finish(runner);
}

TEST(a_request_that_was_read_is_not_done_twice)
{
	uint8_t frame[FRAME_HEADER_SIZE + 64];
	int runner = begin();
	CHECK_INT(recv(runner, frame, sizeof(frame), 0), FRAME_HEADER_SIZE);
	fd_close(&runner);
	CHECK(turns() < 10);
	CHECK_INT(world.again, 0);
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
