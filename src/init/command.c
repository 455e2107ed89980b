/* Starts a command. Called by the runner of an exec, once. The child shares the runner's memory
 * until it executes (as with vfork, on a stack of its own), so that it reports what failed through
 * a variable and costs no copy of the page tables; it makes system calls only. */
#include "init/command.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/syscalls.h"
#include "init/setup/configuration.h"
#include "init/environment.h"
#include "init/signals.h"
#include "init/user.h"

#define CWD_DEFAULT "/workspace"
#define SHELL_PATH "/bin/sh"
#define CHILD_STACK_SIZE (64 * 1024)
#define CHILD_STACK_USED (8 * 1024)

enum step { STEP_DESCRIPTORS, STEP_TERMINAL, STEP_LIMITS, STEP_USER, STEP_CWD, STEP_EXECUTE };

/* All that the child needs, prepared by the runner. */
struct command {
	const struct exec_request *request;
	struct user user;
	char **environment;
	/* One place before the first for the shell, should it be needed. */
	char *argv_room[EXEC_ARGV_MAX + 2];
	char **argv;
	char cwd[2 * GUEST_PATH_MAX]; /* what it is relative to, and it */
	int standard[3];
	char path[2 * GUEST_PATH_MAX]; /* what was tried last */
	/* What failed. */
	enum step step;
	int errnum;
};

static struct command command;
static char child_stack[CHILD_STACK_SIZE] __attribute__((aligned(4096)));

static bool child_set_descriptors(void)
{
	for (int i = 0; i < 3; i++)
		if (dup2(command.standard[i], i) < 0)
			return false;
	/* Everything of ours is so already; this is for what somebody forgot. */
	return sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0;
}

static bool child_set_terminal(void)
{
	if (setsid() < 0)
		return false;
	if (!(command.request->flags & EXEC_TTY))
		return true;
	/* Programs reopen it by name, so that it has to be the user's. */
	if (fchown(STDIN_FILENO, command.user.uid, (gid_t)-1) < 0 && command.user.uid != 0 &&
	    errno != EPERM)
		return false;
	return ioctl(STDIN_FILENO, TIOCSCTTY, 0) == 0;
}

static bool limit_set(int resource, uint64_t soft, uint64_t hard)
{
	struct rlimit limit = {.rlim_cur = soft, .rlim_max = hard};
	return prlimit(0, resource, &limit, NULL) == 0;
}

static bool child_set_limits(void)
{
	const struct exec_request *request = command.request;
	uint64_t files = configuration.setup.limits.files;
	if (files > 0 && !limit_set(RLIMIT_NOFILE, files, files) && errno != EPERM)
		return false;
	for (uint32_t i = 0; i < request->limit_count; i++)
		if (!limit_set((int)request->limits[i].resource, request->limits[i].soft,
			       request->limits[i].hard))
			return false;
	return true;
}

/* `> /dev/stderr` and the driver of a code context open a pipe anew, by its name under /proc: it
 * has to be the user's. Where it cannot be, all else works. */
static void pipes_give_to_user(void)
{
	if (command.user.uid == 0 || command.request->flags & EXEC_TTY)
		return;
	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		if (fchown(fd, command.user.uid, (gid_t)-1) < 0)
			return;
}

static bool child_set_user(void)
{
	pipes_give_to_user();
	int result = user_become(&command.user);
	errno = -result;
	return result == 0;
}

/* Executes the file at command.path; returns only on failure. */
static void program_execute(void)
{
	execve(command.path, command.argv, command.environment);
	if (errno != ENOEXEC)
		return;
	/* A script without a first line that names its interpreter is the shell's, as ever. */
	char *name = command.argv[0];
	command.argv[0] = command.path;
	command.argv_room[0] = (char *)"sh";
	execve(SHELL_PATH, command.argv_room, command.environment);
	command.argv[0] = name;
	errno = ENOEXEC;
}

/* Tries each directory of PATH as execvpe() does: one that may not be searched or holds something
 * that may not be executed does not end the search, but is what is reported if nothing is found. */
static void program_search_path(const char *path)
{
	const char *name = command.argv[0];
	int worst = ENOENT;
	while (path) {
		const char *end = strchr(path, ':');
		int length = end ? (int)(end - path) : (int)strlen(path);
		int used = snprintf(command.path, sizeof(command.path), "%.*s%s%s", length, path,
				    length ? "/" : "", name);
		if (used > 0 && (size_t)used < sizeof(command.path)) {
			program_execute();
			if (errno == EACCES)
				worst = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
				return;
		}
		path = end ? end + 1 : NULL;
	}
	errno = worst;
}

static bool program_run(void)
{
	const char *path = environment_get(command.environment, "PATH");
	if (strchr(command.argv[0], '/') || !path) {
		snprintf(command.path, sizeof(command.path), "%s", command.argv[0]);
		program_execute();
	} else if (!command.argv[0][0]) {
		errno = ENOENT;
	} else {
		program_search_path(path);
	}
	return false;
}

static bool child_set_cwd(void)
{
	return chdir(command.cwd) == 0;
}

static int child_main(void *unused)
{
	static bool (*const steps[])(void) = {
	    [STEP_DESCRIPTORS] = child_set_descriptors,
	    [STEP_TERMINAL] = child_set_terminal,
	    [STEP_LIMITS] = child_set_limits,
	    [STEP_USER] = child_set_user,
	    [STEP_CWD] = child_set_cwd,
	    [STEP_EXECUTE] = program_run,
	};
	(void)unused;
	signals_default();
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		command.step = (enum step)i;
		if (steps[i]())
			continue;
		command.errnum = errno;
		break;
	}
	/* To clone()'s caller in the C library, which exits this process alone. */
	return 127;
}

/* A program that was found but could not be executed: why. */
static enum error_kind denied_error_kind(void)
{
	struct stat status;
	if (stat(command.path, &status) < 0)
		return ERROR_EXEC_DENIED;
	if (!S_ISREG(status.st_mode) || !(status.st_mode & 0111))
		return ERROR_NOT_EXECUTABLE;
	return ERROR_EXEC_DENIED;
}

static enum error_kind execute_error_kind(int errnum)
{
	switch (errnum) {
	case ENOENT:
	case ENOTDIR:
		return ERROR_PROGRAM_NOT_FOUND;
	case EACCES:
		return denied_error_kind();
	case EPERM:
		return ERROR_EXEC_DENIED;
	case EAGAIN:
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case E2BIG:
		return ERROR_RESOURCE_LIMIT;
	default:
		return ERROR_NOT_EXECUTABLE;
	}
}

static void failure_describe(struct failure *failure)
{
	int errnum = command.errnum;
	const char *what = "";
	failure->errnum = (uint32_t)errnum;
	switch (command.step) {
	case STEP_DESCRIPTORS:
	case STEP_TERMINAL:
		failure->kind = ERROR_RESOURCE_LIMIT;
		what = "its standard descriptors";
		break;
	case STEP_LIMITS:
		failure->kind = errnum == EINVAL ? ERROR_INVALID : ERROR_RESOURCE_LIMIT;
		what = "its limits";
		break;
	case STEP_USER:
		failure->kind = errnum == EAGAIN ? ERROR_RESOURCE_LIMIT : ERROR_BAD_USER;
		what = command.request->user;
		break;
	case STEP_CWD:
		failure->kind = ERROR_BAD_CWD;
		snprintf(failure->message, sizeof(failure->message), "cwd `%.180s`: %s",
			 command.cwd, errnum == ENOENT ? "no such directory" : strerror(errnum));
		return;
	case STEP_EXECUTE:
		failure->kind = execute_error_kind(errnum);
		what = command.argv[0];
		break;
	}
	snprintf(failure->message, sizeof(failure->message), "%.180s: %s", what, strerror(errnum));
}

static void standard_set(const int *fds, size_t count)
{
	uint32_t flags = command.request->flags;
	size_t at = 0;
	if (flags & EXEC_TTY) {
		for (int i = 0; i < 3 && count > 0; i++)
			command.standard[i] = fds[0];
		return;
	}
	/* The runner's own standard descriptors are /dev/null. */
	command.standard[0] = flags & EXEC_STDIN && at < count ? fds[at++] : STDIN_FILENO;
	command.standard[1] = at < count ? fds[at++] : STDOUT_FILENO;
	command.standard[2] = at < count ? fds[at++] : STDERR_FILENO;
}

/* As a user at a prompt in /workspace would mean it. */
static void cwd_prepare(void)
{
	const char *path = (const char *)command.request->cwd.data, *from = CWD_DEFAULT "/";
	int size = (int)command.request->cwd.size;
	if (size > 0 && path[0] == '/') {
		from = "";
	} else if (size > 0 && path[0] == '~' && (size == 1 || path[1] == '/')) {
		from = command.user.home[0] ? command.user.home : "/";
		path++;
		size--;
	}
	snprintf(command.cwd, sizeof(command.cwd), "%s%.*s", from, size, size > 0 ? path : "");
}

void command_prepare(void)
{
	struct failure failure;
	/* Pages of a forked process are copied when they are first written: now is a good time. */
	memset(&command, 0, sizeof(command));
	memset(child_stack + sizeof(child_stack) - CHILD_STACK_USED, 0, CHILD_STACK_USED);
	int found = user_find("", &command.user, &failure);
	(void)found; /* looked up again when it is known who is asked for */
}

pid_t command_start(const struct exec_request *request, const int *fds, size_t fd_count,
		    struct failure *ret_failure)
{
	size_t at = 0;
	*ret_failure = (struct failure){.kind = ERROR_NONE};
	command.request = request;
	if (user_find(request->user, &command.user, ret_failure) < 0)
		return -1;
	command.environment = environment_make(request, &command.user);
	command.argv = command.argv_room + 1;
	for (uint32_t i = 0; i < request->argc; i++)
		command.argv[i] = (char *)packed_next(request->argv, &at);
	cwd_prepare();
	standard_set(fds, fd_count);
	command.errnum = 0;
	pid_t pid = clone(child_main, child_stack + sizeof(child_stack),
			  CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	if (pid < 0) {
		ret_failure->kind = ERROR_RESOURCE_LIMIT;
		ret_failure->errnum = (uint32_t)errno;
		snprintf(ret_failure->message, sizeof(ret_failure->message),
			 "no process can be started in the sandbox: %s", strerror(errno));
		return -1;
	}
	if (command.errnum == 0)
		return pid;
	failure_describe(ret_failure);
	return -1;
}
