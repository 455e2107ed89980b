/* Validates the daemon's requests as if a stranger had sent them: the daemon talks to strangers
 * and may be compromised. Called by requests.c before anything is done. */
#include "spawner/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "proto/tiers.h"
#include "spawner/rootless.h"
#include "tier/jail/root/rootfs.h"

int validate_limits(const struct spawner *spawner, const struct limits *limits, struct error *error)
{
	const struct limits *maximum = &spawner->config.maximum;
	const struct {
		const char *name;
		uint64_t value, min, max, configured;
	} checks[] = {
	    {"memory", limits->memory, SANDBOX_MEMORY_MIN, SANDBOX_MEMORY_MAX, maximum->memory},
	    {"disk", limits->disk, SANDBOX_DISK_MIN, SANDBOX_DISK_MAX, maximum->disk},
	    {"inodes", limits->inodes, SANDBOX_INODES_MIN, SANDBOX_INODES_MAX, maximum->inodes},
	    {"cpu (thousandths)", limits->cpu_millis, SANDBOX_CPU_MILLIS_MIN,
	     SANDBOX_CPU_MILLIS_MAX, maximum->cpu_millis},
	    {"pids", limits->pids, SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX, maximum->pids},
	    {"files", limits->files, SANDBOX_FILES_MIN, SANDBOX_FILES_MAX, maximum->files},
	};
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		uint64_t max = MIN(checks[i].max, checks[i].configured);
		if (checks[i].value < checks[i].min || checks[i].value > max)
			return error_set(error, ERROR_LIMIT_EXCEEDED,
					 "%s of %llu is out of range: from %llu to %llu",
					 checks[i].name, (unsigned long long)checks[i].value,
					 (unsigned long long)checks[i].min,
					 (unsigned long long)max);
	}
	return 0;
}

/* Whether the path is `directory` or below it. "/srv" contains "/srv/a" but not "/srvx". */
static bool path_below(const char *path, const char *directory, size_t length)
{
	while (length > 0 && directory[length - 1] == '/')
		length--;
	return strncmp(path, directory, length) == 0 &&
	       (path[length] == '\0' || path[length] == '/');
}

static bool path_allowed(const char *path, const char *allow)
{
	for (; *allow; allow += *allow == ':') {
		size_t length = strcspn(allow, ":");
		if (length > 0 && path_below(path, allow, length))
			return true;
		allow += length;
	}
	return false;
}

/* The path that /proc shows for a descriptor holds only in the mount namespace where it was
 * opened. An unprivileged process can make a namespace and mount anything anywhere. So the path
 * must lead to the same directory on the same mount here. */
static bool path_leads_to(int fd, const char *path)
{
	struct stat given, here;
	uint64_t given_mount, here_mount;
	CLOSE_FD int found = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return found >= 0 && fstat(fd, &given) == 0 && fstat(found, &here) == 0 &&
	       given.st_ino == here.st_ino && given.st_dev == here.st_dev &&
	       sys_mount_id(fd, &given_mount) == 0 && sys_mount_id(found, &here_mount) == 0 &&
	       given_mount == here_mount;
}

/* File systems whose mounts can be idmapped and that answer by themselves. Access to FUSE or a
 * dead network share may never return, and this process must serve everybody. */
static bool filesystem_is_supported(const char *type)
{
	static const char *const types[] = {
	    "ext4",  "ext3",  "ext2",    "xfs", "btrfs", "f2fs",     "tmpfs",    "vfat",
	    "exfat", "ntfs3", "overlay", "zfs", "erofs", "bcachefs", "squashfs", "ramfs"};
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

static int folder_check_filesystem(int fd, struct error *error)
{
	char type[64];
	if (mount_table_type(fd, type, sizeof(type)) < 0)
		return error_set(error, ERROR_INVALID,
				 "the folder is on a mount that the daemon does not see");
	if (!filesystem_is_supported(type))
		return error_set(error, ERROR_UNSUPPORTED,
				 "a folder on a file system of type %s cannot be given to a "
				 "sandbox; copy it with `caisson cp`",
				 type);
	return 0;
}

static bool stat_same(const struct stat *one, const struct stat *other)
{
	return one->st_ino == other->st_ino && one->st_dev == other->st_dev;
}

/* Whether a directory is this one or below it. Compares inodes, because a directory can have
 * many names (links, bind mounts). An unknown result counts as yes. */
static bool directory_is_within(int directory, const struct stat *outer)
{
	struct stat here, above;
	uint64_t here_mount, above_mount;
	CLOSE_FD int at = openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (int depth = 0; at >= 0 && depth < PATH_MAX; depth++) {
		if (fstat(at, &here) < 0 || sys_mount_id(at, &here_mount) < 0 ||
		    stat_same(&here, outer))
			return true;
		int parent = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		fd_close(&at);
		at = parent;
		if (at >= 0 && fstat(at, &above) == 0 && stat_same(&above, &here) &&
		    sys_mount_id(at, &above_mount) == 0 && above_mount == here_mount)
			return false; /* the root, which is its own parent */
	}
	return true;
}

/* Compares the paths within their file system, because parts of it may be mounted at several
 * places. */
static bool directories_share_files(int one, int other)
{
	char places[2][MOUNT_PLACE_SIZE];
	if (mount_table_place(one, places[0]) < 0 || mount_table_place(other, places[1]) < 0)
		return true;
	return strncmp(places[0], places[1], MIN(strlen(places[0]), strlen(places[1]))) == 0;
}

/* Refuses our own directory, one below it, and one that contains it. `path`: of the given
 * directory. `named`: tell where ours is, which only the user who runs the daemon may know. */
static int folder_check_overlap(int given, const char *path, const char *ours, const char *what,
				bool named, struct error *error)
{
	struct stat given_info, our_info;
	CLOSE_FD int fd = open(ours, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool known = fd >= 0 && fstat(fd, &our_info) == 0 && fstat(given, &given_info) == 0;
	bool inside = known && directory_is_within(given, &our_info);
	bool around = known && !inside && directory_is_within(fd, &given_info);
	/* Through another mount one may still contain the other. */
	bool shared =
	    known && given_info.st_dev == our_info.st_dev && directories_share_files(given, fd);
	if (known && !inside && !around && !shared)
		return 0;
	return error_set(
	    error, ERROR_FORBIDDEN,
	    "the folder %.160s cannot be given to a sandbox: Caisson's %s directory%s%.160s "
	    "%s",
	    path, what, named ? " " : "", named ? ours : "",
	    !known   ? "cannot be compared with it"
	    : inside ? "is this folder, or one that it is in"
	    : around ? "is in it"
		     : "shares files with it through another mount");
}

static int folder_check_allowed(const struct spawner *spawner, int fd, bool own,
				struct error *error)
{
	char name[64], path[PATH_MAX];
	struct stat info;
	if (folder_check_filesystem(fd, error) < 0)
		return -1;
	if (fstat(fd, &info) < 0 || !S_ISDIR(info.st_mode))
		return error_set(error, ERROR_INVALID, "only a directory can be mounted");
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(name, path, sizeof(path) - 1);
	if (length <= 0 || (size_t)length >= sizeof(path) - 1 || info.st_nlink == 0)
		return error_set(error, ERROR_INVALID, "the directory has no path any more");
	path[length] = '\0';
	if (folder_check_overlap(fd, path, spawner->host.state, "state", own, error) < 0 ||
	    folder_check_overlap(fd, path, spawner->host.runtime, "runtime", own, error) < 0)
		return -1;
	const char *allow = spawner->config.mounts_allow;
	if (*allow && (!path_allowed(path, allow) || !path_leads_to(fd, path)))
		return error_set(
		    error, ERROR_FORBIDDEN,
		    "the configuration ([mounts] allow) does not allow this directory to be "
		    "given to a sandbox");
	return 0;
}

/* Without root we have our own mount namespace, where a descriptor of the giver's cannot be
 * cloned. We also have only the user's own id, so only that user can give a folder. */
static int folder_reopen(const struct spawner *spawner, struct folder_grant *grant,
			 struct error *error)
{
	if (spawner->host.rights == RIGHTS_ROOT)
		return 0;
	if (grant->uid != 0)
		return error_set(error, ERROR_FORBIDDEN,
				 "this daemon does not run as root: only its own user can give "
				 "folders to its sandboxes");
	if (fcntl(grant->directory, F_GETFL) & O_PATH)
		return error_set(error, ERROR_INVALID,
				 "its descriptor must be open for reading, not O_PATH");
	int fd = rootless_reopen_folder(grant->directory);
	if (fd < 0)
		return error_set(error, ERROR_INVALID,
				 "the folder is on a mount that the daemon does not see");
	fd_close(&grant->directory);
	grant->directory = fd;
	return 0;
}

static int folder_validate(const struct spawner *spawner, int fd, uint32_t mode,
			   struct folder_grant *ret_grant, struct error *error)
{
	if (folder_grant_open(fd, ret_grant, error) < 0)
		return -1;
	if (ret_grant->mode != mode)
		return error_set(error, ERROR_FORBIDDEN,
				 "the folder was granted in another mode than requested");
	/* The daemon may pass on users' grants, but not make grants itself. */
	if (ret_grant->uid == spawner->host.daemon_uid && ret_grant->uid != geteuid())
		return error_set(error, ERROR_FORBIDDEN,
				 "the daemon's own user cannot grant folders");
	if (folder_reopen(spawner, ret_grant, error) < 0)
		return -1;
	return folder_check_allowed(spawner, ret_grant->directory, ret_grant->uid == 0, error);
}

void mounts_init(struct mount mounts[SANDBOX_MOUNTS_MAX])
{
	for (size_t i = 0; i < SANDBOX_MOUNTS_MAX; i++)
		mounts[i] = (struct mount){.folder.directory = -1};
}

void mounts_done(struct mount mounts[SANDBOX_MOUNTS_MAX])
{
	for (size_t i = 0; i < SANDBOX_MOUNTS_MAX; i++)
		folder_grant_done(&mounts[i].folder);
}

int validate_create(const struct spawner *spawner, struct spawn_create *create, const int *fds,
		    size_t fd_count, struct mount mounts[SANDBOX_MOUNTS_MAX], struct error *error)
{
	if (create->tier == TIER_AUTO || create->tier >= TIER_COUNT)
		return error_set(error, ERROR_INVALID, "unknown tier %u", create->tier);
	if (!spawner->driver_of((enum tier)create->tier))
		return error_set(error, ERROR_TIER_UNAVAILABLE, "this build has no %s tier",
				 tier_name((enum tier)create->tier));
	if (create->rootfs.kind != ROOTFS_HOST)
		return error_set(error, ERROR_TEMPLATE_UNAVAILABLE, "unknown root file system %u",
				 create->rootfs.kind);
	if (create->rootfs.digest[0] && !rootfs_digest_valid(create->rootfs.digest))
		return error_set(error, ERROR_INVALID, "invalid digest of a root file system");
	if (create->flags & ~(uint32_t)(CREATE_NESTED_USERNS | CREATE_POOLED))
		return error_set(error, ERROR_INVALID, "unknown flags %#x", create->flags);
	/* Default: one inode per 16 KiB. */
	if (create->limits.inodes == 0)
		create->limits.inodes =
		    MIN(MAX(create->limits.disk / (16 * KIB), SANDBOX_INODES_MIN),
			spawner->config.maximum.inodes);
	if (validate_limits(spawner, &create->limits, error) < 0)
		return -1;
	if (create->mount_count > SANDBOX_MOUNTS_MAX || create->mount_count != fd_count)
		return error_set(error, ERROR_INVALID, "%u mounts and %zu descriptors",
				 create->mount_count, fd_count);
	for (size_t i = 0; i < fd_count; i++) {
		const struct spawn_mount *asked = &create->mounts[i];
		if (asked->source != MOUNT_FOLDER || asked->mode > MOUNT_COPY_ON_WRITE)
			return error_set(error, ERROR_INVALID, "invalid mount source %u or mode %u",
					 asked->source, asked->mode);
		mounts[i].source = (enum mount_source)asked->source;
		mounts[i].mode = (enum mount_mode)asked->mode;
		if (folder_validate(spawner, fds[i], asked->mode, &mounts[i].folder, error) < 0)
			return -1;
	}
	return 0;
}
