/* Cells: their queue, begin and end, and how they continue without a client. Called by code.c and
 * by the watchers of start.c; blocks for the store (one write for each cell). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/activity/activity.h"
#include "core/account/budget.h"
#include "core/code/code_private.h"
#include "core/exec/exec.h"
#include "store/activity.h"

#define CODE_RAN_LOOKED 1000 /* entries of a sandbox's other contexts since */

struct code_cell *code_cell_of(struct code_context *context, uint64_t number)
{
	return &context->cells[number % CODE_CELLS_KEPT];
}

void code_cell_clear(struct code_cell *cell)
{
	free(cell->parts);
	*cell = (struct code_cell){0};
}

int code_cell_find(struct code_context *context, uint64_t number, const struct code_cell **ret_cell,
		   struct error *error)
{
	struct code_cell *cell = code_cell_of(context, number);
	if (number == 0 || cell->number != number)
		return error_set(error, ERROR_CONTEXT_NOT_FOUND,
				 "context `%s` has no cell %llu, or it is no longer kept",
				 context->row.id.text, (unsigned long long)number);
	*ret_cell = cell;
	return 0;
}

char *code_part_read(const struct code_context *context, const struct code_part *part)
{
	struct exec *control;
	struct error error;
	if (exec_find(context->sandbox, context->row.control.text, &control, &error) < 0)
		return NULL;
	char *data = malloc((size_t)part->size + 1);
	if (!data)
		abort();
	size_t done = 0;
	while (done < part->size) {
		uint64_t gap = 0;
		ssize_t got = exec_read(control, EXEC_STDOUT, part->offset + done, data + done,
					part->size - done, &gap);
		if (got <= 0 || gap > 0) {
			free(data);
			return NULL;
		}
		done += (size_t)got;
	}
	data[part->size] = '\0';
	return data;
}

static void foreground_cell_free(struct foreground_cell *waited)
{
	list_remove(&waited->link);
	free(waited->code);
	free(waited);
}

/* --- who follows it --- */

void foreground_cell_changed(struct code_context *context)
{
	struct foreground_cell *waited = context->running_cell;
	if (waited && waited->callbacks.changed)
		waited->callbacks.changed(waited->callbacks.data, context,
					  code_cell_of(context, waited->number));
}

static void foreground_cell_tell_done(struct code_context *context, struct foreground_cell *waited,
				      const struct code_cell *cell, const struct error *error)
{
	if (waited->callbacks.done)
		waited->callbacks.done(waited->callbacks.data, context, cell, error);
}

/* --- the end of a cell --- */

static void cell_record_activity(struct code_context *context, const struct foreground_cell *waited,
				 const struct code_cell *cell)
{
	char number[24], code[16];
	snprintf(number, sizeof(number), "%llu", (unsigned long long)cell->number);
	snprintf(code, sizeof(code), "%d", cell->exit_code);
	ACTIVITY(context->sandbox, ACTIVITY_CODE_RAN, kept_principal_get(&waited->caller),
		 &context->row.exec, {"language", code_language_name(context->row.language)},
		 {"context", context->once ? NULL : context->row.id.text}, {"cell", number},
		 {"exit_code", code}, {"timed_out", cell->timed_out ? "true" : NULL},
		 {"interrupted", cell->interrupted ? "true" : NULL});
}

static bool cell_take_ran(void *data, const struct activity_row *row)
{
	const struct id **exec = data;
	if (!id_equal(*exec, &row->exec))
		return true;
	*exec = NULL;
	return false;
}

/* For a cell that an earlier daemon sent: did that daemon see its end? */
static bool cell_on_record(const struct code_context *context, const struct code_cell *cell)
{
	const struct id *exec = &context->row.exec;
	char kinds[16];
	struct error error;
	snprintf(kinds, sizeof(kinds), ",%d,", ACTIVITY_CODE_RAN);
	const struct activity_query query = {
	    .sandbox = &context->row.sandbox,
	    .descending = true,
	    .kinds = kinds,
	    .since_wall = cell->sent_wall,
	    .limit = CODE_RAN_LOOKED,
	};
	if (store_activity_each(context->sandbox->core->store, &query, cell_take_ran, &exec,
				&error) < 0)
		log_warning("code context %s: %s", context->row.id.text, error.message);
	return !exec;
}

void foreground_cell_finish(struct code_context *context, const struct error *error)
{
	struct foreground_cell *waited = context->running_cell;
	struct code_cell *cell = waited->number ? code_cell_of(context, waited->number) : NULL;
	struct exec *exec = context->life->main.exec;
	context->running_cell = NULL;
	context->life->interrupts = 0;
	context->life->interrupt_at = 0;
	if (cell && exec) {
		exec_logs_refresh(exec);
		exec->idle = true;
		cell->out_end = exec_total(exec, EXEC_STDOUT);
		cell->err_end = exec_total(exec, EXEC_STDERR);
	}
	if (cell) {
		cell->duration_ns = (uint64_t)MAX(clock_monotonic() - waited->began, 0);
		if (cell->state != CELL_LOST)
			cell->state = CELL_ENDED;
		if (!error && cell->state != CELL_LOST &&
		    !(waited->earlier && cell_on_record(context, cell)))
			cell_record_activity(context, waited, cell);
	}
	foreground_cell_tell_done(context, waited, error ? NULL : cell, error);
	foreground_cell_free(waited);
}

void code_refuse_queue(struct code_context *context, const struct error *error)
{
	struct list queue;
	list_init(&queue);
	while (!list_empty(&context->queue)) {
		struct list *node = context->queue.next;
		list_remove(node);
		list_append(&queue, node);
	}
	context->queued = 0;
	while (!list_empty(&queue)) {
		struct foreground_cell *waited =
		    list_entry(queue.next, struct foreground_cell, link);
		list_remove(&waited->link);
		foreground_cell_tell_done(context, waited, NULL, error);
		foreground_cell_free(waited);
	}
}

/* --- the beginning of a cell --- */

static int cell_send(struct code_context *context, struct foreground_cell *waited,
		     struct error *error)
{
	struct code_life *life = context->life;
	struct context_row *row = &context->row;
	struct exec *exec = life->main.exec;
	const struct context_row before = *row;
	exec_logs_refresh(exec);
	row->cells++;
	row->cell_wall = clock_wall();
	row->timeout_ms = waited->timeout_ms;
	row->cell = waited->cell;
	row->control_begin = life->control_at;
	row->out_begin = exec_total(exec, EXEC_STDOUT);
	row->err_begin = exec_total(exec, EXEC_STDERR);
	if (context->once)
		row->out_begin = row->err_begin = 0;
	if (life->recorded && store_context_update(context->sandbox->core->store, row, error) < 0) {
		*row = before;
		return -1;
	}
	waited->number = row->cells;
	struct code_cell *cell = code_cell_of(context, waited->number);
	code_cell_clear(cell);
	*cell = (struct code_cell){
	    .number = waited->number,
	    .out_begin = row->out_begin,
	    .err_begin = row->err_begin,
	    .sent_wall = row->cell_wall,
	};
	waited->began = clock_monotonic();
	exec->idle = false;
	if (!context->once && waited->timeout_ms > 0) {
		waited->deadline = clock_boot() + waited->timeout_ms * (int64_t)NSEC_PER_MSEC;
		timers_wake_at(context->sandbox->core, waited->deadline);
	}
	if (life->plain) {
		cell->state = CELL_RUNNING;
		waited->begun = true;
		stdin_feed(exec, TAKE_PTR(waited->code), waited->size);
		return 0;
	}
	/* The earlier data was read: a cell has begun, or the context is new. */
	if (life->sent == life->outgoing.size) {
		buffer_clear(&life->outgoing);
		life->sent = 0;
	}
	if (code_request_write(&life->outgoing, code_cell_verb(row->language), waited->number,
			       waited->code, waited->size) < 0)
		return error_set(error, ERROR_TOO_LARGE, "the code is longer than %d bytes",
				 CODE_SOURCE_MAX);
	free(TAKE_PTR(waited->code));
	code_feed(context);
	return 0;
}

void code_next(struct code_context *context)
{
	struct core *core = context->sandbox->core;
	struct id id = context->row.id;
	struct error error;
	while (!context->running_cell && !list_empty(&context->queue) &&
	       code_context_alive(context)) {
		struct foreground_cell *waited =
		    list_entry(context->queue.next, struct foreground_cell, link);
		list_remove(&waited->link);
		context->queued--;
		context->running_cell = waited;
		if (cell_send(context, waited, &error) == 0)
			return;
		waited->number = 0;
		foreground_cell_finish(context, &error);
		if (code_context_by_id(core, &id) != context)
			return;
	}
}

static struct foreground_cell *foreground_cell_new(struct code_context *context,
						   const struct code_spec *spec,
						   const struct code_callbacks *callbacks)
{
	struct foreground_cell *waited = calloc(1, sizeof(*waited));
	if (!waited)
		abort();
	list_init(&waited->link);
	waited->context = context;
	waited->callbacks = *callbacks;
	waited->code = malloc(spec->size + 1);
	if (!waited->code)
		abort();
	memcpy(waited->code, spec->code, spec->size);
	waited->size = spec->size;
	waited->timeout_ms = spec->timeout_ms;
	waited->cell = spec->cell;
	waited->caller = principal_keep(spec->principal);
	return waited;
}

static int cell_start_once(struct sandbox *sandbox, const struct code_spec *spec,
			   const struct code_callbacks *callbacks,
			   struct foreground_cell **ret_cell, struct error *error)
{
	struct context_row row = {
	    .id = id_new(),
	    .sandbox = sandbox->row.id,
	    .language = spec->language,
	    .once = true,
	    .created_wall = clock_wall(),
	    .cwd = spec->cwd ? text_duplicate(spec->cwd) : NULL,
	    .user = spec->user ? text_duplicate(spec->user) : NULL,
	};
	struct code_context *context = code_context_new(sandbox, &row, true);
	context->life->caller = principal_keep(spec->principal);
	if (code_interpreter_start(context, spec, error) < 0) {
		code_context_free(context);
		return -1;
	}
	struct foreground_cell *waited = foreground_cell_new(context, spec, callbacks);
	context->running_cell = waited;
	*ret_cell = waited;
	if (cell_send(context, waited, error) == 0) {
		if (id_is_set(&waited->cell))
			foreground_cell_keep(context);
		return 0;
	}
	context->running_cell = NULL;
	foreground_cell_free(waited);
	code_interpreter_stop(context);
	code_context_free(context);
	return -1;
}

int foreground_cell_start(struct sandbox *sandbox, struct code_context *context,
			  const struct code_spec *spec, const struct code_callbacks *callbacks,
			  struct foreground_cell **ret_cell, struct error *error)
{
	if (spec->size > CODE_SOURCE_MAX)
		return error_set(error, ERROR_TOO_LARGE, "the code is longer than %d bytes",
				 CODE_SOURCE_MAX);
	if (context && !code_context_alive(context))
		return error_set(error, ERROR_CONTEXT_ENDED, "context `%s` has ended: %s",
				 context->row.id.text,
				 context->row.reason ? context->row.reason : "nobody knows why");
	if (context && context->once)
		return error_set(error, ERROR_CONTEXT_BUSY,
				 "context `%s` is for the one piece of code that runs in it",
				 context->row.id.text);
	if (context && context->queued >= CODE_QUEUE_MAX)
		return error_set(error, ERROR_CONTEXT_BUSY,
				 "%d cells wait for context `%s` already, the most that may",
				 CODE_QUEUE_MAX, context->row.id.text);
	if (budget_take_exec(sandbox, spec->principal, error) < 0)
		return -1;
	sandbox_touch(sandbox);
	if (!context)
		return cell_start_once(sandbox, spec, callbacks, ret_cell, error);
	struct foreground_cell *waited = foreground_cell_new(context, spec, callbacks);
	list_append(&context->queue, &waited->link);
	context->queued++;
	*ret_cell = waited;
	if (context->running_cell)
		return 0;
	list_remove(&waited->link);
	context->queued--;
	context->running_cell = waited;
	if (cell_send(context, waited, error) == 0)
		return 0;
	context->running_cell = NULL;
	foreground_cell_free(waited);
	return -1;
}

void foreground_cell_abandon(struct foreground_cell *waited)
{
	struct code_context *context = waited->context;
	waited->callbacks = (struct code_callbacks){0};
	if (context->running_cell == waited) {
		if (context->once && context->life->main.exec)
			exec_cancel(context->life->main.exec, NULL);
		else
			code_interrupt(context);
		return;
	}
	context->queued--;
	foreground_cell_free(waited);
}

/* --- it goes on without anybody --- */

bool foreground_cell_sent(const struct foreground_cell *waited)
{
	return waited->context->running_cell == waited && waited->number != 0;
}

int foreground_cell_record(struct foreground_cell *waited, struct error *error)
{
	struct code_context *context = waited->context;
	if (context->life->recorded)
		return 0;
	return store_context_insert(context->sandbox->core->store, &context->row, error);
}

void foreground_cell_keep(struct code_context *context)
{
	struct code_life *life = context->life;
	struct foreground_cell *waited = context->running_cell;
	struct error error;
	if (life->recorded || !waited || !foreground_cell_sent(waited))
		return;
	/* A shell reads all of its code before it runs any. If the daemon ended before all was
	 * sent, the next one could not continue, and the shell would wait forever. */
	if (life->plain && !(life->main.exec && life->main.exec->stdin_closed))
		return;
	waited->keep_tried = true;
	if (foreground_cell_record(waited, &error) == 0)
		life->recorded = true;
	else
		log_error("code context %s cannot be stored: %s", context->row.id.text,
			  error.message);
}

struct code_context *foreground_cell_recorded(struct foreground_cell *waited)
{
	waited->context->life->recorded = true;
	waited->callbacks = (struct code_callbacks){0};
	return waited->context;
}

struct code_context *foreground_cell_detach(struct foreground_cell *waited)
{
	struct code_context *context = waited->context;
	struct error error;
	if (!foreground_cell_sent(waited))
		return NULL;
	if (foreground_cell_record(waited, &error) < 0) {
		log_error("code context %s cannot be stored: %s", context->row.id.text,
			  error.message);
		return NULL;
	}
	return foreground_cell_recorded(waited);
}
