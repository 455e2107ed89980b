/* Handles the records that the driver of a code context sends on its control channel. They are not
 * trusted: an invalid record ends the context. Called by the watchers of start.c; blocks for
 * reading a log from the page cache. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/code/code_private.h"

#define RECORDS_PER_PIECE 32

/* --- round trips --- */

struct cell_settle {
	struct guest_echo echo;
	struct core *core;
	struct id id;
	unsigned rounds;
	void (*then)(struct code_context *context);
};

static void code_settle_next_round(void *data)
{
	struct cell_settle *settle = data;
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

static void code_settle_echo_answered(struct guest_echo *echo, bool lost)
{
	struct cell_settle *settle = container_of(echo, struct cell_settle, echo);
	if (lost)
		settle->rounds = 0;
	/* Not from within the answer's callback: `then` may do anything. */
	core_later(settle->core, code_settle_next_round, settle);
}

/* In each turn of its loop the init reads up to a pipe's size of each stream, and sends answers in
 * one turn: after two answers it has read everything that was in the pipes before the first
 * question. */
void code_settle(struct code_context *context, void (*then)(struct code_context *context))
{
	struct cell_settle *settle = calloc(1, sizeof(*settle));
	if (!settle)
		abort();
	*settle = (struct cell_settle){
	    .echo = {.answered = code_settle_echo_answered},
	    .core = context->sandbox->core,
	    .id = context->row.id,
	    .rounds = 2,
	    .then = then,
	};
	core_later(settle->core, code_settle_next_round, settle);
}

static void cell_settled(struct code_context *context)
{
	struct foreground_cell *waited = context->running_cell;
	struct core *core = context->sandbox->core;
	struct id id = context->row.id;
	if (!waited || code_cell_of(context, waited->number)->state != CELL_ENDING)
		return;
	foreground_cell_finish(context, NULL);
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

static bool cell_keep_part(struct code_cell *cell, const struct code_record *record,
			   uint64_t offset)
{
	/* The drivers cut larger forms, but code in the interpreter could send records itself. */
	uint64_t size = record->size, most = CODE_RESULT_BYTES_MAX;
	if (record->kind == CODE_RECORD_ERROR)
		most = CODE_ERROR_PARTS * CODE_ERROR_BYTES_MAX;
	for (size_t i = 0; i < cell->part_count; i++)
		if (cell->parts[i].kind == record->kind)
			size += cell->parts[i].size;
	if (cell->part_count == CODE_PARTS_MAX || size > most)
		return false;
	/* Grows in steps of sixteen: most cells have two parts. */
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

static bool record_began(struct code_context *context, const struct code_record *record)
{
	struct foreground_cell *waited = context->running_cell;
	/* A cell that an earlier daemon sent: no request waits for it any more. */
	if (!waited || waited->number != record->cell)
		return record->cell <= context->row.cells;
	if (waited->begun)
		return false;
	waited->begun = true;
	code_cell_of(context, waited->number)->state = CELL_RUNNING;
	/* The cell has arrived: nothing need be sent again. */
	buffer_clear(&context->life->outgoing);
	context->life->sent = 0;
	return true;
}

static bool record_ended(struct code_context *context, const struct code_record *record)
{
	struct foreground_cell *waited = context->running_cell;
	if (!waited || waited->number != record->cell)
		return record->cell <= context->row.cells;
	if (!waited->begun || code_cell_of(context, waited->number)->state == CELL_ENDING)
		return false;
	struct code_cell *cell = code_cell_of(context, waited->number);
	cell->exit_code = (int)record->index;
	cell->state = CELL_ENDING;
	/* Like a program, it is over when its process is. */
	if (context->once)
		return true;
	if (strcmp(record->key, "drained") == 0) {
		cell_settled(context);
		return true;
	}
	code_settle(context, cell_settled);
	return true;
}

static bool record_take_version(struct code_context *context, struct exec *control, uint64_t offset,
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

/* A result and the output before it arrive on different paths: the result is shown when that output
 * has arrived. */
static void cell_results_settled(struct code_context *context);

static void cell_show_results(struct code_context *context, const struct code_cell *cell)
{
	struct code_life *life = context->life;
	if (life->showing)
		return;
	life->showing = true;
	life->showing_cell = cell->number;
	life->showing_whole = cell->whole;
	code_settle(context, cell_results_settled);
}

static void cell_results_settled(struct code_context *context)
{
	struct code_life *life = context->life;
	struct foreground_cell *waited = context->running_cell;
	struct exec *exec = life->main.exec;
	life->showing = false;
	if (!waited || !waited->begun || !waited->callbacks.changed || !exec)
		return;
	struct code_cell *cell = code_cell_of(context, waited->number);
	bool same = life->showing_cell == cell->number;
	uint64_t whole = same ? life->showing_whole : 0;
	if (cell->whole != whole)
		cell_show_results(context, cell);
	if (whole == 0)
		return;
	cell->results_shown = ~whole ? (uint32_t)__builtin_ctzll(~whole) : CODE_RESULTS_MAX;
	exec_logs_refresh(exec);
	foreground_cell_changed(context);
}

/* False: the record is invalid. `context` may be freed afterwards. */
static bool record_take(struct code_context *context, struct exec *control,
			const struct code_record *record, uint64_t offset)
{
	struct foreground_cell *waited = context->running_cell;
	struct code_cell *cell;
	switch (record->kind) {
	case CODE_RECORD_READY:
		return record_take_version(context, control, offset, record->size);
	case CODE_RECORD_BEGIN:
		return record_began(context, record);
	case CODE_RECORD_END:
		return record_ended(context, record);
	case CODE_RECORD_DATA:
	case CODE_RECORD_LEFT:
	case CODE_RECORD_ERROR:
	case CODE_RECORD_WHOLE:
		break;
	}
	/* A thread of an earlier cell still shows something: too late, ignored. */
	if (!waited || !waited->begun || waited->number != record->cell)
		return record->cell <= context->row.cells;
	cell = code_cell_of(context, waited->number);
	if (cell->state != CELL_RUNNING)
		return true;
	if (record->kind != CODE_RECORD_WHOLE)
		return cell_keep_part(cell, record, offset);
	cell->whole |= UINT64_C(1) << record->index;
	if (waited->callbacks.changed)
		cell_show_results(context, cell);
	return true;
}

/* The record at `at`: 1: complete, 0: incomplete, -1: invalid. */
static int record_read(struct exec *control, uint64_t at, struct code_record *ret_record,
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
	/* What is acknowledged may be a quarter of the ring behind. */
	if ((uint64_t)header + ret_record->size + 1 > control->row.tail / 4 * 3)
		return -1;
	*ret_payload = at + (uint64_t)header;
	uint64_t end = *ret_payload + ret_record->size;
	if (end + 1 > exec_total(control, EXEC_STDOUT))
		return 0;
	if (exec_read(control, EXEC_STDOUT, end, &last, 1, &gap) != 1 || gap > 0 || last != '\n')
		return -1;
	return 1;
}

/* Takes the record at control_at; returns as record_read(). */
static int record_take_next(struct code_context *context, struct exec *control)
{
	struct code_life *life = context->life;
	struct code_record record;
	uint64_t payload;
	int result = record_read(control, life->control_at, &record, &payload);
	if (result <= 0)
		return result;
	life->control_at = payload + record.size + 1;
	exec_watcher_consumed(&life->control, EXEC_STDOUT, life->control_at);
	return record_take(context, control, &record, payload) ? 1 : -1;
}

void code_ready_again(struct code_context *context, struct exec *control)
{
	struct code_record record;
	uint64_t payload;
	/* It is the first record, and the log's head is always kept. */
	if (exec_logs_open(control) < 0)
		return;
	exec_logs_refresh(control);
	if (record_read(control, 0, &record, &payload) == 1 && record.kind == CODE_RECORD_READY &&
	    record_take_version(context, control, payload, record.size))
		context->life->control_at = payload + record.size + 1;
}

/* All records of an earlier daemon's cell were read: a cell that has not begun by now was lost on
 * the way. */
static void cell_caught_up(struct code_context *context)
{
	struct foreground_cell *waited = context->running_cell;
	if (!context->life->resumed)
		return;
	context->life->resumed = false;
	if (!waited) {
		code_next(context);
		return;
	}
	struct exec *exec = context->life->main.exec;
	if (exec)
		exec->idle = !waited->begun;
	if (waited->begun)
		return;
	code_cell_of(context, waited->number)->state = CELL_LOST;
	/* A context for this cell alone is not needed any more. */
	if (context->once) {
		code_context_ended(context, "its code had not come when the daemon ended");
		return;
	}
	foreground_cell_finish(context, NULL);
	code_next(context);
}

static void records_queue(struct code_context *context,
			  void (*queue)(struct work *work, struct work_share *share))
{
	struct sandbox *sandbox = context->sandbox;
	struct work_share *share = core_share_of_guests(sandbox->core, sandbox->row.workspace);
	queue(&context->life->reading, share);
	work_share_release(share);
}

void code_on_turn_to_read(struct work *work)
{
	struct code_life *life = container_of(work, struct code_life, reading);
	struct code_context *context = life->context;
	struct core *core = context->sandbox->core;
	struct id id = context->row.id;
	struct exec *control = life->control.exec;
	if (!control)
		return;
	exec_logs_refresh(control);
	for (unsigned i = 0; i < RECORDS_PER_PIECE; i++) {
		bool end = life->finished && life->control_at >= life->control_end;
		int taken = end ? 0 : record_take_next(context, control);
		/* A callback may have removed it. */
		if (code_context_by_id(core, &id) != context || life->control.exec != control)
			return;
		if (taken == 0) {
			cell_caught_up(context);
			if (code_context_by_id(core, &id) == context && life->finished)
				code_interpreter_ended(context);
			return;
		}
		if (taken < 0) {
			code_broken(context, "what came is not a record");
			return;
		}
	}
	records_queue(context, work_wait);
}

void code_read_records(struct code_context *context)
{
	records_queue(context, work_run);
}
