/* The follower of what an exec prints (edge/exec_follower.h): whole characters, gaps, a full queue,
 * ends and failures. */
#include "edge/exec_follower.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fake_host.h"
#include "test.h"

TEST_MAIN

/* Everything that an emitter is told, as one line of text. */
struct taker {
	struct exec_follower follower;
	struct call call;
	struct buffer said;
	bool blocked, over;
	unsigned take; /* pieces until it is blocked; 0: any number */
	struct fake_host *host;
	struct sandbox *sandbox;
	struct fake_init *init;
	struct exec *exec;
};

static struct taker *taker_of(struct exec_follower *follower)
{
	return container_of(follower, struct taker, follower);
}

static void say(struct taker *taker, const char *word)
{
	CHECK_INT(buffer_append_text(&taker->said, word), 0);
}

static void on_running(struct exec_follower *follower)
{
	if (taker_of(follower)->said.size == 0)
		say(taker_of(follower), "running");
}

static void on_piece(struct exec_follower *follower, enum exec_stream stream, const char *data,
		     size_t size)
{
	struct taker *taker = taker_of(follower);
	CHECK(buffer_printf(&taker->said, " %s@%llu:%.*s", stream == EXEC_STDOUT ? "out" : "err",
			    (unsigned long long)follower->sent[stream - 1], (int)size, data) >= 0);
	taker->blocked = taker->take > 0 && --taker->take == 0;
}

static void on_gap(struct exec_follower *follower, enum exec_stream stream, uint64_t bytes)
{
	(void)stream;
	CHECK(buffer_printf(&taker_of(follower)->said, " gap:%llu", (unsigned long long)bytes) >=
	      0);
}

static void on_ended(struct exec_follower *follower)
{
	say(taker_of(follower), " ended");
	taker_of(follower)->over = true;
}

static void on_failed(struct exec_follower *follower, const struct error *error)
{
	CHECK(follower->exec == NULL);
	say(taker_of(follower), " failed:");
	say(taker_of(follower), error_info(error->kind)->code);
	taker_of(follower)->over = true;
}

static const struct exec_emitter texts = {.piece_max = 8,
					  .characters = true,
					  .running = on_running,
					  .piece = on_piece,
					  .gap = on_gap,
					  .ended = on_ended,
					  .failed = on_failed};
static const struct exec_emitter bytes = {
    .piece_max = 8, .piece = on_piece, .ended = on_ended, .failed = on_failed};

static void on_unreadable(struct exec_follower *follower)
{
	exec_follower_leave(follower);
	say(taker_of(follower), " unreadable");
}

static const struct exec_emitter readable = {.piece_max = 8,
					     .piece = on_piece,
					     .ended = on_ended,
					     .failed = on_failed,
					     .unreadable = on_unreadable};

static void begin(struct taker *taker, const struct exec_emitter *emitter, const char *program,
		  uint64_t head, uint64_t tail)
{
	const char *argv[] = {program};
	struct exec_spec spec = {
	    .argv = argv, .argc = 1, .flags = EXEC_STDIN, .head = head, .tail = tail};
	struct error error;
	*taker = (struct taker){.host = fake_host_new(), .said = BUFFER(4 * KIB)};
	fake_start(taker->host);
	taker->sandbox = fake_create(taker->host, NULL);
	taker->init = fake_init_of(taker->host, &taker->sandbox->row.id);
	/* Nobody releases the last one: it is the test's. */
	taker->call = (struct call){
	    .references = 1, .core = &taker->host->core, .sandbox = taker->sandbox->row.id};
	taker->follower = (struct exec_follower){
	    .call = &taker->call, .emitter = emitter, .blocked = &taker->blocked};
	CHECK_INT(exec_start(taker->sandbox, &spec, &taker->exec, &error), 0);
	exec_follower_begin(&taker->follower, taker->exec);
	fake_turn(taker->host, 20);
}

static void print(struct taker *taker, int stream, const char *text)
{
	fake_print(taker->init, taker->exec->row.key, stream, text, strlen(text));
	fake_turn(taker->host, 20);
}

static void finish(struct taker *taker)
{
	fake_exit(taker->init, taker->exec->row.key, EXEC_END_EXITED, 0, 0);
	fake_turn(taker->host, 20);
}

static void done(struct taker *taker, const char *said)
{
	CHECK_TEXT(buffer_text(&taker->said), said);
	CHECK_INT(taker->call.references, 1);
	exec_follower_leave(&taker->follower);
	exec_follower_leave(&taker->follower);
	buffer_done(&taker->said);
	fake_host_free(taker->host);
}

TEST(both_streams_and_the_end)
{
	struct taker taker;
	begin(&taker, &texts, "cat", 0, 0);
	print(&taker, 0, "one");
	print(&taker, 1, "two");
	print(&taker, 0, "three, long");
	finish(&taker);
	done(&taker, "running out@0:one err@0:two out@3:three, l out@11:ong ended");
}

TEST(characters_are_whole)
{
	struct taker taker;
	begin(&taker, &texts, "cat", 0, 0);
	print(&taker, 0, "a\xc3");
	print(&taker, 0, "\xbc");
	print(&taker, 0, "b\xe2\x82");
	finish(&taker);
	/* The rest of the last one never comes. */
	done(&taker, "running out@0:a out@1:\xc3\xbc out@3:b out@4:\xe2\x82 ended");
	begin(&taker, &bytes, "cat", 0, 0);
	print(&taker, 0, "a\xc3");
	print(&taker, 0, "\xbc");
	finish(&taker);
	done(&taker, " out@0:a\xc3 out@2:\xbc ended");
}

TEST(a_full_queue_holds_it)
{
	struct taker taker;
	begin(&taker, &texts, "cat", 0, 0);
	taker.take = 1;
	print(&taker, 0, "one");
	print(&taker, 0, "two");
	finish(&taker);
	CHECK_TEXT(buffer_text(&taker.said), "running out@0:one");
	taker.blocked = false;
	taker.take = 1;
	exec_follower_pump(&taker.follower);
	CHECK_TEXT(buffer_text(&taker.said), "running out@0:one out@3:two");
	taker.blocked = false;
	exec_follower_pump(&taker.follower);
	exec_follower_pump(&taker.follower);
	done(&taker, "running out@0:one out@3:two ended");
}

TEST(what_is_not_kept_is_a_gap)
{
	struct taker taker;
	char text[3 * 4096 + 1] = "";
	begin(&taker, &texts, "cat", 4096, 4096);
	memset(text, 'x', sizeof(text) - 1);
	taker.blocked = true;
	print(&taker, 0, text);
	taker.follower.sent[0] = 4090;
	taker.blocked = false;
	taker.take = 2;
	exec_follower_pump(&taker.follower);
	CHECK_TEXT(buffer_text(&taker.said), "running out@4090:xxxxxx gap:4096 out@8192:xxxxxxxx");
	done(&taker, buffer_text(&taker.said));
}

TEST(one_stream_alone)
{
	struct taker taker;
	begin(&taker, &texts, "cat", 0, 0);
	taker.follower.watcher.only = EXEC_STDERR;
	print(&taker, 0, "one");
	print(&taker, 1, "two");
	finish(&taker);
	done(&taker, "running err@0:two ended");
}

TEST(no_more_than_is_wanted)
{
	struct taker taker;
	const uint64_t end = 5;
	begin(&taker, &texts, "cat", 0, 0);
	taker.follower.watcher.only = EXEC_STDOUT;
	taker.follower.end = &end;
	print(&taker, 0, "one");
	CHECK_TEXT(buffer_text(&taker.said), "running out@0:one");
	print(&taker, 1, "of another stream");
	print(&taker, 0, "two");
	CHECK(taker.over);
	print(&taker, 0, "three");
	done(&taker, "running out@0:one out@3:tw ended");
}

TEST(it_fails_or_is_lost)
{
	struct taker taker;
	begin(&taker, &texts, "missing", 0, 0);
	done(&taker, " failed:exec.program_not_found");
	begin(&taker, &texts, "cat", 0, 0);
	fake_init_dies(taker.init, END_KILLED);
	CHECK(fake_until(taker.host, &taker.over));
	CHECK_INT(taker.exec->row.end, EXEC_END_LOST);
	done(&taker, "running ended");
	begin(&taker, &texts, "cat", 0, 0);
	core_let_go(&taker.host->core);
	done(&taker, "running failed:daemon.restarting");
}

TEST(its_log_cannot_be_read)
{
	struct taker taker;
	begin(&taker, &readable, "cat", 0, 0);
	print(&taker, 0, "one");
	int log = taker.exec->logs[0].fd, directory = open("/", O_RDONLY | O_DIRECTORY);
	CHECK(directory >= 0 && dup2(directory, log) == log);
	CHECK_INT(close(directory), 0);
	print(&taker, 0, "two");
	print(&taker, 0, "three");
	done(&taker, " out@0:one unreadable");
}

TEST(others_of_the_same_form)
{
	struct taker taker;
	begin(&taker, &texts, "cat", 0, 0);
	struct exec_follower other = taker.follower;
	CHECK(!exec_follower_others(&taker.follower));
	other.emitter = &bytes;
	exec_follower_begin(&other, taker.exec);
	CHECK(!exec_follower_others(&taker.follower));
	other.emitter = &texts;
	CHECK(exec_follower_others(&taker.follower));
	exec_follower_leave(&other);
	CHECK(!exec_follower_others(&taker.follower));
	done(&taker, "running");
}
