/* What every edge asks of the domain in the same words (core/account/access.h), waiting for a
 * command (core/exec/wait.h), and one-shot runs that stay (core/exec/oneshot.h, core/code/code.h).
 */
#include "core/account/access.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/code/code.h"
#include "core/core_private.h"
#include "core/exec/wait.h"
#include "core/exec/oneshot.h"
#include "fake_host.h"
#include "test.h"

TEST_MAIN

TEST(words)
{
	struct exec_row row = {.state = EXEC_RUNNING};
	CHECK_TEXT(exec_state_text(&row), "running");
	row.state = EXEC_FAILED;
	CHECK_TEXT(exec_state_text(&row), "failed");
	row = (struct exec_row){.state = EXEC_ENDED, .end = EXEC_END_SIGNALED, .code = 11};
	CHECK_TEXT(exec_state_text(&row), "killed");
	CHECK_INT(exec_exit_code(&row), 139);
	row.end = EXEC_END_TIMED_OUT;
	CHECK_TEXT(exec_state_text(&row), "timed_out");
	CHECK_INT(exec_exit_code(&row), 124);
	row.end = EXEC_END_LOST;
	CHECK_TEXT(exec_state_text(&row), "lost");
	CHECK_INT(exec_exit_code(&row), -1);
	CHECK_INT(signal_by_name("TERM"), SIGTERM);
	CHECK_INT(signal_by_name("sigkill"), SIGKILL);
	CHECK_INT(signal_by_name("15"), 15);
	CHECK_INT(signal_by_name("0"), -1);
	CHECK_INT(signal_by_name("65"), -1);
	CHECK_INT(signal_by_name(""), -1);
	CHECK_INT(signal_by_name("-9"), -1);
	const char *argv[4];
	shell_argv("ls", argv);
	CHECK_TEXT(argv[0], "/bin/sh");
	CHECK_TEXT(argv[2], "ls");
	CHECK(argv[3] == NULL);
}

TEST(scopes)
{
	struct principal reader = {.scopes = SCOPE_READ};
	struct principal admin = {.scopes = SCOPE_ADMIN};
	struct error error;
	CHECK_INT(token_admit(&reader, SCOPE_READ, false, &error), 0);
	CHECK_INT(token_admit(&reader, SCOPE_WRITE, false, &error), -1);
	CHECK_INT(error.kind, ERROR_FORBIDDEN);
	CHECK_INT(token_admit(&admin, SCOPE_WRITE, false, &error), 0);
}

TEST(who_sees_what)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *first = fake_create(host, "first"), *second = fake_create(host, NULL);
	struct principal bound = fake_principal, other = fake_principal;
	bound.sandbox = second->row.id;
	snprintf(other.workspace, sizeof(other.workspace), "other");
	CHECK(sandbox_next(&host->core, &fake_principal, NULL) == first);
	CHECK(sandbox_next(&host->core, &fake_principal, first) == second);
	CHECK(sandbox_next(&host->core, &fake_principal, second) == NULL);
	CHECK(sandbox_next(&host->core, &bound, NULL) == second);
	CHECK(sandbox_next(&host->core, &other, NULL) == NULL);
	CHECK(!sandbox_visible(&bound, first));
	CHECK(!sandbox_visible(&other, first));
	fake_host_free(host);
}

static bool take_ids(void *data, const struct sandbox_row *row)
{
	char *ids = data;
	size_t used = strlen(ids);
	snprintf(ids + used, 256 - used, "%s ", row->id.text);
	return true;
}

TEST(what_has_ended)
{
	struct fake_host *host = fake_host_new();
	fake_start(host);
	struct sandbox *first = fake_create(host, NULL), *second = fake_create(host, NULL);
	struct principal other = fake_principal, bound = fake_principal;
	struct id first_id = first->row.id, exec, found, unknown = id_new();
	struct outcome deleted = {0};
	struct error error;
	char ids[256] = "", expected[64];
	const char *argv[] = {"cat"};
	struct exec_spec spec = {.argv = argv, .argc = 1};
	struct exec *running;
	snprintf(other.workspace, sizeof(other.workspace), "other");
	bound.sandbox = second->row.id;
	CHECK_INT(exec_start(first, &spec, &running, &error), 0);
	exec = running->row.id;
	fake_turn(host, 20);
	/* It is not asked of those that live. */
	CHECK_INT(exec_find_ended(&host->core, &fake_principal, &exec, &found, &error), 0);
	CHECK_INT(
	    sandbox_delete(first, NULL, END_REASON_USER, NULL, outcome_done, &deleted, &error), 0);
	CHECK(fake_until(host, &deleted.done));
	CHECK_INT(sandbox_ended_each(&host->core, &fake_principal, 5, take_ids, ids, &error), 0);
	snprintf(expected, sizeof(expected), "%s ", first_id.text);
	CHECK_TEXT(ids, expected);
	CHECK_INT(exec_find_ended(&host->core, &fake_principal, &exec, &found, &error), 1);
	CHECK_TEXT(found.text, first_id.text);
	CHECK_INT(exec_find_ended(&host->core, &fake_principal, &unknown, &found, &error), 0);
	/* Others see nothing of it. */
	ids[0] = '\0';
	CHECK_INT(sandbox_ended_each(&host->core, &other, 5, take_ids, ids, &error), 0);
	CHECK_INT(sandbox_ended_each(&host->core, &bound, 5, take_ids, ids, &error), 0);
	CHECK_TEXT(ids, "");
	CHECK_INT(exec_find_ended(&host->core, &other, &exec, &found, &error), 0);
	CHECK_INT(exec_find_ended(&host->core, &bound, &exec, &found, &error), 0);
	fake_host_free(host);
}

TEST(who_may_wake)
{
	struct fake_host *host = fake_host_new();
	struct principal reader = fake_principal;
	struct outcome paused = {0}, readied = {0};
	char actor[ACTIVITY_ACTOR_MAX];
	struct sandbox_readying *readying;
	struct error error;
	reader.scopes = SCOPE_READ;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	CHECK(sandbox_ready_now(sandbox));
	CHECK_INT(sandbox_pause(sandbox, NULL, outcome_done, &paused, &error), 0);
	CHECK(fake_until(host, &paused.done));
	CHECK(!sandbox_ready_now(sandbox));
	CHECK_INT(sandbox_ready_for(sandbox, &reader, outcome_done, &readied, &readying, &error),
		  -1);
	CHECK_INT(error.kind, ERROR_SANDBOX_PAUSED);
	CHECK(!strstr(error.message, "/v1/"));
	/* One who leaves is not told; it is woken all the same. */
	CHECK_INT(
	    sandbox_ready_for(sandbox, &fake_principal, outcome_done, &readied, &readying, &error),
	    0);
	sandbox_ready_cancel(readying);
	CHECK_INT(
	    sandbox_ready_for(sandbox, &fake_principal, outcome_done, &readied, &readying, &error),
	    0);
	CHECK(!readied.done);
	CHECK(fake_until(host, &readied.done));
	CHECK_INT(readied.error.kind, ERROR_NONE);
	fake_actor(sandbox, ACTIVITY_SANDBOX_RESUMED, actor);
	CHECK_TEXT(actor, "local:0");
	fake_actor(sandbox, ACTIVITY_SANDBOX_PAUSED, actor);
	CHECK_TEXT(actor, "system");
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	fake_host_free(host);
}

/* --- waiting --- */

struct waited {
	bool done;
	struct exec *exec;
	bool ended;
	enum error_kind kind;
};

static void on_waited(void *data, struct exec *exec, const struct error *error)
{
	struct waited *waited = data;
	CHECK(!waited->done);
	*waited =
	    (struct waited){true, exec, exec && exec_ended(exec), error ? error->kind : ERROR_NONE};
}

static struct exec *run_cat(struct sandbox *sandbox, struct fake_host *host)
{
	const char *argv[] = {"cat"};
	struct exec_spec spec = {.argv = argv, .argc = 1};
	struct exec *exec = NULL;
	struct error error;
	CHECK_INT(exec_start(sandbox, &spec, &exec, &error), 0);
	fake_turn(host, 20);
	return exec;
}

TEST(waiting_for_a_command)
{
	struct fake_host *host = fake_host_new();
	struct waited waited = {0};
	struct exec_wait *wait;
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = run_cat(sandbox, host);
	/* The time is over. */
	CHECK_INT(exec_wait_output(exec, 0, 0, 1, on_waited, &waited, &wait, &error), 0);
	CHECK(!waited.done);
	CHECK(fake_until(host, &waited.done));
	CHECK(waited.exec == exec);
	/* Output of the other stream does not count where it is not asked for. */
	waited.done = false;
	CHECK_INT(exec_wait_output(exec, 0, UINT64_MAX, 60000, on_waited, &waited, &wait, &error),
		  0);
	fake_print(init, exec->row.key, 1, "e", 1);
	fake_turn(host, 20);
	CHECK(!waited.done);
	fake_print(init, exec->row.key, 0, "o", 1);
	CHECK(fake_until(host, &waited.done));
	/* What is so already is told in a later turn. */
	waited.done = false;
	CHECK_INT(exec_wait_output(exec, 0, 5, 60000, on_waited, &waited, &wait, &error), 0);
	CHECK(!waited.done);
	CHECK(fake_until(host, &waited.done));
	/* One that was given up is silent. */
	waited.done = false;
	CHECK_INT(exec_wait_end(exec, 60000, on_waited, &waited, &wait, &error), 0);
	exec_wait_cancel(wait);
	CHECK_INT(exec_wait_end(exec, 60000, on_waited, &waited, &wait, &error), 0);
	fake_exit(init, exec->row.key, EXEC_END_EXITED, 3, 0);
	CHECK(fake_until(host, &waited.done));
	CHECK_INT(exec_exit_code(&waited.exec->row), 3);
	/* The sandbox ends first. */
	exec = run_cat(sandbox, host);
	waited.done = false;
	struct outcome deleted = {0};
	CHECK_INT(exec_wait_end(exec, 60000, on_waited, &waited, &wait, &error), 0);
	CHECK_INT(
	    sandbox_delete(sandbox, NULL, END_REASON_USER, NULL, outcome_done, &deleted, &error),
	    0);
	CHECK(fake_until(host, &deleted.done));
	CHECK(waited.done);
	CHECK(waited.kind != ERROR_NONE || waited.ended);
	fake_host_free(host);
}

static bool take_key(void *data, const struct exec_row *row)
{
	char *text = data;
	size_t at = strlen(text);
	snprintf(text + at, 64 - at, "%s:%llu ", exec_state_text(row),
		 (unsigned long long)row->out_total);
	return true;
}

TEST(list_of_execs)
{
	struct fake_host *host = fake_host_new();
	struct error error;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct exec *exec = run_cat(sandbox, host);
	fake_print(init, exec->row.key, 0, "abc", 3);
	run_cat(sandbox, host);
	run_cat(sandbox, host);
	char text[64] = "";
	CHECK_INT(exec_list(sandbox, 10, take_key, text, &error), 0);
	CHECK_TEXT(text, "running:0 running:0 running:3 ");
	text[0] = '\0';
	CHECK_INT(exec_list(sandbox, 1, take_key, text, &error), 0);
	CHECK_TEXT(text, "running:0 ");
	fake_host_free(host);
}

/* --- one-shot runs --- */

struct shot {
	bool ran, done;
	unsigned changed;
	struct error error;
	struct oneshot *oneshot;
};

static void shot_changed(void *data, struct sandbox *sandbox, struct exec *exec)
{
	CHECK(exec->sandbox == sandbox);
	((struct shot *)data)->changed++;
}

static void shot_ran(void *data, const struct oneshot_result *result)
{
	(void)result;
	((struct shot *)data)->ran = true;
}

static void code_changed(void *data, struct code_context *context, const struct code_cell *cell)
{
	(void)context;
	(void)cell;
	((struct shot *)data)->changed++;
}

static void code_ran(void *data, struct code_context *context, const struct code_cell *cell)
{
	CHECK(context && cell);
	((struct shot *)data)->ran = true;
}

static void shot_done(void *data, const struct error *error)
{
	struct shot *shot = data;
	shot->done = true;
	shot->error = error ? *error : (struct error){0};
}

static void shoot(struct fake_host *host, struct shot *shot, bool code)
{
	static const char *const argv[] = {"cat"};
	static const struct exec_spec spec = {.argv = argv, .argc = 1};
	static const struct code_spec code_spec = {
	    .language = CODE_BASH, .code = "sleep 9", .size = 7, .timeout_ms = 600000};
	static const struct sandbox_spec sandbox = {.timeout_set = true, .timeout_seconds = 900};
	static const struct oneshot_callbacks callbacks = {shot_changed, shot_ran, shot_done};
	static const struct oneshot_code_callbacks code_callbacks = {code_changed, code_ran,
								     shot_done};
	struct error error;
	*shot = (struct shot){0};
	int result = code ? oneshot_code_start(&host->core, &fake_principal, &sandbox, &code_spec,
					       &code_callbacks, shot, &shot->oneshot, &error)
			  : oneshot_start(&host->core, &fake_principal, &sandbox, &spec, NULL, 0,
					  &callbacks, shot, &shot->oneshot, &error);
	CHECK_INT(result, 0);
	struct sandbox *box;
	struct exec *exec;
	/* Nothing runs yet. */
	CHECK_INT(oneshot_detach(shot->oneshot, &box, &exec, &error), -1);
	CHECK(fake_until_count(host, 1));
	for (int i = 0; i < 500 && shot->changed == 0; i++)
		fake_turn(host, 2);
	CHECK(shot->changed > 0);
}

static bool marked(struct fake_host *host, const struct id *id)
{
	struct sandbox_row row = {0};
	struct error error;
	CHECK_INT(store_sandbox_get(host->core.store, id, &row, &error), 1);
	bool result = row.options & OPTION_ONESHOT;
	sandbox_row_done(&row);
	return result;
}

static struct sandbox *only(struct fake_host *host)
{
	struct sandbox *sandbox = sandbox_next(&host->core, &fake_principal, NULL);
	CHECK(sandbox != NULL);
	return sandbox;
}

/* Both kinds, without and with a daemon that is killed in between. */
static void check_detach(bool code, bool restart)
{
	struct fake_host *host = fake_host_new();
	struct shot shot;
	struct sandbox *sandbox = NULL;
	struct exec *exec = NULL;
	struct error error;
	fake_start(host);
	shoot(host, &shot, code);
	CHECK(marked(host, &only(host)->row.id));
	CHECK_INT(oneshot_detach(shot.oneshot, &sandbox, &exec, &error), 0);
	CHECK(sandbox == only(host));
	CHECK(exec && !exec_ended(exec));
	CHECK(!marked(host, &sandbox->row.id));
	struct id id = exec->row.id;
	if (restart) {
		fake_stop(host);
		fake_start(host);
		sandbox = only(host);
		for (int i = 0; i < 500 && !sandbox->guest_ready; i++)
			fake_turn(host, 2);
		fake_turn(host, 50);
		CHECK_INT(exec_find(sandbox, id.text, &exec, &error), 0);
		CHECK(!exec_ended(exec));
	}
	struct fake_init *init = fake_init_of(host, &sandbox->row.id);
	struct code_context *context = code_context_next(sandbox, NULL);
	CHECK(!context == !code);
	if (context)
		CHECK(context->once && code_context_alive(context) &&
		      code_context_exec(context) == exec);
	fake_print(init, exec->row.key, 0, "abc", 3);
	fake_exit(init, exec->row.key, EXEC_END_EXITED, 5, 0);
	for (int i = 0; i < 500 && (!exec_ended(exec) || (context && code_context_alive(context)));
	     i++)
		fake_turn(host, 2);
	CHECK_INT(exec_exit_code(&exec->row), 5);
	CHECK_INT(exec_total(exec, EXEC_STDOUT), 3);
	if (context) {
		const struct code_cell *cell;
		CHECK(!code_context_alive(context));
		CHECK_INT(code_cell_find(context, 1, &cell, &error), 0);
		CHECK_INT(cell->exit_code, 5);
		CHECK_INT(cell->state, CELL_ENDED);
		CHECK_INT(cell->out_end, 3);
	}
	fake_turn(host, 20);
	CHECK_INT(sandbox->row.state, SANDBOX_RUNNING);
	CHECK(!shot.ran && !shot.done);
	fake_host_free(host);
}

TEST(a_command_that_is_detached_stays)
{
	check_detach(false, false);
	check_detach(false, true);
}

TEST(code_that_is_detached_stays)
{
	check_detach(true, false);
	check_detach(true, true);
}

TEST(one_that_is_not_detached_goes)
{
	for (int code = 0; code < 2; code++) {
		struct fake_host *host = fake_host_new();
		struct shot shot;
		struct sandbox *box;
		struct exec *exec;
		struct error error;
		fake_start(host);
		shoot(host, &shot, code);
		struct sandbox *sandbox = only(host);
		struct fake_init *init = fake_init_of(host, &sandbox->row.id);
		exec = list_entry(sandbox->execs.next, struct exec, link);
		fake_exit(init, exec->row.key, EXEC_END_EXITED, 0, 0);
		for (int i = 0; i < 500 && !shot.ran; i++)
			fake_turn(host, 1);
		if (!shot.done)
			CHECK_INT(oneshot_detach(shot.oneshot, &box, &exec, &error), -1);
		CHECK(fake_until(host, &shot.done));
		CHECK(shot.ran);
		CHECK_INT(shot.error.kind, ERROR_NONE);
		CHECK_INT(fake_existing(host), 0);
		/* Given up in the middle. */
		shoot(host, &shot, code);
		oneshot_cancel(shot.oneshot, NULL);
		CHECK(fake_until_count(host, 0));
		CHECK(!shot.ran && !shot.done);
		CHECK_INT(fake_existing(host), 0);
		fake_host_free(host);
	}
}

/* --- code whose caller does not wait --- */

TEST(code_that_waits_for_its_turn_is_not_detached)
{
	struct fake_host *host = fake_host_new();
	struct error error;
	const struct code_callbacks callbacks = {0};
	const struct code_spec spec = {.language = CODE_BASH, .code = ":", .size = 1};
	struct foreground_cell *run;
	fake_start(host);
	struct sandbox *sandbox = fake_create(host, NULL);
	CHECK_INT(foreground_cell_start(sandbox, NULL, &spec, &callbacks, &run, &error), 0);
	struct code_context *context = foreground_cell_detach(run);
	CHECK(context && context->once);
	struct code_context *found;
	CHECK_INT(code_context_find(sandbox, context->row.id.text, &found, &error), 0);
	CHECK(found == context);
	/* It is for that piece of code alone. */
	CHECK_INT(foreground_cell_start(sandbox, context, &spec, &callbacks, &run, &error), -1);
	CHECK_INT(error.kind, ERROR_CONTEXT_BUSY);
	CHECK_INT(code_context_restart(context, NULL, NULL, NULL, &error), -1);
	CHECK_INT(error.kind, ERROR_INVALID);
	fake_host_free(host);
}
