/* File descriptors and SCM_RIGHTS. Called by everything, including the init (so: no malloc). */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PASSED_FDS_MAX 64

void fd_close(int *fd)
{
	if (*fd >= 0) {
		int saved = errno;
		close(*fd);
		errno = saved;
	}
	*fd = -1;
}

int fd_set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

int fd_set_cloexec(int fd, bool cloexec)
{
	return fcntl(fd, F_SETFD, cloexec ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

int fd_read_full(int fd, void *data, size_t size)
{
	char *place = data;
	while (size > 0) {
		ssize_t got = read(fd, place, size);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -EPIPE;
		place += got;
		size -= (size_t)got;
	}
	return 0;
}

int fd_write_full(int fd, const void *data, size_t size)
{
	const char *place = data;
	while (size > 0) {
		ssize_t put = write(fd, place, size);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		place += put;
		size -= (size_t)put;
	}
	return 0;
}

int fd_copy(int from, int to, uint64_t maximum)
{
	char block[16 * 1024];
	for (uint64_t at = 0;;) {
		ssize_t got = pread(from, block, sizeof(block), (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : 0;
		at += (uint64_t)got;
		int result = at > maximum ? -EFBIG : fd_write_full(to, block, (size_t)got);
		if (result < 0)
			return result;
	}
}

ssize_t fd_read_small(int dirfd, const char *path, char *text, size_t size)
{
	CLOSE_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return -errno;
	size_t used = 0;
	while (used < size) {
		ssize_t got = read(fd, text + used, size - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		used += (size_t)got;
	}
	if (used == size)
		return -EFBIG;
	text[used] = '\0';
	return (ssize_t)used;
}

int fd_write_small(int dirfd, const char *path, const char *text)
{
	CLOSE_FD int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return -errno;
	size_t size = strlen(text);
	ssize_t put = write(fd, text, size);
	if (put < 0)
		return -errno;
	return (size_t)put == size ? 0 : -EIO;
}

ssize_t fd_send_parts(int socket, const struct iovec *parts, size_t count, const int *fds,
		      size_t fd_count)
{
	if (fd_count > PASSED_FDS_MAX)
		return -EINVAL;
	union {
		char bytes[CMSG_SPACE(sizeof(int) * PASSED_FDS_MAX)];
		struct cmsghdr align;
	} control;
	struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
	if (fd_count > 0) {
		memset(&control, 0, sizeof(control));
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
	}
	ssize_t sent;
	do
		sent = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

ssize_t fd_send(int socket, const void *data, size_t size, const int *fds, size_t fd_count)
{
	struct iovec part = {.iov_base = (void *)data, .iov_len = size};
	return fd_send_parts(socket, &part, 1, fds, fd_count);
}

/* Takes the descriptors out of a received message, and closes those that do not fit. */
static bool message_take_fds(struct msghdr *message, int *fds, size_t room, size_t *ret_count)
{
	bool fits = true;
	*ret_count = 0;
	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
	     header = CMSG_NXTHDR(message, header)) {
		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
			if (*ret_count < room) {
				fds[(*ret_count)++] = fd;
			} else {
				close(fd);
				fits = false;
			}
		}
	}
	return fits;
}

ssize_t fd_receive(int socket, void *data, size_t size, int *fds, size_t *fd_count)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * PASSED_FDS_MAX)];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = data, .iov_len = size};
	struct msghdr message = {
	    .msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = control.bytes,
	    .msg_controllen = sizeof(control.bytes),
	};
	size_t room = fd_count ? *fd_count : 0;
	if (fd_count)
		*fd_count = 0;
	ssize_t got;
	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	size_t count = 0;
	bool fits = message_take_fds(&message, fds, room, &count);
	if (!fits || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		for (size_t i = 0; i < count; i++)
			close(fds[i]);
		return -EMSGSIZE;
	}
	if (fd_count)
		*fd_count = count;
	return got;
}
