/* The log of one output stream of one process: a host file that the init (or a shim, or a VMM)
 * writes through a descriptor it was given, and that everyone reads by offset.
 *
 * Layout: a header of one page, then `head` bytes (the stream's first), then a ring of `tail` bytes
 * (its last). A byte at stream offset n is at
 *     header + n                               for n < head
 *     header + head + (n - head) % tail        for the last `tail` bytes
 * and what lies between is a gap that a reader is told of. Offsets are always those of the stream.
 * The writer writes the bytes first and then the new total into the header; the file never grows
 * beyond header + head + tail.
 *
 * Lossless: the writer stops reading the process's pipe when output_log_room() is 0. (`consumed`
 * comes with FRAME_CONSUMED; nothing unread is ever overwritten.)
 *
 * The file is the daemon's; the writer is not trusted: a reader checks the header against the sizes
 * it made the file with, and no total makes it read outside the file. */
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

/* Makes an empty log in an empty file. 0 or -errno. */
NODISCARD int output_log_format(int fd, uint64_t head, uint64_t tail);
/* Opens what output_log_format() made, as writer or reader: 0, -EBADMSG when it is none. */
NODISCARD int output_log_open(int fd, struct output_log *ret_log);
/* Appends all of it and advances the total. On -errno (the host's disk is full) neither the total
 * nor anything a reader can see has changed: the caller tries again or drops the bytes. */
NODISCARD int output_log_append(struct output_log *log, const void *data, size_t size);
/* Has the disk set space aside for the next `size` bytes, so that a lossless writer can stop
 * reading before it holds what it cannot keep. 0, or -ENOSPC and the like. */
NODISCARD int output_log_prepare(const struct output_log *log, size_t size);
/* How many more bytes fit before one that was not consumed would be overwritten. */
uint64_t output_log_room(const struct output_log *log, uint64_t consumed);
/* Reads the header's total anew. */
NODISCARD int output_log_refresh(struct output_log *log);

/* One read at `offset`: up to `size` bytes that are kept. *ret_gap = bytes lost from `offset` to
 * the first byte returned (0 when there is no gap). Returns the count, 0 at the end, or -errno. */
NODISCARD ssize_t output_log_read(struct output_log *log, uint64_t offset, void *data, size_t size,
				  uint64_t *ret_gap);
