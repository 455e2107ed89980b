/* Checks the storage of sandboxes: the state directory, the mechanism of the disk limit, idmapped
 * mounts. Called by doctor.c. Attaches a loop device to memory and releases it; writes nothing to
 * disk. */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"

#define TIMEOUT_MS 5000
#define FREE_LITTLE (2 * GIB)
#define XFS_MAGIC 0x58465342
#ifndef LOOP_CONFIGURE
#error "kernel headers older than 5.8"
#endif

/* The directory, or its nearest existing parent. */
static void path_existing_part(const char *path, char part[256])
{
	snprintf(part, 256, "%s", path);
	while (access(part, F_OK) < 0) {
		char *slash = strrchr(part, '/');
		if (!slash || slash == part) {
			snprintf(part, 256, "/");
			return;
		}
		*slash = '\0';
	}
}

DOCTOR_CHECK(doctor_check_state)
{
	char part[256], amount[32];
	struct statvfs space;
	path_existing_part(client->config.state, part);
	if (statvfs(part, &space) < 0) {
		finding_set(finding, VERDICT_FAILED, "%s: %s", part, strerror(errno));
		return;
	}
	uint64_t left = (uint64_t)space.f_bavail * space.f_frsize;
	bytes_to_text(left, amount);
	bool there = strcmp(part, client->config.state) == 0;
	if (space.f_flag & ST_RDONLY) {
		finding_set(finding, VERDICT_FAILED, "%s is on a read-only file system",
			    client->config.state);
		finding_set_remedy(finding, "choose another place: `caisson serve --state DIR`, or "
					    "CAISSON_STATE");
	} else if (!there && access(part, W_OK | X_OK) < 0) {
		finding_set(finding, VERDICT_FAILED, "%s cannot be made: %s: %s",
			    client->config.state, part, strerror(errno));
		finding_set_remedy(finding,
				   "choose another place: CAISSON_STATE, or `state =` in the "
				   "configuration");
	} else if (left < FREE_LITTLE || (space.f_files && space.f_favail < 10000)) {
		finding_set(finding, VERDICT_WARNING, "%s: only %s and %llu files left",
			    client->config.state, amount, (unsigned long long)space.f_favail);
		finding_set_remedy(finding,
				   "free some space, remove sandboxes (`caisson ls`), or choose "
				   "another place with --state");
	} else {
		finding_set(finding, VERDICT_OK, "%s%s: %s free", client->config.state,
			    there ? "" : " (not made yet)", amount);
	}
}

static int program_version(const char *name)
{
	char path[128], text[512];
	if (!doctor_find_program(name, path))
		return -ENOENT;
	const char *const argv[] = {path, "-V", NULL};
	return doctor_run_program(argv, TIMEOUT_MS, text, sizeof(text));
}

/* Attaches a free loop device to a piece of memory. It detaches by itself (autoclear). */
static int loop_device_try(void *data, char *text, size_t room)
{
	char path[32];
	(void)data;
	(void)text;
	(void)room;
	CLOSE_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		return errno;
	CLOSE_FD int memory = memfd_create("doctor", MFD_CLOEXEC);
	if (memory < 0 || ftruncate(memory, (off_t)MIB) < 0)
		return errno;
	/* Another process may take the free device first. */
	for (int attempt = 0; attempt < 16; attempt++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			return errno;
		snprintf(path, sizeof(path), "/dev/loop%d", number);
		CLOSE_FD int device = open(path, O_RDWR | O_CLOEXEC);
		if (device < 0 && errno == EBUSY)
			continue;
		if (device < 0)
			return errno;
		struct loop_config config = {.fd = (__u32)memory,
					     .info.lo_flags = LO_FLAGS_AUTOCLEAR};
		if (ioctl(device, LOOP_CONFIGURE, &config) == 0)
			return 0;
		if (errno != EBUSY)
			return errno;
	}
	return EBUSY;
}

static const char *path_file_system(const char *path)
{
	char part[256];
	struct statfs info;
	path_existing_part(path, part);
	if (statfs(part, &info) < 0)
		return "";
	if (info.f_type == BTRFS_SUPER_MAGIC)
		return "; the state directory is on btrfs: copies share their blocks";
	if (info.f_type == XFS_MAGIC)
		return "; the state directory is on XFS: copies share their blocks";
	return "";
}

DOCTOR_CHECK(doctor_check_disk_limit)
{
	char text[16];
	int making = program_version("mke2fs"), checking = program_version("e2fsck");
	if (making < 0 || checking < 0) {
		finding_set(finding, VERDICT_WARNING,
			    "%s does not run (%s): disk and inode limits will not be enforced",
			    making < 0 ? "mke2fs" : "e2fsck",
			    strerror(making < 0 ? -making : -checking));
		finding_set_remedy(finding, "apt-get install e2fsprogs");
		return;
	}
	if (geteuid() != 0) {
		finding_set(finding, VERDICT_INFORMATION,
			    "loop devices are root's; without them disk and inode limits are not "
			    "enforced");
		finding_set_remedy(finding, "run the daemon as root where disk limits matter");
		return;
	}
	int result = doctor_run_child(loop_device_try, NULL, TIMEOUT_MS, text, sizeof(text));
	if (result == 0) {
		finding_set(finding, VERDICT_OK,
			    "an ext4 image per sandbox on a loop device (mke2fs, e2fsck)%s",
			    path_file_system(client->config.state));
		return;
	}
	finding_set(finding, VERDICT_WARNING,
		    "no loop device can be attached (%s): disk and inode limits will not be "
		    "enforced",
		    strerror(result < 0 ? -result : result));
	finding_set_remedy(finding, "modprobe loop; inside a container: --privileged");
}

/* Starts a process in a user namespace with an id map; an idmapped mount needs a descriptor of it.
 */
static int mapped_namespace_open(pid_t *ret_child)
{
	int ready[2];
	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	CLOSE_FD int reader = ready[0], writer = ready[1];
	pid_t child = fork();
	if (child < 0)
		return -errno;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		char done = unshare(CLONE_NEWUSER) == 0;
		if (fd_write_full(writer, &done, 1) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	*ret_child = child;
	char done = 0, path[64];
	if (fd_read_full(reader, &done, 1) < 0 || !done)
		return -EPERM;
	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)child);
	int result = fd_write_small(AT_FDCWD, path, "0 1000000 65536");
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)child);
	if (result == 0)
		result = fd_write_small(AT_FDCWD, path, "0 1000000 65536");
	if (result < 0)
		return result;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)child);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int idmapped_mount_try(void *data, char *text, size_t room)
{
	(void)text;
	(void)room;
	pid_t child = 0;
	CLOSE_FD int users = mapped_namespace_open(&child);
	int result = users < 0 ? users : 0;
	if (result == 0) {
		CLOSE_FD int tree =
		    sys_open_tree(AT_FDCWD, data, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP,
						.userns_fd = (__u64)users};
		result = tree < 0 ? tree : sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attributes);
	}
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	return -result;
}

DOCTOR_CHECK(doctor_check_idmapped)
{
	char part[256], text[16];
	path_existing_part(client->config.state, part);
	if (geteuid() != 0) {
		finding_set(finding, VERDICT_INFORMATION,
			    "need root; without root, layers are shared without mapping");
		return;
	}
	int result = doctor_run_child(idmapped_mount_try, part, TIMEOUT_MS, text, sizeof(text));
	if (result == 0) {
		finding_set(finding, VERDICT_OK, "on the file system of %s", part);
		return;
	}
	finding_set(finding, VERDICT_FAILED, "not on the file system of %s: %s", part,
		    strerror(result < 0 ? -result : result));
	finding_set_remedy(finding, "put the state directory on ext4, XFS or btrfs: --state DIR");
}
