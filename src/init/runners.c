/* Keeps a launcher and spare runners, hands requests to runners. Called by the loop; never blocks:
 * whatever a launcher or runner does not do in time is done by another one, or the request fails.
 */
#include "init/runners.h"

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
#include "init/setup/configuration.h"
#include "init/killing.h"
#include "init/exec.h"
#include "init/launcher_process.h"
#include "init/loop.h"

/* Requests that wait for a runner. More wait in the connection. */
#define PARKED_MAX 8
#define PARKED_PATIENCE (10 * NSEC_PER_SEC)
/* A launcher that does not answer for so long was stopped from inside: it is replaced. Or all of
 * the sandbox is frozen, and the next one will not answer either: each has twice as long, up to a
 * limit. */
#define LAUNCHER_PATIENCE (3 * NSEC_PER_SEC)
#define LAUNCHER_PATIENCE_MAX (8 * LAUNCHER_PATIENCE)
/* Runners that wait for a request. */
#define SPARES 2u
#define REFILL_PAUSE (3 * NSEC_PER_MSEC)
#define RETRY_PAUSE (100 * NSEC_PER_MSEC)
/* Requests that runners were given and have not answered yet; while there are more of them, one
 * whose runner is killed before it has read it is not given to another. */
#define KEPT_MAX 8
/* So many runners may be killed one after the other before they have read a request. */
#define TRIES_MAX 8
/* A process that has done a file operation waits so long for another as the same user: to make one
 * costs more than a small operation does. So many may wait at once. */
#define STAY_TIME (1 * NSEC_PER_SEC)
#define STAYING_MAX 16u
/* Where a file request's user stands in its frame: its length, then its bytes. */
#define USER_AT (FRAME_HEADER_SIZE + 29)

struct submission {
	enum owner_kind kind;
	uint32_t owner;
	uint32_t tries; /* runners that were killed before they had read it */
	int64_t since;
	bool withdrawn;
	size_t size; /* of its frame; 0 in `kept`: free */
};

struct parked {
	struct submission of;
	uint8_t frame[FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX];
};

static struct runner runners[RUNNERS_MAX];
static uint32_t runners_up_to;
static struct parked parked[PARKED_MAX];
static uint32_t parked_first, parked_count; /* a ring */
static struct parked kept[KEPT_MAX];        /* runner->kept leads here */

static struct {
	pid_t pid; /* 0: none */
	int socket;
	uint32_t asked;    /* runners that were asked for and did not come yet */
	int64_t answer_by; /* NEVER */
	int64_t patience;
	int64_t retry_at; /* a new launcher, or a spare; NEVER */
	bool begun;
} launcher = {.socket = -1, .answer_by = NEVER, .patience = LAUNCHER_PATIENCE, .retry_at = NEVER};

struct runner *runner_at(uint32_t index)
{
	return &runners[index];
}

bool runners_include(pid_t pid)
{
	if (pid == launcher.pid)
		return true;
	for (uint32_t i = 0; i < runners_up_to; i++)
		if (runners[i].role != RUNNER_FREE && runners[i].pid == pid)
			return true;
	return false;
}

bool launcher_owes_runner(void)
{
	return launcher.asked > 0;
}

static int launcher_fork(void)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0)
		launcher_process_main(pair[1], !launcher.begun);
	int error = errno;
	close(pair[1]);
	if (pid < 0 || fd_set_nonblocking(pair[0]) < 0) {
		close(pair[0]);
		return pid < 0 ? -error : -ENOMEM;
	}
	launcher.pid = pid;
	launcher.socket = pair[0];
	launcher.asked = 0;
	launcher.answer_by = NEVER;
	return 0;
}

int launcher_watch(void)
{
	if (launcher.socket < 0)
		return 0;
	return loop_add(launcher.socket, EPOLLIN, EVENT_LAUNCHER, 0, 0);
}

static int launcher_start(void)
{
	int result = launcher_fork();
	if (result < 0)
		return result;
	if (launcher_watch() == 0)
		return 0;
	fd_close(&launcher.socket); /* which ends it */
	launcher.pid = 0;
	return -ENOMEM;
}

static int runner_find_spare(void)
{
	for (uint32_t i = 0; i < runners_up_to; i++)
		if (runners[i].role == RUNNER_SPARE)
			return (int)i;
	return -1;
}

static uint32_t runner_count_role(enum runner_role role)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < runners_up_to; i++)
		count += runners[i].role == role;
	return count;
}

static uint32_t runner_count_spares(void)
{
	return runner_count_role(RUNNER_SPARE);
}

/* The user of a file request into `user`, zeros behind it; false: it is another request. */
static bool request_read_user(const struct submission *of, const uint8_t *frame,
			      uint8_t user[RUNNER_USER_MAX])
{
	struct reader type = reader_on(frame + 4, 2);
	memset(user, 0, RUNNER_USER_MAX);
	if (read_u16(&type) != FRAME_FILE || of->size < USER_AT + 4 + (size_t)frame[USER_AT] ||
	    frame[USER_AT] >= 64)
		return false;
	memcpy(user, frame + USER_AT, 4 + (size_t)frame[USER_AT]);
	return true;
}

/* One that has served this user, or a spare; -1. */
static int runner_find_for(const struct submission *of, const uint8_t *frame)
{
	uint8_t user[RUNNER_USER_MAX];
	bool file = of->kind == OWNER_OPERATION && request_read_user(of, frame, user);
	for (uint32_t i = 0; file && i < runners_up_to; i++)
		if (runners[i].role == RUNNER_STAYING &&
		    memcmp(runners[i].user, user, sizeof(user)) == 0)
			return (int)i;
	return runner_find_spare();
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

static void runner_add(pid_t pid, int socket);
static void waiting_fail_first(int errnum, const char *message);
static void launcher_drop(void);

/* The same without a launcher. */
static void runner_refill_directly(uint32_t wanted)
{
	for (; wanted > 0; wanted--) {
		int socket = -1, pid = runner_fork_directly(&socket);
		if (pid < 0) {
			waiting_fail_first(-pid, "no process can be started in the sandbox");
			launcher.retry_at = clock_boot() + RETRY_PAUSE;
			return;
		}
		runner_add(pid, socket);
	}
}

/* Asks for what is missing: one runner per parked request, and the spares. */
static void runner_refill(void)
{
	uint32_t wanted = parked_count + SPARES - MIN(runner_count_spares(), SPARES);
	if (configuration.setup.channel) {
		runner_refill_directly(wanted);
		return;
	}
	if (launcher.socket < 0 || !launcher.begun)
		return;
	while (launcher.asked < wanted) {
		if (send(launcher.socket, "r", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
			break; /* it is dead, and its end will be seen */
		launcher.asked++;
		if (launcher.answer_by == NEVER)
			launcher.answer_by = clock_boot() + launcher.patience;
	}
}

void launcher_prepare(void)
{
	if (launcher_fork() < 0)
		launcher.pid = 0;
}

/* Tells the launcher that was forked ahead what CONFIGURE said. */
static int launcher_tell(void)
{
	struct launcher_begin begin = {.setup = configuration.setup,
				       .environment_count = configuration.environment_count,
				       .environment_size =
					   (uint32_t)configuration.environment.size};
	struct iovec parts[] = {
	    {.iov_base = &begin, .iov_len = sizeof(begin)},
	    {.iov_base = configuration.environment_room, .iov_len = begin.environment_size},
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts)};
	ssize_t sent = sendmsg(launcher.socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	return sent < 0 ? -errno : 0;
}

int launcher_begin_runners(void)
{
	int result = 0;
	launcher.begun = true;
	if (launcher.pid > 0 && launcher_tell() < 0) {
		/* It may have died before anybody looked for ended children. */
		launcher_drop();
		while (waitpid(launcher.pid, NULL, 0) < 0 && errno == EINTR)
			;
		launcher.pid = 0;
	}
	if (launcher.pid == 0 && !configuration.setup.channel)
		result = launcher_start();
	if (result < 0)
		return result;
	/* Without a launcher it is we who fork, which is slow there: the answer goes first. */
	if (configuration.setup.channel)
		launcher.retry_at = clock_boot() + NSEC_PER_MSEC;
	else
		runner_refill();
	return 0;
}

bool runner_request_has_room(void)
{
	return parked_count < PARKED_MAX;
}

/* The frame may be the very one that is at `place`. */
static void request_put(struct parked *place, const struct submission *of, const uint8_t *frame)
{
	place->of = *of;
	memmove(place->frame, frame, of->size);
}

static void request_keep(struct runner *runner, const struct submission *of, const uint8_t *frame)
{
	for (uint32_t i = 0; i < KEPT_MAX; i++) {
		if (kept[i].of.size > 0)
			continue;
		request_put(&kept[i], of, frame);
		runner->kept = i + 1;
		return;
	}
}

void runner_request_read(uint32_t index)
{
	if (runners[index].kept)
		kept[runners[index].kept - 1].of.size = 0;
	runners[index].kept = 0;
}

/* False when the runner turned out to be dead: the request is still without one. */
static bool runner_hand_over(const struct submission *of, uint32_t index, const uint8_t *frame)
{
	struct runner *runner = &runners[index];
	bool exec = of->kind == OWNER_EXEC;
	runner->role = exec ? RUNNER_EXEC : RUNNER_OPERATION;
	runner->owner = of->owner;
	runner->kill_at = NEVER;
	(void)request_read_user(of, frame, runner->user);
	bool taken = exec ? exec_send_to_runner(of->owner, index, frame, of->size)
			  : relay_send_to_runner(of->owner, index, frame, of->size);
	if (!taken)
		runner_release(index, 0);
	else if (runner->role == RUNNER_EXEC || runner->role == RUNNER_OPERATION)
		request_keep(runner, of, frame);
	return taken;
}

static void request_submit(const struct submission *of, const uint8_t *frame)
{
	bool taken = false;
	int spare;
	while (!taken && parked_count == 0 && (spare = runner_find_for(of, frame)) >= 0)
		taken = runner_hand_over(of, (uint32_t)spare, frame);
	if (!taken)
		request_put(&parked[(parked_first + parked_count++) % PARKED_MAX], of, frame);
	/* Making the next runner takes as much of the processor as starting a small command does:
	 * while there is another spare it waits until the command has ended, or a little. */
	if (parked_count > 0 || runner_count_spares() == 0)
		runner_refill();
	else
		launcher.retry_at = MIN(launcher.retry_at, clock_boot() + REFILL_PAUSE);
}

void runner_request_submit(enum owner_kind kind, uint32_t owner, const uint8_t *frame, size_t size)
{
	struct submission of = {.kind = kind, .owner = owner, .since = clock_boot(), .size = size};
	request_submit(&of, frame);
}

bool runner_request_may_retry(uint32_t index)
{
	const struct runner *runner = &runners[index];
	return runner->kept && kept[runner->kept - 1].of.tries < TRIES_MAX &&
	       runner_request_has_room();
}

void runner_request_retry(uint32_t index)
{
	struct parked *place = &kept[runners[index].kept - 1];
	struct submission of = place->of;
	of.tries++;
	of.since = clock_boot();
	runner_release(index, 0);
	request_submit(&of, place->frame);
}

void runner_request_withdraw(enum owner_kind kind, uint32_t owner)
{
	for (uint32_t i = 0; i < parked_count; i++) {
		struct parked *place = &parked[(parked_first + i) % PARKED_MAX];
		if (place->of.kind == kind && place->of.owner == owner)
			place->of.withdrawn = true;
	}
}

static void waiting_drop_first(void)
{
	parked_first = (parked_first + 1) % PARKED_MAX;
	parked_count--;
}

/* The oldest request that still wants a runner. */
static struct parked *waiting_first(void)
{
	while (parked_count > 0 && parked[parked_first].of.withdrawn)
		waiting_drop_first();
	return parked_count > 0 ? &parked[parked_first] : NULL;
}

/* The oldest waiting request fails. */
static void waiting_fail_first(int errnum, const char *message)
{
	struct parked *first = waiting_first();
	if (!first)
		return;
	waiting_drop_first();
	struct failure failure = {.kind = ERROR_RESOURCE_LIMIT, .errnum = (uint32_t)errnum};
	snprintf(failure.message, sizeof(failure.message), "%s%s%s", message, errnum ? ": " : "",
		 errnum ? strerror(errnum) : "");
	if (first->of.kind == OWNER_EXEC)
		exec_runner_failed(first->of.owner, &failure);
	else
		relay_runner_failed(first->of.owner, &failure);
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
	/* As with pipes: without a wish it must be taken out, a hang-up comes unasked. */
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

/* A runner has come: for the oldest request, or as the spare. */
static void runner_add(pid_t pid, int socket)
{
	uint32_t index = 0;
	while (index < RUNNERS_MAX && runners[index].role != RUNNER_FREE)
		index++;
	if (index == RUNNERS_MAX) {
		close(socket);
		kill(pid, SIGKILL);
		waiting_fail_first(0, "too many processes at once");
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
	struct parked *first = waiting_first();
	if (first && runner_hand_over(&first->of, index, first->frame))
		waiting_drop_first();
}

/* The launcher is no more use: end it; its end is seen by child_reaped(). */
static void launcher_drop(void)
{
	fd_close(&launcher.socket);
	launcher.answer_by = NEVER;
	if (launcher.pid > 0)
		kill(launcher.pid, SIGKILL);
}

void launcher_event(void)
{
	while (launcher.socket >= 0) {
		struct launched answer;
		int socket = -1;
		size_t count = 1;
		ssize_t got = fd_receive(launcher.socket, &answer, sizeof(answer), &socket, &count);
		if (got == -EAGAIN)
			break;
		bool whole = got == sizeof(answer) && (count == 1) == (answer.pid > 1);
		if (!whole || launcher.asked == 0) {
			if (count == 1 && got > 0)
				fd_close(&socket);
			launcher_drop();
			return;
		}
		launcher.asked--;
		launcher.patience = LAUNCHER_PATIENCE;
		launcher.answer_by = launcher.asked ? clock_boot() + launcher.patience : NEVER;
		if (answer.pid > 1) {
			runner_add(answer.pid, socket);
		} else if (parked_count > 0) {
			waiting_fail_first(answer.errnum,
					   "no process can be started in the sandbox");
		} else {
			launcher.retry_at = clock_boot() + RETRY_PAUSE;
			return;
		}
	}
	runner_refill();
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
	/* The kernel's word for a socket that was closed before all was read from it. */
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
	/* Its end, or nonsense: then it is no runner of ours any more. */
	runner_release(index, got == 0 ? 1000 : 0);
	exec_runner_gone(owner, unread);
	runner_refill();
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
		/* It was killed from inside; who waits has nothing to say. */
		runner_release(index, 0);
		runner_refill();
		break;
	case RUNNER_ENDING:
	case RUNNER_FREE:
		break;
	}
}

static void launcher_reaped(void)
{
	launcher.pid = 0;
	fd_close(&launcher.socket);
	launcher.asked = 0;
	launcher.answer_by = NEVER;
	/* A runner that it had made and not told of would be nobody's. */
	strays_kill();
	int result = launcher_start();
	if (result < 0) {
		while (parked_count > 0)
			waiting_fail_first(-result, "no process can be started in the sandbox");
		launcher.retry_at = clock_boot() + RETRY_PAUSE;
		return;
	}
	runner_refill();
}

void child_reaped(pid_t pid, int status)
{
	if (pid == launcher.pid) {
		launcher_reaped();
		return;
	}
	for (uint32_t i = 0; i < runners_up_to; i++) {
		struct runner *runner = &runners[i];
		if (runner->role == RUNNER_FREE || runner->pid != pid)
			continue;
		runner->pid = 0;
		/* Killed: whatever it had started is a child of PID 1 now. */
		if (WIFSIGNALED(status))
			strays_kill();
		if (runner->role == RUNNER_ENDING)
			runner_free(i);
		return;
	}
}

void runners_time(int64_t now)
{
	if (launcher.answer_by <= now) {
		launcher.patience = MIN(2 * launcher.patience, LAUNCHER_PATIENCE_MAX);
		launcher_drop();
	}
	if (launcher.retry_at <= now) {
		launcher.retry_at = NEVER;
		if (!configuration.setup.channel && launcher.pid == 0 && launcher_start() < 0)
			launcher.retry_at = now + RETRY_PAUSE;
		runner_refill();
	}
	while (parked_count > 0 && now - parked[parked_first].of.since > PARKED_PATIENCE)
		waiting_fail_first(0, "no process could be started in time");
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
	}
}

int64_t runners_deadline(void)
{
	int64_t next = MIN(launcher.answer_by, launcher.retry_at);
	if (parked_count > 0)
		next = MIN(next, parked[parked_first].of.since + PARKED_PATIENCE + 1);
	for (uint32_t i = 0; i < runners_up_to; i++)
		if (runners[i].role == RUNNER_ENDING || runners[i].role == RUNNER_STAYING)
			next = MIN(next, runners[i].kill_at);
	return next;
}
