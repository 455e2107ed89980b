/* The mounts of a sandbox of the gvisor tier. See root.h. */
#include "tier/gvisor/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "boot/filesystem.h"
#include "boot/root.h"

#define INIT_MAX (16 * MIB) /* a sanitized test init is large */

/* Bind-mounts a file of the host's on a new, empty one. */
static int file_bind(const char *from, const char *to, unsigned attributes)
{
	CLOSE_FD int place = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
	return place < 0 ? -errno : fs_bind(from, to, attributes);
}

/* Copies root's file, which no process in here may read. */
static int init_copy(int from)
{
	CLOSE_FD int to =
	    open(&ROOT_INIT_FILE[1], O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0711);
	return to < 0 ? -errno : fd_copy(from, to, INIT_MAX);
}

int gvisor_leave_host(const char *runsc, int init, const char **ret_step)
{
	static const char *const directories[] = {"proc", "dev", "l", "k",   "r",
						  "b",    "s",   "i", "tmp", "etc"};
	const struct small_root small = {.size = "24m",
					 .inodes = "256",
					 .directories = directories,
					 .directory_count = ARRAY_SIZE(directories),
					 .mode = 0755};
	const unsigned plain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	int result = root_begin(&small, ret_step);
	if (result < 0)
		return result;
	*ret_step = "/proc";
	result = fs_mount("proc", NULL, plain | MOUNT_ATTR_NOEXEC, "proc");
	if (result < 0)
		return result;
	*ret_step = "/dev/null";
	result = file_bind("/dev/null", "dev/null", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (result < 0)
		return result;
	*ret_step = "the program runsc";
	result = file_bind(runsc, &ROOT_RUNSC[1], plain | MOUNT_ATTR_RDONLY);
	if (result < 0)
		return result;
	*ret_step = "a copy of caisson-init";
	result = init_copy(init);
	if (result < 0)
		return result;
	*ret_step = "leaving the host's root";
	return fs_enter(".");
}

int gvisor_make_root(const struct boot_assign *request, const int *fds, const char **ret_step)
{
	char path[16];
	int result = root_make(request, fds, ret_step);
	if (result >= 0)
		result = root_furnish(request, fds, false, ret_step);
	if (result < 0)
		return result;
	*ret_step = "detaching disk and layers";
	for (uint32_t i = 0; result >= 0 && i < request->lower_count; i++) {
		result = text_format(path, sizeof(path), "l/%u", i);
		if (result >= 0)
			result = fs_detach(path);
	}
	return result < 0 ? result : fs_detach("k");
}
