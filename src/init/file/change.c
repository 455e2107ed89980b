/* Operations that change names and attributes: mkdir, rename, symlink, chmod, chown. Called by
 * operation_run(); may block on the disk. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"

#define MODE_NEW_DIRECTORY 0755

static void answer_empty(struct operation *operation)
{
	operation_result(operation, NULL, 0);
}

int file_mkdir(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct file_path path;
	if (file_path_of(request->path, &path, failure) < 0)
		return -1;
	file_path_trim(&path);
	mode_t mode = request->mode ? request->mode & 07777 : MODE_NEW_DIRECTORY;
	struct file_target place DONE_TARGET = FILE_TARGET;
	struct stat stat;
	bool parents = request->flags & FILE_PARENTS;
	if (parents && fstatat(AT_FDCWD, path.text, &stat, 0) == 0 && S_ISDIR(stat.st_mode)) {
		answer_empty(operation);
		return 0;
	}
	int result = file_place_find(&path, parents ? TARGET_PARENTS : 0, &place);
	if (result == 0 && mkdirat(place.directory, place.base, mode) < 0)
		result = -errno;
	/* mkdir() applied the umask; a mode that was asked for is set exactly. */
	if (result == 0 && request->mode != 0 && fchmodat(place.directory, place.base, mode, 0) < 0)
		result = -errno;
	/* Another process made it meanwhile, which is fine with FILE_PARENTS. */
	if (result == -EEXIST && parents && fstatat(AT_FDCWD, path.text, &stat, 0) == 0 &&
	    S_ISDIR(stat.st_mode))
		result = 0;
	if (result < 0)
		return file_failed(failure, result, path.text);
	answer_empty(operation);
	return 0;
}

/* Moves to another file system, or a directory of a layer below (for which overlayfs returns
 * EXDEV): copies it beside the target, renames the copy to the target, and removes the original
 * only then. */
static int entry_move_by_copy(struct operation *operation, const struct file_target *from,
			      const struct file_target *to, const char *path, const char *path2,
			      struct failure *failure)
{
	char name[48];
	uint64_t copied = 0, removed = 0;
	file_temporary_name(name);
	int result = file_copy_entry(operation, from->directory, from->base, to->directory, name,
				     path, &copied, failure);
	if (result == 0) {
		bool no_replace = operation->request.flags & FILE_NO_REPLACE;
		int renamed =
		    file_rename_at(to->directory, name, to->directory, to->base, no_replace);
		if (renamed < 0)
			result = file_failed(failure, renamed, path2);
	}
	if (result < 0) {
		/* Removes the incomplete copy, also after a cancel. */
		struct failure ignored = {0};
		(void)!file_remove_tree(NULL, to->directory, name, path2, &removed, &ignored);
		return -1;
	}
	return file_remove_tree(operation, from->directory, from->base, path, &removed, failure);
}

int file_rename(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct file_path path, path2;
	struct file_target from DONE_TARGET = FILE_TARGET, to DONE_TARGET = FILE_TARGET;
	if (file_path_of(request->path, &path, failure) < 0 ||
	    file_path_of(request->path2, &path2, failure) < 0)
		return -1;
	int result = file_place_find(&path, 0, &from);
	if (result == 0 && !from.exists)
		result = -ENOENT;
	if (result < 0)
		return file_failed(failure, result, path.text);
	result = file_place_find(&path2, request->flags & FILE_PARENTS ? TARGET_PARENTS : 0, &to);
	if (result < 0)
		return file_failed(failure, result, path2.text);
	result = file_rename_at(from.directory, from.base, to.directory, to.base,
				request->flags & FILE_NO_REPLACE);
	if (result == -EXDEV) {
		if (to.exists && (request->flags & FILE_NO_REPLACE))
			return file_failed(failure, EEXIST, path2.text);
		if (entry_move_by_copy(operation, &from, &to, path.text, path2.text, failure) < 0)
			return -1;
	} else if (result == -EINVAL) {
		return file_refused(failure, ERROR_FILE_INVALID, path2.text,
				    "a directory cannot be copied or moved into itself");
	} else if (result < 0) {
		/* Any other error is about the target. */
		bool source = result == -EACCES || result == -EPERM || result == -ENOENT;
		return file_failed(failure, result, source ? path.text : path2.text);
	}
	answer_empty(operation);
	return 0;
}

int file_symlink(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct file_path path;
	struct file_target place DONE_TARGET = FILE_TARGET;
	char target[GUEST_PATH_MAX];
	if (file_path_of(request->path, &path, failure) < 0)
		return -1;
	struct bytes text = request->path2;
	if (text.size == 0 || text.size >= sizeof(target) || memchr(text.data, '\0', text.size))
		return file_refused(failure, ERROR_FILE_INVALID, path.text,
				    "the link's target is empty, too long or holds a NUL byte");
	memcpy(target, text.data, text.size);
	target[text.size] = '\0';
	int result =
	    file_place_find(&path, request->flags & FILE_PARENTS ? TARGET_PARENTS : 0, &place);
	if (result == 0 && symlinkat(target, place.directory, place.base) < 0)
		result = -errno;
	if (result < 0)
		return file_failed(failure, result, path.text);
	answer_empty(operation);
	return 0;
}

/* One change of attributes, of an entry or of everything below it. */
struct attribute_change {
	bool owner; /* else the mode */
	mode_t mode;
	uid_t uid;
	gid_t gid;
};

/* chmod() cannot refuse a link, so the entry is opened with O_PATH and changed through /proc. */
static int mode_change(mode_t mode, int directory, const char *name)
{
	int fd CLOSE_FD = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat stat;
	if (fd < 0 || fstat(fd, &stat) < 0)
		return -errno;
	char path[32];
	file_descriptor_path(fd, path);
	return S_ISLNK(stat.st_mode) || chmod(path, mode) == 0 ? 0 : -errno;
}

static int attributes_change_one(const struct attribute_change *change, int directory,
				 const char *name, bool no_follow)
{
	if (!change->owner && no_follow)
		return mode_change(change->mode, directory, name);
	int result = change->owner ? fchownat(directory, name, change->uid, change->gid,
					      no_follow ? AT_SYMLINK_NOFOLLOW : 0)
				   : fchmodat(directory, name, change->mode, 0);
	return result < 0 ? -errno : 0;
}

static int attributes_change_below(struct operation *operation,
				   const struct attribute_change *change, int *directory,
				   const char *path, struct failure *failure)
{
	struct file_walk walk DONE_WALK = {.directory = -1};
	int event = file_walk_open(&walk, directory);
	while (event >= 0 && (event = file_walk_next(&walk)) > 0) {
		if (operation_cancelled(operation))
			return file_failed(failure, ECANCELED, path);
		/* Before the directory is entered, because that may need the new mode. */
		int result = 0;
		if (event == WALK_ENTRY && (change->owner || walk.type != DT_LNK))
			result = attributes_change_one(change, walk.directory, walk.name, true);
		if (result == 0 && event == WALK_ENTRY && walk.type == DT_DIR) {
			int fd CLOSE_FD = file_walk_open_entry(&walk);
			result = fd < 0 ? fd : file_walk_enter(&walk, &fd);
		}
		if (result < 0 && result != -ENOENT)
			return file_walk_failed(failure, result, NULL, path, &walk);
	}
	return event < 0 ? file_failed(failure, event, path) : 0;
}

static int attributes_change(struct operation *operation, const struct attribute_change *change,
			     const struct file_path *path, struct failure *failure)
{
	bool no_follow = operation->request.flags & FILE_NO_FOLLOW;
	struct stat stat;
	if (fstatat(AT_FDCWD, path->text, &stat, no_follow ? AT_SYMLINK_NOFOLLOW : 0) < 0)
		return file_failed(failure, errno, path->text);
	if (!change->owner && S_ISLNK(stat.st_mode))
		return file_wrong_type(failure, path->text, stat.st_mode,
				       "an entry that has a mode");
	int result = attributes_change_one(change, AT_FDCWD, path->text, no_follow);
	if (result < 0)
		return file_failed(failure, result, path->text);
	if (S_ISDIR(stat.st_mode) && (operation->request.flags & FILE_RECURSIVE)) {
		int directory CLOSE_FD =
		    open(path->text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
		if (directory < 0)
			return file_failed(failure, errno, path->text);
		if (attributes_change_below(operation, change, &directory, path->text, failure) < 0)
			return -1;
	}
	answer_empty(operation);
	return 0;
}

int file_chmod(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	if (file_path_of(operation->request.path, &path, failure) < 0)
		return -1;
	const struct attribute_change change = {.mode = operation->request.mode & 07777};
	return attributes_change(operation, &change, &path, failure);
}

int file_chown(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	if (file_path_of(operation->request.path, &path, failure) < 0)
		return -1;
	struct attribute_change change = {.owner = true};
	if (file_owner_parse(operation->request.path2, &change.uid, &change.gid, failure) < 0)
		return -1;
	return attributes_change(operation, &change, &path, failure);
}
