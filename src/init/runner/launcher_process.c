/* The process of the launcher: forked by PID 1, joins the `work` cgroup once, then forks runners
 * that are PID 1's children (CLONE_PARENT). It has no descriptor but its socket, so that none
 * leaks into runners.
 *
 * Joining waits up to 15 ms for the kernel, so the first launcher is forked as soon as the
 * host's root is left: it joins while the sandbox's own root is made. It forks nothing until it
 * has received the configuration and has hardened itself as PID 1 did. (pivot_root() in PID 1
 * changes its root directory too, as that of every process in the old root.) */
#include "init/runner/launcher_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "init/setup/configuration.h"
#include "init/exec/signals.h"

#define LAUNCHER_SOCKET 3
/* The largest frame and its overhead fit, whatever the default is. */
#define RUNNER_SOCKET_BUFFER (512 * 1024)

/* Joins `work`: 0, or -errno of the first hierarchy that refused. */
static int cgroup_join_work(void)
{
	const struct setup *setup = &configuration.setup;
	for (uint32_t i = 0; i < setup->handles.work_cgroup_count; i++)
		if (write(setup->handles.work_cgroups[i], "0", 1) != 1)
			return errno ? -errno : -EIO;
	return 0;
}

/* Closes every descriptor of PID 1's but the socket, which becomes descriptor 3. */
static void descriptors_drop(int socket)
{
	if (dup3(socket, LAUNCHER_SOCKET, O_CLOEXEC) < 0 && errno != EINVAL)
		_exit(1);
	sys_close_range(LAUNCHER_SOCKET + 1, ~0U, 0);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (null < 0)
		return;
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	close(null);
}

static int runner_socket_make(int *ret_ours, int *ret_runners)
{
	int pair[2], size = RUNNER_SOCKET_BUFFER;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	*ret_ours = pair[0];
	*ret_runners = pair[1];
	for (int i = 0; i < 2; i++)
		setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	return fd_set_nonblocking(pair[0]);
}

/* Done before a request arrives, so that no request waits for it. A runner must never become
 * dumpable, not even for a moment: its memory is a copy of PID 1's. */
static void runner_prepare(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static struct launcher_answer runner_fork(int *ret_socket)
{
	CLOSE_FD int ours = -1;
	CLOSE_FD int runners = -1;
	int result = runner_socket_make(&ours, &runners);
	if (result < 0)
		return (struct launcher_answer){.errnum = -result};
	long pid = syscall(__NR_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
	if (pid < 0)
		return (struct launcher_answer){.errnum = errno};
	if (pid == 0) {
		close(LAUNCHER_SOCKET);
		close(ours);
		runner_prepare();
		runner_process_main(runners);
	}
	*ret_socket = TAKE_FD(ours);
	return (struct launcher_answer){.pid = (int32_t)pid};
}

int runner_fork_directly(int *ret_socket)
{
	CLOSE_FD int ours = -1;
	CLOSE_FD int runners = -1;
	int result = runner_socket_make(&ours, &runners);
	if (result < 0)
		return result;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		signals_ignore();
		descriptors_drop(runners);
		runner_prepare();
		runner_process_main(LAUNCHER_SOCKET);
	}
	*ret_socket = TAKE_FD(ours);
	return pid;
}

/* Receives the configuration from PID 1, then does the same hardening. */
static void configuration_wait(void)
{
	struct launcher_configuration begin;
	struct failure failure;
	struct iovec parts[] = {
	    {.iov_base = &begin, .iov_len = sizeof(begin)},
	    {.iov_base = configuration.environment_room,
	     .iov_len = sizeof(configuration.environment_room)},
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts)};
	ssize_t got;
	do
		got = recvmsg(LAUNCHER_SOCKET, &message, 0);
	while (got < 0 && errno == EINTR);
	/* On any failure this process ends. PID 1 then forks another launcher, which inherits
	 * all of this. */
	if (got < (ssize_t)sizeof(begin) || (size_t)got != sizeof(begin) + begin.environment_size ||
	    setup_harden_process(&begin.setup, &failure) < 0)
		_exit(got == 0 ? 0 : 1);
	configuration.setup = begin.setup;
	configuration.environment_count = begin.environment_count;
	configuration.environment =
	    (struct bytes){.data = configuration.environment_room, .size = begin.environment_size};
	configuration.configured = true;
}

void launcher_process_main(int socket, bool ahead)
{
	signals_ignore();
	prctl(PR_SET_NAME, "launcher");
	int joined = cgroup_join_work();
	descriptors_drop(socket);
	if (ahead)
		configuration_wait();
	for (;;) {
		char byte;
		ssize_t got = recv(LAUNCHER_SOCKET, &byte, 1, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			_exit(0);
		int runner = -1;
		/* Outside of the cgroup a runner would have no limits, so none is forked. */
		struct launcher_answer answer = {.errnum = -joined};
		if (joined == 0)
			answer = runner_fork(&runner);
		ssize_t sent =
		    fd_send(LAUNCHER_SOCKET, &answer, sizeof(answer), &runner, runner >= 0);
		fd_close(&runner);
		if (sent < 0)
			_exit(1);
	}
}
