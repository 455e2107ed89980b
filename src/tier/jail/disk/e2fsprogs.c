/* Runs mke2fs and e2fsck. See e2fsprogs.h. */
#include "tier/jail/disk/e2fsprogs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "base/process.h"
#include "base/text.h"

#define TIMEOUT_MS 10000

/* Signals as a program expects them: none blocked, none ignored. */
static int tool_spawn(const char *path, const char *const *arguments, pid_t *ret_pid)
{
	static char *const environment[] = {NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return -ENOMEM;
	if (posix_spawnattr_init(&attributes) != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return -ENOMEM;
	}
	int result = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
	if (result == 0)
		result = posix_spawn_file_actions_adddup2(&actions, 0, 1);
	if (result == 0)
		result = posix_spawn_file_actions_adddup2(&actions, 0, 2);
	if (result == 0)
		result = posix_spawnattr_setsigmask(&attributes, &none);
	if (result == 0)
		result = posix_spawnattr_setsigdefault(&attributes, &all);
	if (result == 0)
		result = posix_spawnattr_setflags(&attributes,
						  POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (result == 0)
		result = posix_spawn(ret_pid, path, &actions, &attributes, (char *const *)arguments,
				     environment);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return -result;
}

static int tool_wait(pid_t pid)
{
	struct process process = PROCESS_NONE;
	int status, result = process_open(pid, 0, &process);
	if (result >= 0)
		result = process_wait_end(&process, TIMEOUT_MS);
	if (result < 0)
		kill(pid, SIGKILL);
	process_done(&process);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	if (result < 0)
		return result;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

int e2fsprogs_run(const char *name, const char *const *arguments)
{
	static const char *const directories[] = {"/sbin", "/usr/sbin"};
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
		char path[64];
		pid_t pid;
		int result = text_format(path, sizeof(path), "%s/%s", directories[i], name);
		if (result >= 0)
			result = tool_spawn(path, arguments, &pid);
		if (result >= 0)
			return tool_wait(pid);
		if (result != -ENOENT)
			return result;
	}
	return -ENOENT;
}
