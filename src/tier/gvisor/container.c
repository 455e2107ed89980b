/* The container and runsc. See container.h. runsc is controlled by its OCI command line: a
 * bundle directory with config.json, `run --detach`, and a pid file. */
#include "tier/gvisor/container.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "tier/gvisor/root.h"

#define DESCRIPTION_MAX 8192
#define PID_FILE ROOT_STATE "/pid"
#define LOOK_EVERY (2 * NSEC_PER_MSEC)

/* The capabilities that the init keeps for good (src/init/setup/harden.c). With the host's
 * network runsc gives these to its own kernel process too, in the sandbox's user namespace, and
 * SYS_PTRACE. So SYS_ADMIN is not included, and the init cannot set its host name: it is the
 * sandbox's id. */
#define CAPABILITIES                                                                               \
	"[\"CAP_CHOWN\",\"CAP_DAC_OVERRIDE\",\"CAP_FOWNER\",\"CAP_FSETID\",\"CAP_KILL\","          \
	"\"CAP_SETGID\",\"CAP_SETUID\",\"CAP_SETPCAP\",\"CAP_NET_BIND_SERVICE\","                  \
	"\"CAP_SYS_CHROOT\",\"CAP_SETFCAP\"]"

/* No network namespace is named, so the container uses ours.
 *
 * /tmp is a directory of the root, on the sandbox's own disk, where bytes and inodes are counted.
 * runsc would mount a tmpfs of its kernel's there unless the list has a mount for /tmp. It mounts
 * nothing there if the list has one of an unknown type (since 2018; a test checks it). */
static const char description[] =
    "{\"ociVersion\":\"1.0.0\",\"hostname\":\"%s\","
    "\"process\":{\"user\":{\"uid\":0,\"gid\":0},\"cwd\":\"/\",\"env\":[],"
    "\"args\":[\"/dev/caisson/init\",\"channel\"],"
    "\"capabilities\":{\"bounding\":" CAPABILITIES ",\"effective\":" CAPABILITIES
    ",\"permitted\":" CAPABILITIES "},"
    "\"rlimits\":[{\"type\":\"RLIMIT_NOFILE\",\"hard\":%u,\"soft\":%u}]},"
    "\"root\":{\"path\":\"" ROOT_GUEST "\",\"readonly\":false},"
    "\"mounts\":["
    "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
    "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\"},"
    "{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"tmpfs\","
    "\"options\":[\"nosuid\",\"nodev\",\"noexec\",\"mode=1777\",\"size=%lluk\"]},"
    "{\"destination\":\"/tmp\",\"type\":\"of-the-root\",\"source\":\"none\"},"
    "{\"destination\":\"/dev/caisson\",\"type\":\"bind\",\"source\":\"" ROOT_INIT "\","
    "\"options\":[\"ro\",\"nosuid\",\"nodev\"]}],"
    "\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},"
    "{\"type\":\"mount\"}]}}\n";

int container_describe(const struct id *id, const struct limits *limits)
{
	char text[DESCRIPTION_MAX];
	int length = snprintf(text, sizeof(text), description, id->text, limits->files,
			      limits->files, (unsigned long long)(limits->memory / 2 / KIB));
	if (length < 0 || (size_t)length >= sizeof(text))
		return -E2BIG;
	CLOSE_FD int fd = open(ROOT_BUNDLE "/config.json",
			       O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd_write_full(fd, text, (size_t)length);
}

/* Runs in the child. Joins the cgroup with the limits first, so that all of runsc is in it. */
static _Noreturn void container_child_become_runsc(const struct container_order *order)
{
	char platform[64];
	char *const arguments[] = {"runsc",
				   "--root=" ROOT_STATE,
				   platform,
				   "--network=host",
				   "--ignore-cgroups",
				   "--overlay2=none",
				   "run",
				   "--detach",
				   "--bundle=" ROOT_BUNDLE,
				   "--pid-file=" PID_FILE,
				   "caisson",
				   NULL};
	char *const environment[] = {"PATH=/", "HOME=/", NULL};
	/* 1 and not 0, because only 1 prevents the host's core_pattern helper. */
	const struct rlimit no_core = {1, 1};
	snprintf(platform, sizeof(platform), "--platform=%s", order->platform);
	if (setrlimit(RLIMIT_CORE, &no_core) < 0)
		_exit(126);
	for (uint32_t i = 0; i < order->work_cgroup_count; i++)
		if (write(order->work_cgroups[i], "0", 1) != 1)
			_exit(126);
	int errors =
	    open(ROOT_ERRORS, O_CREAT | O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (errors < 0 || null < 0 || dup2(order->channel, 0) < 0 || dup2(null, 1) < 0 ||
	    dup2(errors, 2) < 0 || sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		_exit(126);
	execve(ROOT_RUNSC, arguments, environment);
	_exit(127);
}

/* We are PID 1 here: orphans of runsc become our children too. */
static int runsc_wait(pid_t pid, int64_t deadline)
{
	const struct timespec pause = {.tv_nsec = LOOK_EVERY};
	for (;;) {
		int status;
		pid_t ended = waitpid(-1, &status, WNOHANG);
		if (ended == pid)
			return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
		if (ended < 0 && errno != EINTR)
			return -errno;
		if (ended > 0)
			continue;
		if (clock_boot() > deadline)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
}

int container_start(const struct container_order *order, pid_t *ret_sentry)
{
	char text[32];
	uint64_t sentry;
	pid_t pid = fork();
	if (pid == 0)
		container_child_become_runsc(order);
	if (pid < 0)
		return -errno;
	int result = runsc_wait(pid, order->deadline);
	if (result < 0)
		return result;
	ssize_t length = fd_read_small(AT_FDCWD, PID_FILE, text, sizeof(text));
	if (length < 0)
		return (int)length;
	text[strcspn(text, "\n")] = '\0';
	if (text_to_u64(text, 2, INT32_MAX, &sentry) < 0)
		return -EBADMSG;
	*ret_sentry = (pid_t)sentry;
	return 0;
}

void container_errors(char *text, size_t room)
{
	CLOSE_FD int fd = open(ROOT_ERRORS, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : pread(fd, text, room - 1, 0);
	size_t size = got > 0 ? (size_t)got : 0;
	for (size_t i = 0; i < size; i++)
		if (text[i] < ' ' || text[i] > '~')
			text[i] = ' ';
	while (size > 0 && text[size - 1] == ' ')
		size--;
	text[size] = '\0';
}
