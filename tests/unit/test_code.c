/* Code contexts (core/code/code.h) at a fake host: the ends of several at once, what a store that
 * fails leaves of a cell, the end of one that is deleted while it runs, what their control channels
 * are promised, and that what comes there is read in the sandboxes' share of the loop. */
#include "core/code/code.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/work.h"
#include "core/code/code_private.h"
#include "fake_host.h"
#include "store/sqlite.h"
#include "test.h"

TEST_MAIN

static struct id insert(struct fake_host *host, const struct id *sandbox, bool once, int64_t at)
{
	struct context_row row = {
	    .id = id_new(),
	    .sandbox = *sandbox,
	    .exec = id_new(),
	    .control = id_new(),
	    .once = once,
	    .language = CODE_PYTHON,
	    .created_wall = clock_wall() + at,
	    .ended_wall = once ? clock_wall() : 0,
	};
	struct error error;
	CHECK_INT(store_context_insert(host->core.store, &row, &error), 0);
	return row.id;
}

static unsigned count(struct sandbox *sandbox)
{
	unsigned contexts = 0;
	struct code_context *at = NULL;
	while ((at = code_context_next(sandbox, at)))
		contexts++;
	return contexts;
}

struct told {
	unsigned times;
	bool has_cell;
	int exit_code;
	struct error error;
};

static void on_created(void *data, struct code_context *context, const struct error *error)
{
	struct told *told = data;
	(void)context;
	told->times++;
	if (error)
		told->error = *error;
}

static void on_done(void *data, struct code_context *context, const struct code_cell *cell,
		    const struct error *error)
{
	struct told *told = data;
	(void)context;
	told->times++;
	told->has_cell = cell;
	told->exit_code = cell ? cell->exit_code : -1;
	if (error)
		told->error = *error;
}

/* The end of one takes the next one of the list with it: there are too many. Once when the rows are
 * read, and once when an interpreter was not ready in time. */
TEST(an_end_removes_the_next_one)
{
	struct fake_host *host = fake_host_new();
	struct told told = {0};
	struct code_context *context;
	struct error error;
	fake_start(host);
	struct id sandbox_id = fake_create(host, NULL)->row.id;
	struct id first = insert(host, &sandbox_id, false, 0);
	for (int i = 1; i <= CODE_CONTEXTS_ENDED_MAX + 1; i++)
		insert(host, &sandbox_id, true, i);
	fake_stop(host);
	fake_start(host);
	struct sandbox *sandbox = sandbox_by_id(&host->core, &sandbox_id);
	CHECK_INT(count(sandbox), CODE_CONTEXTS_ENDED_MAX + 1);
	CHECK_INT(code_context_find(sandbox, first.text, &context, &error), 0);
	CHECK(!code_context_alive(context));
	CHECK(code_context_next(sandbox, NULL) == context);
	for (int i = 0; i < 300 && !sandbox->guest_ready; i++)
		fake_turn(host, 10);
	CHECK_INT(code_context_restart(context, &fake_principal, on_created, &told, &error), 0);
	code_check(sandbox, clock_boot() + CODE_START_TIMEOUT / 2);
	CHECK_INT(told.times, 0);
	code_check(sandbox, clock_boot() + 2 * CODE_START_TIMEOUT);
	CHECK_INT(told.times, 1);
	CHECK_INT(told.error.kind, ERROR_TIMED_OUT);
	CHECK_INT(count(sandbox), CODE_CONTEXTS_ENDED_MAX);
	CHECK_INT(code_context_find(sandbox, first.text, &context, &error), 0);
	fake_host_free(host);
}

static void sql(struct fake_host *host, const char *text)
{
	CHECK_INT(sqlite3_exec(host->core.store->database, text, NULL, NULL, NULL), SQLITE_OK);
}

static int64_t sql_number(struct fake_host *host, const char *text)
{
	sqlite3_stmt *statement = NULL;
	int64_t number = -1;
	if (sqlite3_prepare_v2(host->core.store->database, text, -1, &statement, NULL) ==
		SQLITE_OK &&
	    sqlite3_step(statement) == SQLITE_ROW)
		number = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return number;
}

static struct code_spec code_of(enum code_language language)
{
	return (struct code_spec){
	    .cell = id_new(),
	    .language = language,
	    .code = "sleep 1000",
	    .size = strlen("sleep 1000"),
	    .principal = &fake_principal,
	};
}

/* A cell that could not be put on record was never sent, and is not the context's last. */
TEST(a_cell_that_cannot_be_stored)
{
	struct fake_host *host = fake_host_new();
	struct told told = {0};
	struct code_callbacks callbacks = {.done = on_done, .data = &told};
	struct code_spec spec = code_of(CODE_PYTHON);
	struct code_context *context;
	struct foreground_cell *run;
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct id sandbox_id = sandbox->row.id, id = insert(host, &sandbox_id, false, 0);
	fake_stop(host);
	fake_start(host);
	sandbox = sandbox_by_id(&host->core, &sandbox_id);
	for (int i = 0; i < 300 && !sandbox->guest_ready; i++)
		fake_turn(host, 10);
	CHECK_INT(code_context_find(sandbox, id.text, &context, &error), 0);
	CHECK_INT(code_context_restart(context, &fake_principal, on_created, &told, &error), 0);
	sql(host, "CREATE TEMP TRIGGER no_update BEFORE UPDATE ON contexts BEGIN SELECT "
		  "RAISE(ABORT, 'no'); END");
	CHECK_INT(foreground_cell_start(sandbox, context, &spec, &callbacks, &run, &error), -1);
	sql(host, "DROP TRIGGER no_update");
	CHECK(!code_context_of_cell(&host->core, &fake_principal, &spec.cell));
	CHECK_INT(context->row.cells, 0);
	CHECK_INT(context->row.cell_wall, 0);
	CHECK_INT(foreground_cell_start(sandbox, context, &spec, &callbacks, &run, &error), 0);
	CHECK(code_context_of_cell(&host->core, &fake_principal, &spec.cell) == context);
	fake_host_free(host);
}

/* A shell's code, which all of its standard input is. */
static struct code_context *run_once(struct sandbox *sandbox, struct told *told,
				     struct fake_host *host)
{
	struct code_callbacks callbacks = {.done = on_done, .data = told};
	struct code_spec spec = code_of(CODE_BASH);
	struct foreground_cell *run;
	struct error error;
	CHECK_INT(foreground_cell_start(sandbox, NULL, &spec, &callbacks, &run, &error), 0);
	struct code_context *context = run->context;
	fake_turn(host, 20);
	return context;
}

TEST(a_store_that_fails_is_asked_once)
{
	struct fake_host *host = fake_host_new();
	struct told told = {0};
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	/* FAIL keeps what was written before it. */
	sql(host, "CREATE TEMP TABLE asked (id TEXT)");
	sql(host, "CREATE TEMP TRIGGER no_insert BEFORE INSERT ON contexts BEGIN "
		  "INSERT INTO asked VALUES (NEW.id); SELECT RAISE(FAIL, 'no'); END");
	struct code_context *context = run_once(sandbox, &told, host);
	CHECK_INT(sql_number(host, "SELECT count(*) FROM asked"), 1);
	for (int i = 0; i < 5; i++) {
		fake_print(init, code_context_exec(context)->row.key, 0, "x", 1);
		fake_turn(host, 10);
	}
	CHECK_INT(exec_total(code_context_exec(context), EXEC_STDOUT), 5);
	CHECK_INT(sql_number(host, "SELECT count(*) FROM asked"), 1);
	CHECK(!context->life->recorded);
	CHECK_INT(told.times, 0);
	fake_host_free(host);
}

TEST(deleted_while_it_runs)
{
	struct fake_host *host = fake_host_new();
	struct told told = {0};
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct code_context *context = run_once(sandbox, &told, host);
	CHECK(context->life->recorded);
	code_context_delete(context, &fake_principal);
	CHECK_INT(told.times, 1);
	CHECK(!told.has_cell);
	CHECK_INT(told.error.kind, ERROR_CONTEXT_ENDED);
	CHECK(strstr(told.error.message, "was deleted"));
	CHECK_INT(count(sandbox), 0);
	fake_host_free(host);
}

/* --- the control channel --- */

#define ONCES 30

static struct foreground_cell *start_python(struct sandbox *sandbox, struct told *told)
{
	struct code_callbacks callbacks = {.done = on_done, .data = told};
	struct code_spec spec = code_of(CODE_PYTHON);
	struct foreground_cell *run = NULL;
	struct error error;
	CHECK_INT(foreground_cell_start(sandbox, NULL, &spec, &callbacks, &run, &error), 0);
	return run;
}

/* Pieces of code at once, as many as one likes, are promised no more than log_max; the first can
 * show all that a cell may. */
TEST(channels_share_the_maximum)
{
	struct fake_host *host = fake_host_new();
	struct told told = {0};
	uint64_t promised = 0, minimal = 0;
	host->config.log_bytes_max = 256 * MIB;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct foreground_cell *first = start_python(sandbox, &told), *last = NULL;
	fake_turn(host, 5);
	for (int i = 1; i < ONCES; i++) {
		last = start_python(sandbox, &told);
		fake_turn(host, 5);
	}
	const struct exec_row *most = &first->context->life->control.exec->row;
	const struct exec_row *least = &last->context->life->control.exec->row;
	CHECK(most->tail / 4 * 3 > CODE_RESULT_BYTES_MAX);
	CHECK_INT(least->head + least->tail, CODE_CHANNEL_LEAST);
	list_each (&sandbox->execs, node) {
		const struct exec_row *row = &list_entry(node, struct exec, link)->row;
		uint64_t floor = row->flags & EXEC_LOSSLESS ? CODE_CHANNEL_LEAST : OUTPUT_LEAST;
		promised += 2 * row->head + row->tail;
		promised +=
		    row->flags & EXEC_LOSSLESS ? MIN(row->tail, CODE_CHANNEL_LEAST) : row->tail;
		minimal += row->head + row->tail == floor ? 2 * floor : 0;
	}
	CHECK(promised <= 256 * MIB + minimal);
	CHECK(minimal < (uint64_t)ONCES * 2 * (CODE_CHANNEL_LEAST + OUTPUT_LEAST));
	/* Its driver is told what it may send. */
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	char line[64];
	CHECK_INT(buffer_append(&init->written, "", 1), 0);
	snprintf(line, sizeof(line), "open %u %llu\n", last->context->life->control.exec->pid,
		 (unsigned long long)least->tail / 3 * 2);
	CHECK(strstr(init->written.data, line));
	snprintf(line, sizeof(line), "open %u\n", first->context->life->control.exec->pid);
	CHECK(strstr(init->written.data, line));
	fake_host_free(host);
}

/* What a client may ask for is no limit of what the host itself keeps. */
TEST(a_channel_is_not_asked_for)
{
	struct fake_host *host = fake_host_new();
	struct told told = {0};
	host->config.output_max = 64 * KIB;
	fake_start(host);
	CHECK(start_python(fake_create(host, NULL), &told));
	fake_host_free(host);
}

#define RECORDS 4000
#define RECORD "whole 1 0 - 0\n\n"

static int64_t now;

/* So each piece takes a turn. */
static int64_t slow_clock(void)
{
	return now += WORK_TURN_NS;
}

static void count_piece(struct work *work);

static struct other {
	struct work work;
	struct work_share *share;
	uint64_t pieces;
} other = {.work = {.run = count_piece}};

static void count_piece(struct work *work)
{
	other.pieces++;
	work_wait(work, other.share);
}

/* However much comes there, another share has as many turns as the sandboxes, and at the end of the
 * interpreter all of it was read. */
TEST(records_are_read_in_pieces)
{
	struct fake_host *host = fake_host_new();
	struct told told = {0};
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct code_context *context = start_python(sandbox, &told)->context;
	fake_turn(host, 20);
	uint64_t control = context->life->control.exec->row.key;
	uint64_t interpreter = context->life->main.exec->row.key;
	static char text[32 + RECORDS * (sizeof(RECORD) - 1)];
	CHECK_INT(text_copy(text, sizeof(text), "ready 0 0 - 1\nx\nbegin 1 0 - 0\n\n"), 0);
	const uint64_t first = strlen(text), size = sizeof(RECORD) - 1;
	for (size_t i = 0; i < RECORDS; i++)
		memcpy(text + first + i * size, RECORD, size);
	struct work_queue *queue = work_queue_of(host->loop);
	work_set_clock(queue, slow_clock);
	other.share = work_share_get(queue, "token other");
	work_wait(&other.work, other.share);
	fake_print(init, control, 0, text, first + RECORDS * size);
	uint64_t read = 0, before = other.pieces;
	for (int turns = 0; turns < 10000 && read < RECORDS / 2; turns++) {
		uv_run(host->loop, UV_RUN_NOWAIT);
		read = context->life->control_at / size;
		/* It may have been one piece behind at the start. */
		CHECK(read <= 32 * (other.pieces - before + 1));
	}
	CHECK(read >= RECORDS / 2);
	fake_exit(init, interpreter, EXEC_END_EXITED, 0, 0);
	fake_print(init, control, 0, "end 1 7 - 0\n\n", strlen("end 1 7 - 0\n\n"));
	for (int turns = 0; turns < 10000 && told.times == 0; turns++)
		uv_run(host->loop, UV_RUN_NOWAIT);
	CHECK_INT(told.times, 1);
	CHECK_INT(told.exit_code, 7);
	work_cancel(&other.work);
	work_share_release(other.share);
	work_queue_release(queue);
	fake_host_free(host);
}

static size_t execs_count(struct sandbox *sandbox)
{
	size_t sum = 0;
	list_each (&sandbox->execs, node)
		sum++;
	return sum;
}

/* Its channel's data comes after the end of an interpreter that is not there: the languages are
 * looked for once. */
TEST(an_end_is_told_once)
{
	struct fake_host *host = fake_host_new();
	struct told told = {0};
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct code_life *life = start_python(sandbox, &told)->context->life;
	uint64_t control = life->control.exec->row.key, interpreter = life->main.exec->row.key;
	fake_turn(host, 20);
	fake_exit(init, interpreter, EXEC_END_EXITED, 127, 0);
	fake_turn(host, 20);
	CHECK_INT(execs_count(sandbox), 3);
	fake_print(init, control, 0, "late\n", strlen("late\n"));
	fake_turn(host, 20);
	CHECK_INT(execs_count(sandbox), 3);
	fake_host_free(host);
}
