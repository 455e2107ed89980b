/* See wait.h. Called by the edges, on the loop. A wait is a watcher of the exec and a timer; the
 * timer also calls `done` in a later turn if there is nothing to wait for. */
#include "core/exec/wait.h"

#include <stdlib.h>

struct exec_wait {
	struct exec_watcher watcher;
	uv_timer_t timer;
	struct core *core;
	struct exec *exec;
	struct id sandbox;
	uint64_t out_from, err_from; /* UINT64_MAX: ignore that stream */
	void (*done)(void *data, struct exec *exec, const struct error *error);
	void *data;
};

static void exec_wait_timer_closed(uv_handle_t *handle)
{
	free(container_of((uv_timer_t *)handle, struct exec_wait, timer));
}

static void exec_wait_stop(struct exec_wait *wait)
{
	if (uv_is_closing((uv_handle_t *)&wait->timer))
		return;
	if (wait->watcher.exec)
		exec_unwatch(&wait->watcher);
	uv_close((uv_handle_t *)&wait->timer, exec_wait_timer_closed);
}

/* The wait is freed in a later turn, when its timer is closed. */
static void exec_wait_finish(struct exec_wait *wait, struct exec *exec, const struct error *error)
{
	exec_wait_stop(wait);
	wait->done(wait->data, exec, error);
}

static bool exec_wait_over(const struct exec_wait *wait, const struct exec *exec)
{
	return exec_ended(exec) || exec_total(exec, EXEC_STDOUT) > wait->out_from ||
	       exec_total(exec, EXEC_STDERR) > wait->err_from;
}

static void exec_wait_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct exec_wait *wait = container_of(watcher, struct exec_wait, watcher);
	if (exec_wait_over(wait, exec))
		exec_wait_finish(wait, exec, NULL);
}

static void exec_wait_forgotten(struct exec_watcher *watcher)
{
	struct exec_wait *wait = container_of(watcher, struct exec_wait, watcher);
	struct error error;
	core_forgotten_error(wait->core, &wait->sandbox, &error);
	exec_wait_finish(wait, NULL, &error);
}

static void exec_wait_due(uv_timer_t *timer)
{
	struct exec_wait *wait = container_of(timer, struct exec_wait, timer);
	exec_wait_finish(wait, wait->exec, NULL);
}

int exec_wait_output(struct exec *exec, uint64_t out_from, uint64_t err_from, uint32_t timeout_ms,
		     void (*done)(void *data, struct exec *exec, const struct error *error),
		     void *data, struct exec_wait **ret_wait, struct error *error)
{
	struct core *core = exec->sandbox->core;
	struct exec_wait *wait = malloc(sizeof(*wait));
	(void)error;
	if (!wait)
		abort();
	*wait = (struct exec_wait){
	    .watcher = {.changed = exec_wait_changed, .forgotten = exec_wait_forgotten},
	    .core = core,
	    .exec = exec,
	    .sandbox = exec->sandbox->row.id,
	    .out_from = out_from,
	    .err_from = err_from,
	    .done = done,
	    .data = data,
	};
	exec_watch(exec, &wait->watcher);
	uv_timer_init(core->loop, &wait->timer);
	uv_timer_start(&wait->timer, exec_wait_due, exec_wait_over(wait, exec) ? 0 : timeout_ms, 0);
	*ret_wait = wait;
	return 0;
}

int exec_wait_end(struct exec *exec, uint32_t timeout_ms,
		  void (*done)(void *data, struct exec *exec, const struct error *error),
		  void *data, struct exec_wait **ret_wait, struct error *error)
{
	return exec_wait_output(exec, UINT64_MAX, UINT64_MAX, timeout_ms, done, data, ret_wait,
				error);
}

void exec_wait_cancel(struct exec_wait *wait)
{
	exec_wait_stop(wait);
}
