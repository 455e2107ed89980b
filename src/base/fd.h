/* File descriptors: owned, closed once, -1 when unset, CLOEXEC at birth. All return 0/value or
 * -errno. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/macros.h"

/* Closes and forgets; takes -1. Never retries: after close() the number is gone whatever it said.
 */
void fd_close(int *fd);
#define CLOSE_FD CLEANUP(fd_close)

NODISCARD int fd_set_nonblocking(int fd);
NODISCARD int fd_set_cloexec(int fd, bool cloexec);

/* Whole buffers on blocking descriptors; EINTR is retried. A short read at end of file is -EPIPE.
 */
NODISCARD int fd_read_full(int fd, void *data, size_t size);
NODISCARD int fd_write_full(int fd, const void *data, size_t size);
/* Up to size-1 bytes of a small file, NUL-terminated. Returns the length, -EFBIG if there is more.
 */
NODISCARD ssize_t fd_read_small(int dirfd, const char *path, char *text, size_t size);
/* Writes text into an existing file (a cgroup or proc attribute): one write, no create. */
NODISCARD int fd_write_small(int dirfd, const char *path, const char *text);

/* One message with descriptors. Sends all of data (message sockets) or at least its first byte
 * (stream sockets); returns the bytes sent. */
NODISCARD ssize_t fd_send(int socket, const void *data, size_t size, const int *fds,
			  size_t fd_count);
/* The same of several parts. */
NODISCARD ssize_t fd_send_parts(int socket, const struct iovec *parts, size_t count, const int *fds,
				size_t fd_count);
/* Receives data and at most *fd_count descriptors, CLOEXEC; *fd_count becomes how many came. More
 * than there is room for, or a message longer than size, is -EMSGSIZE with all of them closed. */
NODISCARD ssize_t fd_receive(int socket, void *data, size_t size, int *fds, size_t *fd_count);
