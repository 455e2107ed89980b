/* Runs work and programs that may hang in children, and kills them when they do. Called by the
 * checks of `caisson doctor` and by `caisson state`. Each call blocks for its time-out at most. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"

#define CHILD_FAILED 255

/* Reads until the other end is closed or the time is over. Returns 0 or -ETIMEDOUT. Data that does
 * not fit is discarded. */
static int channel_read_until(int fd, int64_t deadline, char *text, size_t room)
{
	size_t used = 0;
	text[0] = '\0';
	for (;;) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		int64_t left = (deadline - clock_monotonic()) / NSEC_PER_MSEC;
		if (left <= 0)
			return -ETIMEDOUT;
		int ready = poll(&wait, 1, (int)left);
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return ready == 0 ? -ETIMEDOUT : -errno;
		char chunk[4096];
		ssize_t got = read(fd, chunk, sizeof(chunk));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got == 0 ? 0 : -errno;
		size_t kept = MIN((size_t)got, room - 1 - used);
		memcpy(text + used, chunk, kept);
		used += kept;
		text[used] = '\0';
	}
}

/* Waits for the child until the deadline. A child that is stuck in the kernel is left to the
 * process that adopts it. */
static int child_wait_until(pid_t child, int64_t deadline, int *ret_status)
{
	for (;;) {
		pid_t ended = waitpid(child, ret_status, WNOHANG);
		if (ended == child)
			return 0;
		if (ended < 0 && errno != EINTR)
			return -errno;
		if (clock_monotonic() > deadline)
			return -ETIMEDOUT;
		usleep(500);
	}
}

static int child_finish(pid_t child, int reader, int timeout_ms, char *text, size_t room)
{
	int64_t deadline = clock_monotonic() + timeout_ms * NSEC_PER_MSEC;
	int status = 0;
	int result = channel_read_until(reader, deadline, text, room);
	if (result == 0)
		result = child_wait_until(child, deadline, &status);
	if (result < 0) {
		kill(child, SIGKILL);
		int ignored = child_wait_until(child, clock_monotonic() + NSEC_PER_SEC, &status);
		(void)ignored;
		return result;
	}
	if (WIFSIGNALED(status))
		return -EINTR;
	return WEXITSTATUS(status) == CHILD_FAILED ? -EIO : WEXITSTATUS(status);
}

static int child_channel = -1; /* in a child: the pipe for its text */

void doctor_close_all_but(const int *fds, size_t count)
{
	unsigned first = STDERR_FILENO + 1;
	for (;;) {
		/* The lowest descriptor from `first` on that stays open. */
		unsigned next = child_channel >= (int)first ? (unsigned)child_channel : ~0u;
		for (size_t i = 0; i < count; i++)
			if (fds[i] >= (int)first)
				next = MIN(next, (unsigned)fds[i]);
		if (next > first)
			sys_close_range(first, next - (next != ~0u), 0);
		if (next == ~0u)
			return;
		first = next + 1;
	}
}

int doctor_run_child(int (*work)(void *data, char *text, size_t room), void *data, int timeout_ms,
		     char *text, size_t room)
{
	int channel[2];
	text[0] = '\0';
	if (pipe2(channel, O_CLOEXEC) < 0)
		return -errno;
	CLOSE_FD int reader = channel[0], writer = channel[1];
	fflush(NULL);
	pid_t parent = getpid(), child = fork();
	if (child < 0)
		return -errno;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(CHILD_FAILED);
		fd_close(&reader);
		child_channel = writer;
		int code = work(data, text, room);
		if (fd_write_full(writer, text, strlen(text)) < 0 || code < 0)
			_exit(CHILD_FAILED);
		_exit(code);
	}
	fd_close(&writer);
	return child_finish(child, reader, timeout_ms, text, room);
}

struct apart_program {
	const char *const *argv;
	int output;
};

/* Runs as PID 1 of the program's pid namespace. When it ends, the kernel kills every other process
 * in it. */
static void program_run_as_pid1(const struct apart_program *program)
{
	static char *const environment[] = {
	    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", NULL};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Mounts a /proc of its own. If that is refused, the program may still run. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
		mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	pid_t child = fork();
	if (child == 0) {
		/* Not /dev/null: runsc, as root, changes the owner of its standard descriptors to
		 * nobody. */
		int empty[2];
		if (pipe2(empty, O_CLOEXEC) < 0 || dup2(empty[0], 0) < 0 ||
		    dup2(program->output, 1) < 0 || dup2(program->output, 2) < 0)
			_exit(CHILD_FAILED);
		execve(program->argv[0], (char *const *)program->argv, environment);
		_exit(127);
	}
	int status = 0;
	while (child > 0) {
		pid_t ended = wait(&status);
		if (ended == child || (ended < 0 && errno != EINTR))
			break;
	}
	_exit(child < 0 || !WIFEXITED(status) ? CHILD_FAILED : WEXITSTATUS(status));
}

/* If we are root, the program is too, and only the pid and mount namespaces are new. */
static int program_run_apart(const struct apart_program *program)
{
	int failure = geteuid() == 0 ? (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ? errno : 0)
				     : doctor_enter_namespaces(CLONE_NEWPID | CLONE_NEWNS);
	if (failure)
		return CHILD_FAILED;
	pid_t first = fork();
	if (first == 0)
		program_run_as_pid1(program);
	int status = 0;
	while (first > 0 && waitpid(first, &status, 0) < 0)
		if (errno != EINTR)
			return CHILD_FAILED;
	return first < 0 || !WIFEXITED(status) ? CHILD_FAILED : WEXITSTATUS(status);
}

int doctor_run_program(const char *const *argv, int timeout_ms, char *text, size_t room)
{
	int channel[2];
	text[0] = '\0';
	if (pipe2(channel, O_CLOEXEC) < 0)
		return -errno;
	CLOSE_FD int reader = channel[0], writer = channel[1];
	struct apart_program program = {.argv = argv, .output = writer};
	fflush(NULL);
	pid_t parent = getpid(), child = fork();
	if (child < 0)
		return -errno;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(getppid() == parent ? program_run_apart(&program) : CHILD_FAILED);
	}
	fd_close(&writer);
	return child_finish(child, reader, timeout_ms, text, room);
}

bool doctor_find_program(const char *name, char path[128])
{
	static const char *const directories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
						  "/usr/bin",        "/sbin",          "/bin"};
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		if (text_format(path, 128, "%s/%s", directories[i], name) == 0 &&
		    access(path, X_OK) == 0)
			return true;
	return false;
}

static int id_map_write(const char *path, unsigned id)
{
	char text[32];
	snprintf(text, sizeof(text), "0 %u 1", id);
	return -fd_write_small(AT_FDCWD, path, text);
}

int doctor_enter_namespaces(int flags)
{
	unsigned uid = geteuid(), gid = getegid();
	if (unshare(CLONE_NEWUSER | flags) < 0)
		return errno;
	int failure = -fd_write_small(AT_FDCWD, "/proc/self/setgroups", "deny");
	if (failure == 0)
		failure = id_map_write("/proc/self/uid_map", uid);
	return failure ? failure : id_map_write("/proc/self/gid_map", gid);
}

bool doctor_file_has_word(const char *path, const char *word)
{
	/* /proc/cpuinfo can be long on a large machine; its beginning is enough. */
	char text[65536];
	CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t got = 0;
	while (fd >= 0 && used < sizeof(text) - 1 &&
	       (got = read(fd, text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t)got;
	text[used] = '\0';
	char *rest = text, *token;
	while ((token = strsep(&rest, " \t\n,")))
		if (strcmp(token, word) == 0)
			return true;
	return false;
}

int64_t doctor_read_number(const char *path)
{
	char text[64];
	uint64_t number;
	if (fd_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return -1;
	text[strcspn(text, " \t\n")] = '\0';
	return text_to_u64(text, 0, INT64_MAX, &number) < 0 ? -1 : (int64_t)number;
}
