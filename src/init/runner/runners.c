/* PID 1's table of runners, and the requests that wait for one. Called by the loop; never blocks:
 * if a runner does not act in time, another one gets its request, or the request fails. */
#include "init/runner/runners.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "init/exec/exec.h"
#include "init/exec/killing.h"
#include "init/runner/launcher.h"
#include "init/loop.h"

/* Requests that wait for a runner. Further ones wait in the connection. */
#define WAITING_MAX 8
#define WAITING_PATIENCE (10 * NSEC_PER_SEC)
#define SPARES 2u
#define REFILL_PAUSE (3 * NSEC_PER_MSEC)
/* Copies of requests that runners have not answered yet. A request that was not copied, because all
 * places were taken, is not given to another runner when its own is killed before reading it. */
#define KEPT_MAX 8
/* How many runners may be killed, one after the other, before they read the same request. */
#define TRIES_MAX 8
/* A process that has done a file operation waits this long for another as the same user: making a
 * process costs more than a small operation. */
#define STAY_TIME (1 * NSEC_PER_SEC)
#define STAYING_MAX 16u
/* Where the user of a file request is in its frame: its length, then its bytes. */
#define USER_AT (FRAME_HEADER_SIZE + 29)

struct kept_request {
	struct runner_request request; /* size 0 in `kept`: a free place */
	uint8_t frame[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
};

static struct runner runners[RUNNERS_MAX];
static uint32_t runners_up_to; /* no slot at or above it is in use */
static struct kept_request waiting_requests[WAITING_MAX];
static uint32_t waiting_at, waiting_count;          /* a ring: the first one, how many */
static struct kept_request kept_requests[KEPT_MAX]; /* see runner->kept */

struct runner *runner_at(uint32_t index)
{
	return &runners[index];
}

bool runners_include(pid_t pid)
{
	if (launcher_has_pid(pid))
		return true;
	for (uint32_t i = 0; i < runners_up_to; i++)
		if (runners[i].role != RUNNER_FREE && runners[i].pid == pid)
			return true;
	return false;
}

static uint32_t runner_count_role(enum runner_role role)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < runners_up_to; i++)
		count += runners[i].role == role;
	return count;
}

uint32_t runners_missing(void)
{
	return waiting_count + SPARES - MIN(runner_count_role(RUNNER_SPARE), SPARES);
}

/* Copies the user of a file request, padded with zeros. False for any other request. */
static bool request_read_user(const struct runner_request *request, const uint8_t *frame,
			      uint8_t user[RUNNER_USER_MAX])
{
	struct reader type = reader_on(frame + 4, 2);
	memset(user, 0, RUNNER_USER_MAX);
	if (read_u16(&type) != FRAME_FILE || request->size < USER_AT + 4 + (size_t)frame[USER_AT] ||
	    frame[USER_AT] >= 64)
		return false;
	memcpy(user, frame + USER_AT, 4 + (size_t)frame[USER_AT]);
	return true;
}

/* A runner that stays for the request's user, or a spare; -1 if there is none. */
static int runner_find_for(const struct runner_request *request, const uint8_t *frame)
{
	uint8_t user[RUNNER_USER_MAX];
	bool file = request->kind == OWNER_OPERATION && request_read_user(request, frame, user);
	int spare = -1;
	for (uint32_t i = 0; i < runners_up_to; i++) {
		if (file && runners[i].role == RUNNER_STAYING &&
		    memcmp(runners[i].user, user, sizeof(user)) == 0)
			return (int)i;
		if (runners[i].role == RUNNER_SPARE && spare < 0)
			spare = (int)i;
	}
	return spare;
}

bool runner_stay(uint32_t index)
{
	struct runner *runner = &runners[index];
	if (runner->pid == 0 || runner_count_role(RUNNER_STAYING) >= STAYING_MAX)
		return false;
	runner->role = RUNNER_STAYING;
	runner->stayed = true;
	runner->kill_at = clock_boot() + STAY_TIME;
	runner_watch(index, EPOLLIN);
	return true;
}

bool runner_request_has_room(void)
{
	return waiting_count < WAITING_MAX;
}

void runner_request_read(uint32_t index)
{
	if (runners[index].kept)
		kept_requests[runners[index].kept - 1].request.size = 0;
	runners[index].kept = 0;
}

/* The frame may be the one that is in this place already. */
static void request_keep(struct kept_request *place, const struct runner_request *request,
			 const uint8_t *frame)
{
	place->request = *request;
	memmove(place->frame, frame, request->size);
}

/* False if the runner is dead: the request still needs one. */
static bool runner_hand_over(const struct runner_request *request, uint32_t index,
			     const uint8_t *frame)
{
	struct runner *runner = &runners[index];
	bool exec = request->kind == OWNER_EXEC;
	runner->role = exec ? RUNNER_EXEC : RUNNER_OPERATION;
	runner->owner = request->owner;
	runner->kill_at = NEVER;
	(void)request_read_user(request, frame, runner->user);
	bool taken = exec ? exec_send_to_runner(request->owner, index, frame, request->size)
			  : relay_send_to_runner(request->owner, index, frame, request->size);
	if (!taken) {
		runner_release(index, 0);
		return false;
	}
	/* It may have been released: the request was cancelled or failed. */
	if (runner->role != RUNNER_EXEC && runner->role != RUNNER_OPERATION)
		return true;
	for (uint32_t i = 0; i < KEPT_MAX && !runner->kept; i++) {
		if (kept_requests[i].request.size > 0)
			continue;
		request_keep(&kept_requests[i], request, frame);
		runner->kept = i + 1;
	}
	return true;
}

void runner_request_submit(const struct runner_request *request, const uint8_t *frame)
{
	bool taken = false;
	int found;
	while (!taken && waiting_count == 0 && (found = runner_find_for(request, frame)) >= 0)
		taken = runner_hand_over(request, (uint32_t)found, frame);
	if (!taken) {
		struct kept_request *last =
		    &waiting_requests[(waiting_at + waiting_count++) % WAITING_MAX];
		request_keep(last, request, frame);
		last->request.since = clock_boot();
	}
	/* Making a runner takes as much processor time as starting a small command. While there is
	 * another spare, it waits until the command has ended, or for REFILL_PAUSE. */
	if (waiting_count > 0 || runner_count_role(RUNNER_SPARE) == 0)
		launcher_refill();
	else
		launcher_refill_by(clock_boot() + REFILL_PAUSE);
}

bool runner_request_may_retry(uint32_t index)
{
	const struct runner *runner = &runners[index];
	return runner->kept && kept_requests[runner->kept - 1].request.tries < TRIES_MAX &&
	       runner_request_has_room();
}

void runner_request_retry(uint32_t index)
{
	struct kept_request *place = &kept_requests[runners[index].kept - 1];
	struct runner_request request = place->request;
	request.tries++;
	runner_release(index, 0); /* which frees the place, but leaves the frame in it */
	runner_request_submit(&request, place->frame);
}

void runner_request_withdraw(enum owner_kind kind, uint32_t owner)
{
	for (uint32_t i = 0; i < waiting_count; i++) {
		struct runner_request *request =
		    &waiting_requests[(waiting_at + i) % WAITING_MAX].request;
		if (request->kind == kind && request->owner == owner)
			request->withdrawn = true;
	}
}

static void waiting_drop_first(void)
{
	waiting_at = (waiting_at + 1) % WAITING_MAX;
	waiting_count--;
}

/* The oldest waiting request that was not withdrawn. */
static struct kept_request *waiting_first(void)
{
	while (waiting_count > 0 && waiting_requests[waiting_at].request.withdrawn)
		waiting_drop_first();
	return waiting_count > 0 ? &waiting_requests[waiting_at] : NULL;
}

bool runner_request_fail_first(int errnum, const char *message)
{
	struct kept_request *first = waiting_first();
	if (!first)
		return false;
	waiting_drop_first();
	struct failure failure = {.kind = ERROR_RESOURCE_LIMIT, .errnum = (uint32_t)errnum};
	snprintf(failure.message, sizeof(failure.message), "%s%s%s", message, errnum ? ": " : "",
		 errnum ? strerror(errnum) : "");
	if (first->request.kind == OWNER_EXEC)
		exec_runner_failed(first->request.owner, &failure);
	else
		relay_runner_failed(first->request.owner, &failure);
	return true;
}

static void runner_free(uint32_t index)
{
	fd_close(&runners[index].socket);
	runners[index].role = RUNNER_FREE;
	runners[index].watched = 0;
	while (runners_up_to > 0 && runners[runners_up_to - 1].role == RUNNER_FREE)
		runners_up_to--;
}

void runner_watch(uint32_t index, uint32_t events)
{
	struct runner *runner = &runners[index];
	int result = 0;
	if (runner->watched == events || runner->socket < 0)
		return;
	/* epoll reports a hang-up even if no events are requested, so the socket is removed. */
	if (events == 0)
		loop_remove(runner->socket);
	else if (runner->watched == 0)
		result = loop_add(runner->socket, events, EVENT_RUNNER, index, runner->generation);
	else
		result =
		    loop_modify(runner->socket, events, EVENT_RUNNER, index, runner->generation);
	if (result == 0)
		runner->watched = events;
}

void runner_release(uint32_t index, uint32_t grace_ms)
{
	struct runner *runner = &runners[index];
	runner_request_read(index);
	if (runner->pid == 0) {
		runner_free(index);
		return;
	}
	fd_close(&runner->socket);
	runner->watched = 0;
	runner->generation++;
	runner->role = RUNNER_ENDING;
	runner->kill_at = clock_boot() + grace_ms * NSEC_PER_MSEC;
	if (grace_ms == 0)
		kill(runner->pid, SIGKILL);
}

void runner_add(pid_t pid, int socket)
{
	uint32_t index = 0;
	while (index < RUNNERS_MAX && runners[index].role != RUNNER_FREE)
		index++;
	if (index == RUNNERS_MAX) {
		close(socket);
		kill(pid, SIGKILL);
		runner_request_fail_first(0, "too many processes at once");
		return;
	}
	runners_up_to = MAX(runners_up_to, index + 1);
	runners[index] = (struct runner){
	    .role = RUNNER_SPARE,
	    .pid = pid,
	    .socket = socket,
	    .generation = runners[index].generation + 1,
	    .kill_at = NEVER,
	};
	runner_watch(index, EPOLLIN);
	struct kept_request *first = waiting_first();
	if (first && runner_hand_over(&first->request, index, first->frame))
		waiting_drop_first();
}

void runner_return(uint32_t index)
{
	struct runner *runner = &runners[index];
	struct kept_request *first = waiting_first();
	runner_request_read(index);
	if (runner->pid == 0 || (!first && runner_count_role(RUNNER_SPARE) >= SPARES)) {
		runner_release(index, 1000);
		return;
	}
	runner->role = RUNNER_SPARE;
	if (first && runner_hand_over(&first->request, index, first->frame))
		waiting_drop_first();
}

static void runner_read_frame(uint32_t index)
{
	static uint8_t room[FRAME_HEADER_SIZE + 1024];
	struct runner *runner = &runners[index];
	struct frame frame;
	ssize_t got = recv(runner->socket, room, sizeof(room), MSG_DONTWAIT | MSG_TRUNC);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	uint32_t owner = runner->owner;
	/* The kernel reports this if the peer closed its socket with unread data. */
	bool unread = got < 0 && errno == ECONNRESET;
	if (got > 0 && got <= (ssize_t)sizeof(room) &&
	    frame_parse(room, (size_t)got, &frame) == got) {
		runner_request_read(index);
		exec_runner_frame(owner, &frame);
		return;
	}
	if (unread && runner_request_may_retry(index) && exec_await_runner_again(owner)) {
		runner_request_retry(index);
		return;
	}
	/* It has ended, or it has sent an invalid frame and is not trusted any more. */
	runner_release(index, got == 0 ? 1000 : 0);
	exec_runner_gone(owner, unread);
	launcher_refill();
}

void runner_event(uint32_t index, uint32_t generation, uint32_t events)
{
	struct runner *runner = &runners[index];
	if (runner->generation != generation)
		return;
	switch (runner->role) {
	case RUNNER_EXEC:
		runner_read_frame(index);
		break;
	case RUNNER_OPERATION:
		relay_runner_event(runner->owner, events);
		break;
	case RUNNER_SPARE:
	case RUNNER_STAYING:
		/* A waiting runner sends nothing: it was killed from inside. */
		runner_release(index, 0);
		launcher_refill();
		break;
	case RUNNER_ENDING:
	case RUNNER_FREE:
		break;
	}
}

void child_reaped(pid_t pid, int status)
{
	if (launcher_has_pid(pid)) {
		launcher_reaped();
		return;
	}
	for (uint32_t i = 0; i < runners_up_to; i++) {
		struct runner *runner = &runners[i];
		if (runner->role == RUNNER_FREE || runner->pid != pid)
			continue;
		runner->pid = 0;
		/* Killed: the processes it had started are PID 1's children now. */
		if (WIFSIGNALED(status))
			strays_kill();
		if (runner->role == RUNNER_ENDING)
			runner_free(i);
		return;
	}
}

int64_t runners_time(int64_t now)
{
	int64_t next = NEVER;
	while (waiting_count > 0 &&
	       now - waiting_requests[waiting_at].request.since > WAITING_PATIENCE)
		runner_request_fail_first(0, "no process could be started in time");
	if (waiting_count > 0)
		next = waiting_requests[waiting_at].request.since + WAITING_PATIENCE + 1;
	for (uint32_t i = 0; i < runners_up_to; i++) {
		struct runner *runner = &runners[i];
		/* It ends by itself when its socket is closed. */
		if (runner->role == RUNNER_STAYING && runner->kill_at <= now)
			runner_release(i, 1000);
		if (runner->role == RUNNER_ENDING && runner->kill_at <= now) {
			runner->kill_at = NEVER;
			if (runner->pid > 0)
				kill(runner->pid, SIGKILL);
		}
		if (runner->role == RUNNER_ENDING || runner->role == RUNNER_STAYING)
			next = MIN(next, runner->kill_at);
	}
	return next;
}
