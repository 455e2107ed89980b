/* The loop: epoll, one timer, SIGCHLD. Everything PID 1 does is called from here, in turns.
 * Nothing that it calls blocks, except that output logs are files on the host's disk. */
#include "init/loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "init/setup/configuration.h"
#include "init/connection.h"
#include "init/exec/killing.h"
#include "init/exec/exec.h"
#include "init/runner/launcher.h"
#include "init/exec/process_limit.h"
#include "init/runner/runners.h"
#include "init/relay.h"
#include "init/setup/setup.h"

#define EVENTS_PER_TURN 64
#define MEMINFO_PERIOD (1 * NSEC_PER_SEC)

static struct {
	int epoll, timer, signals;
	int64_t armed;    /* when the timer fires */
	int64_t deadline; /* of the sandbox */
	int64_t shutdown; /* when the time after SIGTERM is over; NEVER: not shutting down */
	int64_t meminfo_at;
} loop = {
    .epoll = -1,
    .timer = -1,
    .signals = -1,
    .armed = NEVER,
    .deadline = NEVER,
    .shutdown = NEVER,
};

/* kind in 8 bits, index in 24, generation in 32. */
static struct epoll_event event_make(uint32_t events, enum event_kind kind, uint32_t index,
				     uint32_t generation)
{
	uint64_t data = (uint64_t)kind << 56 | (uint64_t)index << 32 | generation;
	return (struct epoll_event){.events = events, .data.u64 = data};
}

int loop_add(int fd, uint32_t events, enum event_kind kind, uint32_t index, uint32_t generation)
{
	struct epoll_event event = event_make(events, kind, index, generation);
	return epoll_ctl(loop.epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int loop_modify(int fd, uint32_t events, enum event_kind kind, uint32_t index, uint32_t generation)
{
	struct epoll_event event = event_make(events, kind, index, generation);
	return epoll_ctl(loop.epoll, EPOLL_CTL_MOD, fd, &event) < 0 ? -errno : 0;
}

void loop_remove(int fd)
{
	epoll_ctl(loop.epoll, EPOLL_CTL_DEL, fd, NULL);
}

void loop_set_deadline(int64_t deadline)
{
	loop.deadline = deadline;
}

void loop_shut_down(uint32_t grace_ms)
{
	loop.shutdown = clock_boot() + grace_ms * NSEC_PER_MSEC;
	kill(-1, SIGTERM);
	/* A stopped process would not handle it. */
	kill(-1, SIGCONT);
}

bool loop_shutting_down(void)
{
	return loop.shutdown != NEVER;
}

static void children_reap(void)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;
	while (read(loop.signals, &info, sizeof(info)) == sizeof(info))
		;
	/* Children are the launcher, runners and strays. One that was stopped from inside is
	 * continued: it would hold up the processes that it supervises. */
	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		if (WIFSTOPPED(status))
			kill(pid, SIGCONT);
		else
			child_reaped(pid, status);
	}
}

static void event_dispatch(const struct epoll_event *event)
{
	uint32_t index = (uint32_t)(event->data.u64 >> 32) & 0xffffff;
	uint32_t generation = (uint32_t)event->data.u64;
	uint64_t expirations;
	switch ((enum event_kind)(event->data.u64 >> 56)) {
	case EVENT_LISTENER:
		connection_accept();
		break;
	case EVENT_CONNECTION:
		connection_event(generation, event->events);
		break;
	case EVENT_SIGNAL:
		children_reap();
		break;
	case EVENT_TIMER:
		if (read(loop.timer, &expirations, sizeof(expirations)) > 0)
			loop.armed = NEVER;
		break;
	case EVENT_LAUNCHER:
		launcher_event();
		break;
	case EVENT_RUNNER:
		runner_event(index, generation, event->events);
		break;
	case EVENT_STDOUT:
		exec_output_event(index, generation, 0);
		break;
	case EVENT_STDERR:
		exec_output_event(index, generation, 1);
		break;
	case EVENT_INPUT:
		exec_input_event(index, generation);
		break;
	}
}

/* Keeps /proc/meminfo up to date while a command runs that could read it. */
static void meminfo_refresh(int64_t now)
{
	if (configuration.setup.meminfo < 0 || exec_alive() == 0) {
		loop.meminfo_at = NEVER;
		return;
	}
	if (loop.meminfo_at != NEVER && now < loop.meminfo_at)
		return;
	setup_refresh_meminfo(&configuration.setup);
	loop.meminfo_at = now + MEMINFO_PERIOD;
}

static void timer_arm(int64_t next)
{
	/* A timer that was armed for an earlier time may fire for nothing. That is cheaper than
	 * moving it every time. */
	if (next >= loop.armed)
		return;
	struct itimerspec when = {0};
	next = MAX(next, 1);
	when.it_value.tv_sec = next / NSEC_PER_SEC;
	when.it_value.tv_nsec = next % NSEC_PER_SEC;
	if (timerfd_settime(loop.timer, TFD_TIMER_ABSTIME, &when, NULL) == 0)
		loop.armed = next;
}

/* Does everything that is due now; returns when something is due next. Killing comes last, because
 * the others may begin it. */
static int64_t timers_serve(void)
{
	int64_t now = clock_boot();
	int64_t next = MIN(loop.deadline, loop.shutdown);
	next = MIN(next, exec_time(now));
	next = MIN(next, relay_time(now));
	next = MIN(next, launcher_time(now));
	next = MIN(next, runners_time(now));
	next = MIN(next, process_limit_time(now));
	next = MIN(next, killing_time(now));
	meminfo_refresh(now);
	return MIN(next, loop.meminfo_at);
}

int loop_open(void)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	loop.epoll = epoll_create1(EPOLL_CLOEXEC);
	loop.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	loop.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	loop.meminfo_at = NEVER;
	if (loop.epoll < 0 || loop.signals < 0 || loop.timer < 0)
		return -errno;
	int result = loop_add(loop.signals, EPOLLIN, EVENT_SIGNAL, 0, 0);
	return result < 0 ? result : loop_add(loop.timer, EPOLLIN, EVENT_TIMER, 0, 0);
}

enum init_exit loop_run(void)
{
	struct epoll_event events[EVENTS_PER_TURN];
	for (;;) {
		connection_serve();
		int64_t next = timers_serve();
		connection_flush();
		int64_t now = clock_boot();
		if (loop.deadline <= now)
			return INIT_EXIT_DEADLINE;
		if (loop.shutdown <= now || (loop_shutting_down() && exec_alive() == 0))
			return INIT_EXIT_SHUTDOWN;
		timer_arm(next);
		int count = epoll_wait(loop.epoll, events, EVENTS_PER_TURN,
				       connection_has_request() ? 0 : -1);
		if (count < 0 && errno != EINTR)
			return INIT_EXIT_FAILED;
		for (int i = 0; i < count; i++)
			event_dispatch(&events[i]);
	}
}
