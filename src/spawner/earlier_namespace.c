/* Finds the user namespace that an earlier spawner of the same user made, while a sandbox of it
 * runs. That sandbox belongs to the old namespace, and could not be controlled from a new one.
 * The search begins at the sandbox's process and goes up to the namespace right below ours. The
 * user who made a namespace may always enter it. Called by rootless.c before anything else; reads
 * small files, does not block. */
#include "spawner/rootless.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "tier/live_guests.h"

#define DEPTH_MAX 32 /* the kernel nests user namespaces no deeper */

static bool namespace_same(int fd, const struct stat *other)
{
	struct stat info;
	return fstat(fd, &info) == 0 && info.st_dev == other->st_dev &&
	       info.st_ino == other->st_ino;
}

/* The ancestor that is right below our namespace, if this user made it. */
static int namespace_find_below_ours(int lowest, const struct stat *ours)
{
	CLOSE_FD int at = fcntl(lowest, F_DUPFD_CLOEXEC, 3);
	for (int depth = 0; at >= 0 && depth < DEPTH_MAX; depth++) {
		uid_t owner;
		CLOSE_FD int above = ioctl(at, NS_GET_PARENT);
		if (above < 0)
			return -errno;
		if (namespace_same(above, ours)) {
			if (ioctl(at, NS_GET_OWNER_UID, &owner) < 0)
				return -errno;
			return owner == geteuid() ? TAKE_FD(at) : -EPERM;
		}
		fd_close(&at);
		at = TAKE_FD(above);
	}
	return -ELOOP;
}

static int namespace_of_process(const struct process *process, const struct stat *ours)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)process->pid);
	CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Checked after the open: while the process lives, its pid was not reused. */
	if (!process_alive(process) || namespace_same(fd, ours))
		return -ESRCH;
	return namespace_find_below_ours(fd, ours);
}

int earlier_namespace_find(const char *runtime)
{
	char path[SPAWNER_PATH_MAX];
	struct stat ours;
	int found = text_format(path, sizeof(path), "%s/guests", runtime);
	if (found < 0 || stat("/proc/self/ns/user", &ours) < 0)
		return -ENOENT;
	DIR *entries = opendir(path);
	found = -ENOENT;
	for (struct dirent *entry; entries && found < 0 && (entry = readdir(entries));) {
		struct process process = PROCESS_NONE;
		if (entry->d_name[0] == '.' ||
		    live_guest_open(dirfd(entries), entry->d_name, &process) < 0)
			continue;
		found = namespace_of_process(&process, &ours);
		process_done(&process);
	}
	if (entries)
		closedir(entries);
	return found;
}
