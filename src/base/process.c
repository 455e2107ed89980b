/* Processes named by pid, pidfd and start time. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"

void process_done(struct process *process)
{
	fd_close(&process->pidfd);
	*process = PROCESS_NONE;
}

int process_start_time(pid_t pid, uint64_t *ret_start_time)
{
	char path[64], stat[1024];
	int result = text_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (result < 0)
		return result;
	ssize_t length = fd_read_small(AT_FDCWD, path, stat, sizeof(stat));
	if (length < 0)
		return length == -ENOENT ? -ESRCH : (int)length;
	/* The command's name may contain anything, including ')' and spaces: count from its last
	 * ')'. */
	char *place = strrchr(stat, ')');
	for (int field = 2; place && field < 22; field++) {
		place = strchr(place + 1, ' ');
	}
	if (!place)
		return -EIO;
	*ret_start_time = strtoull(place + 1, NULL, 10);
	return 0;
}

int process_open(pid_t pid, uint64_t start_time, struct process *ret_process)
{
	CLOSE_FD int pidfd = sys_pidfd_open(pid, 0);
	/* Linux 6.1 says EINVAL of a process that has ended while others are in its session. */
	if (pidfd == -EINVAL)
		return -ESRCH;
	if (pidfd < 0)
		return pidfd;
	uint64_t actual;
	int result = process_start_time(pid, &actual);
	if (result < 0)
		return result;
	if (start_time != 0 && actual != start_time)
		return -ESRCH;
	*ret_process = (struct process){.pid = pid, .pidfd = TAKE_FD(pidfd), .start_time = actual};
	return 0;
}

int process_signal(const struct process *process, int signal)
{
	if (process->pidfd < 0)
		return -ESRCH;
	return sys_pidfd_send_signal(process->pidfd, signal);
}

bool process_alive(const struct process *process)
{
	return process->pidfd >= 0 && process_wait_end(process, 0) == -ETIMEDOUT;
}

int process_wait_end(const struct process *process, int timeout_ms)
{
	struct pollfd poll_fd = {.fd = process->pidfd, .events = POLLIN};
	int result;
	do
		result = poll(&poll_fd, 1, timeout_ms);
	while (result < 0 && errno == EINTR);
	if (result < 0)
		return -errno;
	return result == 0 ? -ETIMEDOUT : 0;
}
