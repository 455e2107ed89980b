/* How much output of a sandbox is kept: what a client may ask for, what a new command is promised
 * beside those that run, what makes room while one prints, and what becomes of the output of
 * processes that outlive their command. */
#include <unistd.h>

#include "core/core_private.h"
#include "core/exec/log_lines.h"
#include "fake_host.h"
#include "store/sqlite.h"
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

/* `ended`: it has ended, and processes that it left running print. */
static void check_oldest_goes(bool ended_too)
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
	if (ended_too)
		fake_exit(init, runs->row.key, EXEC_END_EXITED, 0, 1);
	fake_turn(host, 20);
	CHECK(has_log(host, sandbox, &ended[0]) && has_log(host, sandbox, &ended[1]));
	/* Each has 512 KiB for each of its streams: all together they are more than four MiB. */
	print_bytes(host, runs, 0, MIB);
	CHECK(has_log(host, sandbox, &ended[0]));
	print_bytes(host, runs, 1, MIB);
	CHECK_INT(exec_ended(runs), ended_too);
	for (int i = 0; i < 200 && has_log(host, sandbox, &ended[0]); i++)
		fake_turn(host, 5);
	CHECK(!has_log(host, sandbox, &ended[0]));
	CHECK(has_log(host, sandbox, &runs->row.id));
	fake_host_free(host);
}

TEST(what_runs_makes_the_oldest_go)
{
	check_oldest_goes(false);
}

TEST(what_is_left_running_makes_the_oldest_go)
{
	check_oldest_goes(true);
}

/* An exec that has ended; a process that it left running has printed since. */
static struct exec *start_leaving(struct fake_host *host, struct sandbox *sandbox, size_t size)
{
	struct error error;
	struct exec *exec = start_keeping(sandbox, "hang", 0, 0, &error);
	fake_turn(host, 20);
	fake_exit(fake_init_of(host, &sandbox->row.id), exec->row.key, EXEC_END_EXITED, 0, 1);
	for (int i = 0; i < 200 && exec->written != EXEC_WRITTEN; i++)
		fake_turn(host, 5);
	CHECK_INT(exec->row.left_running, 1);
	print_bytes(host, exec, 0, size);
	print_bytes(host, exec, 1, size);
	return exec;
}

/* What the sandbox's rows say, as the next daemon will count them. */
static bool count_row(void *data, const struct exec_row *row)
{
	*(uint64_t *)data += exec_logs_size(row);
	CHECK_INT(row->left_running, 0);
	return true;
}

static uint64_t bytes_of_rows(struct fake_host *host, struct sandbox *sandbox)
{
	struct error error;
	uint64_t bytes = 0;
	CHECK_INT(store_exec_each(host->core.store, &sandbox->row.id, count_row, &bytes, &error),
		  0);
	return bytes;
}

TEST(what_was_left_running_is_counted)
{
	struct fake_host *host = fake_host_new();
	host->config.log_bytes_max = 4 * MIB;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	const uint64_t each = MIB + 2 * OUTPUT_LOG_HEADER;
	struct id first = {0};
	for (unsigned i = 0; i < 6; i++) {
		struct exec *exec = start_leaving(host, sandbox, MIB);
		first = i == 0 ? exec->row.id : first;
		/* Less than the maximum: 512 KiB for each stream of one at a time. */
		CHECK(i > 2 || sandbox->life->log_bytes == i * each);
		fake_gone(init, exec->row.key);
		fake_turn(host, 20);
		CHECK_INT(exec->row.left_running, 0);
		CHECK(i > 2 || sandbox->life->log_bytes == (i + 1) * each);
		CHECK(sandbox->life->log_bytes <= 4 * MIB);
		CHECK_INT(sandbox->life->log_bytes, bytes_of_rows(host, sandbox));
	}
	for (int i = 0; i < 200 && has_log(host, sandbox, &first); i++)
		fake_turn(host, 5);
	CHECK(!has_log(host, sandbox, &first));
	fake_host_free(host);
}

/* Their end was not told: the init tells of it in its list, or does not know them, or is gone. */
TEST(what_was_left_running_ends_unseen)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct id id = sandbox->row.id, ids[3];
	struct fake_init *init = fake_init_of(host, &id);
	uint64_t keys[3], each = 200000 + 2 * OUTPUT_LOG_HEADER;
	struct error error;
	for (int i = 0; i < 3; i++) {
		struct exec *exec = start_leaving(host, sandbox, 50000);
		ids[i] = exec->row.id;
		keys[i] = exec->row.key;
	}
	CHECK_INT(sandbox->life->log_bytes, 0);
	fake_stop(host);
	static char text[50000];
	for (int i = 0; i < 3; i++) {
		fake_print(init, keys[i], 0, text, sizeof(text));
		fake_print(init, keys[i], 1, text, sizeof(text));
	}
	fake_record(init, keys[0])->status.result.left_running = 0;
	fake_record(init, keys[1])->key = 0;
	fake_start(host);
	fake_turn(host, 50);
	sandbox = sandbox_by_id(&host->core, &id);
	CHECK(sandbox && sandbox->guest_ready);
	if (!sandbox)
		return;
	CHECK_INT(sandbox->life->log_bytes, 2 * each);
	fake_init_dies(init, END_EXITED);
	fake_turn(host, 50);
	CHECK_INT(bytes_of_rows(host, sandbox), 3 * each);
	CHECK_INT(sandbox->life->log_bytes, 3 * each);
	/* What is removed counts no more. */
	for (int i = 0; i < 3; i++) {
		struct exec *exec = NULL;
		CHECK_INT(exec_find(sandbox, ids[i].text, &exec, &error), 0);
		CHECK_INT(exec_remove(exec, NULL, &error), 0);
	}
	CHECK_INT(sandbox->life->log_bytes, 0);
	fake_host_free(host);
}

static void sql(struct fake_host *host, const char *text)
{
	CHECK_INT(sqlite3_exec(host->core.store->database, text, NULL, NULL, NULL), SQLITE_OK);
}

/* Else its row would say for ever that something is left, and its log would never be removed. */
TEST(the_end_of_what_was_left_running_is_stored_later)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct exec *exec = start_leaving(host, sandbox, 50000);
	sql(host, "CREATE TEMP TRIGGER no_update BEFORE UPDATE ON execs BEGIN SELECT "
		  "RAISE(ABORT, 'no'); END");
	fake_gone(fake_init_of(host, &sandbox->row.id), exec->row.key);
	fake_turn(host, 20);
	CHECK_INT(exec->row.left_running, 0);
	CHECK_INT(sandbox->life->log_bytes, 0);
	sql(host, "DROP TRIGGER no_update");
	fake_pass(host, SAVE_RETRY_MS + 100);
	CHECK_INT(sandbox->life->log_bytes, 100000 + 2 * OUTPUT_LOG_HEADER);
	CHECK_INT(bytes_of_rows(host, sandbox), sandbox->life->log_bytes);
	fake_host_free(host);
}

static void consumer_changed(struct exec_watcher *watcher, struct exec *exec)
{
	(void)watcher;
	(void)exec;
}

/* What a lossless one left running must not wait for a reader that has gone. */
TEST(nobody_reads_what_is_left_running)
{
	struct fake_host *host = fake_host_new();
	const char *argv[] = {"hang"};
	struct exec_spec spec = {
	    .argv = argv, .argc = 1, .flags = EXEC_LOSSLESS, .head = 4096, .tail = 64 * KIB};
	struct exec_watcher consumer = {.changed = consumer_changed, .consumes = true};
	struct exec *exec = NULL;
	struct error error;
	static char data[68 * KIB];
	const uint64_t all = sizeof(data);
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	CHECK_INT(exec_start(sandbox, &spec, &exec, &error), 0);
	uint64_t key = exec->row.key;
	exec_watch(exec, &consumer);
	fake_turn(host, 20);
	fake_exit(init, key, EXEC_END_EXITED, 0, 1);
	fake_turn(host, 20);
	CHECK(exec_ended(exec));
	fake_print(init, key, 0, data, all);
	fake_turn(host, 20);
	/* While the reader is there, it would come to no end if more could follow. */
	exec_watcher_consumed(&consumer, EXEC_STDOUT, all);
	fake_turn(host, 20);
	CHECK_INT(init->frames[FRAME_CONSUMED], 0);
	exec_unwatch(&consumer);
	fake_turn(host, 20);
	CHECK_INT(init->consumed, all);
	fake_print(init, key, 0, data, all);
	fake_turn(host, 20);
	CHECK_INT(init->consumed, 2 * all);
	fake_stop(host);
	fake_print(init, key, 0, data, all);
	fake_start(host);
	fake_turn(host, 50);
	CHECK_INT(init->consumed, 3 * all);
	fake_print(init, key, 0, data, all);
	fake_turn(host, 20);
	CHECK_INT(init->consumed, 4 * all);
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
