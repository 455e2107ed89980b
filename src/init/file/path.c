/* Paths: from the bytes of a request to a place in the sandbox's file system, and opening files
 * with a check of their type. Called by every file operation; may block on the disk. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"

/* The kernel's own limit. */
#define LINKS_MAX 40

int file_path_of(struct bytes bytes, struct file_path *ret_path, struct failure *failure)
{
	char *text = ret_path->text;
	size_t used = 0;
	text[0] = '\0';
	if (bytes.size == 0)
		return file_refused(failure, ERROR_FILE_INVALID, "", "the path is empty");
	if (memchr(bytes.data, '\0', bytes.size))
		return file_refused(failure, ERROR_FILE_INVALID, "", "the path holds a NUL byte");
	if (bytes.data[0] != '/') {
		used = sizeof(FILE_WORKSPACE);
		memcpy(text, FILE_WORKSPACE "/", used);
	}
	if (bytes.size > sizeof(ret_path->text) - 1 - used)
		return file_refused(failure, ERROR_FILE_INVALID, "", "the path is too long");
	memcpy(text + used, bytes.data, bytes.size);
	text[used + bytes.size] = '\0';
	return 0;
}

void file_path_trim(struct file_path *path)
{
	char *text = path->text;
	size_t size = strlen(text);
	while (size > 1 &&
	       (text[size - 1] == '/' || (text[size - 1] == '.' && text[size - 2] == '/')))
		text[--size] = '\0';
}

const char *file_path_base(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

void file_descriptor_path(int fd, char path[32])
{
	char digits[12];
	size_t count = 0, used = sizeof("/proc/self/fd/") - 1;
	memcpy(path, "/proc/self/fd/", used);
	do
		digits[count++] = (char)('0' + fd % 10);
	while ((fd /= 10) > 0);
	while (count > 0)
		path[used++] = digits[--count];
	path[used] = '\0';
}

int file_open_regular(int directory, const char *path, int flags, struct stat *ret_stat)
{
	int how = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
	if (fstatat(directory, path, ret_stat, how) < 0)
		return -errno;
	if (!S_ISREG(ret_stat->st_mode))
		return -EMEDIUMTYPE;
	/* With O_NONBLOCK, a FIFO that was put there meanwhile does not block; the second check
	 * refuses it. Not open(): musl's makes a second system call, for kernels without
	 * O_CLOEXEC. */
	int fd CLOSE_FD = openat(directory, path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, ret_stat) < 0)
		return -errno;
	return S_ISREG(ret_stat->st_mode) ? TAKE_FD(fd) : -EMEDIUMTYPE;
}

void file_target_done(struct file_target *target)
{
	fd_close(&target->directory);
}

/* Splits at the last slash: the directory goes into `parent` ("." if there is none), the name
 * into `base`. */
static int path_split(const char *path, char parent[GUEST_PATH_MAX], char base[256])
{
	const char *name = file_path_base(path);
	size_t parent_size = (size_t)(name - path), base_size = strlen(name);
	if (base_size == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EISDIR;
	if (base_size > 255 || parent_size >= GUEST_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(base, name, base_size + 1);
	memcpy(parent, path, parent_size);
	parent[parent_size] = '\0';
	if (parent_size == 0)
		memcpy(parent, ".", 2);
	return 0;
}

/* The rule of fs.protected_symlinks, which the kernel applies to links that it follows itself:
 * in a sticky, world-writable directory only our own links and those of the directory's owner
 * are followed. */
static int link_may_be_followed(int directory, const struct stat *link)
{
	struct stat parent;
	if (fstat(directory, &parent) < 0)
		return -errno;
	if (!(parent.st_mode & S_ISVTX) || !(parent.st_mode & S_IWOTH))
		return 0;
	return link->st_uid == geteuid() || link->st_uid == parent.st_uid ? 0 : -EACCES;
}

static int target_enter_parent(struct file_target *target, const char *parent, int flags)
{
	int directory = -1;
	if (flags & TARGET_PARENTS) {
		int made = file_make_directories(parent, 0755, &directory);
		if (made < 0)
			return made;
	} else {
		int from = target->directory < 0 ? AT_FDCWD : target->directory;
		directory = openat(from, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (directory < 0)
			return -errno;
	}
	fd_close(&target->directory);
	target->directory = directory;
	return 0;
}

int file_target_find(const char *path, int flags, struct file_target *ret_target)
{
	struct file_target target DONE_TARGET = FILE_TARGET;
	char name[GUEST_PATH_MAX], parent[GUEST_PATH_MAX];
	size_t size = strlen(path);
	if (size >= sizeof(name))
		return -ENAMETOOLONG;
	memcpy(name, path, size + 1);
	for (int links = 0; links <= LINKS_MAX; links++) {
		int result = path_split(name, parent, target.base);
		if (result == 0)
			result = target_enter_parent(&target, parent, flags);
		if (result < 0)
			return result;
		/* Missing directories are made for the caller's path only, not for a link's
		 * target. */
		flags &= ~TARGET_PARENTS;
		if (fstatat(target.directory, target.base, &target.stat, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno != ENOENT)
				return -errno;
			target.exists = false;
		} else {
			target.exists = true;
		}
		if (!target.exists || !S_ISLNK(target.stat.st_mode) || (flags & TARGET_NO_FOLLOW)) {
			*ret_target = target;
			target.directory = -1;
			return 0;
		}
		result = link_may_be_followed(target.directory, &target.stat);
		if (result < 0)
			return result;
		ssize_t length = readlinkat(target.directory, target.base, name, sizeof(name) - 1);
		if (length < 0)
			return -errno;
		name[length] = '\0';
	}
	return -ELOOP;
}

int file_place_find(struct file_path *path, int flags, struct file_target *ret_target)
{
	file_path_trim(path);
	int result = file_target_find(path->text, flags | TARGET_NO_FOLLOW, ret_target);
	/* "/", "." and ".." cannot be made, moved or removed. */
	return result == -EISDIR ? -EINVAL : result;
}

/* Opens a directory one level below, and makes it if it is missing. */
static int directory_enter_or_make(int directory, const char *name, mode_t mode)
{
	for (int tries = 0; tries < 3; tries++) {
		int fd = openat(directory, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		if (errno != ENOENT)
			return -errno;
		if (mkdirat(directory, name, mode) < 0 && errno != EEXIST)
			return -errno;
	}
	/* mkdir() reports that it exists, and open() that it does not: it is a dangling link. */
	return -ENOENT;
}

int file_make_directories(const char *path, mode_t mode, int *ret_fd)
{
	int at CLOSE_FD = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0)
		return -errno;
	char name[256];
	while (*path != '\0') {
		size_t size = strcspn(path, "/");
		if (size > 255)
			return -ENAMETOOLONG;
		memcpy(name, path, size);
		name[size] = '\0';
		path += size + strspn(path + size, "/");
		if (size == 0)
			continue;
		int next = directory_enter_or_make(at, name, mode);
		if (next < 0)
			return next;
		fd_close(&at);
		at = next;
	}
	*ret_fd = TAKE_FD(at);
	return 0;
}
