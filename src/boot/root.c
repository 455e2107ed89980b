/* See root.h. */
#include "boot/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "boot/filesystem.h"

#define PRIVATE (1 << 18) /* MS_PRIVATE; its header conflicts with linux/mount.h */

int root_begin(const struct small_root *small, const char **ret_step)
{
	const char *const options[] = {"mode",      "0755",        "size", small->size,
				       "nr_inodes", small->inodes, NULL};
	struct mount_attr private = {.propagation = PRIVATE};
	*ret_step = "making mounts private";
	int result = sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private);
	if (result < 0)
		return result;
	*ret_step = "the small root";
	CLOSE_FD int root = fs_make("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (root < 0)
		return root;
	/* Mounted over a directory of the host, whose root stays the root until pivot_root. */
	result = fs_attach(root, "/");
	if (result >= 0 && fchdir(root) < 0)
		result = -errno;
	for (size_t i = 0; result >= 0 && i < small->directory_count; i++)
		result = fs_directory(small->directories[i], small->mode);
	return result;
}

/* Kernels before 6.13 take no descriptors here, only paths. */
static int layers_overlay(int fs, const int *lowers, uint32_t count, const char *names,
			  const char *upper, const char *work)
{
	int result = 0;
	bool by_descriptor = true;
	for (uint32_t i = 0; by_descriptor && i < count; i++) {
		result = sys_fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lowers[i]);
		if (result == -EOPNOTSUPP || result == -EINVAL)
			by_descriptor = false;
		else if (result < 0)
			return result;
	}
	if (!by_descriptor)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", names, 0);
	if (result >= 0 && upper)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", upper, 0);
	if (result >= 0 && upper)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "workdir", work, 0);
	return result;
}

/* `userxattr`: the overlay stores its notes in user.* attributes, the only ones that a user
 * namespace may write. */
int overlay_make(const int *lowers, uint32_t count, const char *names, const char *upper,
		 const char *work)
{
	CLOSE_FD int fs = sys_fsopen("overlay", FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	int result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", "caisson", 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0);
	if (result >= 0)
		result = layers_overlay(fs, lowers, count, names, upper, work);
	if (result < 0)
		return result;
	/* Unmounting the disk writes everything. Syncs from inside, and at the overlay's
	 * unmount, would only cost time. Not every kernel knows this option, and it is not
	 * needed. */
	if (upper)
		result = sys_fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0);
	if (result < 0 && result != -EINVAL)
		return result;
	result = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (result < 0)
		return result;
	return sys_fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

int root_stage(int mount_fd, const char *directory, uint32_t index)
{
	char path[32];
	int result = text_format(path, sizeof(path), "%s/%u", directory, index);
	if (result >= 0)
		result = fs_directory(path, 0555);
	return result < 0 ? result : fs_attach(mount_fd, path);
}

int root_make(const struct boot_assign *request, const int *fds, const char **ret_step)
{
	const int *lowers = fds + 1;
	char names[BOOT_LOWERS_MAX * 16] = "";
	size_t used = 0;
	*ret_step = "attaching the disk";
	int result = fs_attach(fds[0], "k");
	for (uint32_t i = 0; result >= 0 && i < request->lower_count; i++) {
		*ret_step = "attaching a layer";
		result = root_stage(lowers[i], "l", i);
		used +=
		    (size_t)snprintf(names + used, sizeof(names) - used, "%sl/%u", i ? ":" : "", i);
	}
	if (result < 0)
		return result;
	*ret_step = "the root's overlay";
	CLOSE_FD int root = overlay_make(lowers, request->lower_count, names, "k/upper", "k/work");
	return root < 0 ? root : fs_attach(root, "r");
}

static const char *const covered_places[] = {
    [PLACE_USR] = "r/usr", [PLACE_BIN] = "r/bin",     [PLACE_SBIN] = "r/sbin",
    [PLACE_LIB] = "r/lib", [PLACE_LIB32] = "r/lib32", [PLACE_LIB64] = "r/lib64",
};

/* Makes an overlay over a directory of the host. A file that is shared with the host and other
 * sandboxes shows more than its content: a process that watches it (inotify) sees what they run
 * and when, and one that locks it (flock) stops others that lock it. The overlay has inodes of
 * its own, with the same pages of the page cache. If the host's directory itself consists of two
 * nested overlays, or contains a mount that must stay, it is bound without an overlay. */
static int bind_cover(int bind, uint32_t index)
{
	char lower[32];
	int lowers[2] = {bind, -1};
	int result = root_stage(bind, "b", index);
	if (result >= 0)
		result = text_format(lower, sizeof(lower), "b/%u:empty", index);
	if (result < 0)
		return result;
	CLOSE_FD int empty = open("empty", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (empty < 0)
		return -errno;
	lowers[1] = empty;
	return overlay_make(lowers, ARRAY_SIZE(lowers), lower, NULL, NULL);
}

static int binds_attach(const struct boot_assign *request, const int *binds, bool covered,
			const char **ret_step)
{
	*ret_step = "an unknown place";
	for (uint32_t i = 0; i < request->bind_count; i++) {
		uint32_t place = request->bind_places[i];
		if (place >= ARRAY_SIZE(covered_places) || !covered_places[place])
			return -EBADMSG;
		*ret_step = covered_places[place] + 1;
		int result = fs_directory(covered_places[place], 0755);
		if (result < 0)
			return result;
		CLOSE_FD int cover = covered ? bind_cover(binds[i], i) : -1;
		result = fs_attach(cover >= 0 ? cover : binds[i], covered_places[place]);
		if (result < 0)
			return result;
	}
	return 0;
}

/* Existing entries are not changed, since the user may have replaced them. */
static const struct {
	const char *path;
	mode_t mode;
	bool needed;
} directories[] = {{"r/proc", 0555, true},
		   {"r/dev", 0755, true},
		   {"r/sys", 0555, false},
		   {"r/tmp", 01777, false},
		   {"r/workspace", 0777, false}};

int root_furnish(const struct boot_assign *request, const int *fds, bool covered,
		 const char **ret_step)
{
	int result = binds_attach(request, fds + 1 + request->lower_count, covered, ret_step);
	if (result < 0)
		return result;
	*ret_step = "furnishing the root";
	mode_t before = umask(0);
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(directories); i++) {
		result = fs_directory(directories[i].path, directories[i].mode);
		if (result == -ENOTDIR && !directories[i].needed)
			result = 0;
	}
	umask(before);
	return result;
}
