/* File descriptors: owned, closed once, -1 when unset, CLOEXEC at birth. All return 0/value or
 * -errno. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/macros.h"

/* Closes it and sets it to -1; takes -1. Never retries: after close() the number is released,
 * whatever it returned. */
void fd_close(int *fd);
#define CLOSE_FD CLEANUP(fd_close)

NODISCARD int fd_set_nonblocking(int fd);
NODISCARD int fd_set_cloexec(int fd, bool cloexec);

/* Whole buffers on blocking descriptors; EINTR is retried. A short read at end of file is -EPIPE.
 */
NODISCARD int fd_read_full(int fd, void *data, size_t size);
NODISCARD int fd_write_full(int fd, const void *data, size_t size);
/* Copies a regular file from its start. -EFBIG: it is larger than `maximum`. */
NODISCARD int fd_copy(int from, int to, uint64_t maximum);
/* Up to size-1 bytes of a small file, NUL-terminated. Returns the length, -EFBIG if there is more.
 */
NODISCARD ssize_t fd_read_small(int dirfd, const char *path, char *text, size_t size);
/* Writes text into an existing file (a cgroup or proc attribute) with one write. */
NODISCARD int fd_write_small(int dirfd, const char *path, const char *text);

/* One message with descriptors. Sends all of data (message sockets) or at least its first byte
 * (stream sockets); returns the bytes sent. */
NODISCARD ssize_t fd_send(int socket, const void *data, size_t size, const int *fds,
			  size_t fd_count);
/* The same for several parts. */
NODISCARD ssize_t fd_send_parts(int socket, const struct iovec *parts, size_t count, const int *fds,
				size_t fd_count);
/* Receives data and at most *fd_count descriptors, CLOEXEC; *fd_count becomes their number. With
 * more descriptors, or a longer message, it returns -EMSGSIZE and closes all of them. */
NODISCARD ssize_t fd_receive(int socket, void *data, size_t size, int *fds, size_t *fd_count);
