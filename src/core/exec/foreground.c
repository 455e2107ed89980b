/* See foreground.h. Called by every edge, by code contexts and one-shot execs; waits through
 * callbacks. */
#include "core/exec/foreground.h"

#include <stdlib.h>

#include "core/core_private.h"

struct foreground {
	struct exec_watcher watcher;
	struct exec *exec;            /* NULL: it was forgotten */
	struct kept_principal caller; /* the caller, also for a cancel */
	const struct foreground_callbacks *callbacks;
	void *data;
	bool fed;       /* its whole standard input was given at the start */
	bool finishing; /* its end was seen; the left-over processes are being queried */
	bool over;      /* `done` is being called */
	bool abandoned;
};

static void foreground_end(struct foreground *foreground, const struct left_process *processes,
			   size_t count, const struct error *error)
{
	foreground->over = true;
	if (!foreground->abandoned)
		foreground->callbacks->done(foreground->data, foreground->exec, processes, count,
					    error);
	if (foreground->exec)
		exec_unwatch(&foreground->watcher);
	free(foreground);
}

static void foreground_finished(void *data, const struct left_process *processes, size_t count)
{
	foreground_end(data, processes, count, NULL);
}

static void foreground_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct foreground *foreground = container_of(watcher, struct foreground, watcher);
	struct error error;
	if (foreground->finishing || foreground->over)
		return;
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		foreground_end(foreground, NULL, 0, &error);
	} else if (exec_ended(exec) && exec->row.left_running == 0) {
		foreground_end(foreground, NULL, 0, NULL);
	} else if (exec_ended(exec)) {
		foreground->finishing = true;
		exec_finish(exec, foreground_finished, foreground);
	} else if (foreground->fed && stdin_lost(exec, &error)) {
		/* The feed cancels the exec; this answers its client. */
		foreground_end(foreground, NULL, 0, &error);
	} else if (foreground->callbacks->changed) {
		/* The callback may abandon it. */
		foreground->callbacks->changed(foreground, exec);
	}
}

/* The query for left-over processes was answered before: exec_forget_all() ensures that. */
static void foreground_forgotten(struct exec_watcher *watcher)
{
	struct foreground *foreground = container_of(watcher, struct foreground, watcher);
	struct error error;
	core_forgotten_error(foreground->exec->sandbox->core, &foreground->exec->sandbox->row.id,
			     &error);
	foreground->exec = NULL;
	/* `done` has ended the sandbox itself: it must not be called again. */
	if (foreground->over)
		return;
	foreground_end(foreground, NULL, 0, &error);
}

int foreground_start(struct sandbox *sandbox, const struct exec_spec *spec, char *stdin_data,
		     size_t stdin_size, const struct foreground_callbacks *callbacks, void *data,
		     struct foreground **ret_foreground, struct error *error)
{
	struct exec *exec;
	if (exec_start(sandbox, spec, &exec, error) < 0) {
		free(stdin_data);
		return -1;
	}
	struct foreground *foreground = calloc(1, sizeof(*foreground));
	if (!foreground)
		abort();
	foreground->exec = exec;
	foreground->caller = principal_keep(spec->principal);
	foreground->callbacks = callbacks;
	foreground->data = data;
	foreground->fed = stdin_data;
	foreground->watcher.changed = foreground_changed;
	foreground->watcher.forgotten = foreground_forgotten;
	exec_watch(exec, &foreground->watcher);
	if (stdin_data)
		stdin_feed(exec, stdin_data, stdin_size);
	*ret_foreground = foreground;
	return 0;
}

void *foreground_data(const struct foreground *foreground)
{
	return foreground->data;
}

struct exec *foreground_exec(const struct foreground *foreground)
{
	return foreground->exec;
}

void foreground_cancel(struct foreground *foreground)
{
	struct kept_principal caller = foreground->caller; /* the exec may end during the cancel */
	exec_cancel(foreground->exec, kept_principal_get(&caller));
}

void foreground_abandon(struct foreground *foreground, bool kill)
{
	if (kill)
		foreground_cancel(foreground);
	foreground->abandoned = true;
	/* The query for left-over processes may be under way: its answer ends the foreground
	 * exec. */
	if (!foreground->finishing && !foreground->over)
		foreground_end(foreground, NULL, 0, NULL);
}
