/* The messages of the init's protocol: what is written is read, and what must not be is refused. */
#include "proto/init_messages.h"

#include <errno.h>

#include "test.h"

TEST_MAIN

static uint8_t room[FRAME_PAYLOAD_MAX];
static struct writer writer;

static void begin(void)
{
	writer = writer_on(room, sizeof(room));
}

static struct frame written(void)
{
	return (struct frame){.size = (uint32_t)writer.size, .payload = room};
}

static struct bytes bytes_of(const char *text, size_t size)
{
	return (struct bytes){.data = (const uint8_t *)text, .size = size};
}

/* Every shorter payload and one longer must be refused by the reader. */
#define CHECK_ONLY_WHOLE(reader, place)                                                            \
	do {                                                                                       \
		struct frame _frame = written();                                                   \
		uint32_t _whole = _frame.size;                                                     \
		for (_frame.size = 0; _frame.size < _whole; _frame.size++)                         \
			CHECK_INT(reader(&_frame, place), -EBADMSG);                               \
		_frame.size = _whole + 1;                                                          \
		CHECK_INT(reader(&_frame, place), -EBADMSG);                                       \
	} while (0)

TEST(failures_travel)
{
	struct failure failure = {.kind = ERROR_BAD_CWD, .errnum = ENOENT, .message = "/nowhere"};
	struct failure read;
	begin();
	failure_write(&writer, &failure);
	struct frame frame = written();
	CHECK_INT(failure_read(&frame, &read), 0);
	CHECK_INT(read.kind, ERROR_BAD_CWD);
	CHECK_INT(read.errnum, ENOENT);
	CHECK_TEXT(read.message, "/nowhere");
	CHECK_ONLY_WHOLE(failure_read, &read);
	const uint32_t bad_kinds[] = {ERROR_NONE, ERROR_KIND_COUNT, 0xffffffff};
	for (size_t i = 0; i < 3; i++) {
		begin();
		failure.kind = bad_kinds[i];
		failure_write(&writer, &failure);
		frame = written();
		CHECK_INT(failure_read(&frame, &read), -EBADMSG);
	}
}

TEST(a_failure_of_a_hostile_peer_is_made_printable)
{
	struct failure failure = {.kind = ERROR_INTERNAL, .message = "a\x1b[31m\nb\xff"};
	struct failure read;
	begin();
	failure_write(&writer, &failure);
	struct frame frame = written();
	CHECK_INT(failure_read(&frame, &read), 0);
	CHECK_TEXT(read.message, "a?[31m?b?");
}

TEST(hellos)
{
	struct hello hello = {.oldest = 2, .newest = 5}, read;
	begin();
	hello_write(&writer, &hello);
	struct frame frame = written();
	CHECK_INT(hello_read(&frame, &read), 0);
	CHECK_INT(read.oldest, 2);
	CHECK_INT(read.newest, 5);
	CHECK_ONLY_WHOLE(hello_read, &read);
	static const struct hello wrong[] = {{0, 1}, {3, 2}};
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		begin();
		hello_write(&writer, &wrong[i]);
		frame = written();
		CHECK_INT(hello_read(&frame, &read), -EBADMSG);
	}
}

/* What an upgrade meets: either end may be the older one. */
TEST(versions_are_agreed_on)
{
	struct hello one = {1, 1}, two = {1, 2}, late = {2, 3}, far = {7, 9};
	CHECK_INT(protocol_agree(one, one), 1);
	CHECK_INT(protocol_agree(one, two), 1);
	CHECK_INT(protocol_agree(two, one), 1);
	CHECK_INT(protocol_agree(two, late), 2);
	CHECK_INT(protocol_agree(late, two), 2);
	CHECK_INT(protocol_agree(one, late), 0);
	CHECK_INT(protocol_agree(late, one), 0);
	CHECK_INT(protocol_agree(far, late), 0);
}

TEST(metrics)
{
	struct guest_metrics metrics = {.processes = 3, .uptime_ns = 1ULL << 40}, read;
	begin();
	guest_metrics_write(&writer, &metrics);
	struct frame frame = written();
	CHECK_INT(guest_metrics_read(&frame, &read), 0);
	CHECK_INT(read.processes, 3);
	CHECK(read.uptime_ns == 1ULL << 40);
	CHECK_ONLY_WHOLE(guest_metrics_read, &read);
}

TEST(hello_replies)
{
	struct hello_reply reply = {.version = 1, .configured = 1, .boot_ns = 77}, read;
	begin();
	hello_reply_write(&writer, &reply);
	struct frame frame = written();
	CHECK_INT(hello_reply_read(&frame, &read), 0);
	CHECK_INT(read.version, 1);
	CHECK_INT(read.configured, 1);
	CHECK_INT(read.boot_ns, 77);
	CHECK_ONLY_WHOLE(hello_reply_read, &read);
}

static struct configure sample_configure(void)
{
	struct configure configure = {
	    .hostname = "box",
	    .deadline = 5,
	    .mount_count = 1,
	    .environment_count = 2,
	    .environment = bytes_of("A=1\0B=", 7),
	};
	configure.mounts[0].index = 3;
	configure.mounts[0].path = bytes_of("/data", 5);
	return configure;
}

TEST(configurations)
{
	struct configure configure = sample_configure(), read;
	begin();
	configure_write(&writer, &configure);
	struct frame frame = written();
	CHECK_INT(configure_read(&frame, &read), 0);
	CHECK_TEXT(read.hostname, "box");
	CHECK_INT(read.deadline, 5);
	CHECK_INT(read.mount_count, 1);
	CHECK_INT(read.mounts[0].index, 3);
	CHECK_INT(read.mounts[0].path.size, 5);
	CHECK_INT(read.environment_count, 2);
	CHECK_ONLY_WHOLE(configure_read, &read);
}

static int read_back_configure(const struct configure *configure)
{
	struct configure read;
	begin();
	configure_write(&writer, configure);
	struct frame frame = written();
	return configure_read(&frame, &read);
}

TEST(configurations_that_are_refused)
{
	struct configure configure = sample_configure();
	configure.mounts[0].path = bytes_of("data", 4);
	CHECK_INT(read_back_configure(&configure), -EBADMSG);
	configure.mounts[0].path = bytes_of("/da\0ta", 6);
	CHECK_INT(read_back_configure(&configure), -EBADMSG);
	configure = sample_configure();
	configure.mounts[0].index = SANDBOX_MOUNTS_MAX;
	CHECK_INT(read_back_configure(&configure), -EBADMSG);
	configure = sample_configure();
	configure.environment_count = 3;
	CHECK_INT(read_back_configure(&configure), -EBADMSG);
	configure = sample_configure();
	configure.environment = bytes_of("A=1\0B=x", 7); /* no NUL at the end */
	CHECK_INT(read_back_configure(&configure), -EBADMSG);
	configure.environment = bytes_of("A=1\0=x", 7); /* no name */
	CHECK_INT(read_back_configure(&configure), -EBADMSG);
	configure.environment = bytes_of("A=1\0Bx", 7); /* no value */
	CHECK_INT(read_back_configure(&configure), -EBADMSG);
}

static struct exec_request sample_exec(void)
{
	return (struct exec_request){
	    .flags = EXEC_TTY | EXEC_LOG,
	    .timeout_ms = 1000,
	    .rows = 24,
	    .columns = 80,
	    .user = "nobody",
	    .cwd = bytes_of("/tmp", 4),
	    .argc = 2,
	    .argv = bytes_of("echo\0", 6),
	    .environment_count = 1,
	    .environment = bytes_of("X=y", 4),
	    .limit_count = 1,
	    .limits = {{.resource = 7, .soft = 64, .hard = 128}},
	};
}

static int read_back_exec(const struct exec_request *request, struct exec_request *ret_read)
{
	begin();
	exec_request_write(&writer, request);
	struct frame frame = written();
	return exec_request_read(&frame, ret_read);
}

TEST(exec_requests)
{
	struct exec_request request = sample_exec(), read;
	size_t at = 0;
	CHECK_INT(read_back_exec(&request, &read), 0);
	CHECK_INT(read.flags, request.flags);
	CHECK_INT(read.timeout_ms, 1000);
	CHECK_INT(read.columns, 80);
	CHECK_TEXT(read.user, "nobody");
	CHECK_TEXT(packed_next(read.argv, &at), "echo");
	CHECK_TEXT(packed_next(read.argv, &at), "");
	CHECK(packed_next(read.argv, &at) == NULL);
	CHECK_INT(read.limits[0].hard, 128);
	CHECK_ONLY_WHOLE(exec_request_read, &read);
}

TEST(exec_requests_that_are_refused)
{
	struct exec_request request = sample_exec(), read;
	request.flags = 1 << 4;
	CHECK_INT(read_back_exec(&request, &read), -EBADMSG);
	request = sample_exec();
	request.argc = 0;
	CHECK_INT(read_back_exec(&request, &read), -EBADMSG);
	request = sample_exec();
	request.argc = 3;
	CHECK_INT(read_back_exec(&request, &read), -EBADMSG);
	request = sample_exec();
	request.cwd = bytes_of("/t\0p", 4);
	CHECK_INT(read_back_exec(&request, &read), -EBADMSG);
	/* A count of limits beyond the array. */
	request = sample_exec();
	request.limit_count = 0;
	begin();
	exec_request_write(&writer, &request);
	writer.size -= 4;
	write_u32(&writer, EXEC_RUNLIMITS_MAX + 1);
	for (int i = 0; i < EXEC_RUNLIMITS_MAX + 1; i++) {
		write_u32(&writer, 1);
		write_u64(&writer, 1);
		write_u64(&writer, 1);
	}
	struct frame frame = written();
	CHECK_INT(exec_request_read(&frame, &read), -EBADMSG);
}

TEST(signals_and_totals)
{
	struct signal_request request = {.signal = 15, .scope = SIGNAL_TREE}, read;
	begin();
	signal_request_write(&writer, &request);
	struct frame frame = written();
	CHECK_INT(signal_request_read(&frame, &read), 0);
	CHECK_INT(read.signal, 15);
	CHECK_INT(read.scope, SIGNAL_TREE);
	CHECK_ONLY_WHOLE(signal_request_read, &read);
	request.signal = 65;
	begin();
	signal_request_write(&writer, &request);
	frame = written();
	CHECK_INT(signal_request_read(&frame, &read), -EBADMSG);

	struct output_totals totals = {.out = 1, .err = UINT64_MAX}, read_totals;
	begin();
	output_totals_write(&writer, &totals);
	frame = written();
	CHECK_INT(output_totals_read(&frame, &read_totals), 0);
	CHECK(read_totals.err == UINT64_MAX);
	CHECK_ONLY_WHOLE(output_totals_read, &read_totals);
}

TEST(results_and_statuses)
{
	struct exec_status status = {
	    .phase = EXEC_PHASE_ENDED,
	    .pid = 7,
	    .result = {.end = EXEC_END_SIGNALED, .code = 9, .wall_ns = 3, .left_running = 2},
	};
	struct exec_status read;
	begin();
	exec_status_write(&writer, &status);
	struct frame frame = written();
	CHECK_INT(exec_status_read(&frame, &read), 0);
	CHECK_INT(read.result.code, 9);
	CHECK_INT(read.result.left_running, 2);
	CHECK_ONLY_WHOLE(exec_status_read, &read);
	status.result.end = EXEC_END_TOO_MANY_PROCESSES + 1;
	begin();
	exec_result_write(&writer, &status.result);
	frame = written();
	CHECK_INT(exec_result_read(&frame, &read.result), -EBADMSG);
}

TEST(file_requests)
{
	struct file_request request = {
	    .operation = FILE_GREP,
	    .flags = FILE_REGEX,
	    .offset = 1,
	    .length = 2,
	    .limit = 3,
	    .user = "root",
	    .path = bytes_of("/etc", 4),
	    .pattern = bytes_of("a\0b", 3),
	};
	struct file_request read;
	begin();
	file_request_write(&writer, &request);
	struct frame frame = written();
	CHECK_INT(file_request_read(&frame, &read), 0);
	CHECK_INT(read.operation, FILE_GREP);
	CHECK_INT(read.pattern.size, 3);
	CHECK_INT(read.limit, 3);
	CHECK_ONLY_WHOLE(file_request_read, &read);
	request.operation = FILE_UNPACK + 1;
	begin();
	file_request_write(&writer, &request);
	frame = written();
	CHECK_INT(file_request_read(&frame, &read), -EBADMSG);
}

TEST(packed_lists)
{
	size_t at = 0;
	CHECK(packed_valid(bytes_of("", 0), 0));
	CHECK(!packed_valid(bytes_of("", 0), 1));
	CHECK(packed_valid(bytes_of("a\0b", 4), 2));
	CHECK(!packed_valid(bytes_of("a\0b", 3), 2));
	CHECK(!packed_valid(bytes_of("a\0b", 3), 1));
	CHECK(packed_next(bytes_of("ab", 2), &at) == NULL);
}
