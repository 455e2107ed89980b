/* Code contexts (core/code/code.h) at a fake host: the ends of several at once, what a store that
 * fails leaves of a cell, and the end of one that is deleted while it runs. */
#include "core/code/code.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
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
