/* Mounts with locked flags. See locked_mount.h. */
#include "tier/jail/root/locked_mount.h"

#include <errno.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/syscalls.h"

/* Makes an empty directory to attach the mount to, as working directory: the only path that
 * unshare() translates to the copied namespace. */
static int staging_enter(void)
{
	struct mount_attr private = {.propagation = 1 << 18 /* MS_PRIVATE */};
	int result = sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private);
	if (result < 0)
		return result;
	CLOSE_FD int fs = sys_fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (result < 0)
		return result;
	CLOSE_FD int root = sys_fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (root < 0)
		return root;
	result = sys_move_mount(root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH);
	/* Mounted over the root and made the root: a process with another root counts as
	 * confined by chroot(), and may not make a user namespace. */
	if (result >= 0 && (fchdir(root) < 0 || chroot(".") < 0 || mkdir("t", 0755) < 0))
		result = -errno;
	return result;
}

static int mount_make_locked(int mount)
{
	int result = staging_enter();
	if (result >= 0)
		result = sys_move_mount(mount, "", AT_FDCWD, "t", MOVE_MOUNT_F_EMPTY_PATH);
	if (result >= 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		result = -errno;
	if (result < 0)
		return result;
	return sys_open_tree(AT_FDCWD, "t", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}

static _Noreturn void helper_run(int socket, int mount)
{
	int result = mount_make_locked(mount);
	int status = MIN(result, 0);
	ssize_t sent = fd_send(socket, &status, sizeof(status), &result, result >= 0);
	_exit(sent < 0);
}

static int helper_receive(int socket)
{
	int status = -EIO, fd = -1;
	size_t count = 1;
	ssize_t got = fd_receive(socket, &status, sizeof(status), &fd, &count);
	if (got == (ssize_t)sizeof(status) && status == 0 && count == 1)
		return fd;
	if (got >= 0 && count == 1)
		fd_close(&fd);
	if (got < 0)
		return (int)got;
	return status < 0 ? status : -EIO;
}

int mount_lock_flags(int mount)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	CLOSE_FD int ours = pair[0], theirs = pair[1];
	struct clone_args args = {.flags = CLONE_NEWNS, .exit_signal = SIGCHLD};
	pid_t pid = sys_clone3(&args);
	if (pid < 0)
		return pid;
	if (pid == 0)
		helper_run(theirs, mount);
	/* If we kept a copy of the child's end, we would not notice that the child died. */
	fd_close(&theirs);
	int result = helper_receive(ours);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return result;
}
