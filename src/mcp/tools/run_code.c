/* run_code: a piece of code in a fresh interpreter, in one that keeps its variables (a context), or
 * in a fresh sandbox that is removed afterwards. Called by tools.c; waits through callbacks
 * (tool_exec.h).
 *
 * A model chooses any name for its context: the context's id is derived from the sandbox, the
 * language and that name, so that the same name finds it again, also after a restart of the
 * daemon. */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "core/account/access.h"
#include "mcp/tools/find_job.h"
#include "mcp/tools/tool_exec.h"
#include "mcp/tasks/task.h"

#define CONTEXT_NAME_MAX 128
/* The time from the interrupt of a cancelled cell to the end of its interpreter. */
#define CANCEL_GRACE_MS 700

/* --- a cell --- */

static void changed(void *data, struct code_context *context, const struct code_cell *cell)
{
	struct tool_exec *running = data;
	struct exec *exec = code_context_exec(context);
	if (!exec)
		return;
	/* Output before the cell does not belong to it. */
	uint64_t *sent = running->follow.sent;
	sent[0] = MAX(sent[0], cell->out_begin);
	sent[1] = MAX(sent[1], cell->err_begin);
	tool_exec_changed(running, exec);
}

static void write_answer(struct tool_exec *running, struct code_context *context,
			 const struct code_cell *cell)
{
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = tool_exec_view(running, &note);
	struct exec *exec = code_context_exec(context);
	if (exec)
		answer_cell_view(exec, cell, &view);
	answer_cell(&running->answer, context, cell, &view);
	if (running->restarted &&
	    buffer_append_text(&running->answer.text,
			       "\n[context_id had ended before this call: it was started anew, "
			       "without its variables]") < 0)
		return;
}

static void done(void *data, struct code_context *context, const struct code_cell *cell,
		 const struct error *error)
{
	struct tool_exec *running = data;
	running->cell = NULL;
	if (running->request->open) {
		if (error) {
			tool_exec_failed(running, error);
		} else {
			write_answer(running, context, cell);
			tool_exec_answer(running);
		}
	}
	tool_exec_leave(running);
}

/* The context itself waits longer, for interrupts that should keep it. */
static void end_surely(void *data)
{
	struct tool_exec *running = data;
	struct core *core = running->request->core;
	struct sandbox *sandbox = sandbox_by_id(core, &running->at_sandbox);
	struct exec *exec;
	struct error error;
	if (sandbox && exec_find(sandbox, running->at_exec.text, &exec, &error) == 0) {
		struct job job = job_of(exec);
		if (job.cell && job.cell->number == running->cancelled_cell && !job_over(&job))
			exec_cancel(exec, &running->request->principal);
	}
	tool_exec_leave(running);
}

/* Does the context run this call's cell? Then it is interrupted, and if that has no effect soon,
 * its interpreter is ended: the request is held until that is known. */
static bool is_watched(struct tool_exec *running)
{
	struct mcp_request *request = running->request;
	struct sandbox *sandbox = sandbox_by_id(request->core, &running->at_sandbox);
	struct exec *exec;
	struct error error;
	if (!running->context_id || !running->cell || !sandbox ||
	    exec_find(sandbox, running->at_exec.text, &exec, &error) < 0)
		return false;
	struct job job = job_of(exec);
	if (!job.context || job.context->running != running->cell)
		return false;
	running->cancelled_cell = job.context->row.cells;
	return true;
}

static void cancelled(struct mcp_request *request)
{
	struct tool_exec *running = request->state;
	bool kills = pending_kills(request), watched = kills && is_watched(running);
	if (running->cell && (kills || !foreground_cell_detach(running->cell)))
		foreground_cell_abandon(running->cell);
	running->cell = NULL;
	alarm_stop(&running->budget);
	follow_stop(&running->follow);
	/* An interpreter that is being started calls back in any case; the request is released
	 * then. */
	if (watched)
		running->budget =
		    alarm_after(request->core->loop, CANCEL_GRACE_MS, end_surely, running);
	else if (!running->creating)
		tool_exec_leave(running);
}

/* It has not begun: it waits for a context that another call uses, or its interpreter is not ready
 * yet. */
static void refuse_waiting(struct tool_exec *running)
{
	struct mcp_request *request = running->request;
	foreground_cell_abandon(TAKE_PTR(running->cell));
	if (running->context_id)
		content_refuse(request,
			       "context_id `%.*s` is still busy with an earlier call; this one was "
			       "not run. Wait for that with read_job {\"job_id\":\"%s\","
			       "\"wait_seconds\":30}, stop it with stop_job, or use another "
			       "context_id",
			       CONTEXT_NAME_MAX, running->context_id, running->at_exec.text);
	else
		content_refuse(request, "the interpreter did not start within %u s; try again",
			       request->core->config.mcp_block_seconds);
}

static void hand_back(void *data)
{
	struct tool_exec *running = data;
	/* The interpreter is not ready yet: core/code/code.h bounds that time. */
	if (!running->cell)
		return;
	struct code_context *context = foreground_cell_detach(running->cell);
	if (!context) {
		refuse_waiting(running);
		tool_exec_leave(running);
		return;
	}
	running->cell = NULL;
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = tool_exec_view(running, &note);
	struct exec *exec = code_context_exec(context);
	const struct code_cell *cell;
	struct error error;
	if (!exec || code_cell_find(context, context->row.cells, &cell, &error) < 0) {
		error_set(&error, ERROR_CONTEXT_ENDED, "its interpreter is gone");
		mcp_fail(running->request, &error);
	} else {
		answer_cell_view(exec, cell, &view);
		answer_running(&running->answer, exec, &view);
		tool_exec_answer(running);
	}
	tool_exec_leave(running);
}

static void start(struct tool_exec *running, struct sandbox *sandbox, struct code_context *context)
{
	const struct code_callbacks callbacks = {.changed = changed, .done = done, .data = running};
	struct error error;
	tool_exec_enter(running, cancelled, hand_back);
	if (foreground_cell_start(sandbox, context, &running->code, &callbacks, &running->cell,
				  &error) < 0) {
		mcp_fail(running->request, &error);
		tool_exec_leave(running);
		return;
	}
	running->at_sandbox = sandbox->row.id;
	if (context)
		running->at_exec = context->row.exec;
}

/* --- a context --- */

/* Calls whose context another call is creating, the oldest first. */
static struct list waiting = {&waiting, &waiting};

static void in_context(struct tool_exec *running, struct sandbox *sandbox);

static void try_again(void *data)
{
	struct tool_exec *running = data;
	alarm_stop(&running->budget);
	struct sandbox *sandbox = running->request->open ? target_again(running->request) : NULL;
	if (sandbox)
		in_context(running, sandbox);
	else
		tool_exec_leave(running);
}

/* Wakes the waiting calls, whatever the result was: they check again, and the first of them creates
 * the context if it does not exist. In a later turn, since the context may be removed only then. */
static void wake_waiting(struct tool_exec *creator)
{
	list_each (&waiting, node) {
		struct tool_exec *running = list_entry(node, struct tool_exec, waiting);
		if (!id_equal(&running->code.id, &creator->code.id))
			continue;
		list_remove(&running->waiting);
		alarm_stop(&running->budget);
		running->budget = alarm_after(running->request->core->loop, 0, try_again, running);
	}
}

static void context_ready(void *data, struct code_context *context, const struct error *error)
{
	struct tool_exec *running = data;
	running->creating = false;
	wake_waiting(running);
	/* It may have rung meanwhile; it is set again for the remaining time. */
	alarm_stop(&running->budget);
	if (running->request->open) {
		if (!error) {
			start(running, context->sandbox, context);
			return;
		}
		mcp_fail(running->request, error);
	} else if (!error && running->made_context) {
		/* Cancelled while it was made: the context was not used. */
		code_context_delete(context, &running->request->principal);
	}
	tool_exec_leave(running);
}

/* Has the form of an id: a letter, then letters and digits. The bias of the remainder is harmless,
 * since it is a name, not a secret. */
static struct id context_of(const struct sandbox *sandbox, enum code_language language,
			    const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	char text[ID_LENGTH + CONTEXT_NAME_MAX + 32];
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned size = 0;
	struct id id = {0};
	int length = snprintf(text, sizeof(text), "%s %s %s", sandbox->row.id.text,
			      code_language_name(language), name);
	if (EVP_Digest(text, (size_t)length, digest, &size, EVP_sha256(), NULL) != 1)
		abort();
	for (size_t i = 0; i < ID_LENGTH; i++)
		id.text[i] = letters[digest[i] % (i == 0 ? 26 : sizeof(letters) - 1)];
	return id;
}

static void in_context(struct tool_exec *running, struct sandbox *sandbox)
{
	struct code_context *context;
	struct mcp_request *request = running->request;
	struct error error;
	int result;
	struct id id = context_of(sandbox, running->code.language, running->context_id);
	bool named = !id_valid(running->context_id) ||
		     code_context_find(sandbox, running->context_id, &context, &error) < 0;
	bool found = !named || code_context_find(sandbox, id.text, &context, &error) == 0;
	if (found && context->row.language != (uint32_t)running->code.language) {
		content_refuse(request, "context_id `%s` is a %s one; accepted: language `%s`",
			       running->context_id, code_language_name(context->row.language),
			       code_language_name(context->row.language));
		if (running->entered)
			tool_exec_leave(running);
		return;
	}
	if (found && code_context_alive(context)) {
		start(running, sandbox, context);
		return;
	}
	tool_exec_enter(running, cancelled, hand_back);
	running->creating = true;
	running->code.id = id;
	running->restarted = found;
	running->made_context = !found;
	if (found)
		result = code_context_restart(context, &request->principal, context_ready, running,
					      &error);
	else
		result =
		    code_context_create(sandbox, &running->code, context_ready, running, &error);
	if (result < 0 && !found && error.kind == ERROR_CONTEXT_BUSY) {
		running->creating = false;
		list_append(&waiting, &running->waiting);
		return;
	}
	if (result < 0) {
		mcp_fail(request, &error);
		tool_exec_leave(running);
	}
}

static void act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct tool_exec *running = request->state;
	if (running->context_id)
		in_context(running, sandbox);
	else
		start(running, sandbox, NULL);
}

/* --- one-shot --- */

static void shot_ran(void *data, struct code_context *context, const struct code_cell *cell)
{
	struct tool_exec *running = data;
	write_answer(running, context, cell);
	running->ran = true;
}

static void one_shot(struct mcp_request *request)
{
	static const struct oneshot_code_callbacks callbacks = {
	    .changed = changed, .ran = shot_ran, .done = tool_exec_shot_done};
	struct tool_exec *running = request->state;
	struct error error;
	if (running->context_id) {
		content_refuse(request,
			       "a sandbox that is gone afterwards cannot keep the variables of "
			       "context_id: create_sandbox first, or leave context_id out");
		return;
	}
	tool_exec_one_shot(running);
	if (oneshot_code_start(request->core, &request->principal, &running->one_shot,
			       &running->code, &callbacks, running, &running->oneshot,
			       &error) < 0) {
		mcp_fail(request, &error);
		tool_exec_leave(running);
	}
}

const struct field run_code_fields[] = {
    {"language", FIELD_TEXT_AT(struct tool_exec, language), FIELD_REQUIRED | FIELD_WORDS_TOLD, 1,
     .words = "python,node,bash"},
    {"code", FIELD_TEXT_AT(struct tool_exec, code.code), FIELD_REQUIRED, 1, CODE_SOURCE_MAX},
    {"sandbox_id", FIELD_TEXT_AT(struct tool_exec, sandbox_id)},
    {"timeout_seconds", FIELD_NUMBER_AT(struct tool_exec, exec.timeout_seconds),
     .max = CODE_TIMEOUT_MAX},
    {"context_id", FIELD_TEXT_AT(struct tool_exec, context_id), .max = CONTEXT_NAME_MAX,
     .mcp = "Any name of yours, e.g. main: calls with the same one share variables and imports."},
    {"max_output_bytes", FIELD_UINT_AT(struct tool_exec, exec.answer_max), .min = 1,
     .max = OUTPUT_MOST, .fallback = OUTPUT_DEFAULT},
    {0},
};

void run_code(struct mcp_request *request, const json_t *arguments)
{
	struct tool_exec *running = tool_exec_new(request);
	if (!tool_arguments(request, arguments, running) || !tool_exec_check(running))
		return;
	running->code.language = code_language_parse(running->language);
	if (running->code.language == 0) {
		content_refuse(request,
			       "field `language` is `%.32s`; accepted: `python`, `node`, `bash`",
			       running->language);
		return;
	}
	/* Models write an empty text for none. */
	if (running->context_id && running->context_id[0] == '\0')
		running->context_id = NULL;
	running->code.size = strlen(running->code.code);
	/* With this id the task is found again after a restart of the daemon. */
	if (request->task)
		running->code.cell = *task_exec(request->task);
	answer_begin(&running->answer, running->exec.answer_max);
	if (target_fresh(request, running->sandbox_id))
		one_shot(request);
	else
		target_ready(request, running->sandbox_id, 0, act);
}
