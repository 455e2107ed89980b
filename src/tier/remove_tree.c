/* Deletes trees of any depth with few descriptors. Directories below DEPTH_MAX are first moved
 * up to the top and deleted from there. Called by drivers and by the spawner's workers. */
#include "tier/remove_tree.h"

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
/* Each pass over the top removes at least one entry; the bound is for a faulty disk. */
#define PASSES_MAX 100000

struct tree_removal {
	int top;
	dev_t device;
	uint64_t moved;
	bool removed; /* an entry was removed in this pass */
	int failure;  /* the first -errno */
};

static void directory_empty(struct tree_removal *removal, int directory, int depth);

static void tree_removal_note_failure(struct tree_removal *removal, int result)
{
	if (result < 0 && removal->failure == 0)
		removal->failure = result;
}

static int directory_open(int parent, const char *name)
{
	int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(parent, name, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = openat(parent, name, flags);
	return fd < 0 ? -errno : fd;
}

/* Moves a directory that is too deep to the top, under an unused name. */
static int directory_move_to_top(struct tree_removal *removal, int parent, const char *name)
{
	char free_name[32];
	for (;;) {
		snprintf(free_name, sizeof(free_name), "moved-%llu",
			 (unsigned long long)removal->moved++);
		/* A rename also replaces an empty directory, which is harmless. */
		if (renameat(parent, name, removal->top, free_name) == 0)
			return 0;
		if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
			return -errno;
	}
}

static int entry_remove(struct tree_removal *removal, int parent, const char *name, int depth)
{
	struct stat status;
	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (depth >= DEPTH_MAX)
		return directory_move_to_top(removal, parent, name);
	CLOSE_FD int directory = directory_open(parent, name);
	if (directory < 0)
		return directory;
	if (fstat(directory, &status) < 0)
		return -errno;
	if (status.st_dev != removal->device)
		return -EXDEV;
	directory_empty(removal, TAKE_FD(directory), depth + 1);
	return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

/* Takes over the descriptor. */
static void directory_empty(struct tree_removal *removal, int directory, int depth)
{
	DIR *entries = fdopendir(directory);
	if (!entries) {
		tree_removal_note_failure(removal, -errno);
		close(directory);
		return;
	}
	errno = 0;
	for (struct dirent *entry; (entry = readdir(entries)); errno = 0) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		int result = entry_remove(removal, dirfd(entries), entry->d_name, depth);
		removal->removed |= result == 0;
		tree_removal_note_failure(removal, result);
	}
	tree_removal_note_failure(removal, -errno);
	closedir(entries);
}

int remove_tree(int parent, const char *name)
{
	struct stat status;
	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	CLOSE_FD int top = directory_open(parent, name);
	if (top == -ENOENT)
		return 0;
	if (top < 0)
		return top;
	if (fstat(top, &status) < 0)
		return -errno;
	struct tree_removal removal = {.top = top, .device = status.st_dev};
	/* A pass may find directories that the previous pass moved to the top. */
	for (int pass = 0; pass < PASSES_MAX; pass++) {
		int directory = directory_open(top, ".");
		if (directory < 0)
			return directory;
		removal.removed = false;
		directory_empty(&removal, directory, 0);
		if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		tree_removal_note_failure(&removal,
					  errno == ENOTEMPTY && removal.removed ? 0 : -errno);
		if (removal.failure < 0)
			return removal.failure;
	}
	return -ELOOP;
}
