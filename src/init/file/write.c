/* Write: a new file appears complete or not at all (also for copy and replace); and append.
 * Called by operation_run(); waits for the disk and for the client's data.
 *
 * With O_TMPFILE a new file has no name until it is complete, so a killed process leaves nothing
 * behind. On file systems without it the file has a temporary name in the same directory, which
 * is removed on every exit except a kill. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "init/file/internal.h"

#define MODE_NEW_FILE 0644
#define NAME_TRIES 8

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

int file_rename_at(int from, const char *from_name, int to, const char *to_name, bool no_replace)
{
	long result =
	    syscall(SYS_renameat2, from, from_name, to, to_name, no_replace ? RENAME_NOREPLACE : 0);
	return result < 0 ? -errno : 0;
}

int file_write_all(int fd, const void *data, size_t size)
{
	const char *place = data;
	while (size > 0) {
		ssize_t wrote = write(fd, place, size);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return -errno;
		place += wrote;
		size -= (size_t)wrote;
	}
	return 0;
}

void file_temporary_name(char name[48])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
	uint8_t random[20];
	random_bytes(random, sizeof(random));
	memcpy(name, ".caisson-", 9);
	for (size_t i = 0; i < sizeof(random); i++)
		name[9 + i] = letters[random[i] % 32];
	name[9 + sizeof(random)] = '\0';
}

int file_new_open(struct file_new *new_file, int directory)
{
	new_file->directory = directory;
	new_file->name[0] = '\0';
	new_file->fd = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (new_file->fd >= 0)
		return 0;
	/* EOPNOTSUPP: the file system cannot do this. EISDIR: the kernel does not know the flag. */
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
		return -errno;
	for (int tries = 0; tries < NAME_TRIES; tries++) {
		file_temporary_name(new_file->name);
		new_file->fd = openat(directory, new_file->name,
				      O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
		if (new_file->fd >= 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	new_file->name[0] = '\0';
	return -errno;
}

void file_new_done(struct file_new *new_file)
{
	fd_close(&new_file->fd);
	if (new_file->name[0] != '\0')
		(void)!unlinkat(new_file->directory, new_file->name, 0);
	new_file->name[0] = '\0';
}

/* Gives the file a name. Through /proc, since linkat() with AT_EMPTY_PATH needs a capability. */
static int file_new_link(struct file_new *new_file, const char *name)
{
	char path[32];
	file_descriptor_path(new_file->fd, path);
	if (linkat(AT_FDCWD, path, new_file->directory, name, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	return 0;
}

/* Sets the owner and mode of the replaced file, or of a new file. An ordinary user cannot change
 * the owner: the file is then the writer's, without setuid and setgid bits. */
int file_new_set_attributes(struct file_new *new_file, const struct file_target *target,
			    mode_t mode)
{
	bool owned = true;
	if (target->exists && S_ISREG(target->stat.st_mode)) {
		struct stat stat;
		if (fstat(new_file->fd, &stat) < 0)
			return -errno;
		if (stat.st_uid != target->stat.st_uid || stat.st_gid != target->stat.st_gid)
			owned = fchown(new_file->fd, target->stat.st_uid, target->stat.st_gid) == 0;
		if (!owned)
			(void)!fchown(new_file->fd, (uid_t)-1, target->stat.st_gid);
		if (mode == 0)
			mode = target->stat.st_mode & (owned ? 07777 : 0777);
	}
	mode_t mask = umask(0);
	umask(mask);
	if (mode == 0)
		mode = MODE_NEW_FILE & ~mask;
	return fchmod(new_file->fd, mode & 07777) < 0 ? -errno : 0;
}

int file_new_commit(struct file_new *new_file, const struct file_target *target, bool no_replace)
{
	int result = 0;
	bool nameless = new_file->name[0] == '\0';
	/* link() never replaces a file, so it is enough if nothing may be replaced or the target
	 * does not exist. */
	if (nameless && (no_replace || !target->exists)) {
		result = file_new_link(new_file, target->base);
		if (result == 0)
			fd_close(&new_file->fd);
		if (result != -EEXIST || no_replace)
			return result;
	}
	for (int tries = 0; nameless && tries < NAME_TRIES; tries++) {
		char name[sizeof(new_file->name)];
		file_temporary_name(name);
		result = file_new_link(new_file, name);
		if (result == 0)
			memcpy(new_file->name, name, sizeof(name));
		if (result != -EEXIST)
			break;
	}
	if (result < 0)
		return result;
	result = file_rename_at(new_file->directory, new_file->name, target->directory,
				target->base, no_replace);
	if (result < 0)
		return result;
	new_file->name[0] = '\0';
	fd_close(&new_file->fd);
	return 0;
}

/* Sets the time of the last change, if the client gave one. */
static int file_set_time(int fd, uint64_t mtime_ns)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
					  {.tv_sec = (time_t)(mtime_ns / NSEC_PER_SEC),
					   .tv_nsec = (long)(mtime_ns % NSEC_PER_SEC)}};
	return mtime_ns > 0 && futimens(fd, times) < 0 ? -errno : 0;
}

/* Writes everything that the client sends into the file. */
static int file_receive_data(struct operation *operation, int fd, uint64_t *written)
{
	uint8_t *chunk CLEANUP(file_free) = malloc(FILE_CHUNK_MAX);
	if (!chunk)
		return -ENOMEM;
	for (;;) {
		ssize_t size = operation_receive(operation, chunk);
		if (size <= 0)
			return (int)size;
		int result = file_write_all(fd, chunk, (size_t)size);
		if (result < 0)
			return result;
		*written += (uint64_t)size;
	}
}

static int write_find_target(struct operation *operation, struct file_path *path,
			     struct file_target *target, struct failure *failure)
{
	uint32_t flags = operation->request.flags;
	if (file_path_of(operation->request.path, path, failure) < 0)
		return -1;
	int result = file_target_find(path->text,
				      (flags & FILE_NO_FOLLOW ? TARGET_NO_FOLLOW : 0) |
					  (flags & FILE_PARENTS ? TARGET_PARENTS : 0),
				      target);
	if (result < 0)
		return file_failed(failure, result, path->text);
	if (target->exists && (flags & FILE_NO_REPLACE))
		return file_failed(failure, EEXIST, path->text);
	return 0;
}

static void written_answer(struct operation *operation, uint64_t written)
{
	uint8_t payload[8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u64(&writer, written);
	operation_result(operation, payload, writer.size);
}

int file_write(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	struct file_target target DONE_TARGET = FILE_TARGET;
	if (write_find_target(operation, &path, &target, failure) < 0)
		return -1;
	/* A link can be the target only with FILE_NO_FOLLOW, which replaces the link itself. */
	if (target.exists && !S_ISREG(target.stat.st_mode) && !S_ISLNK(target.stat.st_mode))
		return file_wrong_type(failure, path.text, target.stat.st_mode, "a regular file");
	struct file_new new_file DONE_NEW = FILE_NEW;
	uint64_t written = 0;
	int result = file_new_open(&new_file, target.directory);
	if (result == 0)
		result = file_receive_data(operation, new_file.fd, &written);
	if (result == 0)
		result = file_new_set_attributes(&new_file, &target, operation->request.mode);
	if (result == 0)
		result = file_set_time(new_file.fd, operation->request.offset);
	if (result == 0)
		result =
		    file_new_commit(&new_file, &target, operation->request.flags & FILE_NO_REPLACE);
	if (result < 0)
		return file_failed(failure, result, path.text);
	written_answer(operation, written);
	return 0;
}

static int append_open(struct operation *operation, struct file_target *target)
{
	const int flags = O_WRONLY | O_APPEND | O_NOFOLLOW;
	for (int tries = 0; tries < NAME_TRIES; tries++) {
		int fd = file_open_regular(target->directory, target->base, flags, &target->stat);
		if (fd != -ENOENT)
			return fd;
		mode_t mode = operation->request.mode;
		fd = openat(target->directory, target->base, flags | O_CREAT | O_EXCL | O_CLOEXEC,
			    MODE_NEW_FILE);
		if (fd >= 0 && mode != 0)
			(void)!fchmod(fd, mode & 07777);
		if (fd >= 0 || errno != EEXIST)
			return fd < 0 ? -errno : fd;
	}
	return -ESTALE;
}

int file_append(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	struct file_target target DONE_TARGET = FILE_TARGET;
	if (write_find_target(operation, &path, &target, failure) < 0)
		return -1;
	int fd CLOSE_FD = append_open(operation, &target);
	if (fd == -EMEDIUMTYPE)
		return file_wrong_type(failure, path.text, target.stat.st_mode, "a regular file");
	uint64_t written = 0;
	int result = fd < 0 ? fd : file_receive_data(operation, fd, &written);
	if (result < 0)
		return file_failed(failure, result, path.text);
	/* Closed first: the client may execute the file at once, which fails while it is open
	 * for writing. */
	fd_close(&fd);
	written_answer(operation, written);
	return 0;
}
