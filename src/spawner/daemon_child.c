/* Starts the daemon and restarts it. It gets its sockets and copies of the TLS files, an
 * unprivileged user, no capabilities, and a few harmless environment variables. It has no death
 * signal: it notices that the spawner's end of its socket closes. */
#include "spawner/internal.h"
#include "spawner/rootless.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "base/text.h"

#define BACK_OFF_FIRST_MS 100
#define BACK_OFF_MAX_MS 5000
#define EXIT_GRACE (3 * NSEC_PER_SEC)
#define STABLE_AFTER (10 * NSEC_PER_SEC)
#define ARGUMENTS_MAX 28
#define ENVIRONMENT_MAX 16
#define SOCKET_BUFFER (1024 * 1024)

static const char *const kept_variables[] = {
    "PATH",           "LANG", "TZ", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS",
#ifdef CAISSON_FAULT_POINTS
    "CAISSON_FAULTS",
#endif
};

static const char *const level_names[] = {"error", "warning", "info", "debug"};

struct command {
	const char *arguments[ARGUMENTS_MAX];
	char *environment[ENVIRONMENT_MAX];
	char idle_exit[16], files_max[16];
};

static void command_add_option(struct command *command, size_t *count, const char *name,
			       const char *value)
{
	command->arguments[(*count)++] = name;
	if (value)
		command->arguments[(*count)++] = value;
}

/* All settings are passed as options: the daemon does not read our flags and environment again. */
static void command_make(const struct spawner *spawner, struct command *command)
{
	const struct config *config = &spawner->config;
	size_t count = 0, variables = 0;
	memset(command, 0, sizeof(*command));
	command_add_option(command, &count, "caisson", NULL);
	command_add_option(command, &count, "_daemon", NULL);
	if (spawner->config_path)
		command_add_option(command, &count, "--config", spawner->config_path);
	command_add_option(command, &count, "--state", spawner->host.state);
	command_add_option(command, &count, "--runtime", spawner->host.runtime);
	command_add_option(command, &count, "--listen",
			   spawner->listen[0] ? spawner->listen : "none");
	if (spawner->tcp_listener >= 0)
		command_add_option(command, &count, "--tcp", NULL);
	if (config->tls_certificate[0]) {
		command_add_option(command, &count, "--tls-certificate", config->tls_certificate);
		command_add_option(command, &count, "--tls-key", config->tls_key);
	}
	snprintf(command->idle_exit, sizeof(command->idle_exit), "%u", config->idle_exit_seconds);
	command_add_option(command, &count, "--idle-exit", command->idle_exit);
	/* The kernel counts descriptors in flight in sockets per user, and compares the count
	 * with the limit of the sending process. A quarter leaves room for everything else of
	 * this user. */
	struct rlimit files;
	if (spawner->host.rights != RIGHTS_ROOT && getrlimit(RLIMIT_NOFILE, &files) == 0 &&
	    files.rlim_max / 4 < SANDBOX_FILES_MAX) {
		snprintf(command->files_max, sizeof(command->files_max), "%u",
			 (unsigned)MAX(files.rlim_max / 4, SANDBOX_FILES_MIN));
		command_add_option(command, &count, "--files-max", command->files_max);
	}
	/* A level that comes from the configuration file is read there by the daemon, and again
	 * on reload. */
	if (config->log_level_fixed)
		command_add_option(command, &count, "--log-level", level_names[config->log_level]);
	if (config->log_json)
		command_add_option(command, &count, "--log-json", NULL);
	for (size_t i = 0; i < ARRAY_SIZE(kept_variables); i++) {
		char text[1024];
		const char *value = getenv(kept_variables[i]);
		if (value &&
		    text_format(text, sizeof(text), "%s=%s", kept_variables[i], value) == 0)
			command->environment[variables++] = text_duplicate(text);
	}
}

static void command_done(struct command *command)
{
	for (size_t i = 0; i < ENVIRONMENT_MAX; i++)
		text_free(&command->environment[i]);
}

/* The daemon logs to our standard error. An intruder in the daemon must not be able to read what
 * is typed there. A terminal of another user (after su) cannot be reopened and stays as it is. */
static void fd_make_write_only(int fd)
{
	char name[32];
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	/* Without O_NONBLOCK the open would wait on a serial line without a carrier. */
	CLOSE_FD int again =
	    isatty(fd) ? open(name, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC) : -1;
	if (again >= 0 && fcntl(again, F_SETFL, 0) == 0)
		(void)dup2(again, fd);
}

/* Places descriptors 0 to 7 and closes all others. They are duplicated to high numbers first,
 * because one may occupy the number that another needs. */
static int daemon_place_descriptors(const struct spawner *spawner, int socket)
{
	int from[] = {open("/dev/null", O_RDWR | O_CLOEXEC),
		      socket,
		      spawner->unix_listener,
		      spawner->tcp_listener,
		      tls_file_open(spawner, 0),
		      tls_file_open(spawner, 1)};
	const int to[] = {STDIN_FILENO,  DAEMON_SPAWNER_FD,     DAEMON_UNIX_FD,
			  DAEMON_TCP_FD, DAEMON_CERTIFICATE_FD, DAEMON_KEY_FD};
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		if (from[i] < 0)
			continue;
		from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 16);
		if (from[i] < 0)
			return -errno;
	}
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		if (from[i] < 0)
			close(to[i]);
		else if (dup2(from[i], to[i]) < 0)
			return -errno;
	}
	return sys_close_range(DAEMON_KEY_FD + 1, ~0u, 0);
}

/* Capabilities that are not in the bounding set cannot be regained by executing a program. */
static int capabilities_drop_bounding_set(void)
{
	for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0;
	     capability++)
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
			return -errno;
	return 0;
}

static int child_become_daemon_user(const struct host *host)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2];
	memset(none, 0, sizeof(none));
	int result = capabilities_drop_bounding_set();
	if (result < 0)
		return result;
	result = instance_become_daemon_user(host);
	if (result < 0)
		return result;
	if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	/* Verify that root cannot be regained. (With a single id the daemon has the same id as
	 * we; only its empty capability set and its own restrictions separate it from us.) */
	if (host->rights != RIGHTS_ONE_ID && (setuid(0) == 0 || getuid() == 0))
		return -EPERM;
	return 0;
}

static void child_run_daemon(const struct spawner *spawner, const struct command *command,
			     int socket)
{
	const struct rlimit no_core = {0, 0};
	/* A session of its own: Ctrl-C in the terminal signals the spawner, which tells the
	 * daemon. */
	setsid();
	spawner_loop_reset_signals();
	umask(077);
	int result = rootless_open_paths(spawner);
	if (result == 0)
		result = daemon_place_descriptors(spawner, socket);
	fd_make_write_only(STDOUT_FILENO);
	fd_make_write_only(STDERR_FILENO);
	if (result == 0 && (setrlimit(RLIMIT_CORE, &no_core) < 0 || chdir("/") < 0))
		result = -errno;
	if (result == 0)
		result = child_become_daemon_user(&spawner->host);
	if (result == 0) {
		execve("/proc/self/exe", (char *const *)command->arguments, command->environment);
		result = -errno;
	}
	log_error("the daemon cannot be started: %s", strerror(-result));
	_exit(DAEMON_EXIT_CONFIG);
}

int daemon_child_start(struct spawner *spawner, struct error *error)
{
	int pair[2], size = SOCKET_BUFFER;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "a socket for the daemon");
	CLOSE_FD int ours = pair[0], theirs = pair[1];
	/* A list of all sandboxes fits into this buffer. What does not fit stays in the outbox. */
	setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	struct command command;
	command_make(spawner, &command);
	pid_t child = fork();
	if (child == 0)
		child_run_daemon(spawner, &command, theirs);
	int saved = errno;
	command_done(&command);
	if (child < 0)
		return error_set_errno(error, error_kind_of_errno(saved), saved,
				       "starting the daemon");
	spawner->daemon = child;
	spawner->daemon_started = clock_monotonic();
	spawner->daemon_restart_at = 0;
	spawner->socket = TAKE_FD(ours);
	spawner->outbox_count = 0;
	log_debug("daemon started, pid %d", (int)child);
	return spawner_loop_watch(spawner, error);
}

static void daemon_close_socket(struct spawner *spawner)
{
	fd_close(&spawner->socket);
	spawner->outbox_count = 0;
	if (!spawner->start_daemon)
		spawner->done = true;
}

void daemon_child_lost(struct spawner *spawner)
{
	daemon_close_socket(spawner);
	spawner->daemon_kill_at = clock_monotonic() + EXIT_GRACE;
}

void daemon_child_drop(struct spawner *spawner, const char *why)
{
	if (spawner->socket >= 0)
		log_error("stopping the daemon: %s", why);
	daemon_close_socket(spawner);
	/* The child is not reaped yet, so its pid cannot have been reused. */
	if (spawner->daemon > 0)
		kill(spawner->daemon, SIGKILL);
}

static void daemon_plan_restart(struct spawner *spawner, int status)
{
	int64_t now = clock_monotonic();
	if (spawner->back_off_ms == 0 || now - spawner->daemon_started >= STABLE_AFTER)
		spawner->back_off_ms = BACK_OFF_FIRST_MS;
	else
		spawner->back_off_ms = MIN(spawner->back_off_ms * 2, BACK_OFF_MAX_MS);
	spawner->daemon_restart_at = now + spawner->back_off_ms * NSEC_PER_MSEC;
	log_warning("the daemon ended (%s %d); it is started again in %u ms",
		    WIFSIGNALED(status) ? "signal" : "status",
		    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
		    spawner->back_off_ms);
}

void daemon_child_ended(struct spawner *spawner, int status)
{
	fd_close(&spawner->socket);
	spawner->outbox_count = 0;
	spawner->daemon = 0;
	spawner->daemon_kill_at = 0;
	if (spawner->quitting) {
		spawner->done = true;
	} else if (WIFEXITED(status) && WEXITSTATUS(status) == DAEMON_EXIT_IDLE) {
		log_info("nothing to do for %u seconds", spawner->config.idle_exit_seconds);
		spawner->done = true;
	} else if (WIFEXITED(status) && WEXITSTATUS(status) == DAEMON_EXIT_CONFIG) {
		spawner->done = true;
		spawner->exit_code = error_info(ERROR_CONFIG)->exit_code;
	} else {
		daemon_plan_restart(spawner, status);
	}
}
