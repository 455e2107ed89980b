/* The shim's steps, in the order of the boot messages. See shim.h. May block until the container
 * runs. A failure is reported over BOOT_FD and ends the shim, and with it everything that it
 * started. */
#include "tier/gvisor/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "boot/channel.h"
#include "tier/bridge/relay.h"
#include "tier/gvisor/container.h"
#include "tier/gvisor/shim_privileges.h"
#include "tier/gvisor/runsc.h"
#include "tier/gvisor/root.h"
#include "tier/jail/boot.h"

/* Shorter than the spawner waits, so that it gets the reason. */
#define START_TIMEOUT (8 * NSEC_PER_SEC)
/* Two descriptors for each exec that the guest can have. */
#define FILES_MAX 4096

static struct boot_handles handles;
static int channel = -1; /* socket to the init in the container */

/* Adds runsc's error output. */
static _Noreturn void shim_fail_with(struct failure *failure)
{
	char said[160];
	size_t used = strnlen(failure->message, sizeof(failure->message));
	container_errors(said, sizeof(said));
	if (said[0])
		snprintf(failure->message + used, sizeof(failure->message) - used, ": %s", said);
	(void)!boot_report_send(failure);
	_exit(END_KILLED);
}

static _Noreturn void shim_fail(int result, const char *what)
{
	struct failure failure = {0};
	boot_fail(&failure, result, what);
	shim_fail_with(&failure);
}

static void shim_report_done(void)
{
	if (boot_report_send(NULL) < 0)
		_exit(END_KILLED); /* the spawner is gone and will not know this sandbox */
}

static void shim_prepare(void)
{
	char runsc[RUNSC_PATH_MAX];
	const char *step = "finding runsc";
	struct failure failure = {0};
	if (boot_receive_prepare(&handles, &failure) < 0)
		shim_fail_with(&failure);
	/* The guest's kernel has its own meminfo and processes. */
	fd_close(&handles.memory_usage);
	fd_close(&handles.memory_limit);
	fd_close(&handles.memory_stat);
	fd_close(&handles.process_events);
	int result = runsc_find_path(runsc);
	if (result >= 0)
		result = gvisor_leave_host(runsc, BOOT_INIT_FD, &step);
	if (result < 0)
		shim_fail(result, step);
	close(BOOT_INIT_FD);
	boot_report_phase("mounts");
	result = boot_loopback_up();
	if (result < 0)
		shim_fail(result, "bringing the loopback up");
	shim_report_done();
}

static void shim_make_root(struct limits *ret_limits)
{
	struct boot_assign request;
	struct failure failure = {0};
	int fds[BOOT_FDS_MAX];
	size_t count;
	const char *step;
	if (boot_receive_assign(0, &request, fds, &count, &failure) < 0)
		shim_fail_with(&failure);
	int result = gvisor_make_root(&request, fds, &step);
	if (result < 0)
		shim_fail(result, step);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	*ret_limits = request.limits;
	boot_report_phase("overlay");
}

static pid_t shim_start_container(const char *platform, const struct id *id,
				  const struct limits *limits)
{
	int pair[2];
	pid_t sentry;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		shim_fail(-errno, "the container's channel");
	struct container_order order = {.platform = platform,
					.channel = pair[1],
					.work_cgroups = handles.work_cgroups,
					.work_cgroup_count = handles.work_cgroup_count,
					.deadline = clock_boot() + START_TIMEOUT};
	channel = pair[0];
	int result = container_describe(id, limits);
	if (result < 0)
		shim_fail(result, "describing the container");
	result = container_start(&order, &sentry);
	if (result < 0)
		shim_fail(result, "runsc run");
	close(pair[1]);
	boot_report_phase("runsc");
	result = relay_wait_for_init(channel, order.deadline);
	if (result < 0)
		shim_fail(result, "the init in the container");
	boot_report_phase("guest");
	return sentry;
}

int shim_main(int argc, char **argv)
{
	const struct rlimit files = {FILES_MAX, FILES_MAX};
	struct limits limits;
	struct id id;
	sigset_t mask;
	if (argc != 3 || id_parse(argv[2], &id) < 0 || getpid() != 1) {
		fputs("caisson: _shim is started by `caisson serve`, not by people\n", stderr);
		return END_KILLED;
	}
	prctl(PR_SET_NAME, "caisson-shim");
	prctl(PR_SET_DUMPABLE, 0);
	umask(022);
	shim_prepare();
	shim_make_root(&limits);
	pid_t sentry = shim_start_container(argv[1], &id, &limits);
	for (uint32_t i = 0; i < handles.work_cgroup_count; i++)
		close(handles.work_cgroups[i]);
	/* Set after runsc was started, so that the sentry keeps its own limit. */
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	setrlimit(RLIMIT_NOFILE, &files);
	int result = listen(handles.listener, 4) < 0 ? -errno : shim_drop_privileges();
	if (result < 0)
		shim_fail(result, "dropping the shim's privileges");
	shim_report_done();
	boot_report_begin(0);
	shim_report_done();
	close(BOOT_FD);
	relay_serve(handles.listener, sentry);
}
