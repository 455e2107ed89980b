/* The shim's steps, as the boot messages ask for them. See shim.h. May block until the container
 * runs; a failure is reported over BOOT_FD and ends the shim, and with it all that it started. */
#include "tier/gvisor/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "proto/boot_messages.h"
#include "tier/gvisor/container.h"
#include "tier/gvisor/narrow.h"
#include "tier/bridge/relay.h"
#include "tier/gvisor/release.h"
#include "tier/gvisor/root.h"
#include "tier/jail/boot.h"

/* Less than the spawner waits, so that it hears why. */
#define START_TIMEOUT (8 * NSEC_PER_SEC)
/* Two descriptors for each exec that its guest can know. */
#define FILES_MAX 4096

static struct {
	int listener, channel;
	int work_cgroups[CONTAINER_CGROUPS_MAX];
	uint32_t work_cgroup_count;
	struct boot_report report;
	int64_t phase_start;
} shim = {.listener = -1, .channel = -1};

static void report_begin(uint32_t request)
{
	shim.report = (struct boot_report){.type = BOOT_REPORT, .request = request};
	shim.phase_start = clock_monotonic();
}

static void phase_done(const char *name)
{
	int64_t now = clock_monotonic();
	struct spawn_phase *phase = &shim.report.phases[shim.report.phase_count++];
	snprintf(phase->name, sizeof(phase->name), "%s", name);
	phase->microseconds = (uint32_t)((now - shim.phase_start) / NSEC_PER_USEC);
	shim.phase_start = now;
}

static void report_done(void)
{
	shim.report.ok = 1;
	if (fd_send(BOOT_FD, &shim.report, sizeof(shim.report), NULL, 0) < 0)
		_exit(END_KILLED); /* nobody knows of this sandbox */
}

/* What runsc said about it comes along. */
static _Noreturn void fail(int result, const char *what)
{
	struct failure *failure = &shim.report.failure;
	char said[160];
	container_errors(said, sizeof(said));
	failure->kind = (uint32_t)error_kind_of_errno(-result);
	failure->errnum = (uint32_t)-result;
	snprintf(failure->message, sizeof(failure->message), "%s: %s%s%.*s", what,
		 strerror(-result), said[0] ? ": " : "", (int)sizeof(said), said);
	shim.report.ok = 0;
	ssize_t sent = fd_send(BOOT_FD, &shim.report, sizeof(shim.report), NULL, 0);
	(void)sent;
	_exit(END_KILLED);
}

static int loopback_up(void)
{
	CLOSE_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

/* Its memory and process cgroups are not looked at: the guest's kernel makes up its own meminfo and
 * has its own processes. */
static void take_prepare(void)
{
	struct boot_prepare request;
	int fds[BOOT_FDS_MAX];
	size_t count = ARRAY_SIZE(fds);
	ssize_t got = fd_receive(BOOT_FD, &request, sizeof(request), fds, &count);
	if (got <= 0)
		fail(got < 0 ? (int)got : -EPIPE, "receiving PREPARE");
	if (got != (ssize_t)sizeof(request) || request.type != BOOT_PREPARE ||
	    request.work_cgroup_count > CONTAINER_CGROUPS_MAX || request.has_memory > 1 ||
	    request.has_processes > 1 ||
	    count != 1 + request.work_cgroup_count + 3 * request.has_memory + request.has_processes)
		fail(-EBADMSG, "PREPARE");
	shim.listener = fds[0];
	shim.work_cgroup_count = request.work_cgroup_count;
	for (uint32_t i = 0; i < request.work_cgroup_count; i++)
		shim.work_cgroups[i] = fds[1 + i];
	for (size_t i = 1 + request.work_cgroup_count; i < count; i++)
		close(fds[i]);
}

static void prepare(void)
{
	char runsc[RELEASE_PATH_MAX];
	const char *step = "finding runsc";
	report_begin(BOOT_PREPARE);
	take_prepare();
	report_begin(BOOT_PREPARE);
	int result = release_path(runsc);
	if (result >= 0)
		result = root_leave_host(runsc, BOOT_INIT_FD, &step);
	if (result < 0)
		fail(result, step);
	close(BOOT_INIT_FD);
	phase_done("mounts");
	result = loopback_up();
	if (result < 0)
		fail(result, "bringing the loopback up");
	report_done();
}

static void make_root(struct limits *ret_limits)
{
	struct boot_assign request;
	int fds[BOOT_FDS_MAX];
	size_t count = ARRAY_SIZE(fds);
	const char *step;
	ssize_t got = fd_receive(BOOT_FD, &request, sizeof(request), fds, &count);
	report_begin(BOOT_ASSIGN);
	if (got <= 0)
		fail(got < 0 ? (int)got : -EPIPE, "receiving ASSIGN");
	if (got != (ssize_t)sizeof(request) || request.type != BOOT_ASSIGN ||
	    request.lower_count == 0 || request.lower_count > BOOT_LOWERS_MAX ||
	    request.bind_count > BOOT_BINDS_MAX || request.tree_count != 0 ||
	    count != 1 + request.lower_count + request.bind_count)
		fail(-EBADMSG, "ASSIGN");
	int result = root_make(&request, fds, &step);
	if (result < 0)
		fail(result, step);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	*ret_limits = request.limits;
	phase_done("overlay");
}

static pid_t start_container(const char *platform, const struct id *id, const struct limits *limits)
{
	int pair[2];
	pid_t sentry;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		fail(-errno, "the container's channel");
	struct container_order order = {.platform = platform,
					.channel = pair[1],
					.work_cgroups = shim.work_cgroups,
					.work_cgroup_count = shim.work_cgroup_count,
					.deadline = clock_boot() + START_TIMEOUT};
	shim.channel = pair[0];
	int result = container_describe(id, limits);
	if (result < 0)
		fail(result, "describing the container");
	result = container_start(&order, &sentry);
	if (result < 0)
		fail(result, "runsc run");
	close(pair[1]);
	phase_done("runsc");
	result = relay_begin(shim.channel, order.deadline);
	if (result < 0)
		fail(result, "the init in the container");
	phase_done("guest");
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
	prepare();
	make_root(&limits);
	pid_t sentry = start_container(argv[1], &id, &limits);
	for (uint32_t i = 0; i < shim.work_cgroup_count; i++)
		close(shim.work_cgroups[i]);
	/* After runsc: the sentry's limit is its own. */
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	setrlimit(RLIMIT_NOFILE, &files);
	int result = listen(shim.listener, 4) < 0 ? -errno : narrow_shim();
	if (result < 0)
		fail(result, "narrowing the shim");
	report_done();
	report_begin(0);
	report_done();
	close(BOOT_FD);
	relay_run(shim.listener, sentry);
}
