/* Detached, idmapped mounts. See idmap.h. */
#include "tier/jail/root/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "tier/jail/root/locked_mount.h"
#include "tier/jail/ids.h"

/* Clones the mount of the directory, from that directory on. Private, so that nothing mounted
 * below it inside appears on the host. */
static int directory_clone_mount(int directory, uint64_t attributes, int userns, bool recursive)
{
	unsigned flags = AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, below = 0;
	CLOSE_FD int tree = sys_open_tree(directory, "", flags);
	/* In a mount namespace that the host's root does not own, mounts below can only be
	 * cloned along with it, because they hide what is under them. */
	if (tree == -EINVAL && recursive) {
		below = AT_RECURSIVE;
		tree = sys_open_tree(directory, "", flags | below);
	}
	if (tree < 0)
		return tree;
	struct mount_attr attr = {.attr_set = attributes | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
				  .propagation = 1 << 18 /* MS_PRIVATE */};
	if (userns >= 0) {
		attr.attr_set |= MOUNT_ATTR_IDMAP;
		attr.userns_fd = (uint64_t)userns;
	}
	int result = sys_mount_setattr(tree, "", AT_EMPTY_PATH | below, &attr);
	return result < 0 ? result : TAKE_FD(tree);
}

int idmap_mount_layer(int directory, int userns)
{
	return directory_clone_mount(directory, MOUNT_ATTR_RDONLY, userns, false);
}

int idmap_mount_host_directory(int directory)
{
	return directory_clone_mount(directory, MOUNT_ATTR_RDONLY, -1, true);
}

/* Checked as the user, because root may write anywhere. */
static int folder_check_writable(const struct folder *folder)
{
	int status;
	/* Without root we are that user. */
	if (folder->plain)
		return faccessat(folder->directory, ".", W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		if (setgroups(0, NULL) < 0 ||
		    setresgid(folder->gid, folder->gid, folder->gid) < 0 ||
		    setresuid(folder->uid, folder->uid, folder->uid) < 0 ||
		    faccessat(folder->directory, ".", W_OK | X_OK, 0) < 0)
			_exit(errno);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	if (!WIFEXITED(status))
		return -EIO;
	return -WEXITSTATUS(status);
}

/* A descriptor that is open for reading proves that the user may read the directory; one opened
 * with O_PATH proves nothing. */
static int folder_check(const struct folder *folder, struct error *error)
{
	struct stat status;
	int flags = fcntl(folder->directory, F_GETFL);
	if (flags < 0 || fstat(folder->directory, &status) < 0)
		return error_set_errno(error, ERROR_INVALID, errno, "its descriptor");
	if (flags & O_PATH)
		return error_set(error, ERROR_INVALID,
				 "its descriptor must be open for reading, not O_PATH");
	if (!S_ISDIR(status.st_mode))
		return error_set(error, ERROR_INVALID, "only a directory can be mounted");
	if (folder->mode != MOUNT_READ_WRITE)
		return 0;
	int result = folder_check_writable(folder);
	if (result < 0)
		return error_set_errno(error, ERROR_FORBIDDEN, result,
				       "user %u may not write to it", (unsigned)folder->uid);
	return 0;
}

int idmap_mount_folder(const struct folder *given, struct error *error)
{
	/* Root may give any folder, as its owner would: root's own rights are never passed to a
	 * sandbox. */
	struct folder as_owner = *given;
	const struct folder *folder = &as_owner;
	struct stat status;
	if (given->uid == 0 && !given->plain && fstat(given->directory, &status) == 0) {
		as_owner.uid = status.st_uid;
		as_owner.gid = status.st_gid;
	}
	if (folder_check(folder, error) < 0)
		return -1;
	char uid_map[64], gid_map[64];
	snprintf(uid_map, sizeof(uid_map), "%u %u 1", (unsigned)folder->uid, folder->owner);
	snprintf(gid_map, sizeof(gid_map), "%u %u 1", (unsigned)folder->gid, folder->owner);
	CLOSE_FD int userns = folder->plain ? -1 : ids_make_userns(uid_map, gid_map);
	if (userns < 0 && !folder->plain)
		return error_set_errno(error, error_kind_of_errno(userns), userns,
				       "a user namespace for it");
	bool read_only = folder->mode != MOUNT_READ_WRITE;
	CLOSE_FD int mount = directory_clone_mount(
	    folder->directory, read_only ? MOUNT_ATTR_RDONLY : 0, userns, false);
	if (mount == -EINVAL && folder->plain)
		return error_set(error, ERROR_UNSUPPORTED,
				 "another mount is below it, which cannot be excluded "
				 "without root");
	if (mount == -EINVAL || mount == -EPERM)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the file system it is on cannot be given to a sandbox (no "
				 "idmapped mounts)");
	/* The sandbox attaches the mount itself, so a process that may mount inside could clear
	 * flags that are not locked. (Below a copy-on-write folder it cannot reach them.) */
	int result = mount;
	if (mount >= 0 && folder->mode == MOUNT_READ_ONLY)
		result = mount_lock_flags(mount);
	else
		mount = -1;
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "mounting it");
	return result;
}
