/* Code contexts: made, found, restarted, ended, resumed by the next daemon. Called by the edges;
 * blocks for the store only. Cells are in cells.c, the processes of a context in start.c. */
#include "core/code/code.h"

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
#include "core/account/access.h"

#define ENVIRONMENT_MAX EXEC_REQUEST_BYTES_MAX

struct code_context *code_context_new(struct sandbox *sandbox, struct context_row *row, bool once)
{
	struct code_context *context = calloc(1, sizeof(*context));
	struct code_life *life = calloc(1, sizeof(*life));
	if (!context || !life)
		abort();
	context->sandbox = sandbox;
	context->row = *row;
	*row = (struct context_row){0};
	context->once = once;
	context->life = life;
	list_init(&context->queue);
	life->context = context;
	life->main = code_main_watcher;
	life->control = code_control_watcher;
	life->reading.run = code_on_turn_to_read;
	list_init(&life->main.link);
	list_init(&life->control.link);
	life->outgoing = BUFFER(3 * CODE_SOURCE_MAX + 256);
	list_append(&sandbox->core->private->contexts, &context->link);
	return context;
}

void code_context_free(struct code_context *context)
{
	list_remove(&context->link);
	work_cancel(&context->life->reading);
	for (size_t i = 0; i < CODE_CELLS_KEPT; i++)
		code_cell_clear(&context->cells[i]);
	buffer_done(&context->life->outgoing);
	free(context->life);
	context_row_done(&context->row);
	free(context);
}

struct code_context *code_context_by_id(struct core *core, const struct id *id)
{
	list_each (&core->private->contexts, node) {
		struct code_context *context = list_entry(node, struct code_context, link);
		if (id_equal(&context->row.id, id))
			return context;
	}
	return NULL;
}

bool code_context_alive(const struct code_context *context)
{
	return context->row.ended_wall == 0;
}

struct exec *code_context_exec(const struct code_context *context)
{
	struct exec *exec = context->life->main.exec;
	struct error error;
	if (exec)
		return exec;
	if (exec_find(context->sandbox, context->row.exec.text, &exec, &error) < 0)
		return NULL;
	return exec;
}

const struct principal *code_principal(const struct code_context *context)
{
	return kept_principal_get(&context->life->caller);
}

void code_context_save(struct code_context *context)
{
	struct error error;
	if (context->life->recorded &&
	    store_context_update(context->sandbox->core->store, &context->row, &error) < 0)
		log_error("code context %s cannot be stored: %s", context->row.id.text,
			  error.message);
}

/* --- finding --- */

struct code_context *code_context_next(struct sandbox *sandbox, const struct code_context *before)
{
	struct list *all = &sandbox->core->private->contexts;
	struct list *node = before ? before->link.next : all->next;
	for (; node != all; node = node->next) {
		struct code_context *context = list_entry(node, struct code_context, link);
		if (context->sandbox == sandbox && context->life->recorded)
			return context;
	}
	return NULL;
}

int code_context_find(struct sandbox *sandbox, const char *id, struct code_context **ret_context,
		      struct error *error)
{
	struct id parsed;
	if (id_parse(id, &parsed) < 0)
		return error_set(
		    error, ERROR_ID_MALFORMED,
		    "that is not the id of a context, which is 16 characters a-z, 0-9");
	struct code_context *context = code_context_by_id(sandbox->core, &parsed);
	if (!context || context->sandbox != sandbox || !context->life->recorded)
		return error_set(error, ERROR_CONTEXT_NOT_FOUND,
				 "sandbox `%s` has no code context `%s`", sandbox->row.id.text, id);
	*ret_context = context;
	return 0;
}

struct code_context *code_context_of_cell(struct core *core, const struct principal *principal,
					  const struct id *cell)
{
	list_each (&core->private->contexts, node) {
		struct code_context *context = list_entry(node, struct code_context, link);
		if (context->life->recorded && id_equal(&context->row.cell, cell) &&
		    sandbox_visible(principal, context->sandbox))
			return context;
	}
	return NULL;
}

/* --- the end --- */

/* The running cell ends with the interpreter. */
static void context_finish_cell(struct code_context *context)
{
	struct code_cell *cell = code_cell_of(context, context->running_cell->number);
	struct exec *exec = context->life->main.exec;
	if (context->life->start_error.kind != ERROR_NONE && context->once) {
		struct error error = context->life->start_error;
		foreground_cell_finish(context, &error);
		return;
	}
	if (cell->state != CELL_ENDING && exec)
		cell->exit_code = exec->row.state == EXEC_ENDED ? exec_exit_code(&exec->row) : -1;
	cell->timed_out |= exec && exec->row.end == EXEC_END_TIMED_OUT;
	cell->context_ended = !context->once;
	foreground_cell_finish(context, NULL);
}

/* Notifies everybody who waits for the context; false if it was freed meanwhile. */
static bool context_tell_all(struct code_context *context, const struct error *error)
{
	struct core *core = context->sandbox->core;
	struct id id = context->row.id;
	struct code_life *life = context->life;
	if (life->created) {
		void (*created)(void *, struct code_context *, const struct error *) =
		    life->created;
		struct error why = life->start_error.kind ? life->start_error : *error;
		life->created = NULL;
		created(life->created_data, NULL, &why);
	}
	if (code_context_by_id(core, &id) != context)
		return false;
	if (context->running_cell)
		context_finish_cell(context);
	if (code_context_by_id(core, &id) != context)
		return false;
	code_refuse_queue(context, error);
	return code_context_by_id(core, &id) == context;
}

static void context_forget(struct code_context *context)
{
	struct error error;
	if (context->life->recorded &&
	    store_context_delete(context->sandbox->core->store, &context->row.id, &error) < 0)
		log_error("code context %s: %s", context->row.id.text, error.message);
	code_interpreter_stop(context);
	code_context_free(context);
}

/* Removes the oldest ended contexts above the maximum: first those that cannot be restarted. May
 * remove any context of the list: a caller that ends a context must not hold another one. */
static void contexts_trim(struct sandbox *sandbox)
{
	size_t ended = 0;
	struct code_context *oldest = NULL;
	for (struct code_context *at = code_context_next(sandbox, NULL); at;
	     at = code_context_next(sandbox, at)) {
		if (code_context_alive(at))
			continue;
		ended++;
		if (!oldest || (at->once && !oldest->once))
			oldest = at;
	}
	if (ended > CODE_CONTEXTS_ENDED_MAX)
		context_forget(oldest);
}

static void context_end(struct code_context *context, const struct principal *principal,
			const char *reason)
{
	struct sandbox *sandbox = context->sandbox;
	struct error error;
	if (!code_context_alive(context))
		return;
	context->row.ended_wall = clock_wall();
	free(context->row.reason);
	context->row.reason = text_duplicate(reason);
	context->life->finished = context->life->end_told = true;
	error_set(&error, ERROR_CONTEXT_ENDED, "context `%s` has ended: %s", context->row.id.text,
		  reason);
	if (!context_tell_all(context, &error))
		return;
	code_interpreter_stop(context);
	if (!context->life->recorded) {
		code_context_free(context);
		return;
	}
	code_context_save(context);
	ACTIVITY(sandbox, ACTIVITY_CODE_CONTEXT_ENDED, principal, &context->row.exec,
		 {"context", context->row.id.text}, {"reason", reason});
	contexts_trim(sandbox);
}

void code_context_ended(struct code_context *context, const char *reason)
{
	context_end(context, NULL, reason);
}

void code_context_delete(struct code_context *context, const struct principal *principal)
{
	struct error error;
	bool alive = code_context_alive(context);
	error_set(&error, ERROR_CONTEXT_ENDED, "context `%s` was deleted", context->row.id.text);
	if (alive)
		ACTIVITY(context->sandbox, ACTIVITY_CODE_CONTEXT_ENDED, principal,
			 &context->row.exec, {"context", context->row.id.text},
			 {"reason", "it was deleted"});
	context->row.ended_wall = clock_wall();
	/* In a context for one cell, the cell gets the deletion as its error:
	 * context_finish_cell(). */
	if (context->once)
		context->life->start_error = error;
	if (context_tell_all(context, &error))
		context_forget(context);
}

void code_let_go(struct core *core)
{
	list_each (&core->private->contexts, node) {
		struct code_context *context = list_entry(node, struct code_context, link);
		if (context->once && !(context->sandbox->row.options & OPTION_ONESHOT))
			foreground_cell_keep(context);
	}
}

void code_forget_all(struct sandbox *sandbox)
{
	struct error error;
	core_forgotten_error(sandbox->core, &sandbox->row.id, &error);
	for (;;) {
		struct code_context *context = NULL;
		list_each (&sandbox->core->private->contexts, node) {
			struct code_context *at = list_entry(node, struct code_context, link);
			if (at->sandbox == sandbox)
				context = at;
		}
		if (!context)
			return;
		/* The rows stay: they end with the sandbox's row, or belong to the next daemon. */
		struct code_life *life = context->life;
		if (life->main.exec)
			exec_unwatch(&life->main);
		if (life->control.exec)
			exec_unwatch(&life->control);
		if (context->running_cell)
			foreground_cell_finish(context, &error);
		if (context_tell_all(context, &error))
			code_context_free(context);
	}
}

/* --- made and made anew --- */

static char *code_environment_pack(const struct code_spec *spec, uint32_t *ret_size,
				   struct error *error)
{
	DONE_BUFFER struct buffer packed = BUFFER(ENVIRONMENT_MAX);
	for (size_t i = 0; i < spec->environment_count; i++)
		if (buffer_printf(&packed, "%s=%s", spec->environment[i].key,
				  spec->environment[i].value) < 0 ||
		    buffer_append(&packed, "", 1) < 0) {
			error_set(error, ERROR_TOO_LARGE, "env is longer than %d bytes",
				  ENVIRONMENT_MAX);
			return NULL;
		}
	*ret_size = (uint32_t)packed.size;
	char *data = packed.data ? packed.data : text_duplicate("");
	packed = BUFFER(0);
	return data;
}

static void created_activity(struct code_context *context)
{
	ACTIVITY(context->sandbox, ACTIVITY_CODE_CONTEXT_CREATED, code_principal(context),
		 &context->row.exec, {"context", context->row.id.text},
		 {"language", code_language_name(context->row.language)});
}

static int context_check_count(struct sandbox *sandbox, struct error *error)
{
	unsigned alive = 0;
	list_each (&sandbox->core->private->contexts, node) {
		struct code_context *at = list_entry(node, struct code_context, link);
		alive += at->sandbox == sandbox && !at->once && code_context_alive(at);
	}
	if (alive >= CODE_CONTEXTS_MAX)
		return error_set(error, ERROR_QUOTA_EXCEEDED,
				 "sandbox `%s` has %d code contexts already, the most it may: "
				 "delete one",
				 sandbox->row.id.text, CODE_CONTEXTS_MAX);
	return 0;
}

static void context_await_ready(struct code_context *context, CODE_CREATED)
{
	struct code_life *life = context->life;
	life->created = done;
	life->created_data = data;
	life->ready_until = clock_boot() + CODE_START_TIMEOUT;
	timers_wake_at(context->sandbox->core, life->ready_until);
}

int code_context_create(struct sandbox *sandbox, const struct code_spec *spec, CODE_CREATED,
			struct error *error)
{
	struct context_row row = {
	    .id = id_is_set(&spec->id) ? spec->id : id_new(),
	    .sandbox = sandbox->row.id,
	    .language = spec->language,
	    .created_wall = clock_wall(),
	};
	if (code_context_by_id(sandbox->core, &row.id))
		return error_set(error, ERROR_CONTEXT_BUSY, "context `%s` is being started",
				 row.id.text);
	/* Its interpreter is a command like any other: even BASH_ENV alone makes it run a
	 * script. */
	if (context_check_count(sandbox, error) < 0 ||
	    budget_check_exec(sandbox, spec->principal, error) < 0)
		return -1;
	row.environment = code_environment_pack(spec, &row.environment_size, error);
	if (!row.environment)
		return -1;
	row.cwd = spec->cwd ? text_duplicate(spec->cwd) : NULL;
	row.user = spec->user ? text_duplicate(spec->user) : NULL;
	struct code_context *context = code_context_new(sandbox, &row, false);
	context->life->caller = principal_keep(spec->principal);
	if (code_interpreter_start(context, spec, error) < 0) {
		code_context_free(context);
		return -1;
	}
	budget_count_exec(sandbox);
	context_await_ready(context, done, data);
	return 0;
}

/* Splits a packed environment (`key=value`) into pairs; cuts the keys in place. */
static struct pair *code_environment_unpack(char *packed, size_t size, size_t *ret_count)
{
	size_t count = 0, at = 0;
	struct pair *pairs = calloc(EXEC_ENV_MAX, sizeof(*pairs));
	if (!pairs)
		abort();
	while (at < size && count < EXEC_ENV_MAX) {
		size_t length = strlen(packed + at);
		char *equals = strchr(packed + at, '=');
		if (equals) {
			*equals = '\0';
			pairs[count++] = (struct pair){packed + at, equals + 1};
		}
		at += length + 1;
	}
	*ret_count = count;
	return pairs;
}

int code_context_restart(struct code_context *context, const struct principal *principal,
			 CODE_CREATED, struct error *error)
{
	struct context_row *row = &context->row;
	struct code_life *life = context->life;
	struct error restarted;
	if (context->once)
		return error_set(error, ERROR_INVALID,
				 "context `%s` was made for one piece of code and cannot be "
				 "restarted; make another",
				 row->id.text);
	if (life->created)
		return error_set(error, ERROR_CONTEXT_BUSY, "context `%s` is being started",
				 row->id.text);
	if ((!code_context_alive(context) && context_check_count(context->sandbox, error) < 0) ||
	    budget_check_exec(context->sandbox, principal, error) < 0)
		return -1;
	error_set(&restarted, ERROR_CONTEXT_ENDED, "context `%s` was restarted", row->id.text);
	if (!context_tell_all(context, &restarted))
		return error_set(error, ERROR_CONTEXT_NOT_FOUND, "the context is gone");
	code_interpreter_stop(context);
	row->ended_wall = 0;
	free(row->reason);
	row->reason = NULL;
	life->start_error = (struct error){0};
	life->caller = principal_keep(principal);
	char *packed = malloc(row->environment_size + 1);
	if (!packed)
		abort();
	if (row->environment_size > 0)
		memcpy(packed, row->environment, row->environment_size);
	struct code_spec spec = {.language = (enum code_language)row->language};
	struct pair *pairs =
	    code_environment_unpack(packed, row->environment_size, &spec.environment_count);
	spec.environment = pairs;
	int result = code_interpreter_start(context, &spec, error);
	free(pairs);
	free(packed);
	if (result < 0) {
		context_end(context, principal, error->message);
		return -1;
	}
	budget_count_exec(context->sandbox);
	/* No cell was sent to the new interpreter. */
	row->control_begin = row->out_begin = row->err_begin = 0;
	row->cell_wall = 0;
	row->cell = (struct id){0};
	code_context_save(context);
	context_await_ready(context, done, data);
	return 0;
}

void code_context_ready(struct code_context *context)
{
	struct code_life *life = context->life;
	if (!life->created)
		return;
	if (!life->recorded && store_context_insert(context->sandbox->core->store, &context->row,
						    &life->start_error) < 0) {
		code_context_ended(context, life->start_error.message);
		return;
	}
	void (*created)(void *, struct code_context *, const struct error *) = life->created;
	life->created = NULL;
	life->recorded = true;
	created_activity(context);
	created(life->created_data, context, NULL);
}

void code_link_lost(struct sandbox *sandbox)
{
	list_each (&sandbox->core->private->contexts, node) {
		struct code_context *context = list_entry(node, struct code_context, link);
		struct code_life *life = context->life;
		struct exec *exec = life->main.exec;
		if (context->sandbox != sandbox || !exec || life->plain)
			continue;
		/* The driver continues at the next line: everything is sent once more. The driver
		 * recognises by its number a cell that had arrived after all. The init reports the
		 * credit again. */
		exec->stdin_broken = false;
		exec->stdin_credit = 0;
		life->sent = 0;
		life->cut = true;
	}
}
