/* PID 1's side of the launcher. Called by the loop and by runners.c; never blocks: a launcher that
 * does not answer in time is replaced by another. */
#include "init/runner/launcher.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "init/exec/killing.h"
#include "init/runner/launcher_process.h"
#include "init/loop.h"
#include "init/runner/runners.h"
#include "init/setup/configuration.h"

/* A launcher that does not answer for this long was stopped from inside and is replaced. If the
 * whole sandbox is frozen, its successor will not answer either: each gets twice the time of the
 * one before, up to a limit. */
#define LAUNCHER_PATIENCE (3 * NSEC_PER_SEC)
#define LAUNCHER_PATIENCE_MAX (8 * LAUNCHER_PATIENCE)
#define RETRY_PAUSE (100 * NSEC_PER_MSEC)

static struct {
	pid_t pid; /* 0: none */
	int socket;
	uint32_t asked;    /* runners that were requested and not received yet */
	int64_t answer_by; /* NEVER */
	int64_t patience;
	int64_t retry_at; /* when to start a launcher or ask for runners again; NEVER */
	bool configured;  /* runners may be made */
} launcher = {.socket = -1, .answer_by = NEVER, .patience = LAUNCHER_PATIENCE, .retry_at = NEVER};

bool launcher_has_pid(pid_t pid)
{
	return pid == launcher.pid;
}

bool launcher_owes_runner(void)
{
	return launcher.asked > 0;
}

void launcher_refill_by(int64_t at)
{
	launcher.retry_at = MIN(launcher.retry_at, at);
}

static int launcher_fork(void)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0)
		launcher_process_main(pair[1], !launcher.configured);
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

void launcher_prepare(void)
{
	if (launcher_fork() < 0)
		launcher.pid = 0;
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

/* Ends a launcher that cannot be used any more; launcher_reaped() sees its end. */
static void launcher_drop(void)
{
	fd_close(&launcher.socket);
	launcher.answer_by = NEVER;
	if (launcher.pid > 0)
		kill(launcher.pid, SIGKILL);
}

void launcher_refill(void)
{
	uint32_t wanted = runners_missing();
	if (configuration.setup.channel) {
		/* Without a launcher, PID 1 forks the runners itself. */
		for (; wanted > 0; wanted--) {
			int socket = -1, pid = runner_fork_directly(&socket);
			if (pid < 0) {
				runner_request_fail_first(-pid, NO_PROCESS_MESSAGE);
				launcher.retry_at = clock_boot() + RETRY_PAUSE;
				return;
			}
			runner_add(pid, socket);
		}
		return;
	}
	if (launcher.socket < 0 || !launcher.configured)
		return;
	while (launcher.asked < wanted) {
		if (send(launcher.socket, "r", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
			break; /* It is dead, and launcher_reaped() will see that. */
		launcher.asked++;
		if (launcher.answer_by == NEVER)
			launcher.answer_by = clock_boot() + launcher.patience;
	}
}

/* Sends the configuration to the launcher that was forked before CONFIGURE. */
static int launcher_configure(void)
{
	struct launcher_configuration message = {
	    .setup = configuration.setup,
	    .environment_count = configuration.environment_count,
	    .environment_size = (uint32_t)configuration.environment.size,
	};
	struct iovec parts[] = {
	    {.iov_base = &message, .iov_len = sizeof(message)},
	    {.iov_base = configuration.environment_room, .iov_len = message.environment_size},
	};
	struct msghdr header = {.msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts)};
	ssize_t sent = sendmsg(launcher.socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	return sent < 0 ? -errno : 0;
}

int launcher_begin_runners(void)
{
	int result = 0;
	launcher.configured = true;
	if (launcher.pid > 0 && launcher_configure() < 0) {
		/* It may have died before the loop began to reap children. */
		launcher_drop();
		while (waitpid(launcher.pid, NULL, 0) < 0 && errno == EINTR)
			;
		launcher.pid = 0;
	}
	if (launcher.pid == 0 && !configuration.setup.channel)
		result = launcher_start();
	if (result < 0)
		return result;
	/* Forking directly is slow on the kernel that needs it: CONFIGURED is sent first. */
	if (configuration.setup.channel)
		launcher.retry_at = clock_boot() + NSEC_PER_MSEC;
	else
		launcher_refill();
	return 0;
}

void launcher_event(void)
{
	while (launcher.socket >= 0) {
		struct launcher_answer answer;
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
		} else if (!runner_request_fail_first(answer.errnum, NO_PROCESS_MESSAGE)) {
			launcher.retry_at = clock_boot() + RETRY_PAUSE;
			return;
		}
	}
	launcher_refill();
}

void launcher_reaped(void)
{
	launcher.pid = 0;
	fd_close(&launcher.socket);
	launcher.asked = 0;
	launcher.answer_by = NEVER;
	/* It may have forked a runner without reporting it to PID 1. */
	strays_kill();
	int result = launcher_start();
	if (result < 0) {
		while (runner_request_fail_first(-result, NO_PROCESS_MESSAGE))
			;
		launcher.retry_at = clock_boot() + RETRY_PAUSE;
		return;
	}
	launcher_refill();
}

int64_t launcher_time(int64_t now)
{
	if (launcher.answer_by <= now) {
		launcher.patience = MIN(2 * launcher.patience, LAUNCHER_PATIENCE_MAX);
		launcher_drop();
	}
	if (launcher.retry_at <= now) {
		launcher.retry_at = NEVER;
		if (!configuration.setup.channel && launcher.pid == 0 && launcher_start() < 0)
			launcher.retry_at = now + RETRY_PAUSE;
		launcher_refill();
	}
	return MIN(launcher.answer_by, launcher.retry_at);
}
