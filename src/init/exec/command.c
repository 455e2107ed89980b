/* Starts a command. Called by the runner of an exec. The child has its own stack and shares
 * the runner's memory until it executes, as with vfork(): it reports a failure through a variable,
 * and the page tables are not copied. So the child makes system calls only. */
#include "init/exec/command.h"

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
#include "init/exec/environment.h"
#include "init/exec/signals.h"
#include "init/exec/user.h"

#define CWD_DEFAULT "/workspace"
#define SHELL_PATH "/bin/sh"
#define CHILD_STACK_SIZE (64 * 1024)
#define CHILD_STACK_USED (8 * 1024)

enum step { STEP_DESCRIPTORS, STEP_LIMITS, STEP_USER, STEP_CWD, STEP_EXECUTE };

/* Everything the child needs, prepared by the runner. */
static struct {
	const struct exec_request *request;
	struct user user;
	/* Root, as the user files say it that have these marks. */
	bool root_known;
	struct user root;
	uint64_t root_marks[USER_MARKS];
	char **environment;
	/* The place before the first argument is for the shell: see program_execute(). */
	char *argv_room[EXEC_ARGV_MAX + 2];
	char **argv;
	char cwd[2 * GUEST_PATH_MAX]; /* twice: the home directory and a path below it */
	int standard[3];
	char path[2 * GUEST_PATH_MAX]; /* the program that was tried last */
	/* The last step that the child reached, and the errno of its failure; 0: it executes. */
	enum step step;
	int errnum;
} command;

static char child_stack[CHILD_STACK_SIZE] __attribute__((aligned(4096)));

static bool child_set_descriptors(void)
{
	for (int i = 0; i < 3; i++)
		if (dup2(command.standard[i], i) < 0)
			return false;
	/* All of our descriptors have this flag already; this covers one that was forgotten. */
	if (sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0 || setsid() < 0)
		return false;
	if (!(command.request->flags & EXEC_TTY))
		return true;
	/* Programs open the terminal again by its name, so it must belong to the user. */
	if (fchown(STDIN_FILENO, command.user.uid, (gid_t)-1) < 0 && command.user.uid != 0 &&
	    errno != EPERM)
		return false;
	return ioctl(STDIN_FILENO, TIOCSCTTY, 0) == 0;
}

static bool child_set_limits(void)
{
	const struct exec_request *request = command.request;
	uint64_t files = configuration.setup.limits.files;
	struct rlimit limit = {.rlim_cur = files, .rlim_max = files};
	if (files > 0 && prlimit(0, RLIMIT_NOFILE, &limit, NULL) < 0 && errno != EPERM)
		return false;
	for (uint32_t i = 0; i < request->limit_count; i++) {
		limit.rlim_cur = request->limits[i].soft;
		limit.rlim_max = request->limits[i].hard;
		if (prlimit(0, (int)request->limits[i].resource, &limit, NULL) < 0)
			return false;
	}
	return true;
}

static bool child_set_user(void)
{
	/* `> /dev/stderr` and the driver of a code context open a pipe again by its name under
	 * /proc, so the pipes must belong to the user. If that fails, everything else still works.
	 */
	bool give = command.user.uid != 0 && !(command.request->flags & EXEC_TTY);
	for (int fd = STDOUT_FILENO; give && fd <= STDERR_FILENO; fd++)
		give = fchown(fd, command.user.uid, (gid_t)-1) == 0;
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
	/* A script without a `#!` line is run by the shell, as execvp() does. */
	char *name = command.argv[0];
	command.argv[0] = command.path;
	command.argv_room[0] = (char *)"sh";
	execve(SHELL_PATH, command.argv_room, command.environment);
	command.argv[0] = name;
	errno = ENOEXEC;
}

/* Tries each directory of PATH as execvpe() does: a directory that cannot be searched, or a file
 * that cannot be executed, does not end the search, but is reported if nothing is found. */
static void program_find_and_execute(void)
{
	const char *name = command.argv[0];
	const char *path = environment_get(command.environment, "PATH");
	int worst = ENOENT;
	if (strchr(name, '/') || !path) {
		snprintf(command.path, sizeof(command.path), "%s", name);
		program_execute();
		return;
	}
	while (path && name[0]) {
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

static bool child_do_step(enum step step)
{
	switch (step) {
	case STEP_DESCRIPTORS:
		return child_set_descriptors();
	case STEP_LIMITS:
		return child_set_limits();
	case STEP_USER:
		return child_set_user();
	case STEP_CWD:
		return chdir(command.cwd) == 0;
	case STEP_EXECUTE:
		program_find_and_execute();
		break;
	}
	return false;
}

static int child_main(void *unused)
{
	(void)unused;
	signals_default();
	command.step = STEP_DESCRIPTORS;
	while (child_do_step(command.step))
		command.step++;
	command.errnum = errno;
	/* The caller is the C library's clone(), which ends this process alone. */
	return 127;
}

static enum error_kind execute_error_kind(int errnum)
{
	struct stat status;
	switch (errnum) {
	case ENOENT:
	case ENOTDIR:
		return ERROR_PROGRAM_NOT_FOUND;
	case EACCES:
		if (stat(command.path, &status) == 0 &&
		    (!S_ISREG(status.st_mode) || !(status.st_mode & 0111)))
			return ERROR_NOT_EXECUTABLE;
		return ERROR_EXEC_DENIED;
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

/* A relative path starts at /workspace, and "~" is the user's home directory. */
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
	/* The first write to a page of a forked process copies it. Do that now, before a request
	 * waits for it. */
	memset(&command, 0, sizeof(command));
	memset(child_stack + sizeof(child_stack) - CHILD_STACK_USED, 0, CHILD_STACK_USED);
	/* Most commands run as root. The marks first: a change in between is seen. */
	command.root_known = user_files_read_marks(command.root_marks) &&
			     user_find("", &command.root, &failure) == 0;
}

static int command_find_user(const char *name, struct failure *ret_failure)
{
	uint64_t marks[USER_MARKS];
	bool same = !name[0] && command.root_known && user_files_read_marks(marks) &&
		    memcmp(marks, command.root_marks, sizeof(marks)) == 0;
	if (!same)
		return user_find(name, &command.user, ret_failure);
	command.user = command.root;
	return 0;
}

pid_t command_start(const struct exec_request *request, const int *fds, size_t fd_count,
		    struct failure *ret_failure)
{
	size_t at = 0;
	*ret_failure = (struct failure){.kind = ERROR_NONE};
	command.request = request;
	if (command_find_user(request->user, ret_failure) < 0)
		return -1;
	command.environment = environment_make(request, &command.user);
	command.argv = command.argv_room + 1;
	for (uint32_t i = 0; i < request->argc; i++)
		command.argv[i] = (char *)packed_next(request->argv, &at);
	command.argv[request->argc] = NULL;
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
