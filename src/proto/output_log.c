/* The implementation of the output log. The init appends (the file is on the host's disk: a
 * write goes to the page cache and may block like any write); the daemon formats and reads.
 * Reader and writer are different processes without a lock. Beside the total the header has
 * `reserved`: the total that the current append will reach. The writer raises it before it
 * overwrites the ring, and the reader checks it after reading, so that it never returns a byte
 * that was overwritten meanwhile. */
#include "proto/output_log.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"

#define MAGIC 0x31474f4c53534943ULL /* "CISSLOG1" */
#define READ_ATTEMPTS 8

struct header {
	uint64_t magic, head, tail;
	uint64_t total, reserved;
};

static int log_write_at(int fd, const void *data, size_t size, uint64_t place)
{
	const char *from = data;
	while (size > 0) {
		ssize_t put = pwrite(fd, from, size, (off_t)place);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		from += put;
		place += (uint64_t)put;
		size -= (size_t)put;
	}
	return 0;
}

static int log_read_header(int fd, struct header *ret_header)
{
	ssize_t got;
	do
		got = pread(fd, ret_header, sizeof(*ret_header), 0);
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)sizeof(*ret_header))
		return got < 0 ? -errno : -EBADMSG;
	ret_header->head = le64toh(ret_header->head);
	ret_header->tail = le64toh(ret_header->tail);
	ret_header->total = le64toh(ret_header->total);
	ret_header->reserved = le64toh(ret_header->reserved);
	return le64toh(ret_header->magic) == MAGIC ? 0 : -EBADMSG;
}

static int log_write_number(const struct output_log *log, size_t place, uint64_t value)
{
	uint64_t stored = htole64(value);
	return log_write_at(log->fd, &stored, sizeof(stored), place);
}

int output_log_format(int fd, uint64_t head, uint64_t tail)
{
	if (head > OUTPUT_KEEP_MAX || tail > OUTPUT_KEEP_MAX || head + tail == 0)
		return -EINVAL;
	if (ftruncate(fd, OUTPUT_LOG_HEADER) < 0)
		return -errno;
	struct header header = {
	    .magic = htole64(MAGIC), .head = htole64(head), .tail = htole64(tail)};
	return log_write_at(fd, &header, sizeof(header), 0);
}

int output_log_open(int fd, struct output_log *ret_log)
{
	struct header header;
	int result = log_read_header(fd, &header);
	if (result < 0)
		return result;
	if (header.head > OUTPUT_KEEP_MAX || header.tail > OUTPUT_KEEP_MAX ||
	    header.head + header.tail == 0)
		return -EBADMSG;
	*ret_log = (struct output_log){
	    .fd = fd, .head = header.head, .tail = header.tail, .total = header.total};
	return 0;
}

int output_log_refresh(struct output_log *log)
{
	struct header header;
	int result = log_read_header(log->fd, &header);
	if (result < 0)
		return result;
	if (header.head != log->head || header.tail != log->tail)
		return -EBADMSG;
	log->total = header.total;
	return 0;
}

uint64_t output_log_room(const struct output_log *log, uint64_t consumed)
{
	/* The head is never overwritten, so only the ring can fill up. */
	uint64_t limit = MAX(consumed, log->head);
	limit = limit > UINT64_MAX - log->tail ? UINT64_MAX : limit + log->tail;
	return limit > log->total ? limit - log->total : 0;
}

/* The position in the file of the byte at `offset`, and how many contiguous bytes follow there. */
static uint64_t log_place_of(const struct output_log *log, uint64_t offset, uint64_t *ret_run)
{
	if (offset < log->head) {
		*ret_run = log->head - offset;
		return OUTPUT_LOG_HEADER + offset;
	}
	uint64_t at = (offset - log->head) % log->tail;
	*ret_run = log->tail - at;
	return OUTPUT_LOG_HEADER + log->head + at;
}

int output_log_prepare(const struct output_log *log, size_t size)
{
	uint64_t kept = log->head + log->tail;
	if (log->total >= kept)
		return 0;
	off_t place = (off_t)(OUTPUT_LOG_HEADER + log->total);
	if (fallocate(log->fd, 0, place, (off_t)MIN(size, kept - log->total)) == 0)
		return 0;
	/* On a filesystem that cannot reserve space, we write without a reservation. */
	return errno == EOPNOTSUPP || errno == EINTR ? 0 : -errno;
}

int output_log_append(struct output_log *log, const void *data, size_t size)
{
	const char *from = data;
	uint64_t end = log->total + size;
	if (size == 0)
		return 0;
	if (end < log->total)
		return -EFBIG;
	int result = 0;
	if (log->tail > 0 && end > log->head + log->tail)
		result = log_write_number(log, offsetof(struct header, reserved), end);
	for (uint64_t at = log->total; result == 0 && at < end;) {
		/* Without a ring, bytes after the head are only counted. */
		if (log->tail == 0 && at >= log->head)
			break;
		uint64_t run;
		uint64_t place = log_place_of(log, at, &run);
		run = MIN(run, end - at);
		result = log_write_at(log->fd, from, run, place);
		from += run;
		at += run;
	}
	if (result == 0)
		result = log_write_number(log, offsetof(struct header, total), end);
	if (result == 0)
		log->total = end;
	return result;
}

/* The first offset that is kept when the writer has reached (or is about to reach) `total`. */
static uint64_t ring_oldest_offset(const struct output_log *log, uint64_t total)
{
	uint64_t kept = log->head + log->tail;
	return total > kept ? total - log->tail : log->head;
}

static ssize_t log_read_at(int fd, void *data, size_t size, uint64_t place)
{
	ssize_t got;
	do
		got = pread(fd, data, size, (off_t)place);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	/* The writer has truncated the file. */
	return got == 0 ? -EIO : got;
}

/* One attempt to read the ring from *start on: returns the bytes that were certainly not
 * overwritten meanwhile. 0: all were overwritten; then *start is the oldest remaining byte. */
static ssize_t ring_read(struct output_log *log, uint64_t *start, void *data, size_t size)
{
	uint64_t run;
	uint64_t place = log_place_of(log, *start, &run);
	size = MIN(size, MIN(run, log->total - *start));
	ssize_t got = log_read_at(log->fd, data, size, place);
	if (got < 0)
		return got;
	struct header header;
	int result = log_read_header(log->fd, &header);
	if (result < 0)
		return result;
	uint64_t oldest = ring_oldest_offset(log, MAX(header.reserved, header.total));
	if (oldest <= *start)
		return got;
	uint64_t lost = MIN(oldest - *start, (uint64_t)got);
	memmove(data, (char *)data + lost, (size_t)got - lost);
	*start += lost;
	if (lost < (uint64_t)got)
		return got - (ssize_t)lost;
	log->total = MAX(log->total, header.total);
	*start = MAX(*start, MIN(oldest, log->total));
	return 0;
}

ssize_t output_log_read(struct output_log *log, uint64_t offset, void *data, size_t size,
			uint64_t *ret_gap)
{
	*ret_gap = 0;
	if (offset >= log->total || size == 0)
		return 0;
	if (offset < log->head) {
		size = MIN(size, MIN(log->head, log->total) - offset);
		return log_read_at(log->fd, data, size, OUTPUT_LOG_HEADER + offset);
	}
	if (log->tail == 0) {
		*ret_gap = log->total - offset;
		return 0;
	}
	uint64_t start = MAX(offset, ring_oldest_offset(log, log->total));
	for (int attempt = 0; attempt < READ_ATTEMPTS && start < log->total; attempt++) {
		ssize_t got = ring_read(log, &start, data, size);
		if (got != 0) {
			*ret_gap = start - offset;
			return got;
		}
		/* The writer is faster than this reader: start at a place that it reaches later. */
		start = MIN(start + (uint64_t)attempt * log->tail / READ_ATTEMPTS, log->total);
	}
	*ret_gap = start - offset;
	return 0;
}
