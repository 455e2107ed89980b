/* caisson-init: PID 1 of every sandbox. Started by the spawner with BOOT_FD open, it sets the
 * sandbox up, then serves the connection until the sandbox ends. Started with an argument, as
 * the process of a container that others have set up, it serves the channel that is its standard
 * input. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/setup/configuration.h"
#include "init/connection.h"
#include "init/runner/launcher.h"
#include "init/loop.h"
#include "init/exec/process_limit.h"
#include "init/exec/proc_scan.h"
#include "init/setup/setup.h"
#include "init/exec/signals.h"
#include "init/exec/terminal.h"

/* A closed descriptor below 3 would be given to the next file that is opened, which would then
 * be used as a standard descriptor. */
static void standard_descriptors_fill(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);
	while (fd >= 0 && fd < 3);
	if (fd >= 3)
		close(fd);
}

/* Each exec needs up to six descriptors: together more than the usual soft limit. */
static void file_limit_raise(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		/* Not setrlimit(): musl's brings along the code that stops threads. */
		prlimit(0, RLIMIT_NOFILE, &limit, NULL);
	}
}

static int start_fail(const char *what, int errnum)
{
	dprintf(STDERR_FILENO, "caisson-init: %s: %s\n", what, strerror(errnum));
	return INIT_EXIT_FAILED;
}

/* Moves the socket away from standard input, which becomes /dev/null. */
static int channel_take(void)
{
	int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	close(STDIN_FILENO);
	return fd;
}

int main(int argc, char **argv)
{
	struct failure failure;
	(void)argv;
	bool channel = argc > 1;
	/* Outside of its own pid namespace it would signal every process of the host. */
	if (getpid() != 1)
		return start_fail("started as an ordinary process", EPERM);
	int channel_fd = channel ? channel_take() : -1;
	standard_descriptors_fill();
	signals_reset();
	umask(022);
	/* Before the first fork: every child inherits it. */
	prctl(PR_SET_DUMPABLE, 0);
	file_limit_raise();
	if (channel)
		setup_channel(&configuration.setup);
	else if (setup_boot(&configuration.setup, launcher_prepare, &failure) < 0)
		return start_fail(failure.message, (int)failure.errnum);
	int result = scan_begin();
	if (result < 0)
		return start_fail("/proc", -result);
	terminal_begin();
	process_limit_watch(configuration.setup.handles.process_events);
	result = loop_open();
	if (result == 0)
		result = launcher_watch();
	if (result == 0)
		result = channel ? connection_use_channel(channel_fd)
				 : connection_listen(configuration.setup.handles.listener);
	if (result < 0)
		return start_fail("the loop cannot be made", -result);
	if (!channel)
		setup_ready();
	return loop_run();
}
