/* The log of one output stream of one process: a file on the host. The init (or a shim, or a VMM)
 * writes it through a descriptor; others read it by offset.
 *
 * Layout: a header of one page, then `head` bytes (the stream's first), then a ring of `tail`
 * bytes (its last). A byte at stream offset n is at
 *     header + n                               for n < head
 *     header + head + (n - head) % tail        for the last `tail` bytes
 * The bytes in between are a gap, which readers are told about. Offsets are always those of the
 * stream. The writer writes the bytes first and then the new total into the header; the file
 * never grows beyond header + head + tail.
 *
 * Lossless: the writer stops reading the process's pipe when output_log_room() is 0. (`consumed`
 * comes with FRAME_CONSUMED; no unread byte is overwritten.)
 *
 * The file belongs to the daemon and the writer is not trusted: a reader compares the header with
 * the sizes that the file was made with, and no total makes it read outside of the file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

#define OUTPUT_LOG_HEADER 4096

struct output_log {
	int fd; /* not owned */
	uint64_t head, tail;
	uint64_t total;
};

/* Writes the header of an empty log into an empty file. 0 or -errno. */
NODISCARD int output_log_format(int fd, uint64_t head, uint64_t tail);
/* Opens a log that output_log_format() made, as writer or reader. 0, or -EBADMSG if it is not a
 * log. */
NODISCARD int output_log_open(int fd, struct output_log *ret_log);
/* Appends everything and advances the total. On -errno (the host's disk is full) nothing that a
 * reader can see has changed: the caller tries again or drops the bytes. */
NODISCARD int output_log_append(struct output_log *log, const void *data, size_t size);
/* Reserves disk space for the next `size` bytes, so that a lossless writer reads only bytes that it
 * can write. 0, or -errno such as -ENOSPC. */
NODISCARD int output_log_prepare(const struct output_log *log, size_t size);
/* How many bytes can be appended without overwriting one that was not consumed. */
uint64_t output_log_room(const struct output_log *log, uint64_t consumed);
/* Reads the header's total again. */
NODISCARD int output_log_refresh(struct output_log *log);

/* Reads up to `size` bytes from `offset` on. *ret_gap: how many bytes between `offset` and the
 * first returned byte are lost. Returns the count, 0 at the end, or -errno. */
NODISCARD ssize_t output_log_read(struct output_log *log, uint64_t offset, void *data, size_t size,
				  uint64_t *ret_gap);
