/* `caisson cp` of a directory into a sandbox: one request, whatever the directory contains, with a
 * tar archive that is made while it is sent. This process does it as the calling user. Called by
 * cp.c; blocks. */
#include "cli/verbs/cp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "proto/tar.h"

#define DEPTH_MAX 128

struct upload {
	struct copy *copy;
	struct exchange *exchange;
	struct tar_entry entry;
};

static int upload_send_bytes(struct upload *up, const void *data, size_t size, struct error *error)
{
	if (exchange_write(up->exchange, true, data, size, error) == 0)
		return 0;
	/* The daemon may have sent the reason before it closed the connection. */
	struct error answer;
	if (exchange_read_head(up->exchange, &answer) < 0 && answer.kind != ERROR_DAEMON_RESTARTING)
		*error = answer;
	return -1;
}

/* Owners are not kept: copied files belong to root in the sandbox. */
static int upload_send_header(struct upload *up, enum tar_type type, const struct stat *info,
			      struct error *error)
{
	uint8_t header[TAR_HEADER_MAX];
	up->entry.type = type;
	up->entry.mode = info->st_mode & 0777;
	up->entry.size = type == TAR_FILE ? (uint64_t)info->st_size : 0;
	up->entry.mtime = info->st_mtim.tv_sec;
	up->entry.mtime_ns = (uint32_t)info->st_mtim.tv_nsec;
	return upload_send_bytes(up, header, tar_write(&up->entry, header), error);
}

static int upload_send_file(struct upload *up, int fd, struct error *error)
{
	static const char zeros[TAR_BLOCK];
	char data[65536];
	struct stat info;
	if (fstat(fd, &info) < 0)
		return error_set_errno(error, ERROR_FILE_INVALID, errno, "%s", up->entry.path);
	if (upload_send_header(up, TAR_FILE, &info, error) < 0)
		return -1;
	uint64_t left = up->entry.size;
	while (left > 0) {
		ssize_t got = read(fd, data, MIN(left, sizeof(data)));
		if (got < 0)
			return error_set_errno(error, ERROR_FILE_INVALID, errno, "reading %s",
					       up->entry.path);
		if (got == 0)
			return error_set(error, ERROR_CONFLICT,
					 "%s became shorter while it was read", up->entry.path);
		if (upload_send_bytes(up, data, (size_t)got, error) < 0)
			return -1;
		left -= (uint64_t)got;
		progress_add(&up->copy->progress, (uint64_t)got);
	}
	up->copy->files++;
	size_t rest = up->entry.size % TAR_BLOCK;
	return rest ? upload_send_bytes(up, zeros, TAR_BLOCK - rest, error) : 0;
}

static int upload_send_link(struct upload *up, int directory, const char *name,
			    const struct stat *info, struct error *error)
{
	ssize_t length = readlinkat(directory, name, up->entry.link, sizeof(up->entry.link) - 1);
	if (length < 0)
		return error_set_errno(error, ERROR_FILE_INVALID, errno, "%s", up->entry.path);
	up->entry.link[length] = '\0';
	int result = upload_send_header(up, TAR_SYMLINK, info, error);
	up->entry.link[0] = '\0';
	up->copy->files++;
	return result;
}

static int upload_send_directory(struct upload *up, int directory, int depth, struct error *error);

/* upload->entry.path is the path in the archive. */
static int upload_send_entry(struct upload *up, int directory, const char *name, int depth,
			     struct error *error)
{
	struct stat info;
	if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return error_set_errno(error, ERROR_FILE_NOT_FOUND, errno, "%s", up->entry.path);
	if (S_ISLNK(info.st_mode))
		return upload_send_link(up, directory, name, &info, error);
	if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
		copy_skip(up->copy, up->entry.path);
		return 0;
	}
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0)
		return error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", up->entry.path);
	if (S_ISDIR(info.st_mode))
		return upload_send_directory(up, fd, depth, error); /* takes fd */
	int result = upload_send_file(up, fd, error);
	close(fd);
	return result;
}

/* Takes ownership of the descriptor. */
static int upload_send_directory(struct upload *up, int directory, int depth, struct error *error)
{
	struct stat info;
	size_t size = strlen(up->entry.path);
	DIR *stream = fdopendir(directory);
	int result = 0;
	if (!stream || fstat(directory, &info) < 0)
		result = error_set_errno(error, ERROR_FILE_DENIED, errno, "%s", up->entry.path);
	else if (depth > DEPTH_MAX || size + 2 >= sizeof(up->entry.path))
		result =
		    error_set(error, ERROR_FILE_INVALID, "%s: nested too deeply", up->entry.path);
	if (result == 0) {
		memcpy(up->entry.path + size, "/", 2);
		result = upload_send_header(up, TAR_DIRECTORY, &info, error);
	}
	struct dirent *entry;
	while (result == 0 && (entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (text_copy(up->entry.path + size + 1, sizeof(up->entry.path) - size - 1,
			      entry->d_name) < 0)
			result = error_set(error, ERROR_FILE_INVALID, "%s: the path is too long",
					   entry->d_name);
		else
			result = upload_send_entry(up, directory, entry->d_name, depth + 1, error);
	}
	up->entry.path[size] = '\0';
	if (stream)
		closedir(stream);
	else
		close(directory);
	return result;
}

int copy_up_archive(struct copy *copy, int directory, const char *guest_path, struct error *error)
{
	static const char end[2 * TAR_BLOCK];
	DONE_BUFFER struct buffer url = BUFFER(16384);
	if (copy_url(copy, &url, "/files/archive?path=", guest_path, error) < 0) {
		close(directory);
		return -1;
	}
	struct request request = {
	    .method = "PUT", .path = url.data, .type = "application/x-tar", .length = -1};
	struct upload *up = calloc(1, sizeof(*up));
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	if (!up || !exchange)
		abort();
	exchange->fd = -1;
	*up = (struct upload){.copy = copy, .exchange = exchange, .entry = {.path = "."}};
	int result = exchange_begin(copy->client, &request, exchange, error);
	if (result < 0)
		close(directory);
	else
		result = upload_send_directory(up, directory, 0, error);
	if (result == 0)
		result = upload_send_bytes(up, end, sizeof(end), error);
	if (result == 0)
		result = exchange_write_end(exchange, true, error);
	if (result == 0)
		result = exchange_read_head(exchange, error);
	exchange_free(exchange);
	free(up);
	return result;
}
