/* Copies a file, a link or a tree, with modes, times, owners (where allowed), links and holes.
 * Called by operation_run(), and by rename across file systems. May block on the disk. A file
 * appears at its new place complete or not at all; a tree is copied entry by entry into a
 * directory that may exist already. A FIFO becomes a new FIFO; sockets and devices are
 * refused. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"

#define COPY_BUFFER (128 * 1024)
#define COPY_STEP (8 * 1024 * 1024) /* bytes between two checks for a cancel */

struct tree_copy {
	struct operation *operation;
	struct failure *failure; /* filled in where the walk knows the name, else by the caller */
	const char *path;
	uint64_t copied;
	/* The directory that is being filled, and the identity of those above it, which is
	 * compared when ".." is opened. */
	int to;
	struct {
		dev_t device;
		ino_t inode;
	} * above;
	size_t depth, room;
};

/* Lets the kernel copy (it may share blocks) if it can, else copies through a buffer. */
static int copy_range(struct tree_copy *copy, int from, int to, off_t at, off_t end)
{
	bool by_kernel = true;
	uint8_t *buffer CLEANUP(file_free) = NULL;
	while (at < end) {
		if (operation_cancelled(copy->operation))
			return -ECANCELED;
		ssize_t moved;
		if (by_kernel) {
			off_t in = at, out = at;
			moved = copy_file_range(from, &in, to, &out,
						(size_t)MIN(end - at, (off_t)COPY_STEP), 0);
			if (moved < 0 && errno != EINTR && errno != ENOSPC && errno != EDQUOT &&
			    errno != EFBIG && errno != EIO) {
				by_kernel = false;
				continue;
			}
		} else {
			if (!buffer && !(buffer = malloc(COPY_BUFFER)))
				return -ENOMEM;
			moved = pread(from, buffer, (size_t)MIN(end - at, (off_t)COPY_BUFFER), at);
			for (ssize_t done = 0; done < moved;) {
				ssize_t wrote =
				    pwrite(to, buffer + done, (size_t)(moved - done), at + done);
				if (wrote < 0 && errno != EINTR)
					return -errno;
				done += MAX(wrote, 0);
			}
		}
		if (moved < 0 && errno != EINTR)
			return -errno;
		/* The file became shorter meanwhile, or its size is unknown. */
		if (moved == 0)
			break;
		at += MAX(moved, 0);
		copy->copied += (uint64_t)MAX(moved, 0);
	}
	return 0;
}

/* Copies a file of /proc: its size is reported as 0, so it is read until its end. */
static int copy_stream(struct tree_copy *copy, int from, int to)
{
	uint8_t *buffer CLEANUP(file_free) = malloc(COPY_BUFFER);
	if (!buffer)
		return -ENOMEM;
	for (;;) {
		ssize_t got = read(from, buffer, COPY_BUFFER);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : 0;
		int result = file_write_all(to, buffer, (size_t)got);
		if (result < 0)
			return result;
		copy->copied += (uint64_t)got;
		if (operation_cancelled(copy->operation))
			return -ECANCELED;
	}
}

static int copy_data(struct tree_copy *copy, int from, int to, const struct stat *stat)
{
	if (stat->st_size == 0)
		return copy_stream(copy, from, to);
	off_t at = 0;
	while (at < stat->st_size) {
		off_t data = lseek(from, at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
		if (data < 0 || hole < 0) {
			data = at;
			hole = stat->st_size;
		}
		int result = copy_range(copy, from, to, data, hole);
		if (result < 0)
			return result;
		at = hole;
	}
	return ftruncate(to, stat->st_size) < 0 ? -errno : 0;
}

/* Owner first, since that clears bits of the mode; then mode; then times. Only root can change
 * the owner. */
static int copy_set_attributes(int fd, const struct stat *stat)
{
	mode_t mode = stat->st_mode & 07777;
	if (fchown(fd, stat->st_uid, stat->st_gid) < 0)
		mode &= 0777;
	const struct timespec times[2] = {stat->st_atim, stat->st_mtim};
	if (fchmod(fd, mode) < 0 || futimens(fd, times) < 0)
		return -errno;
	return 0;
}

static int copy_file(struct tree_copy *copy, int from, const char *from_base, int to,
		     const char *to_base)
{
	struct stat stat;
	int source CLOSE_FD = file_open_regular(from, from_base, O_RDONLY | O_NOFOLLOW, &stat);
	if (source < 0)
		return source;
	struct file_new new_file DONE_NEW = FILE_NEW;
	struct file_target target = {.directory = to};
	size_t size = strlen(to_base);
	if (size >= sizeof(target.base))
		return -ENAMETOOLONG;
	memcpy(target.base, to_base, size + 1);
	target.exists = fstatat(to, to_base, &target.stat, AT_SYMLINK_NOFOLLOW) == 0;
	if (target.exists && S_ISDIR(target.stat.st_mode))
		return -EISDIR;
	int result = file_new_open(&new_file, to);
	if (result == 0)
		result = copy_data(copy, source, new_file.fd, &stat);
	if (result == 0)
		result = copy_set_attributes(new_file.fd, &stat);
	return result < 0 ? result : file_new_commit(&new_file, &target, false);
}

static int copy_link(int from, const char *from_base, int to, const char *to_base,
		     const struct stat *stat)
{
	char text[GUEST_PATH_MAX];
	ssize_t length = readlinkat(from, from_base, text, sizeof(text) - 1);
	if (length < 0)
		return -errno;
	text[length] = '\0';
	char name[48];
	file_temporary_name(name);
	if (symlinkat(text, to, name) < 0)
		return -errno;
	const struct timespec times[2] = {stat->st_atim, stat->st_mtim};
	(void)!fchownat(to, name, stat->st_uid, stat->st_gid, AT_SYMLINK_NOFOLLOW);
	(void)!utimensat(to, name, times, AT_SYMLINK_NOFOLLOW);
	int result = file_rename_at(to, name, to, to_base, false);
	if (result < 0)
		(void)!unlinkat(to, name, 0);
	return result;
}

/* Copies an entry that is not a directory. */
static int copy_leaf(struct tree_copy *copy, int from, const char *from_base, int to,
		     const char *to_base, const struct stat *stat)
{
	switch (stat->st_mode & S_IFMT) {
	case S_IFREG:
		return copy_file(copy, from, from_base, to, to_base);
	case S_IFLNK:
		return copy_link(from, from_base, to, to_base, stat);
	case S_IFIFO:
		return mkfifoat(to, to_base, stat->st_mode & 07777) < 0 && errno != EEXIST ? -errno
											   : 0;
	case S_IFSOCK:
		/* A socket without its process is useless. */
		return 0;
	default:
		return -EMEDIUMTYPE;
	}
}

/* Makes a directory, or opens an existing one, and makes it the one that is being filled. */
static int copy_enter(struct tree_copy *copy, const char *name)
{
	if (copy->depth == copy->room) {
		size_t room = MAX(64, 2 * copy->room);
		void *above = realloc(copy->above, room * sizeof(*copy->above));
		if (!above)
			return -ENOMEM;
		copy->above = above;
		copy->room = room;
	}
	struct stat stat;
	if (fstat(copy->to, &stat) < 0 || (mkdirat(copy->to, name, 0700) < 0 && errno != EEXIST))
		return -errno;
	int fd = openat(copy->to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	copy->above[copy->depth].device = stat.st_dev;
	copy->above[copy->depth++].inode = stat.st_ino;
	fd_close(&copy->to);
	copy->to = fd;
	return 0;
}

/* The filled directory gets its mode and times last, since filling it changes them. */
static int copy_leave(struct tree_copy *copy, const struct stat *stat)
{
	int result = copy_set_attributes(copy->to, stat);
	int parent CLOSE_FD = openat(copy->to, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat above;
	if (parent < 0 || fstat(parent, &above) < 0)
		return -errno;
	copy->depth--;
	if (above.st_dev != copy->above[copy->depth].device ||
	    above.st_ino != copy->above[copy->depth].inode)
		return -ESTALE;
	fd_close(&copy->to);
	copy->to = TAKE_FD(parent);
	return result;
}

static int copy_entry_of(struct tree_copy *copy, struct file_walk *walk)
{
	struct stat stat;
	if (fstatat(walk->directory, walk->name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(stat.st_mode))
		return copy_leaf(copy, walk->directory, walk->name, copy->to, walk->name, &stat);
	int fd CLOSE_FD = file_walk_open_entry(walk);
	if (fd < 0)
		return fd;
	int result = copy_enter(copy, walk->name);
	return result < 0 ? result : file_walk_enter(walk, &fd);
}

static int copy_step(struct tree_copy *copy, struct file_walk *walk, int event)
{
	struct stat stat;
	if (operation_cancelled(copy->operation))
		return -ECANCELED;
	if (event == WALK_ENTRY)
		return copy_entry_of(copy, walk);
	if (fstatat(walk->directory, walk->name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return copy_leave(copy, &stat);
}

static int copy_tree(struct tree_copy *copy, struct file_walk *walk, const char *to_base,
		     const struct stat *root)
{
	int result = copy_enter(copy, to_base);
	while (result == 0) {
		int event = file_walk_next(walk);
		if (event < 0)
			return event;
		if (event == WALK_END)
			return copy_leave(copy, root);
		result = copy_step(copy, walk, event);
		if (result < 0)
			return file_walk_failed(copy->failure, result, NULL, copy->path, walk);
	}
	return result;
}

/* True if `directory` is the root of the tree or below it. */
static bool directory_lies_within(int directory, const struct stat *root)
{
	int at CLOSE_FD = openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat stat = {0}, last = {0};
	while (at >= 0 && fstat(at, &stat) == 0) {
		if (stat.st_dev == root->st_dev && stat.st_ino == root->st_ino)
			return true;
		if (stat.st_dev == last.st_dev && stat.st_ino == last.st_ino)
			return false;
		last = stat;
		int above = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		fd_close(&at);
		at = above;
	}
	return false;
}

static int copy_start_tree(struct tree_copy *copy, int from, const char *from_base, int to,
			   const char *to_base, const struct stat *stat)
{
	if (directory_lies_within(to, stat))
		return -EXDEV;
	int source CLOSE_FD =
	    openat(from, from_base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	copy->to = openat(to, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (source < 0 || copy->to < 0)
		return -errno;
	struct file_walk walk DONE_WALK = {.directory = -1};
	int result = file_walk_open(&walk, &source);
	return result < 0 ? result : copy_tree(copy, &walk, to_base, stat);
}

int file_copy_entry(struct operation *operation, int from, const char *from_base, int to,
		    const char *to_base, const char *path, uint64_t *copied,
		    struct failure *failure)
{
	struct tree_copy copy = {
	    .operation = operation, .failure = failure, .path = path, .to = -1};
	struct stat stat;
	int result;
	if (fstatat(from, from_base, &stat, AT_SYMLINK_NOFOLLOW) < 0)
		result = -errno;
	else if (S_ISDIR(stat.st_mode))
		result = copy_start_tree(&copy, from, from_base, to, to_base, &stat);
	else
		result = copy_leaf(&copy, from, from_base, to, to_base, &stat);
	fd_close(&copy.to);
	free(copy.above);
	*copied += copy.copied;
	if (result < 0 && failure->kind != ERROR_NONE)
		return -1;
	if (result == -EXDEV && S_ISDIR(stat.st_mode))
		return file_refused(failure, ERROR_FILE_INVALID, path,
				    "a directory cannot be copied or moved into itself");
	return result < 0 ? file_failed(failure, result, path) : 0;
}

int file_copy(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct file_path path, path2;
	if (file_path_of(request->path, &path, failure) < 0 ||
	    file_path_of(request->path2, &path2, failure) < 0)
		return -1;
	struct file_target from DONE_TARGET = FILE_TARGET, to DONE_TARGET = FILE_TARGET;
	file_path_trim(&path);
	file_path_trim(&path2);
	int no_follow = request->flags & FILE_NO_FOLLOW ? TARGET_NO_FOLLOW : 0;
	int result = file_target_find(path.text, no_follow, &from);
	if (result == 0 && !from.exists)
		result = -ENOENT;
	if (result < 0)
		return file_failed(failure, result, path.text);
	if (S_ISDIR(from.stat.st_mode) && !(request->flags & FILE_RECURSIVE))
		return file_refused(failure, ERROR_FILE_WRONG_TYPE, path.text,
				    "is a directory; only a recursive copy takes it");
	int parents = request->flags & FILE_PARENTS ? TARGET_PARENTS : 0;
	result = file_target_find(path2.text, no_follow | parents, &to);
	if (result == 0 && to.exists && (request->flags & FILE_NO_REPLACE))
		result = -EEXIST;
	if (result == 0 && to.exists && to.stat.st_dev == from.stat.st_dev &&
	    to.stat.st_ino == from.stat.st_ino)
		return file_refused(failure, ERROR_FILE_INVALID, path2.text,
				    "is the same file as the source");
	if (result < 0)
		return file_failed(failure, result, path2.text);
	uint64_t copied = 0;
	if (file_copy_entry(operation, from.directory, from.base, to.directory, to.base, path.text,
			    &copied, failure) < 0)
		return -1;
	uint8_t payload[8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u64(&writer, copied);
	operation_result(operation, payload, writer.size);
	return 0;
}
