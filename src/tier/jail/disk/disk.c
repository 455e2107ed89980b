/* Sandboxes' disks. See disk.h. */
#include "tier/jail/disk/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "tier/jail/disk/disk_owner.h"
#include "tier/jail/disk/loop_device.h"
#include "tier/jail/disk/e2fsprogs.h"
#include "tier/remove_tree.h"

#define TEMPLATES_MAX 32
#define PATH_ROOM 512
#define BLOCK 4096u
#define INODE_SIZE 256u
#define RELEASE_TIMEOUT (5 * NSEC_PER_SEC)
#define EXT4_STATE_AT (1024 + 58)
#define EXT4_STATE_CLEAN 1

/* At most a quarter of the disk becomes inodes, whatever was requested. */
static uint64_t image_inode_count(const struct limits *limits)
{
	uint64_t most = limits->disk / (4 * INODE_SIZE);
	uint64_t usual = limits->disk / (16 * KIB);
	uint64_t asked = limits->inodes ? limits->inodes : usual;
	return MAX(MIN(asked, most), 64);
}

static uint64_t image_size(const struct limits *limits)
{
	return limits->disk / BLOCK * BLOCK;
}

static int filesystem_make(const char *path, const struct limits *limits)
{
	char inodes[32];
	snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)image_inode_count(limits));
	/* All features are named, so that the host's mke2fs.conf does not matter. No journal: it
	 * would only help after a crash of the host, and would use the user's space. One
	 * superblock, and tables that are written when first used, keep an empty disk at a few
	 * blocks. */
	const char *const arguments[] = {
	    "mke2fs",
	    "-q",
	    "-F",
	    "-b",
	    "4096",
	    "-I",
	    "256",
	    "-m",
	    "0",
	    "-N",
	    inodes,
	    "-O",
	    "none,dir_index,dir_nlink,ext_attr,extent,extra_isize,filetype,flex_bg,huge_file,"
	    "large_file,metadata_csum,sparse_super2",
	    "-E",
	    "lazy_itable_init=1,nodiscard,num_backup_sb=0,root_owner=0:0",
	    path,
	    NULL};
	CLOSE_FD int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	int result = ftruncate(fd, (off_t)image_size(limits)) < 0 ? -errno : 0;
	if (result >= 0)
		result = e2fsprogs_run("mke2fs", arguments);
	if (result != 0)
		unlink(path);
	return result > 0 ? -EIO : result;
}

/* Copies data only, or shares it if the file system can. */
static int file_copy_sparse(int from, int to, off_t size)
{
	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (ftruncate(to, size) < 0)
		return -errno;
	for (off_t at = 0; at < size;) {
		off_t data = lseek(from, at, SEEK_DATA);
		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		off_t hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		for (off_t in = data, out = data; in < hole;) {
			ssize_t copied =
			    copy_file_range(from, &in, to, &out, (size_t)(hole - in), 0);
			if (copied < 0)
				return -errno;
			if (copied == 0)
				return -EIO;
		}
		at = hole;
	}
	return 0;
}

static unsigned directory_count_entries(const char *path)
{
	unsigned count = 0;
	DIR *directory = opendir(path);
	if (!directory)
		return 0;
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* Opens the empty disk of that size, which it makes if it is the first. -EOVERFLOW: too many
 * sizes are kept already. */
static int template_open(const struct host *host, const struct limits *limits)
{
	char directory[PATH_ROOM], path[PATH_ROOM + 64], draft[PATH_ROOM + 64];
	int result = text_format(directory, sizeof(directory), "%s/disk-templates", host->state);
	if (result < 0)
		return result;
	if (mkdir(directory, 0700) < 0 && errno != EEXIST)
		return -errno;
	snprintf(path, sizeof(path), "%s/%llu-%llu.img", directory,
		 (unsigned long long)image_size(limits),
		 (unsigned long long)image_inode_count(limits));
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? -errno : fd;
	/* Boots run in parallel: one makes it, the others wait and find it. */
	CLOSE_FD int lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return -errno;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? -errno : fd;
	if (directory_count_entries(directory) > TEMPLATES_MAX + 2)
		return -EOVERFLOW;
	snprintf(draft, sizeof(draft), "%s/draft", directory);
	if (unlink(draft) < 0 && errno != ENOENT)
		return -errno;
	result = filesystem_make(draft, limits);
	if (result < 0)
		return result;
	if (rename(draft, path) < 0)
		return -errno;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static int image_make(const struct host *host, const char *path, const struct limits *limits)
{
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	CLOSE_FD int template = template_open(host, limits);
	if (template == -EOVERFLOW)
		return filesystem_make(path, limits);
	if (template <0)
		return template;
	CLOSE_FD int image = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (image < 0)
		return -errno;
	int result = file_copy_sparse(template, image, (off_t)image_size(limits));
	if (result < 0)
		unlink(path);
	return result;
}

/* Waits until the loop device of an earlier boot has released the image. */
static int disk_lock(int image)
{
	int64_t deadline = clock_boot() + RELEASE_TIMEOUT;
	while (flock(image, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (clock_boot() > deadline)
			return -EBUSY;
		nanosleep(&(struct timespec){.tv_nsec = NSEC_PER_MSEC}, NULL);
	}
	return 0;
}

/* A crash of the host may have left it inconsistent: repair it before it is mounted. */
static int image_check(int image, const char *path)
{
	uint8_t state[2];
	if (pread(image, state, sizeof(state), EXT4_STATE_AT) != (ssize_t)sizeof(state))
		return -EIO;
	if ((state[0] | state[1] << 8) == EXT4_STATE_CLEAN)
		return 0;
	const char *const arguments[] = {"e2fsck", "-p", path, NULL};
	int result = e2fsprogs_run("e2fsck", arguments);
	/* 1: errors corrected. */
	return result > 1 ? -EUCLEAN : MIN(result, 0);
}

static int image_mount(const char *path, enum boot_origin origin)
{
	CLOSE_FD int image = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (image < 0)
		return -errno;
	int result = disk_lock(image);
	if (result >= 0 && origin != BOOT_NEW)
		result = image_check(image, path);
	return result < 0 ? result : loop_device_mount(image, BLOCK);
}

/* Clones a detached mount of a plain directory. */
static int directory_mount(const char *path, enum boot_origin origin)
{
	/* The init has another uid and must reach upper/ in it; the mode of the parent directory
	 * keeps others out. */
	if (origin == BOOT_NEW &&
	    ((mkdir(path, 0711) < 0 && errno != EEXIST) || chmod(path, 0711) < 0))
		return -errno;
	/* A backup that copies it holds the lock. */
	CLOSE_FD int held = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (held < 0)
		return -errno;
	int locked = disk_lock(held);
	if (locked < 0)
		return locked;
	CLOSE_FD int tree = sys_open_tree(
	    AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
	if (tree < 0)
		return tree;
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
				  .propagation = 1 << 18 /* MS_PRIVATE */};
	int result = sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr);
	return result < 0 ? result : TAKE_FD(tree);
}

static int directory_make_owned(int parent, const char *name, uid_t owner, int mode)
{
	if (mkdirat(parent, name, 0700) < 0)
		return errno == EEXIST ? 0 : -errno;
	CLOSE_FD int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, owner, owner) < 0 || fchmod(fd, (mode_t)mode) < 0)
		return -errno;
	return 0;
}

/* upper/ is kept across boots. work/ is made again: a `volatile` overlay leaves a mark there
 * that forbids the next mount. */
static int layer_make(int parent, const struct disk_request *request, int mode)
{
	int result = directory_make_owned(parent, "upper", request->owner, mode);
	if (result >= 0 && request->origin != BOOT_NEW)
		result = remove_tree(parent, "work");
	return result < 0 ? result : directory_make_owned(parent, "work", request->owner, 0700);
}

static int layer_make_copy_on_write(int mount, const struct disk_request *request, uint32_t index)
{
	char path[32];
	snprintf(path, sizeof(path), "cow/%u", index);
	int result = directory_make_owned(mount, "cow", 0, 0755);
	if (result >= 0)
		result = directory_make_owned(mount, path, 0, 0755);
	if (result < 0)
		return result;
	CLOSE_FD int directory = openat(mount, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return -errno;
	return layer_make(directory, request, request->cow_modes[index]);
}

static int layers_make(int mount, const struct disk_request *request)
{
	int result = layer_make(mount, request, 0755);
	for (uint32_t i = 0; result >= 0 && i < request->tree_count; i++) {
		if (request->cow_modes[i] >= 0)
			result = layer_make_copy_on_write(mount, request, i);
	}
	return result;
}

/* Errors that mean that the host cannot do it at all, not just now. */
static bool errno_means_unavailable(int result)
{
	return result == -ENOENT || result == -ENODEV || result == -ENXIO || result == -EPERM ||
	       result == -EACCES || result == -ENOSYS || result == -EOPNOTSUPP;
}

static int sandbox_directory_path(const struct host *host, const struct id *id,
				  char path[PATH_ROOM])
{
	return text_format(path, PATH_ROOM, "%s/sandboxes/%s", host->state, id->text);
}

/* False: its files are in a plain directory. */
static bool directory_has_image(const char *directory)
{
	char path[PATH_ROOM + 16];
	snprintf(path, sizeof(path), "%s/disk.img", directory);
	return access(path, F_OK) == 0;
}

/* Why a plain directory has no limit. */
static uint32_t directory_unlimited_reason(const struct host *host)
{
	return host->rights == RIGHTS_ROOT ? LIMIT_NO_DISK_MECHANISM : LIMIT_NEEDS_ROOT;
}

static int disk_mount(const struct host *host, const char *directory,
		      const struct disk_request *request, uint32_t *ret_reason)
{
	char image[PATH_ROOM + 16], files[PATH_ROOM + 16];
	snprintf(image, sizeof(image), "%s/disk.img", directory);
	snprintf(files, sizeof(files), "%s/files", directory);
	*ret_reason = LIMIT_ENFORCED;
	if (request->origin != BOOT_NEW && directory_has_image(directory))
		return image_mount(image, request->origin);
	if (request->origin == BOOT_NEW && request->limits->disk > 0 &&
	    host->rights == RIGHTS_ROOT) {
		int result = image_make(host, image, request->limits);
		if (result >= 0)
			result = image_mount(image, request->origin);
		if (result >= 0 || !errno_means_unavailable(result))
			return result;
		unlink(image);
	}
	*ret_reason =
	    request->limits->disk > 0 ? directory_unlimited_reason(host) : LIMIT_NOT_ASKED;
	return directory_mount(files, request->origin);
}

static int disk_remove(const char *directory)
{
	CLOSE_FD int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	int result = remove_tree(fd, "disk.img");
	return result < 0 ? result : remove_tree(fd, "files");
}

int disk_open(const struct host *host, const struct id *id, const struct disk_request *request,
	      uint32_t reasons[LIMIT_COUNT], int *ret_mount, struct error *error)
{
	char directory[PATH_ROOM];
	uint32_t reason = LIMIT_ENFORCED;
	int result = sandbox_directory_path(host, id, directory);
	CLOSE_FD int mount = -1;
	if (result >= 0)
		result = mount = disk_mount(host, directory, request, &reason);
	if (result >= 0 && request->origin != BOOT_NEW && host->rights == RIGHTS_ROOT)
		result = disk_owner_apply(directory, mount, request->owner);
	if (result >= 0)
		result = layers_make(mount, request);
	if (result >= 0) {
		reasons[LIMIT_DISK] = reasons[LIMIT_INODES] = reason;
		*ret_mount = TAKE_FD(mount);
		return 0;
	}
	fd_close(&mount);
	if (request->origin == BOOT_NEW && disk_remove(directory) < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "making its disk (an incomplete one is left in %s)",
				       directory);
	if (result == -EBUSY)
		return error_set(error, ERROR_BUSY,
				 "its disk is still being written; try again in a moment");
	if (result == -EUCLEAN)
		return error_set(error, ERROR_DISK_DAMAGED,
				 "its disk is damaged and e2fsck -p cannot repair it; while it is "
				 "stopped, root may: `e2fsck -y %s/disk.img`",
				 directory);
	/* ext4's errors for an invalid superblock, size or checksum. */
	if (request->origin != BOOT_NEW &&
	    (result == -EIO || result == -EINVAL || result == -EBADMSG))
		return error_set_errno(error, ERROR_DISK_DAMAGED, result,
				       "its disk is damaged; while it is stopped, root may repair "
				       "it: `e2fsck -y %s/disk.img`",
				       directory);
	if (result == -ENOENT && request->origin != BOOT_NEW)
		return error_set(error, ERROR_DISK_DAMAGED,
				 "its files are missing: %s has neither disk.img nor "
				 "files; only a backup of the state directory has them",
				 directory);
	return error_set_errno(error, error_kind_of_errno(result), result, "its disk");
}

void disk_reasons(const struct host *host, const struct id *id, uint32_t reasons[LIMIT_COUNT])
{
	char directory[PATH_ROOM];
	bool image =
	    sandbox_directory_path(host, id, directory) >= 0 && directory_has_image(directory);
	reasons[LIMIT_DISK] = reasons[LIMIT_INODES] =
	    image ? LIMIT_ENFORCED : directory_unlimited_reason(host);
}

void disk_read_usage(const struct guest *guest, int root, struct spawn_counters *counters)
{
	struct statfs usage;
	if (guest->limit_reasons[LIMIT_DISK] != LIMIT_ENFORCED || root < 0 ||
	    !process_alive(&guest->init) || fstatfs(root, &usage) < 0)
		return;
	counters->disk = (uint64_t)(usage.f_blocks - usage.f_bfree) * (uint64_t)usage.f_bsize;
	counters->disk_inodes = (uint64_t)(usage.f_files - usage.f_ffree);
	counters->known[KNOWN_DISK] = 1;
}
