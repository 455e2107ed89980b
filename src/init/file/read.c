/* Operations that only read: stat, list, read, readlink. Called by operation_run(); waits for
 * the disk and for credit, never for a FIFO or a device. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "init/file/internal.h"

/* Entries between two checks for a cancel. */
#define CANCEL_LOOK 256

static uint8_t type_letter(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return 'd';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	case S_IFCHR:
		return 'c';
	case S_IFBLK:
		return 'b';
	default:
		return 'f';
	}
}

/* Writes the entry in the format of proto/init_messages.h. */
static void entry_write(struct writer *writer, int directory, const char *path, const char *name,
			const struct stat *stat)
{
	char target[GUEST_PATH_MAX];
	ssize_t length = 0;
	if (S_ISLNK(stat->st_mode))
		length = readlinkat(directory, path, target, sizeof(target));
	write_text(writer, name);
	write_u8(writer, type_letter(stat->st_mode));
	write_u32(writer, stat->st_mode & 07777);
	write_u32(writer, stat->st_uid);
	write_u32(writer, stat->st_gid);
	write_u64(writer, (uint64_t)stat->st_size);
	write_i64(writer, stat->st_mtim.tv_sec * NSEC_PER_SEC + stat->st_mtim.tv_nsec);
	write_u64(writer, stat->st_ino);
	write_bytes(writer, target, length > 0 ? (size_t)length : 0);
}

int file_stat(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	if (file_path_of(operation->request.path, &path, failure) < 0)
		return -1;
	bool no_follow = operation->request.flags & FILE_NO_FOLLOW;
	struct stat stat;
	if (fstatat(AT_FDCWD, path.text, &stat, no_follow ? AT_SYMLINK_NOFOLLOW : 0) < 0)
		return file_failed(failure, errno, path.text);
	struct file_path trimmed = path;
	file_path_trim(&trimmed);
	const char *name = file_path_base(trimmed.text);
	uint8_t record[2 * GUEST_PATH_MAX];
	struct writer writer = writer_on(record, sizeof(record));
	entry_write(&writer, AT_FDCWD, path.text, *name ? name : "/", &stat);
	operation_result(operation, record, writer.size);
	return 0;
}

static int entry_add(struct file_output *output, const struct file_walk *walk)
{
	struct stat stat;
	if (fstatat(walk->directory, walk->name, &stat, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0;
		/* The directory may be readable but not searchable: only the type is known. */
		memset(&stat, 0, sizeof(stat));
		stat.st_mode = DTTOIF(walk->type);
	}
	uint8_t record[GUEST_PATH_MAX + 512];
	struct writer writer = writer_on(record, sizeof(record));
	entry_write(&writer, walk->directory, walk->name, walk->name, &stat);
	int result = file_output_add(output, record, writer.size);
	return result < 0 ? result : 1;
}

static int entries_list(struct operation *operation, struct file_walk *walk, uint32_t *count,
			bool *truncated)
{
	struct file_output output DONE_OUTPUT = {0};
	int result = file_output_open(&output, operation);
	uint32_t limit = operation->request.limit;
	while (result == 0) {
		int event = file_walk_next(walk);
		if (event <= 0) {
			result = event;
			break;
		}
		if (limit > 0 && *count == limit) {
			*truncated = true;
			break;
		}
		int added = entry_add(&output, walk);
		result = MIN(added, 0);
		*count += added > 0;
		if (*count % CANCEL_LOOK == 0 && operation_cancelled(operation))
			result = -ECANCELED;
	}
	return result < 0 ? result : file_output_flush(&output);
}

int file_list(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	if (file_path_of(operation->request.path, &path, failure) < 0)
		return -1;
	int no_follow = operation->request.flags & FILE_NO_FOLLOW ? O_NOFOLLOW : 0;
	int directory CLOSE_FD =
	    open(path.text, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | no_follow);
	if (directory < 0)
		return file_failed(failure, errno, path.text);
	struct file_walk walk DONE_WALK = {.directory = -1};
	uint32_t count = 0;
	bool truncated = false;
	int result = file_walk_open(&walk, &directory);
	if (result == 0)
		result = entries_list(operation, &walk, &count, &truncated);
	if (result < 0)
		return file_failed(failure, result, path.text);
	uint8_t payload[8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u32(&writer, count);
	write_u8(&writer, truncated);
	operation_result(operation, payload, writer.size);
	return 0;
}

/* Sends up to `length` bytes from `offset` on; *ret_end: where it stopped. The size of a file in
 * /proc is 0, so only the end of file counts. A small file is read at once and sent with the
 * result. */
static int range_send(struct operation *operation, int fd, uint64_t offset, uint64_t length,
		      uint64_t size, uint64_t *ret_end)
{
	static uint8_t chunk[FILE_CHUNK_MAX]; /* a process does one operation at a time */
	int result = 0;
	bool first = true;
	while (result == 0 && length > 0 && offset <= INT64_MAX) {
		ssize_t got =
		    pread(fd, chunk, MIN(length, (uint64_t)FILE_CHUNK_MAX), (off_t)offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			result = got < 0 ? -errno : 0;
			break;
		}
		offset += (uint64_t)got;
		length -= (uint64_t)got;
		if (first && (offset == size || length == 0)) {
			operation_send_last(operation, chunk, (size_t)got);
			break;
		}
		result = operation_send(operation, chunk, (size_t)got);
		first = false;
	}
	*ret_end = offset;
	return result;
}

int file_read(struct operation *operation, struct failure *failure)
{
	const struct file_request *request = &operation->request;
	struct file_path path;
	if (file_path_of(request->path, &path, failure) < 0)
		return -1;
	if (request->offset > INT64_MAX)
		return file_refused(failure, ERROR_FILE_INVALID, path.text,
				    "the offset is too large");
	struct stat stat;
	int no_follow = request->flags & FILE_NO_FOLLOW ? O_NOFOLLOW : 0;
	int fd CLOSE_FD = file_open_regular(AT_FDCWD, path.text, O_RDONLY | no_follow, &stat);
	if (fd == -EMEDIUMTYPE)
		return file_wrong_type(failure, path.text, stat.st_mode, "a regular file");
	if (fd < 0)
		return file_failed(failure, fd, path.text);
	uint64_t end, length = request->length > 0 ? request->length : UINT64_MAX;
	int result =
	    range_send(operation, fd, request->offset, length, (uint64_t)stat.st_size, &end);
	/* The current size, unless the file was read just now. */
	if (result == 0 && !operation->last && fstat(fd, &stat) < 0)
		result = -errno;
	if (result < 0)
		return file_failed(failure, result, path.text);
	uint64_t size = (uint64_t)stat.st_size;
	if (size == 0 && end > request->offset)
		size = end;
	uint8_t payload[8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u64(&writer, size);
	operation_result(operation, payload, writer.size);
	return 0;
}

int file_readlink(struct operation *operation, struct failure *failure)
{
	struct file_path path;
	if (file_path_of(operation->request.path, &path, failure) < 0)
		return -1;
	char target[GUEST_PATH_MAX];
	ssize_t length = readlink(path.text, target, sizeof(target));
	if (length < 0 && errno == EINVAL)
		return file_refused(failure, ERROR_FILE_WRONG_TYPE, path.text,
				    "is not a symbolic link");
	if (length < 0)
		return file_failed(failure, errno, path.text);
	uint8_t payload[GUEST_PATH_MAX + 8];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_bytes(&writer, target, (size_t)length);
	operation_result(operation, payload, writer.size);
	return 0;
}
