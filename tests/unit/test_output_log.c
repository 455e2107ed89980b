/* The output log: offsets stay true through head, gap and ring; a hostile header leads nowhere. */
#include "proto/output_log.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

#include "test.h"

TEST_MAIN

static int make_log(uint64_t head, uint64_t tail, struct output_log *ret_log)
{
	int fd = memfd_create("log", MFD_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_INT(output_log_format(fd, head, tail), 0);
	CHECK_INT(output_log_open(fd, ret_log), 0);
	return fd;
}

/* The byte that the stream of these tests has at an offset. */
static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 31 + offset / 251);
}

static void append_stream(struct output_log *log, size_t size)
{
	uint8_t data[1000];
	for (size_t i = 0; i < size; i++)
		data[i] = byte_at(log->total + i);
	CHECK_INT(output_log_append(log, data, size), 0);
}

/* Reads all from `offset` in pieces; returns the bytes that were in gaps. */
static uint64_t read_stream(struct output_log *log, uint64_t offset, size_t piece)
{
	uint8_t data[1000];
	uint64_t gaps = 0, gap;
	ssize_t got;
	while ((got = output_log_read(log, offset, data, piece, &gap)) > 0) {
		offset += gap;
		gaps += gap;
		bool right = true;
		for (ssize_t i = 0; i < got; i++)
			right = right && data[i] == byte_at(offset + (uint64_t)i);
		CHECK(right);
		offset += (uint64_t)got;
	}
	CHECK_INT(got, 0);
	CHECK_INT(offset + gap, log->total);
	return gaps + gap;
}

TEST(bytes_are_where_they_were_written)
{
	struct output_log writer, reader;
	int fd = make_log(100, 300, &writer);
	CHECK_INT(output_log_open(fd, &reader), 0);
	CHECK_INT(read_stream(&reader, 0, 10), 0);
	const size_t sizes[] = {1, 99, 1, 150, 149, 1, 33, 300, 999, 7, 400};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		append_stream(&writer, sizes[i]);
		CHECK_INT(output_log_refresh(&reader), 0);
		CHECK_INT(reader.total, writer.total);
		uint64_t kept = 100 + 300;
		uint64_t lost = writer.total > kept ? writer.total - kept : 0;
		CHECK_INT(read_stream(&reader, 0, 7), lost);
		CHECK_INT(read_stream(&reader, 0, 1000), lost);
	}
	CHECK(lseek(fd, 0, SEEK_END) <= OUTPUT_LOG_HEADER + 400);
	close(fd);
}

TEST(a_read_in_the_gap_says_how_much_is_lost)
{
	struct output_log log;
	uint8_t data[10];
	uint64_t gap;
	int fd = make_log(10, 20, &log);
	append_stream(&log, 100);
	CHECK_INT(output_log_read(&log, 10, data, 10, &gap), 10);
	CHECK_INT(gap, 70);
	CHECK_INT(data[0], byte_at(80));
	CHECK_INT(output_log_read(&log, 40, data, 10, &gap), 10);
	CHECK_INT(gap, 40);
	CHECK_INT(output_log_read(&log, 95, data, 10, &gap), 5);
	CHECK_INT(gap, 0);
	CHECK_INT(output_log_read(&log, 200, data, 10, &gap), 0);
	CHECK_INT(gap, 0);
	close(fd);
}

TEST(without_a_head_or_a_ring)
{
	struct output_log log;
	int fd = make_log(0, 50, &log);
	append_stream(&log, 120);
	CHECK_INT(read_stream(&log, 0, 13), 70);
	close(fd);
	fd = make_log(50, 0, &log);
	append_stream(&log, 120);
	CHECK_INT(log.total, 120);
	CHECK_INT(read_stream(&log, 0, 13), 70);
	close(fd);
}

TEST(room_of_a_lossless_log)
{
	struct output_log log;
	int fd = make_log(10, 20, &log);
	CHECK_INT(output_log_room(&log, 0), 30);
	append_stream(&log, 30);
	CHECK_INT(output_log_room(&log, 0), 0);
	CHECK_INT(output_log_room(&log, 10), 0); /* the head is not the ring's room */
	CHECK_INT(output_log_room(&log, 15), 5);
	CHECK_INT(output_log_room(&log, 30), 20);
	CHECK(output_log_room(&log, UINT64_MAX) > 0);
	close(fd);
}

TEST(a_writer_goes_on_where_another_stopped)
{
	struct output_log log, again;
	int fd = make_log(10, 20, &log);
	append_stream(&log, 45);
	CHECK_INT(output_log_open(fd, &again), 0);
	CHECK_INT(again.total, 45);
	append_stream(&again, 5);
	CHECK_INT(read_stream(&again, 0, 9), 20);
	close(fd);
}

TEST(what_is_no_log_is_refused)
{
	struct output_log log;
	int fd = memfd_create("log", MFD_CLOEXEC);
	CHECK_INT(output_log_open(fd, &log), -EBADMSG);
	CHECK_INT(output_log_format(fd, 0, 0), -EINVAL);
	CHECK_INT(output_log_format(fd, UINT64_MAX, 1), -EINVAL);
	CHECK_INT(output_log_format(fd, 10, 20), 0);
	CHECK_INT(output_log_open(fd, &log), 0);
	uint64_t huge = UINT64_MAX;
	CHECK_INT(pwrite(fd, &huge, 8, 8), 8); /* the head's size */
	CHECK_INT(output_log_refresh(&log), -EBADMSG);
	struct output_log other;
	CHECK_INT(output_log_open(fd, &other), -EBADMSG);
	close(fd);
}

TEST(a_hostile_total_leads_nowhere)
{
	const uint64_t totals[] = {1, 31, 1ULL << 40, UINT64_MAX, UINT64_MAX - 25};
	struct output_log log;
	uint8_t data[64];
	uint64_t gap;
	int fd = make_log(10, 20, &log);
	append_stream(&log, 30);
	for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
		CHECK_INT(pwrite(fd, &totals[i], 8, 24), 8);
		CHECK_INT(output_log_refresh(&log), 0);
		for (uint64_t offset = 0; offset < 40; offset++) {
			ssize_t got = output_log_read(&log, offset, data, sizeof(data), &gap);
			CHECK(got <= 30);
			CHECK(got <= 0 || offset + gap + (uint64_t)got <= log.total);
		}
	}
	/* Cut off behind the reader's back. */
	CHECK_INT(ftruncate(fd, OUTPUT_LOG_HEADER), 0);
	CHECK_INT(output_log_read(&log, 0, data, sizeof(data), &gap), -EIO);
	close(fd);
}

TEST(a_write_that_fails_changes_nothing)
{
	struct output_log log;
	struct rlimit limit, small;
	int fd = make_log(100, 1000, &log);
	append_stream(&log, 50);
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = OUTPUT_LOG_HEADER + 60;
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	uint8_t data[500] = {0};
	CHECK_INT(output_log_append(&log, data, sizeof(data)), -EFBIG);
	CHECK(output_log_prepare(&log, sizeof(data)) < 0);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
	CHECK_INT(log.total, 50);
	CHECK_INT(output_log_refresh(&log), 0);
	CHECK_INT(log.total, 50);
	CHECK_INT(read_stream(&log, 0, 100), 0);
	CHECK_INT(output_log_prepare(&log, 500), 0);
	append_stream(&log, 500);
	CHECK_INT(read_stream(&log, 0, 100), 0);
	close(fd);
}

TEST(a_reader_never_sees_overwritten_bytes)
{
	/* The writer has announced an append and begun to overwrite; the total is still old. */
	struct output_log log;
	uint8_t data[20];
	uint64_t gap, reserved = 45;
	int fd = make_log(10, 20, &log);
	append_stream(&log, 30);
	CHECK_INT(pwrite(fd, &reserved, 8, 32), 8);
	CHECK_INT(output_log_read(&log, 10, data, sizeof(data), &gap), 5);
	CHECK_INT(gap, 15);
	CHECK_INT(data[0], byte_at(25));
	close(fd);
}
