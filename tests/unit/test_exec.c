/* Execs and file operations: output by offset, ends of every kind, input under credit, links that
 * break, daemons that are replaced, inits that lie. */
#include "core/exec/exec.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/core_private.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

struct follower {
	struct exec_watcher watcher;
	unsigned changes;
	bool ended, started, forgotten;
};

static void on_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct follower *follower = container_of(watcher, struct follower, watcher);
	follower->changes++;
	follower->started |= exec->row.state == EXEC_RUNNING;
	follower->ended |= exec_ended(exec);
}

static void on_forgotten(struct exec_watcher *watcher)
{
	container_of(watcher, struct follower, watcher)->forgotten = true;
}

static void follow(struct exec *exec, struct follower *follower)
{
	*follower =
	    (struct follower){.watcher = {.changed = on_changed, .forgotten = on_forgotten}};
	exec_watch(exec, &follower->watcher);
}

static struct exec *start(struct sandbox *sandbox, const char *program, const char *argument,
			  uint32_t flags)
{
	const char *argv[] = {program, argument};
	struct exec_spec spec = {.argv = argv, .argc = argument ? 2 : 1, .flags = flags};
	struct exec *exec = NULL;
	struct error error;
	if (exec_start(sandbox, &spec, &exec, &error) < 0)
		test_fail(__FILE__, __LINE__, "exec_start: %s", error.message);
	return exec;
}

static void expect_output(struct exec *exec, enum exec_stream stream, const char *text)
{
	char room[256];
	uint64_t gap;
	ssize_t got = exec_read(exec, stream, 0, room, sizeof(room) - 1, &gap);
	CHECK_INT(got, strlen(text));
	CHECK_INT(gap, 0);
	room[got > 0 ? got : 0] = '\0';
	CHECK_TEXT(room, text);
}

TEST(echo)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct exec *exec = start(sandbox, "echo", "hello", 0);
	CHECK_INT(exec->row.state, EXEC_STARTING);
	follow(exec, &follower);
	CHECK(fake_until(host, &follower.ended));
	CHECK(follower.started);
	CHECK_INT(exec->row.end, EXEC_END_EXITED);
	CHECK_INT(exec->row.code, 0);
	CHECK_INT(exec_total(exec, EXEC_STDOUT), 5);
	CHECK_TEXT(exec->row.command, "echo hello");
	expect_output(exec, EXEC_STDOUT, "hello");
	expect_output(exec, EXEC_STDERR, "");
	CHECK_INT(exec_signal(exec, NULL, SIGTERM, SIGNAL_LEADER, &error), -1);
	fake_turn(host, 5);
	CHECK_INT(fake_init_of(host, &sandbox->row.id)->forgotten, 1);
	exec_unwatch(&follower.watcher);
	expect_output(exec, EXEC_STDOUT, "hello");
	CHECK_INT(exec->logs[0].fd, -1);
	struct exec *found = NULL;
	CHECK_INT(exec_find(sandbox, exec->row.id.text, &found, &error), 0);
	CHECK(found == exec);
	CHECK_INT(exec_find(sandbox, "aaaaaaaaaaaaaaaa", &found, &error), -1);
	CHECK_INT(error.kind, ERROR_EXEC_NOT_FOUND);
	CHECK_INT(exec_find(sandbox, "../..", &found, &error), -1);
	CHECK_INT(error.kind, ERROR_ID_MALFORMED);
	fake_host_free(host);
}

TEST(not_found_and_refused)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	struct exec_spec spec = {0};
	struct exec *none;
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct exec *exec = start(sandbox, "missing", NULL, 0);
	follow(exec, &follower);
	CHECK(fake_until(host, &follower.ended));
	CHECK_INT(exec->row.state, EXEC_FAILED);
	CHECK_INT(exec->row.error_kind, ERROR_PROGRAM_NOT_FOUND);
	CHECK_TEXT(exec->row.error_message, "there is no program `missing`");
	expect_output(exec, EXEC_STDOUT, "");
	CHECK_INT(exec_start(sandbox, &spec, &none, &error), -1);
	CHECK_INT(error.kind, ERROR_INVALID);
	static char huge[200 * 1024];
	memset(huge, 'x', sizeof(huge) - 1);
	const char *argv[] = {huge};
	spec = (struct exec_spec){.argv = argv, .argc = 1};
	CHECK_INT(exec_start(sandbox, &spec, &none, &error), -1);
	CHECK_INT(error.kind, ERROR_TOO_LARGE);
	argv[0] = "true";
	spec.head = 1ULL << 40;
	CHECK_INT(exec_start(sandbox, &spec, &none, &error), -1);
	CHECK_INT(error.kind, ERROR_LIMIT_EXCEEDED);
	fake_host_free(host);
}

TEST(too_many)
{
	struct fake_host *host = fake_host_new();
	struct exec_spec spec = {.argv = (const char *const[]){"sleep"}, .argc = 1};
	struct exec *exec;
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	/* The fake keeps fewer records than that; only the limit is looked at. */
	fake_init_of(host, &sandbox->row.id)->silent = true;
	for (int i = 0; i < EXEC_PER_SANDBOX_MAX; i++)
		CHECK_INT(exec_start(sandbox, &spec, &exec, &error), 0);
	CHECK_INT(exec_start(sandbox, &spec, &exec, &error), -1);
	CHECK_INT(error.kind, ERROR_BUSY);
	fake_host_free(host);
}

TEST(oom_kill_is_named)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	for (int round = 0; round < 3; round++) {
		struct exec *exec = start(sandbox, "hog", NULL, 0);
		follow(exec, &follower);
		CHECK(fake_until(host, &follower.started));
		/* The third time it was the user who killed it. */
		host->oom_kills += round < 2;
		if (round == 1)
			fake_exit(init, exec->row.key, EXEC_END_EXITED, 137, 0);
		else
			fake_exit(init, exec->row.key, EXEC_END_SIGNALED, SIGKILL, 0);
		CHECK(fake_until(host, &follower.ended));
		CHECK_INT(exec->row.oom_killed, round < 2);
		exec_unwatch(&follower.watcher);
	}
	fake_host_free(host);
}

static struct {
	unsigned calls;
	size_t count;
	char command[32];
	enum error_kind kind;
} left;

static void on_left(void *data, const struct left_process *processes, size_t count,
		    const struct error *error)
{
	(void)data;
	left.calls++;
	left.count = count;
	left.kind = error ? error->kind : ERROR_NONE;
	if (count > 0)
		snprintf(left.command, sizeof(left.command), "%s", processes[0].command);
}

TEST(left_running)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = start(sandbox, "server", NULL, 0);
	follow(exec, &follower);
	CHECK(fake_until(host, &follower.started));
	uint64_t key = exec->row.key;
	fake_exit(init, key, EXEC_END_EXITED, 0, 1);
	CHECK(fake_until(host, &follower.ended));
	CHECK_INT(exec->row.left_running, 1);
	memset(&left, 0, sizeof(left));
	CHECK_INT(exec_left_running(exec, on_left, NULL, &error), 0);
	CHECK_INT(exec_left_running(exec, on_left, NULL, &error), 0);
	fake_turn(host, 10);
	CHECK_INT(left.calls, 2);
	CHECK_INT(left.count, 1);
	CHECK_TEXT(left.command, "server?");
	fake_init_send(init, FRAME_GONE, key, NULL, 0);
	fake_turn(host, 5);
	CHECK_INT(exec->row.left_running, 0);
	CHECK_INT(exec_left_running(exec, on_left, NULL, &error), 0);
	CHECK_INT(left.calls, 2);
	fake_turn(host, 5);
	CHECK_INT(left.calls, 3);
	CHECK_INT(left.count, 0);
	fake_host_free(host);
}

/* Its end was told to an earlier link, and the list that tells of it again is on its way. */
TEST(gone_before_the_list)
{
	struct fake_host *host = fake_host_new();
	struct follower ending;
	struct outcome ready = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *two = start(sandbox, "sleep", NULL, 0);
	follow(two, &ending);
	CHECK(fake_until(host, &ending.started));
	unsigned hellos = init->frames[FRAME_HELLO];
	init->deaf = true;
	fake_init_disconnect(init);
	fake_exit(init, two->row.key, EXEC_END_EXITED, 3, 1);
	fake_turn(host, 5);
	CHECK(!sandbox->guest_ready);
	CHECK_INT(sandbox_ready(sandbox, NULL, false, outcome_done, &ready, &error), 0);
	init->gone_before_list = true;
	init->deaf = false;
	CHECK(fake_until(host, &ready.done));
	CHECK_INT(ready.error.kind, ERROR_NONE);
	CHECK_INT(init->frames[FRAME_HELLO], hellos + 1);
	fake_host_free(host);
}

TEST(input_under_credit)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	struct error error;
	static char data[FILE_WINDOW + 1000];
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = start(sandbox, "cat", NULL, EXEC_STDIN);
	follow(exec, &follower);
	CHECK(fake_until(host, &follower.started));
	CHECK_INT(exec_stdin(exec, data, sizeof(data), &error), FILE_WINDOW);
	CHECK_INT(exec_stdin(exec, data, 1000, &error), 0);
	fake_turn(host, 20);
	CHECK_INT(init->written.size, FILE_WINDOW);
	uint8_t credit[4] = {0xe8, 0x03, 0, 0};
	unsigned changes = follower.changes;
	fake_init_send(init, FRAME_CREDIT, exec->row.key, credit, 4);
	fake_turn(host, 5);
	CHECK(follower.changes > changes);
	CHECK_INT(exec_stdin(exec, data, 2000, &error), 1000);
	CHECK_INT(exec_stdin_close(exec, &error), 0);
	CHECK_INT(exec_stdin(exec, data, 1, &error), -1);
	fake_turn(host, 10);
	CHECK_INT(init->frames[FRAME_STDIN_CLOSE], 1);
	CHECK_INT(exec_signal(exec, NULL, SIGKILL, SIGNAL_TREE, &error), 0);
	CHECK(fake_until(host, &follower.ended));
	CHECK_INT(exec->row.end, EXEC_END_CANCELLED);
	fake_host_free(host);
}

TEST(link_breaks_and_comes_back)
{
	struct fake_host *host = fake_host_new();
	struct follower running, ending, unknown;
	struct outcome ready = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *one = start(sandbox, "sleep", NULL, 0);
	struct exec *two = start(sandbox, "sleep", NULL, 0);
	struct exec *three = start(sandbox, "sleep", NULL, 0);
	follow(one, &running);
	follow(two, &ending);
	follow(three, &unknown);
	CHECK(fake_until(host, &unknown.started));
	init->deaf = true;
	fake_init_disconnect(init);
	/* While nobody listens one prints, another ends, the third is forgotten. */
	fake_print(init, one->row.key, 0, "meanwhile", 9);
	fake_exit(init, two->row.key, EXEC_END_EXITED, 3, 0);
	fake_record(init, three->row.key)->key = 0;
	fake_turn(host, 5);
	CHECK(!sandbox->guest_ready);
	CHECK_INT(exec_signal(one, NULL, SIGTERM, SIGNAL_LEADER, &error), -1);
	CHECK_INT(error.kind, ERROR_GUEST_GONE);
	CHECK_INT(sandbox_ready(sandbox, NULL, false, outcome_done, &ready, &error), 0);
	init->deaf = false;
	CHECK(fake_until(host, &ready.done));
	CHECK_INT(ready.error.kind, ERROR_NONE);
	CHECK(!running.ended);
	CHECK_INT(exec_total(one, EXEC_STDOUT), 9);
	expect_output(one, EXEC_STDOUT, "meanwhile");
	CHECK(ending.ended);
	CHECK_INT(two->row.code, 3);
	CHECK(unknown.ended);
	CHECK_INT(three->row.end, EXEC_END_LOST);
	fake_init_dies(init, END_KILLED);
	CHECK(fake_until(host, &running.ended));
	CHECK_INT(one->row.end, EXEC_END_LOST);
	expect_output(one, EXEC_STDOUT, "meanwhile");
	CHECK_INT(sandbox->row.state, SANDBOX_STOPPED);
	fake_host_free(host);
}

/* A daemon dies and another comes: running ones run on, those that ended are settled. */
TEST(restart_finds_execs)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct id id = sandbox->row.id, ids[4];
	struct fake_init *init = fake_init_of(host, &id);
	uint64_t keys[4];
	for (int i = 0; i < 4; i++) {
		struct exec *exec = start(sandbox, i == 3 ? "echo" : "sleep", "old", 0);
		ids[i] = exec->row.id;
		keys[i] = exec->row.key;
	}
	struct exec *last;
	CHECK_INT(exec_find(sandbox, ids[3].text, &last, &error), 0);
	follow(last, &follower);
	CHECK(fake_until(host, &follower.ended));
	fake_stop(host);
	CHECK(follower.forgotten);
	fake_print(init, keys[0], 0, "printed while away", 18);
	fake_exit(init, keys[1], EXEC_END_EXITED, 4, 0);
	fake_record(init, keys[2])->key = 0;
	fake_start(host);
	fake_turn(host, 50);
	sandbox = sandbox_by_id(&host->core, &id);
	CHECK(sandbox && sandbox->guest_ready);
	if (!sandbox)
		return;
	struct exec *execs[4];
	for (int i = 0; i < 4; i++)
		CHECK_INT(exec_find(sandbox, ids[i].text, &execs[i], &error), 0);
	CHECK_INT(execs[0]->row.state, EXEC_RUNNING);
	expect_output(execs[0], EXEC_STDOUT, "printed while away");
	CHECK_INT(execs[1]->row.state, EXEC_ENDED);
	CHECK_INT(execs[1]->row.code, 4);
	/* It had not been seen to start, and the init does not know it. */
	CHECK(exec_ended(execs[2]));
	expect_output(execs[3], EXEC_STDOUT, "old");
	struct exec *fresh = start(sandbox, "echo", "new", 0);
	CHECK(fresh->row.key > keys[3]);
	follow(fresh, &follower);
	CHECK(fake_until(host, &follower.ended));
	expect_output(fresh, EXEC_STDOUT, "new");
	fake_exit(init, keys[0], EXEC_END_EXITED, 0, 0);
	fake_turn(host, 10);
	CHECK_INT(execs[0]->row.state, EXEC_ENDED);
	fake_host_free(host);
}

TEST(oldest_logs_go_first)
{
	struct fake_host *host = fake_host_new();
	struct error error;
	struct id ids[20];
	host->config.log_bytes_max = 100 * 1024;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	for (int i = 0; i < 20; i++) {
		struct follower follower;
		struct exec *exec = start(sandbox, "echo", "0123456789", 0);
		ids[i] = exec->row.id;
		follow(exec, &follower);
		CHECK(fake_until(host, &follower.ended));
		exec_unwatch(&follower.watcher);
	}
	struct exec *exec;
	char room[16];
	uint64_t gap;
	CHECK_INT(exec_find(sandbox, ids[0].text, &exec, &error), 0);
	CHECK_INT(exec_total(exec, EXEC_STDOUT), 10);
	CHECK_INT(exec_read(exec, EXEC_STDOUT, 4, room, sizeof(room), &gap), 0);
	CHECK_INT(gap, 6);
	CHECK_INT(exec_find(sandbox, ids[19].text, &exec, &error), 0);
	CHECK_INT(exec_read(exec, EXEC_STDOUT, 4, room, sizeof(room), &gap), 6);
	struct exec_row row = {0};
	CHECK_INT(store_exec_get(host->core.store, &sandbox->row.id, &ids[0], &row, &error), 1);
	CHECK_INT(row.out_total, 10);
	CHECK_INT(row.head + row.tail, 0);
	exec_row_done(&row);
	fake_host_free(host);
}

/* Directories of sandboxes; that of files made ahead is none. */
static unsigned entries_in(const char *state)
{
	char path[96];
	unsigned count = 0;
	snprintf(path, sizeof(path), "%s/logs", state);
	DIR *directory = opendir(path);
	for (struct dirent *entry; directory && (entry = readdir(directory));)
		count += entry->d_name[0] != '.' && strcmp(entry->d_name, "spare") != 0;
	closedir(directory);
	return count;
}

TEST(memory_and_logs_are_bounded)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	struct outcome deleted = {0};
	struct error error;
	struct id first = {0};
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	for (int i = 0; i < 100; i++) {
		struct exec *exec = start(sandbox, "echo", "x", 0);
		if (i == 0)
			first = exec->row.id;
		follow(exec, &follower);
		CHECK(fake_until(host, &follower.ended));
		exec_unwatch(&follower.watcher);
	}
	/* They are freed when their ends are written. */
	for (int i = 0; i < 200 && list_length(&sandbox->execs) > 65; i++)
		fake_turn(host, 10);
	CHECK(list_length(&sandbox->execs) <= 65);
	struct exec *exec;
	CHECK_INT(exec_find(sandbox, first.text, &exec, &error), 0);
	expect_output(exec, EXEC_STDOUT, "x");
	CHECK_INT(entries_in(host->state), 1);
	/* A large log goes in several turns. */
	static char data[6 * 1024 * 1024];
	struct exec *large = start(sandbox, "sleep", NULL, 0);
	follow(large, &follower);
	CHECK(fake_until(host, &follower.started));
	fake_print(fake_init_of(host, &sandbox->row.id), large->row.key, 0, data, sizeof(data));
	CHECK_INT(
	    sandbox_delete(sandbox, NULL, END_REASON_USER, NULL, outcome_done, &deleted, &error),
	    0);
	CHECK(fake_until(host, &deleted.done));
	for (int i = 0; i < 200 && entries_in(host->state) > 0; i++)
		fake_turn(host, 10);
	CHECK_INT(entries_in(host->state), 0);
	fake_host_free(host);
}

/* Each of these ends the link; the sandbox lives, and the next link works. */
static void expect_link_broken(const char *what, uint16_t type, uint64_t id, const void *payload,
			       size_t size)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	struct outcome ready = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = start(sandbox, "sleep", NULL, EXEC_STDIN);
	follow(exec, &follower);
	CHECK(fake_until(host, &follower.started));
	unsigned hellos = init->frames[FRAME_HELLO];
	fake_init_send(init, type, id == 1 ? exec->row.key : id, payload, size);
	fake_turn(host, 3);
	if (sandbox->guest_ready && init->frames[FRAME_HELLO] == hellos)
		test_fail(__FILE__, __LINE__, "%s: the link goes on", what);
	if (!sandbox->guest_ready &&
	    sandbox_ready(sandbox, NULL, false, outcome_done, &ready, &error) < 0)
		CHECK_INT(error.kind, ERROR_GUEST_PROTOCOL);
	fake_pass(host, 60);
	CHECK(sandbox->guest_ready);
	CHECK(!follower.ended);
	fake_host_free(host);
}

TEST(inits_that_lie)
{
	char zeros[64] = {0};
	char ones[64];
	memset(ones, 0xff, sizeof(ones));
	expect_link_broken("STARTED twice", FRAME_STARTED, 1, zeros, 4);
	expect_link_broken("START_FAILED of a running one", FRAME_START_FAILED, 1, zeros, 12);
	expect_link_broken("short PROGRESS", FRAME_PROGRESS, 1, zeros, 7);
	expect_link_broken("EXITED with a bad end", FRAME_EXITED, 1, ones, 52);
	expect_link_broken("a key never given out", FRAME_PROGRESS, 99999, zeros, 16);
	expect_link_broken("key 0", FRAME_PROGRESS, 0, zeros, 16);
	expect_link_broken("credit not given", FRAME_CREDIT, 1, ones, 4);
	expect_link_broken("LISTED unasked", FRAME_LISTED, 1, zeros, 60);
	expect_link_broken("LIST_END unasked", FRAME_LIST_END, 0, zeros, 0);
	expect_link_broken("LEFT_RUNNING unasked", FRAME_LEFT_RUNNING, 1, zeros, 4);
	expect_link_broken("GONE before its end", FRAME_GONE, 1, zeros, 0);
	expect_link_broken("CONFIGURED again", FRAME_CONFIGURED, 0, zeros, 0);
	expect_link_broken("an operation nobody began", FRAME_RESULT, OPERATION_ID_BIT | 7, zeros,
			   0);
	expect_link_broken("DATA for an exec", FRAME_DATA, 1, zeros, 4);
}

struct transfer {
	struct file_operation_handle *handle;
	unsigned done, data_calls, credits;
	size_t received;
	size_t result_size;
	enum error_kind kind;
	bool hold; /* do not return credit */
	bool finished;
};

static void on_data(struct file_operation_handle *handle, const void *data, size_t size)
{
	struct transfer *transfer = file_data(handle);
	(void)data;
	transfer->data_calls++;
	transfer->received += size;
	if (!transfer->hold)
		file_credit(handle, (uint32_t)size);
}

static void on_credit(struct file_operation_handle *handle)
{
	((struct transfer *)file_data(handle))->credits++;
}

static void on_done(struct file_operation_handle *handle, const void *result, size_t size,
		    const struct error *error)
{
	struct transfer *transfer = file_data(handle);
	(void)result;
	transfer->done++;
	transfer->finished = true;
	transfer->result_size = size;
	transfer->kind = error ? error->kind : ERROR_NONE;
}

static const struct file_callbacks file_callbacks = {on_data, on_credit, on_done};

static int begin_file(struct sandbox *sandbox, enum file_operation operation,
		      struct transfer *transfer, struct error *error)
{
	struct file_request request = {.operation = (uint8_t)operation,
				       .path = {(const uint8_t *)"/tmp/x", 6}};
	*transfer = (struct transfer){0};
	return file_start(sandbox, NULL, &request, &file_callbacks, transfer, &transfer->handle,
			  error);
}

TEST(files)
{
	struct fake_host *host = fake_host_new();
	struct transfer transfer;
	struct error error;
	static char data[FILE_CHUNK_MAX];
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);

	CHECK_INT(begin_file(sandbox, FILE_STAT, &transfer, &error), 0);
	CHECK(fake_until(host, &transfer.finished));
	CHECK_INT(transfer.kind, ERROR_FILE_NOT_FOUND);

	/* 4 MiB in, never more than the window at a time. */
	CHECK_INT(begin_file(sandbox, FILE_WRITE, &transfer, &error), 0);
	for (size_t sent = 0; sent < 4 * MIB;) {
		ssize_t taken = file_write(transfer.handle, data, sizeof(data), &error);
		CHECK(taken >= 0);
		sent += (size_t)MAX(taken, 0);
		if (taken <= 0)
			fake_turn(host, 1);
	}
	CHECK_INT(file_write_end(transfer.handle, &error), 0);
	CHECK(fake_until(host, &transfer.finished));
	CHECK_INT(transfer.kind, ERROR_NONE);
	CHECK_INT(init->written.size, 4 * MIB);
	CHECK_INT(transfer.result_size, 8);
	CHECK(transfer.credits > 0);

	/* 1 MiB out: the fake sends what its window allows. */
	CHECK_INT(begin_file(sandbox, FILE_READ, &transfer, &error), 0);
	fake_turn(host, 5);
	for (size_t sent = 0; sent < MIB;) {
		if (init->window >= FILE_CHUNK_MAX) {
			fake_init_send(init, FRAME_DATA, init->operation, data, FILE_CHUNK_MAX);
			init->window -= FILE_CHUNK_MAX;
			sent += FILE_CHUNK_MAX;
		}
		fake_turn(host, 1);
	}
	fake_init_send(init, FRAME_RESULT, init->operation, data, 8);
	CHECK(fake_until(host, &transfer.finished));
	CHECK_INT(transfer.received, MIB);
	fake_host_free(host);
}

TEST(an_older_init_is_not_asked_for_what_it_does_not_know)
{
	struct fake_host *host = fake_host_new();
	struct transfer transfers[2];
	struct error error;
	fake_start(host);
	fake_init_version = 1;
	struct sandbox *sandbox = fake_create(host, NULL);
	fake_init_version = INIT_PROTOCOL_VERSION;
	CHECK_INT(begin_file(sandbox, FILE_WATCH, &transfers[0], &error), 0);
	CHECK_INT(begin_file(sandbox, FILE_PACK, &transfers[1], &error), -1);
	CHECK_INT(error.kind, ERROR_GUEST_PROTOCOL);
	CHECK(strstr(error.message, "older"));
	file_cancel(transfers[0].handle);
	fake_turn(host, 5);
	fake_host_free(host);
}

TEST(files_cancelled_busy_and_lost)
{
	struct fake_host *host = fake_host_new();
	struct transfer transfers[65];
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	CHECK_INT(begin_file(sandbox, FILE_WATCH, &transfers[0], &error), 0);
	file_cancel(transfers[0].handle);
	fake_turn(host, 5);
	CHECK_INT(init->frames[FRAME_CANCEL], 1);
	CHECK_INT(transfers[0].done, 0);
	CHECK(list_empty(&sandbox->operations));
	for (int i = 0; i < 64; i++)
		CHECK_INT(begin_file(sandbox, FILE_WATCH, &transfers[i], &error), 0);
	CHECK_INT(begin_file(sandbox, FILE_WATCH, &transfers[64], &error), -1);
	CHECK_INT(error.kind, ERROR_BUSY);
	fake_turn(host, 5);
	fake_init_disconnect(init);
	fake_turn(host, 5);
	for (int i = 0; i < 64; i++) {
		CHECK_INT(transfers[i].done, 1);
		CHECK_INT(transfers[i].kind, ERROR_GUEST_GONE);
	}
	fake_turn(host, 60);
	/* DATA beyond what was credited ends the link. */
	CHECK_INT(begin_file(sandbox, FILE_READ, &transfers[0], &error), 0);
	transfers[0].hold = true;
	fake_turn(host, 5);
	static char data[FILE_CHUNK_MAX];
	for (int i = 0; i < 5; i++) {
		fake_init_send(init, FRAME_DATA, init->operation, data, sizeof(data));
		fake_turn(host, 2);
	}
	CHECK_INT(transfers[0].data_calls, 4);
	CHECK_INT(transfers[0].done, 1);
	CHECK_INT(transfers[0].kind, ERROR_GUEST_PROTOCOL);
	fake_host_free(host);
}

static void follow_consuming(struct exec *exec, struct follower *follower, enum exec_stream only)
{
	*follower = (struct follower){
	    .watcher = {
		.changed = on_changed, .forgotten = on_forgotten, .consumes = true, .only = only}};
	exec_watch(exec, &follower->watcher);
}

static struct exec *start_lossless(struct sandbox *sandbox)
{
	const char *argv[] = {"spew"};
	struct exec_spec spec = {
	    .argv = argv, .argc = 1, .flags = EXEC_LOSSLESS, .head = 4096, .tail = 64 * KIB};
	struct exec *exec = NULL;
	struct error error;
	CHECK_INT(exec_start(sandbox, &spec, &exec, &error), 0);
	return exec;
}

TEST(lossless_is_told)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	static char data[68 * 1024];
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = start_lossless(sandbox);
	follow_consuming(exec, &follower, 0);
	CHECK(exec_has_consumer(exec));
	CHECK(fake_until(host, &follower.started));
	fake_print(init, exec->row.key, 0, data, sizeof(data));
	fake_turn(host, 5);
	exec_watcher_consumed(&follower.watcher, EXEC_STDOUT, 1000);
	fake_turn(host, 5);
	CHECK_INT(init->consumed, 0);
	exec_watcher_consumed(&follower.watcher, EXEC_STDOUT, exec_total(exec, EXEC_STDOUT) + 5000);
	fake_turn(host, 5);
	CHECK_INT(init->consumed, sizeof(data));
	/* A reader of the log may be ahead of what the init has told. */
	exec_watcher_consumed(&follower.watcher, EXEC_STDOUT, 2 * sizeof(data));
	fake_print(init, exec->row.key, 0, data, sizeof(data));
	fake_turn(host, 5);
	CHECK_INT(init->consumed, 2 * sizeof(data));
	/* After a reconnect it is said again. */
	init->consumed = 0;
	fake_init_disconnect(init);
	fake_turn(host, 60);
	CHECK_INT(init->consumed, 2 * sizeof(data));
	fake_host_free(host);
}

TEST(lossless_waits_for_its_slowest_consumer)
{
	struct fake_host *host = fake_host_new();
	struct follower observer, slow, fast, other;
	static char data[68 * 1024];
	const uint64_t all = sizeof(data);
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = start_lossless(sandbox);
	follow(exec, &observer);
	CHECK(fake_until(host, &observer.started));
	CHECK(!exec_has_consumer(exec));
	fake_print(init, exec->row.key, 0, data, sizeof(data));
	fake_turn(host, 5);
	/* Nobody consumes: an observer counts for nothing, wherever it reads. */
	exec_watcher_consumed(&observer.watcher, EXEC_STDOUT, all);
	fake_turn(host, 5);
	CHECK_INT(init->frames[FRAME_CONSUMED], 0);
	follow_consuming(exec, &slow, 0);
	follow_consuming(exec, &fast, EXEC_STDOUT);
	follow_consuming(exec, &other, EXEC_STDERR);
	exec_watcher_consumed(&fast.watcher, EXEC_STDOUT, all);
	exec_watcher_consumed(&other.watcher, EXEC_STDOUT, all);
	fake_turn(host, 5);
	CHECK_INT(init->frames[FRAME_CONSUMED], 0);
	exec_watcher_consumed(&slow.watcher, EXEC_STDOUT, 40000);
	fake_turn(host, 5);
	CHECK_INT(init->consumed, 40000);
	/* The slowest goes: the next slowest counts. */
	exec_unwatch(&slow.watcher);
	fake_turn(host, 5);
	CHECK_INT(init->consumed, all);
	/* One that comes late moves nothing back. */
	follow_consuming(exec, &slow, 0);
	exec_watcher_consumed(&slow.watcher, EXEC_STDOUT, 10);
	fake_turn(host, 5);
	CHECK_INT(init->consumed, all);
	CHECK_INT(init->frames[FRAME_CONSUMED], 2);
	fake_host_free(host);
}

struct greedy {
	struct exec_watcher watcher;
};

static void greedy_changed(struct exec_watcher *watcher, struct exec *exec)
{
	exec_watcher_consumed(watcher, EXEC_STDOUT, exec_total(exec, EXEC_STDOUT));
}

/* A consumer that is told first must not speak for one that has not been told yet. */
TEST(lossless_while_consumers_are_told)
{
	struct fake_host *host = fake_host_new();
	struct greedy greedy = {{.changed = greedy_changed, .consumes = true}};
	struct follower slow;
	static char data[68 * 1024];
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = start_lossless(sandbox);
	exec_watch(exec, &greedy.watcher);
	follow_consuming(exec, &slow, 0);
	CHECK(fake_until(host, &slow.started));
	fake_print(init, exec->row.key, 0, data, sizeof(data));
	fake_turn(host, 5);
	CHECK(slow.changes >= 2);
	CHECK_INT(init->frames[FRAME_CONSUMED], 0);
	exec_unwatch(&slow.watcher);
	fake_turn(host, 5);
	CHECK_INT(init->consumed, sizeof(data));
	exec_unwatch(&greedy.watcher);
	fake_host_free(host);
}

struct left_answer {
	bool done;
	size_t count;
	enum error_kind kind;
};

static void left_done(void *data, const struct left_process *processes, size_t count,
		      const struct error *error)
{
	struct left_answer *answer = data;
	(void)processes;
	CHECK(!answer->done);
	*answer = (struct left_answer){true, count, error ? error->kind : ERROR_NONE};
}

TEST(left_running_is_not_waited_for_without_end)
{
	struct fake_host *host = fake_host_new();
	struct follower follower;
	struct left_answer answers[3] = {0};
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = start(sandbox, "server", NULL, 0);
	follow(exec, &follower);
	CHECK(fake_until(host, &follower.started));
	fake_exit(init, exec->row.key, EXEC_END_EXITED, 0, 1);
	CHECK(fake_until(host, &follower.ended));
	init->quiet = true;
	CHECK_INT(exec_left_running(exec, left_done, &answers[0], &error), 0);
	fake_turn(host, 5);
	fake_pass(host, 2000);
	CHECK(!answers[0].done);
	fake_pass(host, 4000);
	CHECK(fake_until(host, &answers[0].done));
	CHECK_INT(answers[0].count, 0);
	CHECK_INT(answers[0].kind, ERROR_NONE);
	/* The question is still open: the late answer is for who asks meanwhile. */
	CHECK_INT(exec_left_running(exec, left_done, &answers[1], &error), 0);
	fake_turn(host, 5);
	CHECK_INT(init->frames[FRAME_LEFT_RUNNING], 1);
	uint8_t none[4] = {0};
	fake_init_send(init, FRAME_LEFT_RUNNING, exec->row.key, none, sizeof(none));
	CHECK(fake_until(host, &answers[1].done));
	CHECK(sandbox->guest_ready);
	/* One answer per question. No other link comes: this one's error would be forgotten. */
	init->deaf = true;
	fake_init_send(init, FRAME_LEFT_RUNNING, exec->row.key, none, sizeof(none));
	for (int turns = 0; turns < 1000 && sandbox->guest_ready; turns++)
		fake_turn(host, 1);
	CHECK_INT(sandbox->life->link_error.kind, ERROR_GUEST_PROTOCOL);
	fake_host_free(host);
}

TEST(files_that_the_init_forgets)
{
	struct fake_host *host = fake_host_new();
	struct transfer reading, watching, writing, walking;
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	static char data[1000];
	CHECK_INT(begin_file(sandbox, FILE_WATCH, &watching, &error), 0);
	CHECK_INT(begin_file(sandbox, FILE_WRITE, &writing, &error), 0);
	CHECK_INT(begin_file(sandbox, FILE_GREP, &walking, &error), 0);
	CHECK_INT(begin_file(sandbox, FILE_READ, &reading, &error), 0);
	reading.hold = true;
	fake_turn(host, 5);
	fake_init_send(init, FRAME_DATA, init->operation, data, sizeof(data));
	fake_turn(host, 5);
	int64_t later = clock_boot() + 40 * NSEC_PER_SEC;
	/* The consumer has not taken what came: it is not the init's turn. */
	CHECK(file_check(sandbox, later) < INT64_MAX);
	CHECK_INT(reading.done, 0);
	file_credit(reading.handle, sizeof(data));
	/* Nor while it is paused. */
	sandbox->row.paused_wall = 1;
	CHECK(file_check(sandbox, later) == INT64_MAX);
	CHECK_INT(reading.done, 0);
	sandbox->row.paused_wall = 0;
	CHECK(file_check(sandbox, later) < INT64_MAX);
	CHECK_INT(reading.done, 1);
	CHECK_INT(reading.kind, ERROR_TIMED_OUT);
	CHECK_INT(walking.done, 0);
	CHECK(file_check(sandbox, clock_boot() + 700 * NSEC_PER_SEC) < INT64_MAX);
	CHECK_INT(walking.done, 1);
	CHECK_INT(walking.kind, ERROR_TIMED_OUT);
	CHECK_INT(watching.done, 0);
	CHECK_INT(writing.done, 0);
	/* The init is told, and its late answers are no surprise. */
	fake_turn(host, 5);
	CHECK_INT(init->frames[FRAME_CANCEL], 2);
	CHECK(sandbox->guest_ready);
	file_cancel(watching.handle);
	file_cancel(writing.handle);
	fake_turn(host, 5);
	CHECK(list_empty(&sandbox->operations));
	fake_host_free(host);
}
