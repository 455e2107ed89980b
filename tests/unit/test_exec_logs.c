/* How much output of a sandbox is kept: what a client may ask for, what a new command is promised
 * beside those that run, and what makes room while one prints. */
#include <unistd.h>

#include "core/core_private.h"
#include "core/exec/log_lines.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

static struct exec *start_keeping(struct sandbox *sandbox, const char *program, uint64_t head,
				  uint64_t tail, struct error *error)
{
	const char *argv[] = {program, "x"};
	struct exec_spec spec = {.argv = argv, .argc = 2, .head = head, .tail = tail};
	struct exec *exec = NULL;
	return exec_start(sandbox, &spec, &exec, error) < 0 ? NULL : exec;
}

TEST(a_client_may_ask_for_so_much)
{
	struct fake_host *host = fake_host_new();
	struct error error;
	host->config.output_max = 1 * MIB;
	host->config.log_bytes_max = 1 * GIB;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	CHECK(!start_keeping(sandbox, "hang", MIB, MIB, &error));
	CHECK_INT(error.kind, ERROR_LIMIT_EXCEEDED);
	CHECK(strstr(error.message, "1048576") && strstr(error.message, "output_max"));
	CHECK(start_keeping(sandbox, "hang", MIB / 2, MIB / 2, &error));
	/* What it says nothing about gives way; what the host gives by itself is the host's matter.
	 */
	struct exec *exec = start_keeping(sandbox, "hang", MIB - 4096, 0, &error);
	CHECK(exec && exec->row.head == MIB - 4096 && exec->row.tail == 4096);
	exec = start_keeping(sandbox, "hang", 0, 0, &error);
	CHECK(exec && exec->row.head == OUTPUT_HEAD_DEFAULT &&
	      exec->row.tail == OUTPUT_TAIL_DEFAULT);
	fake_host_free(host);
}

TEST(running_commands_share_the_maximum)
{
	struct fake_host *host = fake_host_new();
	struct error error;
	const uint64_t maximum = 64 * MIB;
	host->config.log_bytes_max = maximum;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	uint64_t promised = 0, least = UINT64_MAX, first = 0;
	unsigned minimal = 0;
	for (int i = 0; i < 40; i++) {
		struct exec *exec = start_keeping(sandbox, "hang", 0, 0, &error);
		if (!exec) {
			test_fail(__FILE__, __LINE__, "%s", error.message);
			break;
		}
		uint64_t each = exec->row.head + exec->row.tail;
		promised += 2 * each;
		first = i == 0 ? each : first;
		least = MIN(least, each);
		minimal += each == OUTPUT_LEAST;
		fake_turn(host, 1);
	}
	/* Half of the half for commands, for two streams, of 32 MiB by default. */
	CHECK_INT(first, 8 * MIB);
	CHECK_INT(least, OUTPUT_LEAST);
	CHECK(promised <= maximum / 2 + minimal * 2 * OUTPUT_LEAST);
	fake_host_free(host);
}

static bool has_log(const struct fake_host *host, const struct sandbox *sandbox,
		    const struct id *exec)
{
	char path[160];
	snprintf(path, sizeof(path), "%s/logs/%s/%s.out", host->state, sandbox->row.id.text,
		 exec->text);
	return access(path, F_OK) == 0;
}

static void print_bytes(struct fake_host *host, struct exec *exec, int stream, size_t size)
{
	static char bytes[MIB];
	fake_print(fake_init_of(host, &exec->sandbox->row.id), exec->row.key, stream, bytes, size);
	fake_turn(host, 20);
}

TEST(what_runs_makes_the_oldest_go)
{
	struct fake_host *host = fake_host_new();
	struct error error;
	host->config.log_bytes_max = 4 * MIB;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct id ended[3];
	for (int i = 0; i < 3; i++) {
		struct exec *exec = start_keeping(sandbox, "hang", 0, 0, &error);
		fake_turn(host, 20);
		print_bytes(host, exec, 0, MIB);
		print_bytes(host, exec, 1, MIB);
		ended[i] = exec->row.id;
		fake_exit(init, exec->row.key, EXEC_END_EXITED, 0, 0);
		fake_turn(host, 20);
		CHECK(exec_ended(exec));
	}
	struct exec *runs = start_keeping(sandbox, "hang", 0, 0, &error);
	fake_turn(host, 20);
	CHECK(has_log(host, sandbox, &ended[0]) && has_log(host, sandbox, &ended[1]));
	/* Each has 512 KiB for each of its streams: all together they are more than four MiB. */
	print_bytes(host, runs, 0, MIB);
	CHECK(has_log(host, sandbox, &ended[0]));
	print_bytes(host, runs, 1, MIB);
	CHECK(!exec_ended(runs));
	for (int i = 0; i < 200 && has_log(host, sandbox, &ended[0]); i++)
		fake_turn(host, 5);
	CHECK(!has_log(host, sandbox, &ended[0]));
	fake_host_free(host);
}

/* A command that runs when a log is followed without its existing lines. */
TEST(a_tail_of_zero_follows_the_newest)
{
	const char *argv[] = {"sleep", "late"};
	struct exec_spec spec = {.argv = argv, .argc = 2};
	struct log_filter filter = {.sources = LOG_STDOUT};
	struct fake_host *host = fake_host_new();
	struct exec *exec = NULL;
	struct log_line line;
	struct error error;
	uint64_t count = 0;
	int64_t work = 1000000;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	CHECK_INT(exec_start(sandbox, &spec, &exec, &error), 0);
	fake_turn(host, 10);
	struct log_reader *reader = log_reader_new(sandbox, &filter, true);
	CHECK_INT(log_reader_tail(reader, &count, &work, &error), LOG_NONE);
	fake_print(fake_init_of(host, &sandbox->row.id), exec->row.key, 0, "hello\n", 6);
	fake_turn(host, 10);
	CHECK_INT(log_reader_next(reader, &line, &work, &error), LOG_LINE);
	CHECK_INT(log_reader_next(reader, &line, &work, &error), LOG_NONE);
	log_reader_free(reader);
	fake_host_free(host);
}
