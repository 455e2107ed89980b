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

static void run_code_cell_changed(void *data, struct code_context *context,
				  const struct code_cell *cell)
{
	struct tool_exec *tool_exec = data;
	struct exec *exec = code_context_exec(context);
	if (!exec)
		return;
	/* Output before the cell does not belong to it. */
	uint64_t *sent = tool_exec->progress.sent;
	sent[0] = MAX(sent[0], cell->out_begin);
	sent[1] = MAX(sent[1], cell->err_begin);
	tool_exec_changed(tool_exec, exec);
}

static void cell_answer_write(struct tool_exec *tool_exec, struct code_context *context,
			      const struct code_cell *cell)
{
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = tool_exec_view(tool_exec, &note);
	struct exec *exec = code_context_exec(context);
	if (exec)
		answer_cell_view(exec, cell, &view);
	answer_cell(&tool_exec->answer, context, cell, &view);
	if (tool_exec->restarted &&
	    buffer_append_text(&tool_exec->answer.text,
			       "\n[context_id had ended before this call: it was started anew, "
			       "without its variables]") < 0)
		return;
}

static void run_code_cell_done(void *data, struct code_context *context,
			       const struct code_cell *cell, const struct error *error)
{
	struct tool_exec *tool_exec = data;
	tool_exec->cell = NULL;
	if (tool_exec->request->open) {
		if (error) {
			tool_exec_failed(tool_exec, error);
		} else {
			cell_answer_write(tool_exec, context, cell);
			answer_send(tool_exec->request, &tool_exec->answer);
		}
	}
	tool_exec_leave(tool_exec);
}

/* The context itself waits longer, for interrupts that should keep it. */
static void interpreter_end(void *data)
{
	struct tool_exec *tool_exec = data;
	struct core *core = tool_exec->request->core;
	struct sandbox *sandbox = sandbox_by_id(core, &tool_exec->at_sandbox);
	struct exec *exec;
	struct error error;
	if (sandbox && exec_find(sandbox, tool_exec->at_exec.text, &exec, &error) == 0) {
		struct job job = job_of(exec);
		if (job.cell && job.cell->number == tool_exec->cancelled_cell && !job_over(&job))
			exec_cancel(exec, &tool_exec->request->principal);
	}
	tool_exec_leave(tool_exec);
}

/* Does the context run this call's cell? Then it is interrupted, and if that has no effect soon,
 * its interpreter is ended: the request is held until that is known. */
static bool cell_is_watched(struct tool_exec *tool_exec)
{
	struct mcp_request *request = tool_exec->request;
	struct sandbox *sandbox = sandbox_by_id(request->core, &tool_exec->at_sandbox);
	struct exec *exec;
	struct error error;
	if (!tool_exec->context_id || !tool_exec->cell || !sandbox ||
	    exec_find(sandbox, tool_exec->at_exec.text, &exec, &error) < 0)
		return false;
	struct job job = job_of(exec);
	if (!job.context || job.context->running_cell != tool_exec->cell)
		return false;
	tool_exec->cancelled_cell = job.context->row.cells;
	return true;
}

static void run_code_cancelled(struct mcp_request *request)
{
	struct tool_exec *tool_exec = request->state;
	bool kills = pending_kills(request), watched = kills && cell_is_watched(tool_exec);
	if (tool_exec->cell && (kills || !foreground_cell_detach(tool_exec->cell)))
		foreground_cell_abandon(tool_exec->cell);
	tool_exec->cell = NULL;
	alarm_stop(&tool_exec->budget);
	exec_progress_stop(&tool_exec->progress);
	/* An interpreter that is being started calls back in any case; the request is released
	 * then. */
	if (watched)
		tool_exec->budget =
		    alarm_after(request->core->loop, CANCEL_GRACE_MS, interpreter_end, tool_exec);
	else if (!tool_exec->creating)
		tool_exec_leave(tool_exec);
}

/* It has not begun: it waits for a context that another call uses, or its interpreter is not ready
 * yet. */
static void waiting_call_refuse(struct tool_exec *tool_exec)
{
	struct mcp_request *request = tool_exec->request;
	foreground_cell_abandon(TAKE_PTR(tool_exec->cell));
	if (tool_exec->context_id)
		content_refuse(request,
			       "context_id `%.*s` is still busy with an earlier call; this one was "
			       "not run. Wait for that with read_job {\"job_id\":\"%s\","
			       "\"wait_seconds\":30}, stop it with stop_job, or use another "
			       "context_id",
			       CONTEXT_NAME_MAX, tool_exec->context_id, tool_exec->at_exec.text);
	else
		content_refuse(request, "the interpreter did not start within %u s; try again",
			       request->core->config.mcp_block_seconds);
}

static void run_code_hand_back(void *data)
{
	struct tool_exec *tool_exec = data;
	/* The interpreter is not ready yet: core/code/code.h bounds that time. */
	if (!tool_exec->cell)
		return;
	struct code_context *context = foreground_cell_detach(tool_exec->cell);
	if (!context) {
		waiting_call_refuse(tool_exec);
		tool_exec_leave(tool_exec);
		return;
	}
	tool_exec->cell = NULL;
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = tool_exec_view(tool_exec, &note);
	struct exec *exec = code_context_exec(context);
	const struct code_cell *cell;
	struct error error;
	if (!exec || code_cell_find(context, context->row.cells, &cell, &error) < 0) {
		error_set(&error, ERROR_CONTEXT_ENDED, "its interpreter is gone");
		mcp_fail(tool_exec->request, &error);
	} else {
		answer_cell_view(exec, cell, &view);
		answer_running(&tool_exec->answer, exec, &view);
		answer_send(tool_exec->request, &tool_exec->answer);
	}
	tool_exec_leave(tool_exec);
}

static void cell_start(struct tool_exec *tool_exec, struct sandbox *sandbox,
		       struct code_context *context)
{
	const struct code_callbacks callbacks = {
	    .changed = run_code_cell_changed, .done = run_code_cell_done, .data = tool_exec};
	struct error error;
	tool_exec_enter(tool_exec, run_code_cancelled, run_code_hand_back);
	if (foreground_cell_start(sandbox, context, &tool_exec->code, &callbacks, &tool_exec->cell,
				  &error) < 0) {
		mcp_fail(tool_exec->request, &error);
		tool_exec_leave(tool_exec);
		return;
	}
	tool_exec->at_sandbox = sandbox->row.id;
	if (context)
		tool_exec->at_exec = context->row.exec;
}

/* --- a context --- */

/* Calls whose context another call is creating, the oldest first. */
static struct list waiting_calls = {&waiting_calls, &waiting_calls};

static void run_code_in_context(struct tool_exec *tool_exec, struct sandbox *sandbox);

static void run_code_try_again(void *data)
{
	struct tool_exec *tool_exec = data;
	alarm_stop(&tool_exec->budget);
	struct sandbox *sandbox =
	    tool_exec->request->open ? target_again(tool_exec->request) : NULL;
	if (sandbox)
		run_code_in_context(tool_exec, sandbox);
	else
		tool_exec_leave(tool_exec);
}

/* Wakes the waiting calls, whatever the result was: they check again, and the first of them creates
 * the context if it does not exist. In a later turn, since the context may be removed only then. */
static void waiting_calls_wake(struct tool_exec *creator)
{
	list_each (&waiting_calls, node) {
		struct tool_exec *tool_exec = list_entry(node, struct tool_exec, waiting);
		if (!id_equal(&tool_exec->code.id, &creator->code.id))
			continue;
		list_remove(&tool_exec->waiting);
		alarm_stop(&tool_exec->budget);
		tool_exec->budget =
		    alarm_after(tool_exec->request->core->loop, 0, run_code_try_again, tool_exec);
	}
}

static void context_ready(void *data, struct code_context *context, const struct error *error)
{
	struct tool_exec *tool_exec = data;
	tool_exec->creating = false;
	waiting_calls_wake(tool_exec);
	/* It may have rung meanwhile; it is set again for the remaining time. */
	alarm_stop(&tool_exec->budget);
	if (tool_exec->request->open) {
		if (!error) {
			cell_start(tool_exec, context->sandbox, context);
			return;
		}
		mcp_fail(tool_exec->request, error);
	} else if (!error && tool_exec->made_context) {
		/* Cancelled while it was made: the context was not used. */
		code_context_delete(context, &tool_exec->request->principal);
	}
	tool_exec_leave(tool_exec);
}

/* Has the form of an id: a letter, then letters and digits. The bias of the remainder is harmless,
 * since it is a name, not a secret. */
static struct id context_id_of_name(const struct sandbox *sandbox, enum code_language language,
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

static void run_code_in_context(struct tool_exec *tool_exec, struct sandbox *sandbox)
{
	struct code_context *context;
	struct mcp_request *request = tool_exec->request;
	struct error error;
	int result;
	struct id id = context_id_of_name(sandbox, tool_exec->code.language, tool_exec->context_id);
	bool named = !id_valid(tool_exec->context_id) ||
		     code_context_find(sandbox, tool_exec->context_id, &context, &error) < 0;
	bool found = !named || code_context_find(sandbox, id.text, &context, &error) == 0;
	if (found && context->row.language != (uint32_t)tool_exec->code.language) {
		content_refuse(request, "context_id `%s` is a %s one; accepted: language `%s`",
			       tool_exec->context_id, code_language_name(context->row.language),
			       code_language_name(context->row.language));
		if (tool_exec->entered)
			tool_exec_leave(tool_exec);
		return;
	}
	if (found && code_context_alive(context)) {
		cell_start(tool_exec, sandbox, context);
		return;
	}
	tool_exec_enter(tool_exec, run_code_cancelled, run_code_hand_back);
	tool_exec->creating = true;
	tool_exec->code.id = id;
	tool_exec->restarted = found;
	tool_exec->made_context = !found;
	if (found)
		result = code_context_restart(context, &request->principal, context_ready,
					      tool_exec, &error);
	else
		result = code_context_create(sandbox, &tool_exec->code, context_ready, tool_exec,
					     &error);
	if (result < 0 && !found && error.kind == ERROR_CONTEXT_BUSY) {
		tool_exec->creating = false;
		list_append(&waiting_calls, &tool_exec->waiting);
		return;
	}
	if (result < 0) {
		mcp_fail(request, &error);
		tool_exec_leave(tool_exec);
	}
}

static void run_code_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct tool_exec *tool_exec = request->state;
	if (tool_exec->context_id)
		run_code_in_context(tool_exec, sandbox);
	else
		cell_start(tool_exec, sandbox, NULL);
}

/* --- one-shot --- */

static void run_code_oneshot_ran(void *data, struct code_context *context,
				 const struct code_cell *cell)
{
	struct tool_exec *tool_exec = data;
	cell_answer_write(tool_exec, context, cell);
	tool_exec->ran = true;
}

static void run_code_oneshot_start(struct mcp_request *request)
{
	static const struct oneshot_code_callbacks callbacks = {.changed = run_code_cell_changed,
								.ran = run_code_oneshot_ran,
								.done = tool_exec_oneshot_done};
	struct tool_exec *tool_exec = request->state;
	struct error error;
	if (tool_exec->context_id) {
		content_refuse(request,
			       "a sandbox that is gone afterwards cannot keep the variables of "
			       "context_id: create_sandbox first, or leave context_id out");
		return;
	}
	tool_exec_enter_oneshot(tool_exec);
	if (oneshot_code_start(request->core, &request->principal, &tool_exec->oneshot_spec,
			       &tool_exec->code, &callbacks, tool_exec, &tool_exec->oneshot,
			       &error) < 0) {
		mcp_fail(request, &error);
		tool_exec_leave(tool_exec);
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
	struct tool_exec *tool_exec = tool_exec_new(request);
	if (!tool_arguments(request, arguments, tool_exec) || !tool_exec_check(tool_exec))
		return;
	tool_exec->code.language = code_language_parse(tool_exec->language);
	if (tool_exec->code.language == 0) {
		content_refuse(request,
			       "field `language` is `%.32s`; accepted: `python`, `node`, `bash`",
			       tool_exec->language);
		return;
	}
	/* Models write an empty text for none. */
	if (tool_exec->context_id && tool_exec->context_id[0] == '\0')
		tool_exec->context_id = NULL;
	tool_exec->code.size = strlen(tool_exec->code.code);
	/* With this id the task is found again after a restart of the daemon. */
	if (request->task)
		tool_exec->code.cell = *task_exec(request->task);
	answer_begin(&tool_exec->answer, tool_exec->exec.answer_max);
	if (target_fresh(request, tool_exec->sandbox_id))
		run_code_oneshot_start(request);
	else
		target_ready(request, tool_exec->sandbox_id, 0, run_code_act);
}
