/* Code contexts of an earlier daemon: finds their interpreters by their rows, and continues the
 * cell that ran. Called when core has found its sandboxes and execs; blocks for the store. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/code/code_private.h"

static bool context_load(void *data, const struct context_row *row)
{
	struct context_row copy = *row;
	copy.reason = row->reason ? text_duplicate(row->reason) : NULL;
	copy.cwd = row->cwd ? text_duplicate(row->cwd) : NULL;
	copy.user = row->user ? text_duplicate(row->user) : NULL;
	copy.environment = NULL;
	if (row->environment_size > 0) {
		copy.environment = malloc(row->environment_size);
		if (!copy.environment)
			abort();
		memcpy(copy.environment, row->environment, row->environment_size);
	}
	struct code_context *context = code_context_new(data, &copy, row->once);
	context->life->recorded = true;
	context->life->plain = code_plain(context);
	return true;
}

/* The cell that was sent last: it may run, may have ended, or may never have arrived. */
static void context_resume_cell(struct code_context *context)
{
	const struct context_row *row = &context->row;
	struct foreground_cell *waited = calloc(1, sizeof(*waited));
	if (!waited)
		abort();
	list_init(&waited->link);
	waited->context = context;
	waited->number = row->cells;
	waited->earlier = true;
	waited->timeout_ms = row->timeout_ms;
	waited->began = clock_monotonic() - MAX(clock_wall() - row->cell_wall, 0);
	/* The time-out of a cell in its own context is that of its exec. */
	if (row->timeout_ms > 0 && !context->once) {
		int64_t left = row->cell_wall + row->timeout_ms * (int64_t)NSEC_PER_MSEC;
		waited->deadline = clock_boot() + MAX(left - clock_wall(), 0);
	}
	*code_cell_of(context, waited->number) = (struct code_cell){
	    .number = waited->number,
	    .out_begin = row->out_begin,
	    .err_begin = row->err_begin,
	    .sent_wall = row->cell_wall,
	};
	context->running_cell = waited;
	/* A cell that was sent before the driver was ready begins after the driver's first
	 * record. */
	context->life->control_at = MAX(context->life->control_at, row->control_begin);
}

/* A shell that has received its code runs it to its end. */
static void context_resume_plain(struct code_context *context, struct exec *exec)
{
	exec_watch(exec, &context->life->main);
	if (exec_logs_open(exec) == 0)
		exec_logs_refresh(exec);
	context_resume_cell(context);
	context->running_cell->begun = true;
	code_cell_of(context, context->running_cell->number)->state = CELL_RUNNING;
}

static void context_resume_driver(struct code_context *context, struct exec *exec,
				  struct exec *control)
{
	struct code_life *life = context->life;
	exec_watch(exec, &life->main);
	exec_watch(control, &life->control);
	/* The logs say how much was printed: the init has not reported it yet. */
	if (exec_logs_open(exec) == 0)
		exec_logs_refresh(exec);
	/* If the driver has not reported that it is ready, it gets its channel again: it takes the
	 * first one. */
	code_ready_again(context, control);
	life->opened = life->ready;
	life->cut = true;
	exec->idle = control->idle = true;
	life->resumed = context->row.cell_wall != 0;
	if (life->resumed)
		context_resume_cell(context);
	exec_watcher_consumed(&life->control, EXEC_STDOUT, life->control_at);
}

static void context_resume(struct code_context *context)
{
	struct exec *exec = NULL, *control = NULL;
	struct error error;
	char reason[256];
	bool plain = context->life->plain;
	if (exec_find(context->sandbox, context->row.exec.text, &exec, &error) < 0 ||
	    (!plain &&
	     exec_find(context->sandbox, context->row.control.text, &control, &error) < 0)) {
		code_context_ended(context, "its interpreter is not on record any more");
		return;
	}
	if (exec_ended(exec)) {
		code_end_reason(exec, reason, sizeof(reason));
		if (control && !exec_ended(control))
			exec_watch(control, &context->life->control);
		code_context_ended(context, reason);
		return;
	}
	if (plain)
		context_resume_plain(context, exec);
	else
		context_resume_driver(context, exec, control);
}

/* Starts at the first context each time: ending one may remove others. */
static struct code_context *context_not_resumed(struct sandbox *sandbox)
{
	struct code_context *context = NULL;
	while ((context = code_context_next(sandbox, context)))
		if (code_context_alive(context) && !context->life->main.exec)
			return context;
	return NULL;
}

static bool exec_is_stray(const struct sandbox *sandbox, const struct exec *exec)
{
	if (!id_is_set(&exec->row.context) || exec_ended(exec))
		return false;
	const struct code_context *context = code_context_by_id(sandbox->core, &exec->row.context);
	return !context || !code_context_alive(context) ||
	       (!id_equal(&context->row.exec, &exec->row.id) &&
		!id_equal(&context->row.control, &exec->row.id));
}

/* Ends contexts whose cells a client of the earlier daemon waited for, and half-made or half-ended
 * ones: nobody can get their results any more. */
static void sandbox_end_strays(struct sandbox *sandbox)
{
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (exec_is_stray(sandbox, exec))
			exec_cancel(exec, NULL);
	}
}

void code_load(struct sandbox *sandbox)
{
	struct error error;
	if (store_context_each(sandbox->core->store, &sandbox->row.id, context_load, sandbox,
			       &error) < 0) {
		log_error("sandbox %s: its code contexts: %s", sandbox->row.id.text, error.message);
		return;
	}
	struct code_context *context;
	while ((context = context_not_resumed(sandbox)))
		context_resume(context);
	sandbox_end_strays(sandbox);
}
