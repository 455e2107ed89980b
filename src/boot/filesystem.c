/* See filesystem.h. */
#include "boot/filesystem.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"

#define DETACH 2 /* MNT_DETACH; its header conflicts with linux/mount.h */

int fs_make(const char *type, const char *const *options, unsigned attributes)
{
	CLOSE_FD int fs = sys_fsopen(type, FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	for (; options && options[0]; options += 2) {
		int result = sys_fsconfig(fs, options[1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
					  options[0], options[1], 0);
		if (result < 0)
			return result;
	}
	int result = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (result < 0)
		return result;
	return sys_fsmount(fs, FSMOUNT_CLOEXEC, attributes);
}

int fs_attach(int mount_fd, const char *path)
{
	return sys_move_mount(mount_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

int fs_mount(const char *type, const char *const *options, unsigned attributes, const char *path)
{
	CLOSE_FD int mount_fd = fs_make(type, options, attributes);
	return mount_fd < 0 ? mount_fd : fs_attach(mount_fd, path);
}

int fs_bind(const char *from, const char *to, unsigned attributes)
{
	CLOSE_FD int mount_fd = sys_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (mount_fd < 0)
		return mount_fd;
	if (attributes) {
		struct mount_attr attr = {.attr_set = attributes};
		int result = sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr);
		if (result < 0)
			return result;
	}
	return fs_attach(mount_fd, to);
}

int fs_move(const char *from, const char *to)
{
	return sys_move_mount(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int fs_detach(const char *path)
{
	return sys_umount(path, DETACH);
}

int fs_enter(const char *path)
{
	if (chdir(path) < 0)
		return -errno;
	/* With both paths the same, the old root is mounted on top of the new one, and detached
	 * from there. So no directory for it is needed. */
	int result = sys_pivot_root(".", ".");
	if (result < 0)
		return result;
	result = fs_detach(".");
	if (result < 0)
		return result;
	return chdir("/") < 0 ? -errno : 0;
}

int fs_directory(const char *path, unsigned mode)
{
	struct stat status;
	if (mkdir(path, mode) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (lstat(path, &status) < 0)
		return -errno;
	return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
}
