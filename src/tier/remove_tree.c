/* Deletes trees of any depth with few descriptors: what lies deeper than DEPTH_MAX is first moved
 * up to the top, and then deleted from there. Called by disk.c. */
#include "tier/namespace/remove_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define DEPTH_MAX 32

struct removal {
	int top;
	uint64_t moved;
};

static void close_directory(DIR **directory)
{
	if (*directory)
		closedir(*directory);
}

static int empty_directory(struct removal *removal, int fd, int depth);

/* A directory that is too deep goes to the top under a name that nothing there has. */
static int move_up(struct removal *removal, int parent, const char *name)
{
	char free_name[32];
	for (;;) {
		snprintf(free_name, sizeof(free_name), "moved-%llu",
			 (unsigned long long)removal->moved++);
		/* Onto an empty directory a rename would succeed too; no harm in that. */
		if (renameat(parent, name, removal->top, free_name) == 0)
			return 0;
		if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
			return -errno;
	}
}

static int remove_entry(struct removal *removal, int parent, const char *name, int depth)
{
	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth >= DEPTH_MAX)
		return move_up(removal, parent, name);
	CLOSE_FD int fd =
	    openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int result = empty_directory(removal, fd, depth + 1);
	if (result < 0)
		return result;
	return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

static int empty_directory(struct removal *removal, int fd, int depth)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return -errno;
	CLEANUP(close_directory) DIR *directory = fdopendir(copy);
	if (!directory) {
		fd_close(&copy);
		return -ENOMEM;
	}
	if (depth == 1)
		removal->top = fd;
	bool again = true;
	/* At the top a pass may find what was moved there during it; below, one pass is all. */
	while (again) {
		again = false;
		errno = 0;
		for (struct dirent *entry; (entry = readdir(directory)); errno = 0) {
			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
				continue;
			int result = remove_entry(removal, fd, entry->d_name, depth);
			if (result < 0)
				return result;
			again = depth == 1;
		}
		if (errno != 0)
			return -errno;
		rewinddir(directory);
	}
	return 0;
}

int remove_tree(int parent, const char *name)
{
	struct removal removal = {.top = -1};
	return remove_entry(&removal, parent, name, 0);
}
