/* From "just executed in new namespaces" to "in the sandbox's own root": see setup.h. Called by
 * the init's main() and, for CONFIGURE, from its loop while no other process runs. May block.
 * Allocates nothing.
 *
 * PREPARE leaves the host: it enters a small root of its own and detaches the host's, before
 * it has any data of a user. The small root has the directories of boot/root.h, and:
 *   proc, dev   moved into the sandbox's root later
 *   t/N         users' folders that get an overlay
 *   empty       an empty directory
 * ASSIGN builds the sandbox's root and enters it. The small root is detached, and with it every
 * path to layers and disk. */
#include "init/setup/setup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "boot/channel.h"
#include "boot/filesystem.h"
#include "boot/root.h"
#include "init/setup/devices.h"

#define PROC_MAGIC 0x9fa0
#define TMPFS_MAGIC_NUMBER 0x01021994
#define DEVPTS_MAGIC 0x1cd1

/* Makes the small root with its contents, enters it and detaches the host's. */
static int host_leave(struct setup *setup, struct failure *failure)
{
	static const char *const directories[] = {"proc", "dev", "l", "k", "b", "t", "r", "empty"};
	const struct small_root small = {.size = "256k",
					 .inodes = "128",
					 .directories = directories,
					 .directory_count = ARRAY_SIZE(directories),
					 .mode = 0555};
	const char *step;
	int result = root_begin(&small, &step);
	if (result < 0)
		return boot_fail(failure, result, step);
	setup->meminfo = open("meminfo", O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0444);
	if (setup->meminfo < 0)
		return boot_fail(failure, errno, "meminfo");
	result = setup_devices("dev", &step);
	if (result >= 0)
		result = setup_proc("proc", "dev/null", "empty", "meminfo", &step);
	if (result < 0)
		return boot_fail(failure, result, step);
	result = fs_enter(".");
	if (result < 0)
		return boot_fail(failure, result, "leaving the host's root");
	if (harden_before_readonly(failure) < 0)
		return -1;
	result = setup_proc_readonly("proc", &step);
	return result < 0 ? boot_fail(failure, result, step) : 0;
}

static void descriptors_close(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
}

static int root_prepare(struct setup *setup, struct failure *failure)
{
	if (boot_receive_prepare(&setup->handles, failure) < 0 || host_leave(setup, failure) < 0)
		return -1;
	boot_report_phase("mounts");
	int result = boot_loopback_up();
	if (result < 0)
		return boot_fail(failure, result, "bringing the loopback up");
	boot_report_phase("loopback");
	return 0;
}

/* Prepares a user's folder for its place: either unchanged (a read-only one has locked flags), or
 * below an overlay that takes the changes. */
static int tree_make(struct setup *setup, uint32_t index, uint32_t mode, int *tree)
{
	char lower[32], upper[32], work[32];
	if (mode != MOUNT_COPY_ON_WRITE) {
		setup->trees[index] = TAKE_FD(*tree);
		return 0;
	}
	int result = root_stage(*tree, "t", index);
	if (result >= 0)
		result = text_format(lower, sizeof(lower), "t/%u", index);
	if (result >= 0)
		result = text_format(upper, sizeof(upper), "k/cow/%u/upper", index);
	if (result >= 0)
		result = text_format(work, sizeof(work), "k/cow/%u/work", index);
	if (result >= 0)
		result = overlay_make(tree, 1, lower, upper, work);
	if (result < 0)
		return result;
	setup->trees[index] = result;
	return 0;
}

static int trees_make(struct setup *setup, const struct boot_assign *request, int *trees,
		      struct failure *failure)
{
	for (uint32_t i = 0; i < request->tree_count; i++) {
		uint32_t mode = request->tree_modes[i];
		int result =
		    mode > MOUNT_COPY_ON_WRITE ? -EBADMSG : tree_make(setup, i, mode, &trees[i]);
		if (result < 0) {
			char what[64];
			snprintf(what, sizeof(what), "folder %u", i);
			return boot_fail(failure, result, what);
		}
		setup->tree_modes[i] = mode;
		setup->tree_count = i + 1;
	}
	return 0;
}

/* Moves what PREPARE made into the root, and mounts /dev/shm. Its pages and inodes (1 KiB each)
 * count as memory of the processes that wrote them, and an out-of-memory kill would not free
 * them. So it has at most half of the memory, and one inode per page. */
static int mounts_move_in(const struct limits *limits)
{
	char size[32], inodes[32];
	const char *options[] = {"mode", "1777", "size", size, "nr_inodes", inodes, NULL};
	int result = fs_move("proc", "r/proc");
	if (result >= 0)
		result = fs_move("dev", "r/dev");
	if (result >= 0)
		result = text_format(size, sizeof(size), "%lluk",
				     (unsigned long long)(limits->memory / 2 / KIB));
	if (result >= 0)
		result = text_format(inodes, sizeof(inodes), "%llu",
				     (unsigned long long)(limits->memory / 2 / (4 * KIB)));
	if (result >= 0)
		result =
		    fs_mount("tmpfs", options,
			     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, "r/dev/shm");
	return result;
}

static int root_assign_fds(struct setup *setup, const struct boot_assign *request, int *fds,
			   struct failure *failure)
{
	int *trees = fds + 1 + request->lower_count + request->bind_count;
	const char *step;
	setup->limits = request->limits;
	setup->flags = request->flags;
	int result = root_make(request, fds, &step);
	if (result < 0)
		return boot_fail(failure, result, step);
	boot_report_phase("overlay");
	result = root_furnish(request, fds, true, &step);
	if (result < 0)
		return boot_fail(failure, result, step);
	if (trees_make(setup, request, trees, failure) < 0)
		return -1;
	result = mounts_move_in(&request->limits);
	if (result < 0)
		return boot_fail(failure, result, "furnishing the root");
	result = fs_enter("r");
	if (result < 0)
		return boot_fail(failure, result, "entering the root");
	setup_refresh_meminfo(setup);
	boot_report_phase("root");
	return 0;
}

static int root_assign(struct setup *setup, struct failure *failure)
{
	struct boot_assign request;
	int fds[BOOT_FDS_MAX];
	size_t fd_count;
	int result = boot_receive_assign(SANDBOX_MOUNTS_MAX, &request, fds, &fd_count, failure);
	if (result == 0)
		result = root_assign_fds(setup, &request, fds, failure);
	/* Above all the layers' descriptors must not stay open. */
	descriptors_close(fds, fd_count);
	return result;
}

/* Errors are ignored: the spawner may have ended, and the sandbox does not need it. */
static void report_send(int result, const struct failure *failure)
{
	(void)!boot_report_send(result < 0 ? failure : NULL);
}

static void setup_clear(struct setup *setup)
{
	memset(setup, 0, sizeof(*setup));
	boot_handles_clear(&setup->handles);
	setup->meminfo = -1;
	for (size_t i = 0; i < ARRAY_SIZE(setup->trees); i++)
		setup->trees[i] = -1;
}

void setup_channel(struct setup *ret_setup)
{
	struct rlimit files;
	setup_clear(ret_setup);
	ret_setup->channel = true;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		ret_setup->limits.files = (uint32_t)files.rlim_max;
}

int setup_boot(struct setup *ret_setup, void (*prepared)(void), struct failure *ret_failure)
{
	struct setup *setup = ret_setup;
	setup_clear(setup);
	memset(ret_failure, 0, sizeof(*ret_failure));
	umask(022);
	int result = root_prepare(setup, ret_failure);
	report_send(result, ret_failure);
	if (result < 0)
		return -1;
	prepared();
	result = root_assign(setup, ret_failure);
	report_send(result, ret_failure);
	return result;
}

void setup_ready(void)
{
	boot_report_begin(0);
	report_send(0, NULL);
	close(BOOT_FD);
}

/* Like mkdir -p and open(O_PATH) in the sandbox's root, never through a magic link of /proc. The
 * descriptor of the directory, or -errno. */
static int place_open(const char *path)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	CLOSE_FD int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0)
		return -errno;
	char prefix[GUEST_PATH_MAX];
	int result = text_copy(prefix, sizeof(prefix), path);
	if (result < 0)
		return result;
	for (char *slash = prefix + 1;; slash++) {
		if (*slash != '/' && *slash != '\0')
			continue;
		char separator = *slash;
		*slash = '\0';
		int place = sys_openat2(at, prefix, &how);
		if (place == -ENOENT) {
			if (mkdir(prefix, 0755) < 0)
				return -errno;
			place = sys_openat2(at, prefix, &how);
		}
		if (place < 0 || separator == '\0')
			return place;
		close(place);
		*slash = separator;
	}
}

/* A folder may not be mounted over the root, nor in /proc or /dev. */
static int place_check(int place)
{
	struct statfs filesystem;
	struct stat status, root;
	if (fstatfs(place, &filesystem) < 0 || fstat(place, &status) < 0 || stat("/", &root) < 0)
		return -errno;
	if (status.st_dev == root.st_dev && status.st_ino == root.st_ino)
		return -EBUSY;
	if (filesystem.f_type == PROC_MAGIC || filesystem.f_type == TMPFS_MAGIC_NUMBER ||
	    filesystem.f_type == DEVPTS_MAGIC)
		return -EPERM;
	return 0;
}

int setup_place_tree(struct setup *setup, uint32_t index, const char *path,
		     struct failure *ret_failure)
{
	char what[200];
	memset(ret_failure, 0, sizeof(*ret_failure));
	snprintf(what, sizeof(what), "mounting at %.160s", path);
	if (index >= setup->tree_count || setup->trees[index] < 0)
		return boot_fail(ret_failure, EBADF, what);
	if (path[0] != '/')
		return boot_fail(ret_failure, EINVAL, what);
	CLOSE_FD int place = place_open(path);
	int result = place < 0 ? place : place_check(place);
	if (result >= 0)
		result = sys_move_mount(setup->trees[index], "", place, "",
					MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	if (result < 0) {
		boot_fail(ret_failure, result, what);
		ret_failure->kind = ERROR_INVALID;
		return -1;
	}
	fd_close(&setup->trees[index]);
	return 0;
}

void setup_close_trees(struct setup *setup)
{
	descriptors_close(setup->trees, setup->tree_count);
}
