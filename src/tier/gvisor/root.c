/* The mounts of a sandbox of the gvisor tier. See root.h. Layers and disk are attached only until
 * the overlay has taken them: an idmapped mount that stayed reachable could be made writable by
 * whoever may mount here. The steps are those of the init's own set-up (src/init/setup.c), which
 * does this for the namespace tier. */
#include "tier/gvisor/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"

#define DETACH 2            /* MNT_DETACH; its header does not go with linux/mount.h */
#define PRIVATE (1 << 18)   /* MS_PRIVATE */
#define INIT_MAX (16 * MIB) /* a sanitized init of the tests' is large */

static int attach(int mount_fd, const char *path)
{
	return sys_move_mount(mount_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

static int mount_new(const char *type, const char *const *options, unsigned attributes,
		     const char *path)
{
	CLOSE_FD int fs = sys_fsopen(type, FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	int result = 0;
	for (; result >= 0 && options && options[0]; options += 2)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (result < 0)
		return result;
	CLOSE_FD int mount_fd = sys_fsmount(fs, FSMOUNT_CLOEXEC, attributes);
	return mount_fd < 0 ? mount_fd : attach(mount_fd, path);
}

/* A file of the host's at a new, empty one. */
static int bind_file(const char *from, const char *to, unsigned attributes)
{
	CLOSE_FD int place = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
	if (place < 0)
		return -errno;
	CLOSE_FD int mount_fd = sys_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (mount_fd < 0)
		return mount_fd;
	struct mount_attr attr = {.attr_set = attributes};
	int result = sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr);
	return result < 0 ? result : attach(mount_fd, to);
}

/* There, and a directory. */
static int directory(const char *path, mode_t mode)
{
	struct stat status;
	if (mkdir(path, mode) == 0)
		return 0;
	if (errno != EEXIST || lstat(path, &status) < 0)
		return -errno;
	return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
}

/* Root's file on the host, which nobody here may read: a copy of its contents. */
static int copy_init(int from)
{
	CLOSE_FD int to =
	    open(&ROOT_INIT_FILE[1], O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0711);
	if (to < 0)
		return -errno;
	char room[16 * KIB];
	for (off_t at = 0;;) {
		ssize_t got = pread(from, room, sizeof(room), at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return 0;
		at += got;
		int result = at > (off_t)INIT_MAX ? -EFBIG : fd_write_full(to, room, (size_t)got);
		if (result < 0)
			return result;
	}
}

static int enter(void)
{
	/* With both the same, the old root ends up on top of the new one, and goes from there. */
	int result = sys_pivot_root(".", ".");
	if (result >= 0)
		result = sys_umount(".", DETACH);
	if (result < 0)
		return result;
	return chdir("/") < 0 ? -errno : 0;
}

int root_leave_host(const char *runsc, int init, const char **ret_step)
{
	static const char *const options[] = {"mode",      "0755", "size", "24m",
					      "nr_inodes", "256",  NULL};
	static const char *const directories[] = {"proc", "dev", "l", "k",   "r",
						  "b",    "s",   "i", "tmp", "etc"};
	const unsigned plain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	struct mount_attr private = {.propagation = PRIVATE};
	*ret_step = "a root of its own";
	int result = sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private);
	/* /tmp is there on every host, and what is below this mount of it is not seen again. */
	if (result >= 0)
		result = mount_new("tmpfs", options, plain, "/tmp");
	if (result >= 0 && chdir("/tmp") < 0)
		result = -errno;
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(directories); i++)
		result = directory(directories[i], 0755);
	if (result < 0)
		return result;
	*ret_step = "/proc";
	result = mount_new("proc", NULL, plain | MOUNT_ATTR_NOEXEC, "proc");
	if (result < 0)
		return result;
	*ret_step = "/dev/null";
	result = bind_file("/dev/null", "dev/null", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (result < 0)
		return result;
	*ret_step = "the program runsc";
	result = bind_file(runsc, &ROOT_RUNSC[1], plain | MOUNT_ATTR_RDONLY);
	if (result < 0)
		return result;
	*ret_step = "a copy of caisson-init";
	result = copy_init(init);
	if (result < 0)
		return result;
	*ret_step = "leaving the host's root";
	return enter();
}

/* Kernels before 6.13 take no descriptors here, and these name the same by path. */
static int overlay_lowers(int fs, const int *lowers, uint32_t count, const char *names)
{
	int result = 0;
	for (uint32_t i = 0; i < count; i++) {
		result = sys_fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lowers[i]);
		if (result < 0)
			break;
	}
	if (result == -EOPNOTSUPP || result == -EINVAL)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", names, 0);
	return result;
}

static int overlay(const int *lowers, uint32_t count, const char *names)
{
	CLOSE_FD int fs = sys_fsopen("overlay", FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	int result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", "caisson", 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0);
	if (result >= 0)
		result = overlay_lowers(fs, lowers, count, names);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", "k/upper", 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "workdir", "k/work", 0);
	if (result >= 0) {
		/* The disk's own unmount writes everything. Not known to every kernel. */
		result = sys_fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0);
		result = result == -EINVAL ? 0 : result;
	}
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (result < 0)
		return result;
	return sys_fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

static int make_overlay(const int *lowers, uint32_t count)
{
	char names[BOOT_LOWERS_MAX * 16] = "", path[16];
	size_t used = 0;
	int result = 0;
	for (uint32_t i = 0; result >= 0 && i < count; i++) {
		result = text_format(path, sizeof(path), "l/%u", i);
		if (result >= 0)
			result = directory(path, 0555);
		if (result >= 0)
			result = attach(lowers[i], path);
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ":" : "",
					 path);
	}
	if (result < 0)
		return result;
	CLOSE_FD int root = overlay(lowers, count, names);
	result = root < 0 ? root : attach(root, "r");
	for (uint32_t i = 0; result >= 0 && i < count; i++) {
		result = text_format(path, sizeof(path), "l/%u", i);
		if (result >= 0)
			result = sys_umount(path, DETACH);
	}
	return result < 0 ? result : sys_umount("k", DETACH);
}

static const char *const places[] = {
    [PLACE_USR] = "r/usr", [PLACE_BIN] = "r/bin",     [PLACE_SBIN] = "r/sbin",
    [PLACE_LIB] = "r/lib", [PLACE_LIB32] = "r/lib32", [PLACE_LIB64] = "r/lib64",
};

/* Directories that every root has, whatever its template. The user may have put something else in
 * the place of the last three: then it stays. */
static int furnish(void)
{
	mode_t before = umask(0);
	int result = directory("r/proc", 0555);
	if (result >= 0)
		result = directory("r/dev", 0755);
	if (result >= 0 && mkdir("r/sys", 0555) < 0 && errno != EEXIST)
		result = -errno;
	if (result >= 0 && mkdir("r/tmp", 01777) < 0 && errno != EEXIST)
		result = -errno;
	if (result >= 0 && mkdir("r/workspace", 0777) < 0 && errno != EEXIST)
		result = -errno;
	umask(before);
	return result;
}

int root_make(const struct boot_assign *request, const int *fds, const char **ret_step)
{
	const int *lowers = fds + 1, *binds = lowers + request->lower_count;
	*ret_step = "attaching the disk";
	int result = attach(fds[0], "k");
	if (result < 0)
		return result;
	*ret_step = "the root's overlay";
	result = make_overlay(lowers, request->lower_count);
	*ret_step = result < 0 ? *ret_step : "a directory of the host's";
	for (uint32_t i = 0; result >= 0 && i < request->bind_count; i++) {
		uint32_t place = request->bind_places[i];
		if (place >= ARRAY_SIZE(places) || !places[place])
			return -EBADMSG;
		result = directory(places[place], 0755);
		if (result >= 0)
			result = attach(binds[i], places[place]);
	}
	if (result < 0)
		return result;
	*ret_step = "furnishing the root";
	return furnish();
}
