/* Removes execs before their sandbox is removed: the record and the logs. Called by the edges;
 * blocks for the store only (a thread removes the files: log_removal.c). */
#include <signal.h>
#include <stdlib.h>

#include "base/log.h"
#include "core/core_private.h"
#include "core/exec/exec.h"

int exec_remove(struct exec *exec, const struct principal *principal, struct error *error)
{
	struct sandbox *sandbox = exec->sandbox;
	struct sandbox_life *life = sandbox->life;
	if (!exec_ended(exec))
		return error_set(error, ERROR_SANDBOX_STATE, "exec `%s` has not ended",
				 exec->row.id.text);
	if (exec->telling)
		return error_set(error, ERROR_SANDBOX_STATE, "the end of exec `%s` is being told",
				 exec->row.id.text);
	if (exec->row.left_running > 0)
		return error_set(error, ERROR_SANDBOX_STATE,
				 "exec `%s` has ended, and %u processes that it started have not",
				 exec->row.id.text, exec->row.left_running);
	/* Writes its end without the digest if the digest is still missing. */
	exec_write_end_now(exec);
	if (exec->written == EXEC_UNSAVED)
		return error_set(error, ERROR_SANDBOX_STATE,
				 "the end of exec `%s` could not be written yet",
				 exec->row.id.text);
	if (store_exec_delete(sandbox->core->store, &sandbox->row.id, &exec->row.id, error) < 0)
		return -1;
	if (!id_is_set(&exec->row.context)) {
		DONE_BUFFER struct buffer command = BUFFER(ACTIVITY_VALUE_MAX + 64);
		activity_redact_joined(sandbox->core->config.activity_redact, exec->row.command,
				       &command);
		ACTIVITY(sandbox, ACTIVITY_EXEC_DELETED, principal, &exec->row.id,
			 {"command", buffer_text(&command)});
	}
	life->log_bytes -= MIN(exec->log_counted, life->log_bytes);
	life->exec_rows -= life->exec_rows > 0;
	logs_remove(sandbox->core, &sandbox->row.id, &exec->row.id);
	sandbox->core->private->exec_leaves = true;
	exec_forget(exec);
	sandbox->core->private->exec_leaves = false;
	return 0;
}

/* Waits for the end of an exec that is being killed. */
struct purge {
	struct exec_watcher watcher;
	struct core *core;
	struct kept_principal caller;
	struct id sandbox, exec;
};

/* In a separate turn, since the exec is just notifying its watchers. */
static void purge_now(void *data)
{
	struct purge *purge = data;
	struct sandbox *sandbox = sandbox_by_id(purge->core, &purge->sandbox);
	struct exec *exec;
	struct error error;
	if (sandbox && exec_find(sandbox, purge->exec.text, &exec, &error) == 0 &&
	    exec_remove(exec, kept_principal_get(&purge->caller), &error) < 0)
		log_info("exec %s is kept: %s", purge->exec.text, error.message);
	free(purge);
}

static void purge_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct purge *purge = container_of(watcher, struct purge, watcher);
	if (!exec_ended(exec) || exec->written == EXEC_UNSAVED || exec->row.left_running > 0)
		return;
	exec_unwatch(watcher);
	core_later(purge->core, purge_now, purge);
}

static void purge_forgotten(struct exec_watcher *watcher)
{
	free(container_of(watcher, struct purge, watcher));
}

void exec_purge(struct exec *exec, const struct principal *principal)
{
	struct purge *purge = calloc(1, sizeof(*purge));
	if (!purge)
		abort();
	purge->core = exec->sandbox->core;
	purge->caller = principal_keep(principal);
	purge->sandbox = exec->sandbox->row.id;
	purge->exec = exec->row.id;
	purge->watcher.changed = purge_changed;
	purge->watcher.forgotten = purge_forgotten;
	exec_watch(exec, &purge->watcher);
	struct error error;
	if (!exec_ended(exec))
		exec_cancel(exec, principal);
	else if (exec->row.left_running > 0 &&
		 exec_signal(exec, principal, SIGKILL, SIGNAL_TREE, &error) < 0)
		log_info("exec %s: what it left running cannot be ended: %s", exec->row.id.text,
			 error.message);
	purge_changed(&purge->watcher, exec);
}
