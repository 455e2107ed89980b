/* Writes the ends of execs: the row and the entry in the activity, in one transaction, then FORGET
 * to the init. That happens a moment after the clients were told, so that no answer waits for the
 * store or for the digest of the output. Until then the init keeps the result: if the daemon dies
 * in between, the next one asks for it again. Called by frames.c and by readers of the store;
 * blocks for the store only. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/core_private.h"

/* Long enough for the answer, and for a request that follows at once. */
#define END_DELAY_MS 1

static void exec_end_written(struct exec *exec)
{
	exec->written = EXEC_WRITTEN;
	exec_send_forget(exec->sandbox, exec->row.key);
	exec_logs_account(exec);
}

static int exec_write_row(void *data, struct error *error)
{
	struct exec *exec = data;
	return store_exec_update(exec->sandbox->core->store, &exec->row, error);
}

static void exec_save_later(struct exec *exec, const struct error *error)
{
	struct sandbox *sandbox = exec->sandbox;
	struct sandbox_life *life = sandbox->life;
	log_error("exec %s cannot be stored: %s", exec->row.id.text, error->message);
	exec->written = EXEC_UNSAVED;
	life->execs_unsaved = true;
	if (life->save_at == 0)
		life->save_at = clock_boot() + SAVE_RETRY_MS * NSEC_PER_MSEC;
	timers_wake_at(sandbox->core, life->save_at);
}

void exec_save_end(struct exec *exec)
{
	struct error error;
	activity_exec_ended(exec);
	if (activity_save(exec->sandbox->core, exec_write_row, exec, &error) >= 0)
		exec_end_written(exec);
	else
		exec_save_later(exec, &error);
}

void exec_save_left_running(struct exec *exec)
{
	struct error error;
	/* Else its end is still to be written, and this with it. */
	if (exec->written != EXEC_WRITTEN)
		return;
	if (exec_write_row(exec, &error) < 0)
		exec_save_later(exec, &error);
	exec_logs_account(exec);
}

bool exec_save_again(struct sandbox *sandbox)
{
	struct error error;
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (exec->written != EXEC_UNSAVED)
			continue;
		if (exec_write_row(exec, &error) < 0) {
			log_error("exec %s cannot be stored: %s", exec->row.id.text, error.message);
			return false;
		}
		exec_end_written(exec);
	}
	return true;
}

static void exec_write_end(struct exec *exec)
{
	struct core_private *private = exec->sandbox->core->private;
	bool outer = private->writing_ends;
	list_remove(&exec->ending);
	/* In the order in which they were told: its entry must not bring those of others. */
	private->writing_ends = true;
	if (!exec_digest_begin(exec))
		exec_save_end(exec);
	private->writing_ends = outer;
	if (list_empty(&exec->watchers))
		exec_logs_close(exec);
}

void exec_write_end_now(struct exec *exec)
{
	if (exec->written == EXEC_TOLD)
		exec_write_end(exec);
	exec_digest_give_up(exec);
}

/* These two trim nothing: the caller may hold an exec that could be freed. */
void execs_write_ends(struct core *core)
{
	struct list *ending = &core->private->ending;
	while (!list_empty(ending))
		exec_write_end(list_entry(ending->next, struct exec, ending));
}

void sandbox_write_ends(struct sandbox *sandbox)
{
	struct core *core = sandbox->core;
	/* What is undone with a transaction must not count as written. */
	if (core->private->writing_ends || store_in_transaction(core->store))
		return;
	list_each (&core->private->ending, node) {
		struct exec *exec = list_entry(node, struct exec, ending);
		if (exec->sandbox == sandbox)
			exec_write_end(exec);
	}
}

static void execs_ending_due(uv_timer_t *timer)
{
	struct core *core = timer->data;
	struct list *ending = &core->private->ending;
	while (!list_empty(ending)) {
		struct exec *exec = list_entry(ending->next, struct exec, ending);
		struct sandbox *sandbox = exec->sandbox;
		exec_write_end(exec);
		exec_trim(sandbox);
	}
	spares_fill(core);
}

void exec_write_end_soon(struct exec *exec)
{
	struct core_private *private = exec->sandbox->core->private;
	exec->written = EXEC_TOLD;
	list_append(&private->ending, &exec->ending);
	if (!private->stopping && !uv_is_active((uv_handle_t *)&private->ends_timer))
		uv_timer_start(&private->ends_timer, execs_ending_due, END_DELAY_MS, 0);
}
