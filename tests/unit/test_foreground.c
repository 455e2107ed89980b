/* Commands that somebody waits for (core/exec/foreground.h): begun and waited for, standard input
 * and cancels across a lost connection to a sandbox, the output of an answer. */
#include "core/exec/foreground.h"

#include <stdlib.h>
#include <string.h>

#include "fake_host.h"
#include "test.h"

TEST_MAIN

struct end_watcher {
	struct exec_watcher watcher;
	bool ended;
};

static void on_changed(struct exec_watcher *watcher, struct exec *exec)
{
	container_of(watcher, struct end_watcher, watcher)->ended |= exec_ended(exec);
}

static void on_forgotten(struct exec_watcher *watcher)
{
	exec_unwatch(watcher);
}

struct setting {
	struct fake_host *host;
	struct sandbox *sandbox;
	struct fake_init *init;
	struct exec *exec;
	struct end_watcher end;
};

/* A command with standard input that runs until it is told otherwise. */
static void begin(struct setting *setting)
{
	const char *argv[] = {"cat"};
	struct exec_spec spec = {.argv = argv, .argc = 1, .flags = EXEC_STDIN};
	struct error error;
	*setting = (struct setting){.host = fake_host_new()};
	fake_start(setting->host);
	setting->sandbox = fake_create(setting->host, NULL);
	setting->init = fake_init_of(setting->host, &setting->sandbox->row.id);
	CHECK_INT(exec_start(setting->sandbox, &spec, &setting->exec, &error), 0);
	setting->end.watcher.changed = on_changed;
	setting->end.watcher.forgotten = on_forgotten;
	exec_watch(setting->exec, &setting->end.watcher);
	fake_turn(setting->host, 20);
	CHECK_INT(setting->exec->row.state, EXEC_RUNNING);
}

/* The connection is lost, and cannot be made again until link_back(). */
static void lose_link(struct setting *setting)
{
	setting->init->deaf = true;
	fake_init_disconnect(setting->init);
	fake_turn(setting->host, 20);
	CHECK(!setting->sandbox->guest_ready);
}

static void link_back(struct setting *setting)
{
	setting->init->deaf = false;
	for (int i = 0; i < 300 && !setting->sandbox->guest_ready; i++)
		fake_turn(setting->host, 10);
	CHECK(setting->sandbox->guest_ready);
	fake_turn(setting->host, 20);
}

static char *letters(size_t size)
{
	char *data = malloc(size);
	if (!data)
		abort();
	memset(data, 'x', size);
	return data;
}

TEST(input_is_fed_and_closed)
{
	struct setting setting;
	begin(&setting);
	stdin_feed(setting.exec, letters(1000), 1000);
	fake_turn(setting.host, 20);
	CHECK_INT(setting.init->written.size, 1000);
	CHECK_INT(setting.init->frames[FRAME_STDIN_CLOSE], 1);
	fake_host_free(setting.host);
}

TEST(input_waits_for_a_lost_connection)
{
	struct setting setting;
	begin(&setting);
	lose_link(&setting);
	stdin_feed(setting.exec, letters(1000), 1000);
	fake_turn(setting.host, 20);
	CHECK(!setting.exec->stdin_closed);
	link_back(&setting);
	CHECK_INT(setting.init->written.size, 1000);
	CHECK_INT(setting.init->frames[FRAME_STDIN_CLOSE], 1);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 0);
	CHECK(!setting.end.ended);
	fake_host_free(setting.host);
}

/* What hangs otherwise: a reader of an empty input whose end never comes. */
TEST(the_end_of_an_empty_input_waits_too)
{
	struct setting setting;
	begin(&setting);
	lose_link(&setting);
	stdin_feed(setting.exec, NULL, 0);
	CHECK(!setting.exec->stdin_closed);
	link_back(&setting);
	CHECK_INT(setting.init->frames[FRAME_STDIN_CLOSE], 1);
	fake_host_free(setting.host);
}

TEST(half_an_input_cancels)
{
	struct setting setting;
	struct error error;
	begin(&setting);
	/* More than there is credit for: a part is on the way when the connection breaks. */
	stdin_feed(setting.exec, letters(2 * FILE_WINDOW), 2 * FILE_WINDOW);
	fake_turn(setting.host, 20);
	CHECK_INT(setting.init->written.size, FILE_WINDOW);
	CHECK(!stdin_lost(setting.exec, &error));
	lose_link(&setting);
	CHECK(stdin_lost(setting.exec, &error));
	CHECK_INT(error.kind, ERROR_GUEST_GONE);
	link_back(&setting);
	CHECK(fake_until(setting.host, &setting.end.ended));
	CHECK_INT(setting.exec->row.end, EXEC_END_CANCELLED);
	CHECK_INT(setting.init->frames[FRAME_STDIN_CLOSE], 0);
	CHECK_INT(setting.init->written.size, FILE_WINDOW);
	fake_host_free(setting.host);
}

TEST(cancel_waits_for_a_lost_connection)
{
	struct setting setting;
	begin(&setting);
	lose_link(&setting);
	exec_cancel(setting.exec, NULL);
	fake_turn(setting.host, 20);
	CHECK(!setting.end.ended);
	link_back(&setting);
	CHECK(fake_until(setting.host, &setting.end.ended));
	CHECK_INT(setting.exec->row.end, EXEC_END_CANCELLED);
	CHECK_INT(setting.init->frames[FRAME_SIGNAL], 1);
	fake_host_free(setting.host);
}

/* Under ASan: nothing that waits is left behind when the sandbox is forgotten first. */
TEST(whatever_waits_ends_with_the_daemon)
{
	struct setting setting;
	begin(&setting);
	lose_link(&setting);
	exec_cancel(setting.exec, NULL);
	stdin_feed(setting.exec, letters(10), 10);
	fake_host_free(setting.host);
}

/* --- run and wait --- */

struct seen {
	bool done, changed;
	struct exec *exec;
	uint32_t end, code;
	size_t left;
	struct error error;
};

static void run_changed(struct foreground *run, struct exec *exec)
{
	struct seen *seen = foreground_data(run);
	CHECK(foreground_exec(run) == exec);
	seen->changed = true;
}

static void run_done(void *data, struct exec *exec, const struct left_process *left, size_t count,
		     const struct error *error)
{
	struct seen *seen = data;
	(void)left;
	CHECK(!seen->done);
	seen->done = true;
	seen->left = count;
	seen->exec = exec;
	if (error)
		seen->error = *error;
	if (exec) {
		seen->end = exec->row.end;
		seen->code = exec->row.code;
	}
}

static const struct foreground_callbacks run_callbacks = {run_changed, run_done};

struct waiting {
	struct fake_host *host;
	struct sandbox *sandbox;
	struct fake_init *init;
	struct foreground *run;
	struct seen seen;
	uint64_t key;
};

static void begin_run(struct waiting *waiting, char *input, size_t size)
{
	const char *argv[] = {"cat"};
	struct exec_spec spec = {.argv = argv, .argc = 1, .flags = input ? EXEC_STDIN : 0};
	struct error error;
	*waiting = (struct waiting){.host = fake_host_new()};
	fake_start(waiting->host);
	waiting->sandbox = fake_create(waiting->host, NULL);
	waiting->init = fake_init_of(waiting->host, &waiting->sandbox->row.id);
	CHECK_INT(foreground_start(waiting->sandbox, &spec, input, size, &run_callbacks,
				   &waiting->seen, &waiting->run, &error),
		  0);
	CHECK(!waiting->seen.done);
	waiting->key = foreground_exec(waiting->run)->row.key;
	fake_turn(waiting->host, 20);
	CHECK(waiting->seen.changed);
}

TEST(a_run_is_told_of_its_end)
{
	struct waiting waiting;
	begin_run(&waiting, letters(10), 10);
	CHECK_INT(waiting.init->written.size, 10);
	fake_exit(waiting.init, waiting.key, EXEC_END_EXITED, 7, 0);
	CHECK(fake_until(waiting.host, &waiting.seen.done));
	CHECK_INT(waiting.seen.error.kind, ERROR_NONE);
	CHECK_INT(waiting.seen.end, EXEC_END_EXITED);
	CHECK_INT(waiting.seen.code, 7);
	fake_host_free(waiting.host);
}

TEST(a_cancelled_run_is_told_too)
{
	struct waiting waiting;
	begin_run(&waiting, NULL, 0);
	foreground_cancel(waiting.run);
	CHECK(fake_until(waiting.host, &waiting.seen.done));
	CHECK_INT(waiting.seen.end, EXEC_END_CANCELLED);
	fake_host_free(waiting.host);
}

TEST(an_abandoned_run_is_told_nothing)
{
	struct waiting waiting;
	begin_run(&waiting, NULL, 0);
	foreground_abandon(waiting.run, false);
	fake_turn(waiting.host, 20);
	CHECK_INT(waiting.init->frames[FRAME_SIGNAL], 0);
	fake_exit(waiting.init, waiting.key, EXEC_END_EXITED, 0, 0);
	fake_turn(waiting.host, 20);
	CHECK(!waiting.seen.done);
	fake_host_free(waiting.host);
}

TEST(an_abandoned_run_may_be_killed)
{
	struct waiting waiting;
	begin_run(&waiting, NULL, 0);
	foreground_abandon(waiting.run, true);
	fake_turn(waiting.host, 20);
	CHECK_INT(waiting.init->frames[FRAME_SIGNAL], 1);
	CHECK(!waiting.seen.done);
	fake_host_free(waiting.host);
}

/* While it is being asked what it left running: the answer finds nobody, and nothing is lost. */
TEST(a_run_abandoned_at_its_end)
{
	struct waiting waiting;
	begin_run(&waiting, NULL, 0);
	waiting.init->quiet = true;
	fake_exit(waiting.init, waiting.key, EXEC_END_EXITED, 0, 2);
	fake_turn(waiting.host, 20);
	CHECK(!waiting.seen.done);
	foreground_abandon(waiting.run, false);
	fake_turn(waiting.host, 20);
	CHECK(!waiting.seen.done);
	fake_host_free(waiting.host);
}

TEST(a_run_ends_with_the_daemon)
{
	struct waiting waiting;
	begin_run(&waiting, NULL, 0);
	fake_stop(waiting.host);
	CHECK(waiting.seen.done);
	CHECK(!waiting.seen.exec);
	CHECK(waiting.seen.error.kind != ERROR_NONE);
	fake_host_free(waiting.host);
}

/* --- the output of an answer --- */

static void expect_cut(struct exec *exec, uint64_t head, uint64_t tail, const char *first,
		       const char *last, uint64_t omitted)
{
	struct output_cut cut;
	struct error error;
	CHECK_INT(output_cut(exec, EXEC_STDOUT, 0, exec_total(exec, EXEC_STDOUT), head, tail, &cut,
			     &error),
		  0);
	CHECK_INT(cut.head.size, strlen(first));
	CHECK(memcmp(buffer_text(&cut.head), first, cut.head.size) == 0);
	CHECK_TEXT(buffer_text(&cut.tail), last);
	CHECK_INT(cut.omitted, omitted);
	if (omitted > 0) {
		CHECK_INT(cut.tail_offset, strlen(first) + omitted);
		CHECK_INT(cut.tail_offset + cut.tail.size, cut.total);
	}
	output_cut_done(&cut);
}

TEST(output_is_cut_at_lines_and_characters)
{
	static const char lines[] = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";
	static const char umlauts[] = "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f\xc3\xa4\xc3\xb6";
	struct setting setting;
	begin(&setting);
	expect_cut(setting.exec, 8, 8, "", "", 0);
	fake_print(setting.init, setting.exec->row.key, 0, lines, sizeof(lines) - 1);
	fake_turn(setting.host, 20);
	expect_cut(setting.exec, 100, 100, lines, "", 0);
	/* Exactly all of it. */
	expect_cut(setting.exec, 20, sizeof(lines) - 1 - 20, lines, "", 0);
	/* "one\ntwo\nth" and "e\nten\n": a line end is near both. */
	expect_cut(setting.exec, 9, 10, "one\ntwo\n", "nine\nten\n", sizeof(lines) - 1 - 8 - 9);
	fake_host_free(setting.host);

	begin(&setting);
	fake_print(setting.init, setting.exec->row.key, 0, umlauts, sizeof(umlauts) - 1);
	fake_turn(setting.host, 20);
	expect_cut(setting.exec, 3, 3, "\xc3\xa4", "\xc3\xb6", 8);
	fake_host_free(setting.host);
}

TEST(the_rest_of_a_character)
{
	CHECK_INT(utf8_rest("abc", 3), 0);
	CHECK_INT(utf8_rest("\xa4x", 2), 1);
	CHECK_INT(utf8_rest("\x80\x80\x80\x80", 4), 3);
	CHECK_INT(utf8_rest("", 0), 0);
}

struct removing {
	int calls, removed;
	bool kept; /* what exec_remove() refused is as it was */
};

static void remove_in_done(void *data, struct exec *exec, const struct left_process *left,
			   size_t count, const struct error *error)
{
	struct removing *removing = data;
	struct error own;
	(void)left;
	(void)count;
	(void)error;
	removing->calls++;
	if (!exec)
		return;
	enum exec_stage stage = exec->stage;
	removing->removed = exec_remove(exec, NULL, &own);
	removing->kept = exec_ended(exec) && exec->stage == stage;
	CHECK_INT(own.kind, ERROR_SANDBOX_STATE);
	exec_purge(exec, NULL);
}

TEST(an_exec_is_removed_in_done)
{
	static const struct foreground_callbacks callbacks = {.done = remove_in_done};
	const char *argv[] = {"true"};
	struct exec_spec spec = {.argv = argv, .argc = 1};
	struct error error;
	struct foreground *run;
	struct removing removing = {0};
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	CHECK_INT(foreground_start(sandbox, &spec, NULL, 0, &callbacks, &removing, &run, &error),
		  0);
	uint64_t key = foreground_exec(run)->row.key;
	struct id id = foreground_exec(run)->row.id;
	struct exec *exec;
	fake_turn(host, 20);
	fake_exit(init, key, EXEC_END_EXITED, 0, 0);
	for (int i = 0; i < 100 && exec_find(sandbox, id.text, &exec, &error) == 0; i++)
		fake_turn(host, 10);
	CHECK_INT(removing.calls, 1);
	CHECK_INT(removing.removed, -1);
	CHECK(removing.kept);
	CHECK_INT(exec_find(sandbox, id.text, &exec, &error), -1);
	CHECK_INT(error.kind, ERROR_EXEC_NOT_FOUND);
	fake_host_free(host);
}
