/* Unpacks a tar archive into a directory while it arrives. Called by operation_run(); waits for
 * the disk and for the client's data.
 *
 * The archive is hostile, and other processes may change the tree meanwhile. The kernel never
 * resolves more than one component of a name: from the target directory down, each is opened by
 * itself and never through a link, so no entry leaves the target, whatever earlier entries have
 * made. On the way back up, ".." must be the same directory as before. Each file appears under
 * its name complete. A directory gets its mode and times when the archive continues elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/file/internal.h"
#include "proto/tar.h"

/* A directory on the way to the current one. */
struct level {
	dev_t device; /* of the directory above it */
	ino_t inode;
	size_t path_size; /* of the path, up to the directory above */
	bool made;        /* it did not exist before */
	bool dressed;     /* the archive has an entry for it: */
	uint32_t mode, uid, gid;
	struct timespec mtime;
};

struct unpack {
	struct operation *operation;
	struct tar_entry entry;
	int root, at; /* the target; the directory that is filled */
	bool is_root; /* may give files away */
	struct level target;
	struct level *levels;
	size_t depth, room;
	char path[GUEST_PATH_MAX]; /* of `at` below the target: "a/b", or "" */
	uint64_t entries, bytes, skipped;
	size_t chunk_at, chunk_size;
	uint8_t chunk[FILE_CHUNK_MAX];
};

static void unpack_free(struct unpack **variable)
{
	struct unpack *unpack = *variable;
	if (!unpack)
		return;
	fd_close(&unpack->root);
	fd_close(&unpack->at);
	free(unpack->levels);
	free(unpack);
}

/* --- bytes --- */

/* Takes up to `size` bytes of the received data. Returns how many; -ENODATA at the end. */
static ssize_t unpack_take_data(struct unpack *unpack, const uint8_t **ret_data, size_t size)
{
	if (unpack->chunk_at == unpack->chunk_size) {
		ssize_t got = operation_receive(unpack->operation, unpack->chunk);
		if (got <= 0)
			return got < 0 ? got : -ENODATA;
		unpack->chunk_at = 0;
		unpack->chunk_size = (size_t)got;
	}
	size = MIN(size, unpack->chunk_size - unpack->chunk_at);
	*ret_data = unpack->chunk + unpack->chunk_at;
	unpack->chunk_at += size;
	return (ssize_t)size;
}

static int unpack_read_exactly(void *data, void *to, size_t size)
{
	uint8_t *place = to;
	while (size > 0) {
		const uint8_t *from;
		ssize_t got = unpack_take_data(data, &from, size);
		if (got < 0)
			return (int)got;
		memcpy(place, from, (size_t)got);
		place += got;
		size -= (size_t)got;
	}
	return 0;
}

/* Reads the entry's contents into a file, and the padding. */
static int unpack_read_contents(struct unpack *unpack, int fd)
{
	uint64_t left = unpack->entry.size;
	size_t padding = (TAR_BLOCK - left % TAR_BLOCK) % TAR_BLOCK;
	uint8_t rest[TAR_BLOCK];
	while (left > 0) {
		const uint8_t *from;
		ssize_t got = unpack_take_data(unpack, &from, MIN(left, (uint64_t)FILE_CHUNK_MAX));
		int result = got < 0 ? (int)got : file_write_all(fd, from, (size_t)got);
		if (result < 0)
			return result;
		left -= (uint64_t)got;
		unpack->bytes += (uint64_t)got;
	}
	return unpack_read_exactly(unpack, rest, padding);
}

/* --- where it goes --- */

/* Owner first, since that clears bits of the mode; then mode; then times. */
static int entry_set_attributes(const struct unpack *unpack, int fd, uint32_t mode, uint32_t uid,
				uint32_t gid, struct timespec mtime)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mtime};
	bool given = unpack->is_root && fchown(fd, uid, gid) == 0;
	if (!given)
		mode &= 01777;
	return fchmod(fd, mode) < 0 || futimens(fd, times) < 0 ? -errno : 0;
}

/* The time of an entry; a file system reports an error for one that it cannot store. */
static struct timespec entry_time(const struct tar_entry *entry)
{
	return (struct timespec){.tv_sec = entry->mtime, .tv_nsec = (long)entry->mtime_ns};
}

/* Called when the archive continues elsewhere. Until then only the owner can enter the
 * directory. */
static int directory_set_attributes(const struct unpack *unpack, const struct level *level)
{
	if (level->dressed)
		return entry_set_attributes(unpack, unpack->at, level->mode, level->uid, level->gid,
					    level->mtime);
	return level->made && fchmod(unpack->at, 0755) < 0 ? -errno : 0;
}

static int unpack_leave(struct unpack *unpack)
{
	const struct level *level = &unpack->levels[--unpack->depth];
	int above CLOSE_FD = openat(unpack->at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat stat;
	if (above < 0 || fstat(above, &stat) < 0)
		return -errno;
	if (stat.st_dev != level->device || stat.st_ino != level->inode)
		return -ESTALE;
	int result = directory_set_attributes(unpack, level);
	fd_close(&unpack->at);
	unpack->at = TAKE_FD(above);
	unpack->path[level->path_size] = '\0';
	return result;
}

/* Opens a directory below another, never through a link. Makes it if it is missing, unless
 * ret_made is NULL. */
static int directory_open_below(int directory, const char *name, bool *ret_made)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	int fd = openat(directory, name, flags);
	if (fd < 0 && errno == ENOENT && ret_made) {
		if (mkdirat(directory, name, 0700) < 0 && errno != EEXIST)
			return -errno;
		*ret_made = true;
		fd = openat(directory, name, flags);
	}
	return fd < 0 ? -errno : fd;
}

static int unpack_enter(struct unpack *unpack, const char *name)
{
	struct stat stat;
	if (unpack->depth == unpack->room) {
		size_t room = MAX(32, 2 * unpack->room);
		void *levels = realloc(unpack->levels, room * sizeof(*unpack->levels));
		if (!levels)
			return -ENOMEM;
		unpack->levels = levels;
		unpack->room = room;
	}
	if (fstat(unpack->at, &stat) < 0)
		return -errno;
	bool made = false;
	int fd = directory_open_below(unpack->at, name, &made);
	if (fd < 0)
		return fd;
	size_t size = strlen(unpack->path);
	unpack->levels[unpack->depth++] = (struct level){
	    .device = stat.st_dev, .inode = stat.st_ino, .path_size = size, .made = made};
	fd_close(&unpack->at);
	unpack->at = fd;
	/* This fits, since it is a part of the entry's path. */
	if (size > 0)
		unpack->path[size++] = '/';
	memcpy(unpack->path + size, name, strlen(name) + 1);
	return 0;
}

/* Moves the first component of *path into `name`; false at the end. */
static bool path_next_part(const char **path, char name[256])
{
	size_t size = strcspn(*path, "/");
	memcpy(name, *path, size);
	name[size] = '\0';
	*path += size + ((*path)[size] == '/');
	return size > 0;
}

/* True if `directory` is `path` or above it; *ret_rest is then the rest of the path. */
static bool path_is_above(const char *directory, const char *path, const char **ret_rest)
{
	size_t size = strlen(directory);
	if (strncmp(directory, path, size) != 0 ||
	    (size > 0 && path[size] != '/' && path[size] != '\0'))
		return false;
	*ret_rest = path + size + (size > 0 && path[size] == '/');
	return true;
}

/* Makes the directory at `path` the one that is being filled. */
static int unpack_go_to(struct unpack *unpack, const char *path)
{
	char name[256];
	const char *rest;
	int result = 0;
	while (!path_is_above(unpack->path, path, &rest)) {
		result = unpack_leave(unpack);
		if (result < 0)
			return result;
	}
	while (result == 0 && path_next_part(&rest, name))
		result = unpack_enter(unpack, name);
	return result;
}

/* --- entries --- */

static int unpack_make_file(struct unpack *unpack, const char *base)
{
	const struct tar_entry *entry = &unpack->entry;
	struct file_new new_file DONE_NEW = FILE_NEW;
	struct file_target target = {.directory = unpack->at};
	memcpy(target.base, base, strlen(base) + 1);
	target.exists = fstatat(unpack->at, base, &target.stat, AT_SYMLINK_NOFOLLOW) == 0;
	if (target.exists && S_ISDIR(target.stat.st_mode))
		return -EISDIR;
	int result = file_new_open(&new_file, unpack->at);
	if (result == 0)
		result = unpack_read_contents(unpack, new_file.fd);
	if (result == 0)
		result = entry_set_attributes(unpack, new_file.fd, entry->mode, entry->uid,
					      entry->gid, entry_time(entry));
	return result < 0 ? result : file_new_commit(&new_file, &target, false);
}

/* Renames from the temporary name to the final one. A rename between two names of the same file
 * does nothing, so the temporary name is removed afterwards. */
static int unpack_put_under(struct unpack *unpack, const char *temporary, const char *base)
{
	int result = file_rename_at(unpack->at, temporary, unpack->at, base, false);
	(void)!unlinkat(unpack->at, temporary, 0);
	return result;
}

static int unpack_make_symlink(struct unpack *unpack, const char *base)
{
	const struct tar_entry *entry = &unpack->entry;
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry_time(entry)};
	char name[48];
	file_temporary_name(name);
	if (symlinkat(entry->link, unpack->at, name) < 0)
		return -errno;
	if (unpack->is_root)
		(void)!fchownat(unpack->at, name, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW);
	(void)!utimensat(unpack->at, name, times, AT_SYMLINK_NOFOLLOW);
	return unpack_put_under(unpack, name, base);
}

/* The link's target is a file inside the target directory, found in the same way as entries. */
static int unpack_make_hardlink(struct unpack *unpack, const char *base)
{
	char part[256], last[256], name[48];
	const char *rest = unpack->entry.link;
	struct stat stat;
	int directory CLOSE_FD = openat(unpack->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return -errno;
	while (path_next_part(&rest, part) && *rest != '\0') {
		int next = directory_open_below(directory, part, NULL);
		if (next < 0)
			return next;
		fd_close(&directory);
		directory = next;
	}
	memcpy(last, part, sizeof(last));
	if (fstatat(directory, last, &stat, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(stat.st_mode))
		return -EMEDIUMTYPE;
	file_temporary_name(name);
	if (linkat(directory, last, unpack->at, name, 0) < 0)
		return -errno;
	return unpack_put_under(unpack, name, base);
}

static int unpack_make_directory(struct unpack *unpack)
{
	const struct tar_entry *entry = &unpack->entry;
	int result = unpack_go_to(unpack, entry->path);
	if (result < 0)
		return result;
	/* A target directory that existed before keeps its attributes. */
	struct level *level =
	    unpack->depth > 0 ? &unpack->levels[unpack->depth - 1] : &unpack->target;
	if (unpack->depth == 0 && !level->made)
		return 0;
	level->dressed = true;
	level->mode = entry->mode;
	level->uid = entry->uid;
	level->gid = entry->gid;
	level->mtime = entry_time(entry);
	return 0;
}

static int unpack_make_entry(struct unpack *unpack)
{
	struct tar_entry *entry = &unpack->entry;
	if (entry->type == TAR_SPECIAL) {
		unpack->skipped++;
		return 0;
	}
	unpack->entries++;
	if (entry->type == TAR_DIRECTORY)
		return unpack_make_directory(unpack);
	char above[GUEST_PATH_MAX];
	const char *base = file_path_base(entry->path);
	size_t size = (size_t)(base - entry->path);
	memcpy(above, entry->path, size);
	above[size > 0 ? size - 1 : 0] = '\0';
	int result = unpack_go_to(unpack, above);
	if (result < 0)
		return result;
	if (entry->type == TAR_FILE)
		return unpack_make_file(unpack, base);
	return entry->type == TAR_SYMLINK ? unpack_make_symlink(unpack, base)
					  : unpack_make_hardlink(unpack, base);
}

/* Reports which entry failed, and why. */
static int unpack_fail(struct unpack *unpack, int result, const char *why, struct failure *failure)
{
	const char *path = unpack->entry.path;
	/* Directories that were made already get their attributes. */
	while (unpack->depth > 0 && unpack_leave(unpack) == 0)
		;
	if (result == -ENODATA)
		why = "the archive is cut short";
	if (result == -ELOOP || result == -ENOTDIR)
		why = "a link, or a file, is where its directory should be";
	if (why)
		return file_refused(failure, ERROR_ARCHIVE_INVALID, path, why);
	return file_failed(failure, result, path);
}

static int unpack_all(struct unpack *unpack, struct failure *failure)
{
	const struct tar_source source = {unpack_read_exactly, unpack};
	const char *why = NULL;
	const uint8_t *rest;
	int result;
	while ((result = tar_next(&source, &unpack->entry, &why)) > 0) {
		result = unpack_make_entry(unpack);
		if (result < 0)
			break;
	}
	if (result < 0)
		return unpack_fail(unpack, result, why, failure);
	while (result == 0 && unpack->depth > 0)
		result = unpack_leave(unpack);
	if (result == 0)
		result = directory_set_attributes(unpack, &unpack->target);
	/* Ignores the padding of the archive's last record. */
	ssize_t got = result;
	while (got >= 0)
		got = unpack_take_data(unpack, &rest, FILE_CHUNK_MAX);
	return got == -ENODATA ? 0 : file_failed(failure, (int)got, unpack->path);
}

/* Opens the target directory; makes it if it is missing. */
static int unpack_open_target(struct unpack *unpack, const struct file_path *path)
{
	uint32_t flags = unpack->operation->request.flags;
	int made CLOSE_FD = -1;
	int result = 0;
	unpack->root = open(path->text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (unpack->root >= 0 && (flags & FILE_NO_REPLACE))
		return -EEXIST;
	if (unpack->root < 0) {
		if (errno != ENOENT)
			return -errno;
		unpack->target.made = true;
		if (flags & FILE_PARENTS)
			result = file_make_directories(path->text, 0755, &made);
		else
			result = mkdir(path->text, 0755) < 0 ? -errno : 0;
		if (result < 0)
			return result;
		unpack->root = open(path->text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	}
	if (unpack->root < 0)
		return -errno;
	unpack->at = openat(unpack->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return unpack->at < 0 ? -errno : 0;
}

int file_unpack(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	if (file_path_of(operation->request.path, &path, failure) < 0)
		return -1;
	struct unpack *unpack CLEANUP(unpack_free) = calloc(1, sizeof(*unpack));
	if (!unpack)
		return file_failed(failure, ENOMEM, path.text);
	unpack->operation = operation;
	unpack->root = unpack->at = -1;
	unpack->is_root = geteuid() == 0;
	int result = unpack_open_target(unpack, &path);
	if (result < 0)
		return file_failed(failure, result, path.text);
	if (unpack_all(unpack, failure) < 0)
		return -1;
	uint8_t payload[24];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u64(&writer, unpack->entries);
	write_u64(&writer, unpack->bytes);
	write_u64(&writer, unpack->skipped);
	operation_result(operation, payload, writer.size);
	return 0;
}
