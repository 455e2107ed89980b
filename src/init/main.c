/* caisson-init: PID 1 of every sandbox. Started by the spawner (or a tier's own way) with BOOT_FD
 * open; sets the sandbox up, then serves the connection until the sandbox ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/configuration.h"
#include "init/connection.h"
#include "init/loop.h"
#include "init/scan.h"
#include "init/setup.h"
#include "init/signals.h"
#include "init/terminal.h"

/* A descriptor below 3 that is not open would be given to the next file and be mistaken for a
 * standard one. */
static void fill_standard_descriptors(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);
	while (fd >= 0 && fd < 3);
	if (fd >= 3)
		close(fd);
}

/* Six descriptors for each exec are more than the usual soft limit. */
static void raise_file_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int fail(const char *what, int errnum)
{
	dprintf(STDERR_FILENO, "caisson-init: %s: %s\n", what, strerror(errnum));
	return INIT_EXIT_FAILED;
}

int main(void)
{
	struct failure failure;
	/* Outside a namespace of its own it would signal every process of the host. */
	if (getpid() != 1)
		return fail("started as an ordinary process", EPERM);
	fill_standard_descriptors();
	signals_reset();
	umask(022);
	if (setup_boot(&configuration.setup, &failure) < 0)
		return fail(failure.message, (int)failure.errnum);
	prctl(PR_SET_DUMPABLE, 0);
	raise_file_limit();
	int result = scan_begin();
	if (result < 0)
		return fail("/proc", -result);
	terminal_begin();
	result = loop_open();
	if (result == 0)
		result = connection_listen(configuration.setup.listener);
	if (result < 0)
		return fail("the loop cannot be made", -result);
	setup_ready();
	return loop_run();
}
