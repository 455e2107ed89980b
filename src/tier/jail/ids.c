/* The ids of sandboxes. See ids.h. */
#include "tier/jail/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/syscalls.h"
#include "base/text.h"

#define PATH_ROOM 512

void ids_for_slot(const struct host *host, uint32_t slot, bool has_folders,
		  struct sandbox_ids *ret_ids)
{
	if (host->rights == RIGHTS_ONE_ID) {
		*ret_ids = (struct sandbox_ids){.count = 1};
		return;
	}
	if (host->rights == RIGHTS_SUBUIDS) {
		/* The last id is the daemon's. */
		*ret_ids = (struct sandbox_ids){.owner = has_folders ? 0 : 1,
						.others = 2,
						.count = host->shared_ids - 1,
						.charged = 1 + slot % (host->shared_ids - 1),
						.groups = true};
		return;
	}
	uint32_t owner = host->uid_base + slot * UID_RANGE_SIZE;
	*ret_ids = (struct sandbox_ids){.owner = owner,
					.others = owner + 1,
					.count = UID_RANGE_SIZE,
					.charged = owner,
					.groups = true};
}

void ids_for_sandbox(const struct host *host, const struct id *id, uint32_t slot, bool has_folders,
		     struct sandbox_ids *ret_ids)
{
	char path[PATH_ROOM];
	struct stat status;
	if (host->rights == RIGHTS_SUBUIDS &&
	    text_format(path, sizeof(path), "%s/sandboxes/%s/files/upper", host->state, id->text) ==
		0 &&
	    lstat(path, &status) == 0)
		has_folders = status.st_uid == 0;
	ids_for_slot(host, slot, has_folders, ret_ids);
}

static int map_write(pid_t pid, const char *file, const struct sandbox_ids *ids)
{
	char path[64], text[96];
	int result = text_format(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	if (result < 0)
		return result;
	if (ids->count == 1 || ids->others == ids->owner + 1)
		result = text_format(text, sizeof(text), "0 %u %u", ids->owner, ids->count);
	else
		result = text_format(text, sizeof(text), "0 %u 1\n1 %u %u", ids->owner, ids->others,
				     ids->count - 1);
	return result < 0 ? result : fd_write_small(AT_FDCWD, path, text);
}

int ids_write_maps(const struct host *host, const struct sandbox_ids *ids, pid_t pid)
{
	(void)host;
	int result = map_write(pid, "uid_map", ids);
	return result < 0 ? result : map_write(pid, "gid_map", ids);
}

/* After a change of the effective uid the kernel gives the memory of this process and its
 * children to the host's root: without root we could not write our children's maps. */
int ids_disguise_enter(const struct host *host, uid_t uid, struct ids_disguise *ret_guise)
{
	int bits = prctl(PR_GET_SECUREBITS);
	if (bits < 0 || prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP) < 0)
		return -errno;
	*ret_guise = (struct ids_disguise){.securebits = bits,
					   .dumpable = host->rights != RIGHTS_ROOT &&
						       prctl(PR_GET_DUMPABLE) == 1};
	if (prctl(PR_GET_PDEATHSIG, &ret_guise->death_signal) < 0)
		return -errno;
	int result = sys_setresuid((uid_t)-1, uid, (uid_t)-1);
	if (result == 0 && ret_guise->dumpable && prctl(PR_SET_DUMPABLE, 1) < 0)
		result = -errno;
	if (result < 0)
		ids_disguise_leave(ret_guise);
	return result;
}

void ids_disguise_leave(const struct ids_disguise *guise)
{
	if (sys_setresuid((uid_t)-1, 0, (uid_t)-1) < 0 ||
	    prctl(PR_SET_SECUREBITS, guise->securebits) < 0 ||
	    prctl(PR_SET_PDEATHSIG, guise->death_signal) < 0 ||
	    (guise->dumpable && prctl(PR_SET_DUMPABLE, 1) < 0))
		abort(); /* a spawner that is not root any more must not continue */
}

/* The result that the child sends. */
struct child_outcome {
	uint32_t failed;
	struct error error;
};

static _Noreturn void child_call(int socket, int (*function)(void *data, struct error *error),
				 void *data)
{
	static struct child_outcome outcome;
	char go;
	if (recv(socket, &go, 1, 0) != 1)
		_exit(1);
	int result = sys_setresgid(0, 0, 0);
	if (result >= 0)
		result = sys_setresuid(0, 0, 0);
	if (result < 0)
		outcome.failed = error_set_errno(&outcome.error, ERROR_INTERNAL, result,
						 "becoming root of the sandbox's ids") < 0;
	else
		outcome.failed = function(data, &outcome.error) < 0;
	ssize_t sent = fd_send(socket, &outcome, sizeof(outcome), NULL, 0);
	_exit(sent < 0);
}

int ids_call_as_root(const struct host *host, const struct sandbox_ids *ids,
		     int (*function)(void *data, struct error *error), void *data,
		     struct error *error)
{
	int pair[2];
	struct child_outcome outcome;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "a socket pair");
	CLOSE_FD int ours = pair[0], theirs = pair[1];
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	pid_t pid = sys_clone3(&args);
	if (pid == 0) {
		close(ours);
		child_call(theirs, function, data);
	}
	if (pid < 0)
		return error_set_errno(error, error_kind_of_errno(pid), pid, "a user namespace");
	/* If we kept a copy of the child's end, we would not notice that the child died. */
	fd_close(&theirs);
	ssize_t result = ids_write_maps(host, ids, pid);
	if (result >= 0)
		result = fd_send(ours, "g", 1, NULL, 0);
	if (result >= 0)
		result = fd_receive(ours, &outcome, sizeof(outcome), NULL, NULL);
	fd_close(&ours);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (result == (ssize_t)sizeof(outcome) && outcome.failed)
		*error = outcome.error;
	else if (result != (ssize_t)sizeof(outcome))
		return error_set_errno(error, ERROR_INTERNAL, result < 0 ? (int)result : EPIPE,
				       "a process with the sandbox's ids");
	return outcome.failed ? -1 : 0;
}

int ids_make_userns(const char *uid_map, const char *gid_map)
{
	const char *const files[] = {"uid_map", "gid_map"}, *const maps[] = {uid_map, gid_map};
	char path[64];
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	pid_t pid = sys_clone3(&args);
	if (pid < 0)
		return pid;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	int result = 0;
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
		result = fd_write_small(AT_FDCWD, path, maps[i]);
	}
	if (result >= 0) {
		snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
		result = open(path, O_RDONLY | O_CLOEXEC);
		if (result < 0)
			result = -errno;
	}
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return result;
}
