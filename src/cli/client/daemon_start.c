/* Starts a daemon for a client that found none: `caisson serve --idle-exit` in a session of its
 * own, inheriting nothing from the client. Several clients may do this at once: a lock lets one of
 * them start it, the others wait until it answers. */
#include "cli/client/daemon_start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/syscalls.h"
#include "base/text.h"

#define START_SECONDS 15
#define IDLE_EXIT "60"
#define LOG_MAX (1024 * 1024)

/* Leaves the client's cgroups (with cgroup v1, one per hierarchy): a service manager or a terminal
 * may kill all processes in them. Best effort: an ordinary user may lack permission. */
static void cgroups_leave(void)
{
	char text[4096];
	if (fd_read_small(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0)
		return;
	char *rest = text, *line;
	while ((line = strsep(&rest, "\n"))) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path || strcmp(path, ":/") == 0)
			continue;
		*path = '\0';
		const char *name =
		    text_starts(controllers + 1, "name=") ? controllers + 6 : controllers + 1;
		char procs[512];
		int result = text_format(procs, sizeof(procs), "/sys/fs/cgroup/%s/cgroup.procs",
					 *name ? name : "");
		if (result == 0)
			result = fd_write_small(AT_FDCWD, procs, "0");
		(void)result;
	}
}

static void daemon_exec(const struct client *client, int log_fd)
{
	static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	/* The location of its configuration and directories; a reload reads it again. */
	static const char *const names[] = {"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
					    "XDG_CONFIG_HOME"};
	static char rooms[ARRAY_SIZE(names)][512];
	char *environment[ARRAY_SIZE(names) + 2] = {path};
	int count = 1;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]);
		if (value && text_format(rooms[i], 512, "%s=%s", names[i], value) == 0)
			environment[count++] = rooms[i];
	}
	const char *argv[16] = {"caisson",     "serve",
				"--idle-exit", IDLE_EXIT,
				"--state",     client->config.state,
				"--runtime",   client->config.runtime,
				"--listen",    client->config.listen};
	int argc = 10;
	if (client->config_path[0]) {
		argv[argc++] = "--config";
		argv[argc++] = client->config_path;
	}
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || chdir("/") < 0)
		_exit(127);
	dup2(null, STDIN_FILENO);
	dup2(log_fd, STDOUT_FILENO);
	dup2(log_fd, STDERR_FILENO);
	sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	cgroups_leave();
	umask(022);
	execve("/proc/self/exe", (char *const *)argv, environment);
	_exit(127);
}

static void signals_reset(void)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int number = 1; number < 32; number++)
		signal(number, SIG_DFL);
}

/* Forks twice, so that init adopts the daemon. Returns the daemon's pid, received through a pipe.
 */
static pid_t daemon_spawn(const struct client *client, int log_fd)
{
	int channel[2];
	if (pipe2(channel, O_CLOEXEC) < 0)
		return -errno;
	CLOSE_FD int reader = channel[0], writer = channel[1];
	pid_t child = fork();
	if (child < 0)
		return -errno;
	if (child == 0) {
		setsid();
		signals_reset();
		pid_t daemon = fork();
		if (daemon == 0)
			daemon_exec(client, log_fd);
		_exit(fd_write_full(writer, &daemon, sizeof(daemon)) < 0 || daemon < 0);
	}
	fd_close(&writer);
	pid_t daemon = -ECHILD;
	int result = fd_read_full(reader, &daemon, sizeof(daemon));
	waitpid(child, NULL, 0);
	return result < 0 ? result : daemon;
}

/* Opens the daemon's log for appending, because it may hold the reason why an earlier daemon
 * crashed. A large log is renamed; one older file is kept. *ret_begin: the offset where the new
 * daemon's output begins. */
static int daemon_log_open(const char *path, off_t *ret_begin)
{
	char old[320];
	struct stat info;
	if (lstat(path, &info) == 0 && info.st_size > LOG_MAX &&
	    text_format(old, sizeof(old), "%s.old", path) == 0)
		(void)!rename(path, old);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (fd < 0)
		return -errno;
	*ret_begin = lseek(fd, 0, SEEK_END);
	return fd;
}

/* Puts the end of the daemon's log into the error: it says why the daemon did not start. */
static int daemon_start_failed(const char *log_path, off_t begin, struct error *error)
{
	char text[16384] = "";
	CLOSE_FD int log = open(log_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t size = log < 0 ? -1 : pread(log, text, sizeof(text) - 1, begin);
	char *last = text;
	if (size > 0) {
		if (text[size - 1] == '\n')
			text[size - 1] = '\0';
		char *line = strrchr(text, '\n');
		last = line ? line + 1 : text;
	}
	char *message = strstr(last, "spawner: ");
	return error_set(error, ERROR_DAEMON_UNREACHABLE, "the daemon did not start: %s",
			 message ? message + strlen("spawner: ")
			 : *last ? last
				 : log_path);
}

static int daemon_await(struct client *client, pid_t daemon, const char *log_path, off_t log_begin,
			struct error *error)
{
	struct process process = PROCESS_NONE;
	if (daemon > 0 && process_open(daemon, 0, &process) < 0)
		process = PROCESS_NONE;
	int64_t end = clock_monotonic() + START_SECONDS * NSEC_PER_SEC;
	int result = -1;
	struct error ignored;
	for (;;) {
		if (client_ping(client, &ignored) == 0) {
			result = 0;
			break;
		}
		if (daemon > 0 && !process_alive(&process)) {
			daemon_start_failed(log_path, log_begin, error);
			break;
		}
		if (clock_monotonic() > end) {
			error_set(error, ERROR_DAEMON_UNREACHABLE,
				  "a daemon was started but does not answer after %d s; its log is "
				  "%s",
				  START_SECONDS, log_path);
			break;
		}
		usleep(2000);
	}
	process_done(&process);
	return result;
}

/* Makes the directory. For an ordinary user also missing parents (~/.local/state). */
static int runtime_directory_make(const char *path)
{
	char part[256];
	bool root = geteuid() == 0;
	for (const char *slash = strchr(path + 1, '/'); slash && !root;
	     slash = strchr(slash + 1, '/')) {
		int result = text_format(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (result < 0)
			return result;
		if (mkdir(part, 0700) < 0 && errno != EEXIST)
			return -errno;
	}
	return mkdir(path, root ? 0755 : 0700) < 0 && errno != EEXIST ? -errno : 0;
}

int daemon_start(struct client *client, struct error *error)
{
	char lock_path[300], log_path[300];
	int made = runtime_directory_make(client->config.runtime);
	if (made < 0)
		return error_set_errno(
		    error, ERROR_DAEMON_UNREACHABLE, made,
		    "no daemon runs, and its runtime directory %s cannot be made",
		    client->config.runtime);
	/* Below /tmp another user may have created it first. */
	struct stat status;
	if (lstat(client->config.runtime, &status) < 0 || !S_ISDIR(status.st_mode) ||
	    status.st_uid != geteuid() || (status.st_mode & 022))
		return error_set(error, ERROR_DAEMON_UNREACHABLE,
				 "no daemon runs, and %s is not private to this user: name another "
				 "directory with CAISSON_RUNTIME",
				 client->config.runtime);
	if (text_format(lock_path, sizeof(lock_path), "%s/start.lock", client->config.runtime) <
		0 ||
	    text_format(log_path, sizeof(log_path), "%s/serve.log", client->config.runtime) < 0)
		return error_set(error, ERROR_CONFIG, "the runtime directory's path is too long");
	CLOSE_FD int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return error_set_errno(
		    error, ERROR_DAEMON_UNREACHABLE, errno,
		    "no daemon runs at %s, and this user may not start one there", client->socket);
	while (flock(lock, LOCK_EX) < 0)
		if (errno != EINTR)
			return error_set_errno(error, ERROR_DAEMON_UNREACHABLE, errno, "%s",
					       lock_path);
	/* The previous holder of the lock has started one. */
	struct error ignored;
	if (client_ping(client, &ignored) == 0)
		return 0;
	off_t log_begin = 0;
	CLOSE_FD int log_fd = daemon_log_open(log_path, &log_begin);
	if (log_fd < 0)
		return error_set_errno(error, ERROR_DAEMON_UNREACHABLE, log_fd, "%s", log_path);
	pid_t daemon = daemon_spawn(client, log_fd);
	if (daemon < 0)
		return error_set_errno(error, ERROR_DAEMON_UNREACHABLE, daemon,
				       "starting the daemon");
	return daemon_await(client, daemon, log_path, log_begin, error);
}
