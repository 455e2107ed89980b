/* Attempts that must succeed: a sandbox that refuses everything is safe but useless. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "probe.h"

static long try_ptrace_child(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	long result = ptrace(PTRACE_SEIZE, pid, 0, 0);
	int saved = errno;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	errno = saved;
	return result;
}

static long try_fifo(void)
{
	char path[64];
	snprintf(path, sizeof(path), "/tmp/probe-fifo-%d", getpid());
	long result = mkfifo(path, 0600);
	if (result == 0)
		unlink(path);
	return result;
}

static long try_pidfd(void)
{
	return syscall(SYS_pidfd_open, getpid(), 0);
}

static long try_events(void)
{
	sigset_t signals;
	sigemptyset(&signals);
	int pipes[2];
	if (eventfd(0, 0) < 0 || timerfd_create(CLOCK_MONOTONIC, 0) < 0 ||
	    signalfd(-1, &signals, 0) < 0 || inotify_init1(0) < 0 || pipe(pipes) < 0)
		return -1;
	return inotify_add_watch(inotify_init1(0), "/tmp", IN_CREATE);
}

static long try_shared_memory(void)
{
	long id = syscall(SYS_shmget, 0, 4096, 0600 | 01000);
	return id < 0 ? -1 : syscall(SYS_shmctl, id, 0, NULL);
}

static long try_signals_of_own(void)
{
	return kill(getpid(), 0);
}

static long try_own_priority(void)
{
	return setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1);
}

#define SOCKET(name, ...) NUMBERED("socket_" #name, SYS_socket, __VA_ARGS__)

static const struct attempt ordinary_list[] = {
    TRY(ptrace_child),
    TRY(fifo),
    TRY(pidfd),
    TRY(events),
    TRY(shared_memory),
    TRY(signals_of_own),
    TRY(own_priority),
    SOCKET(unix, AF_UNIX, SOCK_STREAM),
    SOCKET(tcp, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 6),
    SOCKET(udp, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 17),
    SOCKET(tcp6, AF_INET6, SOCK_STREAM, 0),
    SOCKET(route, AF_NETLINK, SOCK_RAW, 0),
    NUMBERED("unshare_files", SYS_unshare, CLONE_FILES),
    CALL(memfd_create, (long)"probe", 0),
    CALL(membarrier, 0),
    CALL(close_range, 900, 1000, 0),
    NUMBERED("personality_debugger", SYS_personality, 0x40000),
};
ATTEMPTS(ordinary);
