/* Cells: their queue, what the driver says of them, their end, and that they go on without anybody.
 * Called by code.c and by the watchers of start.c; blocks for the store (one write for each
 * cell) and for reading a log from the page cache. What the driver says is a stranger's: a record
 * that does not fit ends the context. */
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

#define RECORDS_PER_TURN 128
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

static void run_free(struct code_run *run)
{
	list_remove(&run->link);
	free(run->code);
	free(run);
}

/* --- who follows it --- */

void code_run_changed(struct code_context *context)
{
	struct code_run *run = context->running;
	if (run && run->callbacks.changed)
		run->callbacks.changed(run->callbacks.data, context,
				       code_cell_of(context, run->number));
}

static void tell_done(struct code_context *context, struct code_run *run,
		      const struct code_cell *cell, const struct error *error)
{
	if (run->callbacks.done)
		run->callbacks.done(run->callbacks.data, context, cell, error);
}

/* --- the end of a cell --- */

static void record_activity(struct code_context *context, const struct code_run *run,
			    const struct code_cell *cell)
{
	char number[24], code[16];
	snprintf(number, sizeof(number), "%llu", (unsigned long long)cell->number);
	snprintf(code, sizeof(code), "%d", cell->exit_code);
	ACTIVITY(context->sandbox, ACTIVITY_CODE_RAN, asker_principal(&run->asker),
		 &context->row.exec, {"language", code_language_name(context->row.language)},
		 {"context", context->once ? NULL : context->row.id.text}, {"cell", number},
		 {"exit_code", code}, {"timed_out", cell->timed_out ? "true" : NULL},
		 {"interrupted", cell->interrupted ? "true" : NULL});
}

static bool take_ran(void *data, const struct activity_row *row)
{
	const struct id **exec = data;
	if (!id_equal(*exec, &row->exec))
		return true;
	*exec = NULL;
	return false;
}

/* Of a cell that an earlier daemon sent: did that one see its end? */
static bool on_record(const struct code_context *context, const struct code_cell *cell)
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
	if (store_activity_each(context->sandbox->core->store, &query, take_ran, &exec, &error) < 0)
		log_warning("code context %s: %s", context->row.id.text, error.message);
	return !exec;
}

void code_run_finish(struct code_context *context, const struct error *error)
{
	struct code_run *run = context->running;
	struct code_cell *cell = run->number ? code_cell_of(context, run->number) : NULL;
	struct exec *exec = context->life->main.exec;
	context->running = NULL;
	context->life->interrupts = 0;
	context->life->interrupt_at = 0;
	if (cell && exec) {
		exec_logs_refresh(exec);
		exec->idle = true;
		cell->out_end = exec_total(exec, EXEC_STDOUT);
		cell->err_end = exec_total(exec, EXEC_STDERR);
	}
	if (cell) {
		cell->duration_ns = (uint64_t)MAX(clock_monotonic() - run->began, 0);
		if (cell->state != CELL_LOST)
			cell->state = CELL_ENDED;
		if (!error && cell->state != CELL_LOST &&
		    !(run->earlier && on_record(context, cell)))
			record_activity(context, run, cell);
	}
	tell_done(context, run, error ? NULL : cell, error);
	run_free(run);
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
		struct code_run *run = list_entry(queue.next, struct code_run, link);
		list_remove(&run->link);
		tell_done(context, run, NULL, error);
		run_free(run);
	}
}

/* --- round trips --- */

struct settle {
	struct guest_echo echo;
	struct core *core;
	struct id id;
	unsigned rounds;
	void (*then)(struct code_context *context);
};

static void settle_go(void *data)
{
	struct settle *settle = data;
	struct code_context *context = code_context_by_id(settle->core, &settle->id);
	struct guest_link *guest = context ? context->sandbox->guest : NULL;
	if (guest && settle->rounds > 0) {
		settle->rounds--;
		guest_link_echo(guest, &settle->echo);
		return;
	}
	void (*then)(struct code_context *) = settle->then;
	free(settle);
	if (context)
		then(context);
}

static void settle_answered(struct guest_echo *echo, bool lost)
{
	struct settle *settle = container_of(echo, struct settle, echo);
	if (lost)
		settle->rounds = 0;
	/* Not from within the answer: what comes then may do anything. */
	core_later(settle->core, settle_go, settle);
}

/* The init reads up to a pipe's size of each stream in each turn of its loop, and answers in one:
 * after two answers it has read what was in the pipes before the first question. */
void code_settle(struct code_context *context, void (*then)(struct code_context *context))
{
	struct settle *settle = calloc(1, sizeof(*settle));
	if (!settle)
		abort();
	*settle = (struct settle){
	    .echo = {.answered = settle_answered},
	    .core = context->sandbox->core,
	    .id = context->row.id,
	    .rounds = 2,
	    .then = then,
	};
	core_later(settle->core, settle_go, settle);
}

static void cell_settled(struct code_context *context)
{
	struct code_run *run = context->running;
	struct core *core = context->sandbox->core;
	struct id id = context->row.id;
	if (!run || code_cell_of(context, run->number)->state != CELL_ENDING)
		return;
	code_run_finish(context, NULL);
	if (code_context_by_id(core, &id) == context)
		code_next(context);
}

/* --- what the driver says --- */

void code_broken(struct code_context *context, const char *what)
{
	char reason[200];
	log_warning("sandbox %s: code context %s: its control channel: %s",
		    context->row.sandbox.text, context->row.id.text, what);
	snprintf(reason, sizeof(reason), "its control channel is broken: %s", what);
	error_set(&context->life->start_error, ERROR_CONTEXT_ENDED, "%s", reason);
	code_context_ended(context, reason);
}

static bool keep_part(struct code_cell *cell, const struct code_record *record, uint64_t offset)
{
	/* The drivers cut what is more, but who runs there could speak in their place. */
	uint64_t size = record->size, most = CODE_RESULT_BYTES_MAX;
	if (record->kind == CODE_RECORD_ERROR)
		most = CODE_ERROR_PARTS * CODE_ERROR_BYTES_MAX;
	for (size_t i = 0; i < cell->part_count; i++)
		if (cell->parts[i].kind == record->kind)
			size += cell->parts[i].size;
	if (cell->part_count == CODE_PARTS_MAX || size > most)
		return false;
	/* In steps of sixteen: most cells have two. */
	if (cell->part_count % 16 == 0) {
		cell->parts =
		    reallocarray(cell->parts, cell->part_count + 16, sizeof(*cell->parts));
		if (!cell->parts)
			abort();
	}
	struct code_part *part = &cell->parts[cell->part_count++];
	*part = (struct code_part){
	    .kind = record->kind,
	    .result = record->index,
	    .offset = offset,
	    .size = record->size,
	};
	memcpy(part->key, record->key, sizeof(part->key));
	cell->has_error |= record->kind == CODE_RECORD_ERROR;
	return true;
}

static bool began(struct code_context *context, const struct code_record *record)
{
	struct code_run *run = context->running;
	/* One that a daemon sent before it died: nobody waits for it any more. */
	if (!run || run->number != record->cell)
		return record->cell <= context->row.cells;
	if (run->begun)
		return false;
	run->begun = true;
	code_cell_of(context, run->number)->state = CELL_RUNNING;
	/* It has come: nothing is to be sent again. */
	buffer_clear(&context->life->outgoing);
	context->life->sent = 0;
	return true;
}

static bool ended(struct code_context *context, const struct code_record *record)
{
	struct code_run *run = context->running;
	if (!run || run->number != record->cell)
		return record->cell <= context->row.cells;
	if (!run->begun || code_cell_of(context, run->number)->state == CELL_ENDING)
		return false;
	struct code_cell *cell = code_cell_of(context, run->number);
	cell->exit_code = (int)record->index;
	cell->state = CELL_ENDING;
	/* As a program, it is over when its process is. */
	if (context->once)
		return true;
	if (strcmp(record->key, "drained") == 0) {
		cell_settled(context);
		return true;
	}
	code_settle(context, cell_settled);
	return true;
}

static bool take_version(struct code_context *context, struct exec *control, uint64_t offset,
			 uint32_t size)
{
	struct code_life *life = context->life;
	uint64_t gap;
	if (life->ready || size >= sizeof(context->version))
		return false;
	ssize_t got = exec_read(control, EXEC_STDOUT, offset, context->version, size, &gap);
	context->version[got == (ssize_t)size ? size : 0] = '\0';
	if (!text_is_utf8(context->version, strlen(context->version)))
		context->version[0] = '\0';
	life->ready = true;
	code_context_ready(context);
	return true;
}

/* A result and what was printed before it come on different ways: it is shown when that has come.
 */
static void results_settled(struct code_context *context);

static void show_results(struct code_context *context, const struct code_cell *cell)
{
	struct code_life *life = context->life;
	if (life->showing)
		return;
	life->showing = true;
	life->showing_cell = cell->number;
	life->showing_whole = cell->whole;
	code_settle(context, results_settled);
}

static void results_settled(struct code_context *context)
{
	struct code_life *life = context->life;
	struct code_run *run = context->running;
	struct exec *exec = life->main.exec;
	life->showing = false;
	if (!run || !run->begun || !run->callbacks.changed || !exec)
		return;
	struct code_cell *cell = code_cell_of(context, run->number);
	bool same = life->showing_cell == cell->number;
	uint64_t whole = same ? life->showing_whole : 0;
	if (cell->whole != whole)
		show_results(context, cell);
	if (whole == 0)
		return;
	cell->results_shown = ~whole ? (uint32_t)__builtin_ctzll(~whole) : CODE_RESULTS_MAX;
	exec_logs_refresh(exec);
	code_run_changed(context);
}

/* False: it makes no sense. `context` may be gone when it was taken. */
static bool take(struct code_context *context, struct exec *control,
		 const struct code_record *record, uint64_t offset)
{
	struct code_run *run = context->running;
	struct code_cell *cell;
	switch (record->kind) {
	case CODE_RECORD_READY:
		return take_version(context, control, offset, record->size);
	case CODE_RECORD_BEGIN:
		return began(context, record);
	case CODE_RECORD_END:
		return ended(context, record);
	case CODE_RECORD_DATA:
	case CODE_RECORD_LEFT:
	case CODE_RECORD_ERROR:
	case CODE_RECORD_WHOLE:
		break;
	}
	/* A thread of an earlier cell still shows something: too late. */
	if (!run || !run->begun || run->number != record->cell)
		return record->cell <= context->row.cells;
	cell = code_cell_of(context, run->number);
	if (cell->state != CELL_RUNNING)
		return true;
	if (record->kind != CODE_RECORD_WHOLE)
		return keep_part(cell, record, offset);
	cell->whole |= UINT64_C(1) << record->index;
	if (run->callbacks.changed)
		show_results(context, cell);
	return true;
}

/* The record at `at`: 1 it is there, 0 not all of it is there, -1 it is none. */
static int read_one(struct exec *control, uint64_t at, struct code_record *ret_record,
		    uint64_t *ret_payload)
{
	char head[CODE_HEADER_MAX], last;
	uint64_t gap = 0;
	ssize_t got = exec_read(control, EXEC_STDOUT, at, head, sizeof(head), &gap);
	if (got <= 0)
		return gap > 0 ? -1 : 0;
	if (gap > 0)
		return -1;
	int header = code_record_parse(head, (size_t)got, ret_record);
	if (header <= 0)
		return header;
	*ret_payload = at + (uint64_t)header;
	uint64_t end = *ret_payload + ret_record->size;
	if (end + 1 > exec_total(control, EXEC_STDOUT))
		return 0;
	if (exec_read(control, EXEC_STDOUT, end, &last, 1, &gap) != 1 || gap > 0 || last != '\n')
		return -1;
	return 1;
}

/* Takes the record at control_at; as read_one(). */
static int take_one(struct code_context *context, struct exec *control)
{
	struct code_life *life = context->life;
	struct code_record record;
	uint64_t payload;
	int result = read_one(control, life->control_at, &record, &payload);
	if (result <= 0)
		return result;
	life->control_at = payload + record.size + 1;
	exec_watcher_consumed(&life->control, EXEC_STDOUT, life->control_at);
	return take(context, control, &record, payload) ? 1 : -1;
}

void code_ready_again(struct code_context *context, struct exec *control)
{
	struct code_record record;
	uint64_t payload;
	/* It is the first record, and the head of the log is kept. */
	if (exec_logs_open(control) < 0)
		return;
	exec_logs_refresh(control);
	if (read_one(control, 0, &record, &payload) == 1 && record.kind == CODE_RECORD_READY &&
	    take_version(context, control, payload, record.size))
		context->life->control_at = payload + record.size + 1;
}

struct again {
	struct core *core;
	struct id id;
};

static void read_again(void *data)
{
	struct again *again = data;
	struct code_context *context = code_context_by_id(again->core, &again->id);
	free(again);
	if (context)
		code_read_records(context);
}

/* All that an earlier daemon's cell has come to is read: one that has not begun by now was lost on
 * the way. */
static void caught_up(struct code_context *context)
{
	struct code_run *run = context->running;
	if (!context->life->resumed)
		return;
	context->life->resumed = false;
	if (!run) {
		code_next(context);
		return;
	}
	struct exec *exec = context->life->main.exec;
	if (exec)
		exec->idle = !run->begun;
	if (run->begun)
		return;
	code_cell_of(context, run->number)->state = CELL_LOST;
	/* One that is for this cell alone is of no use any more. */
	if (context->once) {
		code_context_ended(context, "its code had not come when the daemon ended");
		return;
	}
	code_run_finish(context, NULL);
	code_next(context);
}

void code_read_records(struct code_context *context)
{
	struct core *core = context->sandbox->core;
	struct id id = context->row.id;
	struct exec *control = context->life->control.exec;
	if (!control)
		return;
	exec_logs_refresh(control);
	for (unsigned i = 0; i < RECORDS_PER_TURN; i++) {
		int taken = take_one(context, control);
		/* Whoever was told may have removed it. */
		if (code_context_by_id(core, &id) != context ||
		    context->life->control.exec != control)
			return;
		if (taken == 0) {
			caught_up(context);
			return;
		}
		if (taken < 0) {
			code_broken(context, "what came is not a record");
			return;
		}
	}
	struct again *again = malloc(sizeof(*again));
	if (!again)
		abort();
	*again = (struct again){core, id};
	core_later(core, read_again, again);
}

/* --- the beginning of a cell --- */

static int send_cell(struct code_context *context, struct code_run *run, struct error *error)
{
	struct code_life *life = context->life;
	struct context_row *row = &context->row;
	struct exec *exec = life->main.exec;
	const struct context_row before = *row;
	exec_logs_refresh(exec);
	row->cells++;
	row->cell_wall = clock_wall();
	row->timeout_ms = run->timeout_ms;
	row->cell = run->cell;
	row->control_begin = life->control_at;
	row->out_begin = exec_total(exec, EXEC_STDOUT);
	row->err_begin = exec_total(exec, EXEC_STDERR);
	if (context->once)
		row->out_begin = row->err_begin = 0;
	if (life->recorded && store_context_update(context->sandbox->core->store, row, error) < 0) {
		*row = before;
		return -1;
	}
	run->number = row->cells;
	struct code_cell *cell = code_cell_of(context, run->number);
	code_cell_clear(cell);
	*cell = (struct code_cell){
	    .number = run->number,
	    .out_begin = row->out_begin,
	    .err_begin = row->err_begin,
	    .sent_wall = row->cell_wall,
	};
	run->began = clock_monotonic();
	exec->idle = false;
	if (!context->once && run->timeout_ms > 0) {
		run->deadline = clock_boot() + run->timeout_ms * (int64_t)NSEC_PER_MSEC;
		timers_wake_at(context->sandbox->core, run->deadline);
	}
	if (life->plain) {
		cell->state = CELL_RUNNING;
		run->begun = true;
		stdin_feed(exec, TAKE_PTR(run->code), run->size);
		return 0;
	}
	/* What was sent before has been taken: a cell was begun, or the context is new. */
	if (life->sent == life->outgoing.size) {
		buffer_clear(&life->outgoing);
		life->sent = 0;
	}
	if (code_request_write(&life->outgoing, code_cell_verb(row->language), run->number,
			       run->code, run->size) < 0)
		return error_set(error, ERROR_TOO_LARGE, "the code is longer than %d bytes",
				 CODE_SOURCE_MAX);
	free(TAKE_PTR(run->code));
	code_feed(context);
	return 0;
}

void code_next(struct code_context *context)
{
	struct core *core = context->sandbox->core;
	struct id id = context->row.id;
	struct error error;
	while (!context->running && !list_empty(&context->queue) && code_context_alive(context)) {
		struct code_run *run = list_entry(context->queue.next, struct code_run, link);
		list_remove(&run->link);
		context->queued--;
		context->running = run;
		if (send_cell(context, run, &error) == 0)
			return;
		run->number = 0;
		code_run_finish(context, &error);
		if (code_context_by_id(core, &id) != context)
			return;
	}
}

static struct code_run *run_new(struct code_context *context, const struct code_spec *spec,
				const struct code_callbacks *callbacks)
{
	struct code_run *run = calloc(1, sizeof(*run));
	if (!run)
		abort();
	list_init(&run->link);
	run->context = context;
	run->callbacks = *callbacks;
	run->code = malloc(spec->size + 1);
	if (!run->code)
		abort();
	memcpy(run->code, spec->code, spec->size);
	run->size = spec->size;
	run->timeout_ms = spec->timeout_ms;
	run->cell = spec->cell;
	run->asker = asker_of(spec->principal);
	return run;
}

static int start_once(struct sandbox *sandbox, const struct code_spec *spec,
		      const struct code_callbacks *callbacks, struct code_run **ret_run,
		      struct error *error)
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
	context->life->asker = asker_of(spec->principal);
	if (code_interpreter_start(context, spec, error) < 0) {
		code_context_free(context);
		return -1;
	}
	struct code_run *run = run_new(context, spec, callbacks);
	context->running = run;
	*ret_run = run;
	if (send_cell(context, run, error) == 0) {
		if (id_is_set(&run->cell))
			code_run_keep(context);
		return 0;
	}
	context->running = NULL;
	run_free(run);
	code_interpreter_stop(context);
	code_context_free(context);
	return -1;
}

int code_run_start(struct sandbox *sandbox, struct code_context *context,
		   const struct code_spec *spec, const struct code_callbacks *callbacks,
		   struct code_run **ret_run, struct error *error)
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
		return start_once(sandbox, spec, callbacks, ret_run, error);
	struct code_run *run = run_new(context, spec, callbacks);
	list_append(&context->queue, &run->link);
	context->queued++;
	*ret_run = run;
	if (context->running)
		return 0;
	list_remove(&run->link);
	context->queued--;
	context->running = run;
	if (send_cell(context, run, error) == 0)
		return 0;
	context->running = NULL;
	run_free(run);
	return -1;
}

void code_run_abandon(struct code_run *run)
{
	struct code_context *context = run->context;
	run->callbacks = (struct code_callbacks){0};
	if (context->running == run) {
		if (context->once && context->life->main.exec)
			exec_cancel(context->life->main.exec, NULL);
		else
			code_interrupt(context);
		return;
	}
	context->queued--;
	run_free(run);
}

/* --- it goes on without anybody --- */

bool code_run_sent(const struct code_run *run)
{
	return run->context->running == run && run->number != 0;
}

int code_run_record(struct code_run *run, struct error *error)
{
	struct code_context *context = run->context;
	if (context->life->recorded)
		return 0;
	return store_context_insert(context->sandbox->core->store, &context->row, error);
}

void code_run_keep(struct code_context *context)
{
	struct code_life *life = context->life;
	struct code_run *run = context->running;
	struct error error;
	if (life->recorded || !run || !code_run_sent(run))
		return;
	/* A shell waits for the whole of its code: without that it would wait for good. */
	if (life->plain && !(life->main.exec && life->main.exec->stdin_closed))
		return;
	run->keep_tried = true;
	if (code_run_record(run, &error) == 0)
		life->recorded = true;
	else
		log_error("code context %s cannot be stored: %s", context->row.id.text,
			  error.message);
}

struct code_context *code_run_recorded(struct code_run *run)
{
	run->context->life->recorded = true;
	run->callbacks = (struct code_callbacks){0};
	return run->context;
}

struct code_context *code_run_detach(struct code_run *run)
{
	struct code_context *context = run->context;
	struct error error;
	if (!code_run_sent(run))
		return NULL;
	if (code_run_record(run, &error) < 0) {
		log_error("code context %s cannot be stored: %s", context->row.id.text,
			  error.message);
		return NULL;
	}
	return code_run_recorded(run);
}
