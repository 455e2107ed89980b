/* Removes an entry or a tree of any depth. Called by operation_run(), and by rename when it has
 * to copy. May block on the disk. Links are removed, never followed; a mount inside the tree
 * stays and is reported. A failure does not stop it: the rest is removed, and the first failure
 * reported. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"

#define CANCEL_LOOK 128

struct removal {
	struct operation *operation; /* NULL: it cannot be cancelled */
	struct failure *failure;     /* the first */
	const char *path;            /* of the root, for messages */
	dev_t device;
	uint64_t removed;
	uint64_t steps;
	bool failed;
};

static void removal_note_failure(struct removal *removal, const struct file_walk *walk, int errnum,
				 const char *words)
{
	if (removal->failed)
		return;
	removal->failed = true;
	file_walk_failed(removal->failure, errnum, words, removal->path, walk);
}

/* Enters a directory of the tree unless something is mounted on it. */
static void removal_enter_directory(struct removal *removal, struct file_walk *walk)
{
	int fd CLOSE_FD = file_walk_open_entry(walk);
	bool is_mount = false;
	int result = fd < 0 ? fd : file_is_mount(fd, removal->device, &is_mount);
	if (result == 0 && is_mount) {
		removal_note_failure(removal, walk, EBUSY,
				     "something is mounted there; it was not removed");
		return;
	}
	if (result == 0)
		result = file_walk_enter(walk, &fd);
	/* A directory that cannot be read may still be empty. */
	if (result < 0 && unlinkat(walk->directory, walk->name, AT_REMOVEDIR) == 0)
		removal->removed++;
	else if (result < 0 && result != -ENOENT)
		removal_note_failure(removal, walk, result, NULL);
}

static void removal_remove_entry(struct removal *removal, struct file_walk *walk)
{
	if (walk->type != DT_DIR && unlinkat(walk->directory, walk->name, 0) == 0) {
		removal->removed++;
		return;
	}
	/* EISDIR: it became a directory meanwhile. */
	if (walk->type == DT_DIR || errno == EISDIR)
		removal_enter_directory(removal, walk);
	else if (errno != ENOENT)
		removal_note_failure(removal, walk, errno, NULL);
}

/* Removes a directory after its entries. If some are left (file systems may skip entries when
 * others are removed during reading, or new ones were made), enters it again, as long as that
 * makes progress. */
static void removal_remove_directory(struct removal *removal, struct file_walk *walk)
{
	if (unlinkat(walk->directory, walk->name, AT_REMOVEDIR) == 0)
		removal->removed++;
	else if (errno == ENOTEMPTY && !removal->failed && removal->removed > removal->steps) {
		removal->steps = removal->removed;
		removal_enter_directory(removal, walk);
	} else if (errno != ENOENT) {
		removal_note_failure(removal, walk, errno, NULL);
	}
}

static int removal_empty_directory(struct removal *removal, int *directory)
{
	struct file_walk walk DONE_WALK = {.directory = -1};
	int result = file_walk_open(&walk, directory);
	if (result < 0)
		return result;
	for (uint64_t seen = 0;; seen++) {
		if (removal->operation && seen % CANCEL_LOOK == 0 &&
		    operation_cancelled(removal->operation))
			return -ECANCELED;
		int event = file_walk_next(&walk);
		if (event == WALK_END)
			return 0;
		if (event == -ESTALE)
			return event;
		if (event < 0) {
			walk.name = "";
			removal_note_failure(removal, &walk, event, NULL);
		} else if (event == WALK_ENTRY) {
			removal_remove_entry(removal, &walk);
		} else {
			removal_remove_directory(removal, &walk);
		}
	}
}

static int removal_remove_root(struct removal *removal, int parent, const char *base)
{
	/* Twice: the second pass finds entries that the file system skipped while others were
	 * removed. */
	for (int pass = 0; pass < 2; pass++) {
		int directory CLOSE_FD = openat(
		    parent, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		struct stat stat;
		bool is_mount = false;
		if (directory < 0 || fstat(directory, &stat) < 0)
			return -errno;
		removal->device = stat.st_dev;
		int result = file_is_mount(directory, stat.st_dev, &is_mount);
		if (result == 0 && is_mount)
			result = -EBUSY;
		if (result == 0)
			result = removal_empty_directory(removal, &directory);
		if (result < 0)
			return result;
		if (unlinkat(parent, base, AT_REMOVEDIR) == 0) {
			removal->removed++;
			return 0;
		}
		if (errno != ENOTEMPTY || removal->failed)
			return removal->failed ? 0 : -errno;
	}
	return -ENOTEMPTY;
}

int file_remove_tree(struct operation *operation, int directory, const char *base, const char *path,
		     uint64_t *removed, struct failure *failure)
{
	struct removal removal = {.operation = operation, .failure = failure, .path = path};
	int result = 0;
	if (unlinkat(directory, base, 0) == 0)
		removal.removed = 1;
	else if (errno == EISDIR)
		result = removal_remove_root(&removal, directory, base);
	else
		result = -errno;
	*removed += removal.removed;
	if (removal.failed)
		return -1;
	return result < 0 ? file_failed(failure, result, path) : 0;
}

int file_remove(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	struct file_target place DONE_TARGET = FILE_TARGET;
	if (file_path_of(operation->request.path, &path, failure) < 0)
		return -1;
	int result = file_place_find(&path, 0, &place);
	if (result < 0)
		return file_failed(failure, result, path.text);
	uint64_t removed = 0;
	bool is_directory = place.exists && S_ISDIR(place.stat.st_mode);
	if (is_directory && !(operation->request.flags & FILE_RECURSIVE)) {
		if (unlinkat(place.directory, place.base, AT_REMOVEDIR) < 0)
			return file_failed(failure, errno, path.text);
		removed = 1;
	} else if (file_remove_tree(operation, place.directory, place.base, path.text, &removed,
				    failure) < 0) {
		return -1;
	}
	uint8_t payload[8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u64(&writer, removed);
	operation_result(operation, payload, writer.size);
	return 0;
}
