/* Tasks that are not in memory: from an earlier daemon, or forgotten to make room. The answer of
 * the tool is lost, but commands and code continue without a daemon: this makes a new record that
 * follows the command or cell of the task's id, and ends with its output. If nothing of it is left,
 * the record is a failed one that says so. Called by tasks.c; reads the store. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "core/activity/activity.h"
#include "core/exec/wait.h"
#include "core/exec/exec.h"
#include "core/account/access.h"
#include "mcp/alarm.h"
#include "mcp/pending.h"
#include "mcp/tools/tool_exec.h"
#include "mcp/server.h"
#include "mcp/tasks/task_private.h"

/* A wait has a time limit; it is then begun again. */
#define FOLLOW_MS (24u * 3600 * 1000)
/* The watchers of an interpreter are not notified of a cell's end. */
#define CELL_LOOK_MS 200

struct following {
	struct task_call call;
	struct id sandbox, exec; /* for a cell: its interpreter */
	uint64_t cell;           /* its number; 0: a command */
	struct exec_wait *wait;  /* for a command, or: */
	struct alarm *look;
};

static void following_free(void *state)
{
	struct following *following = state;
	alarm_stop(&following->look);
	free(following);
}

/* The exec of the task, if the principal may see it. An id does not say in which sandbox it runs;
 * the activity has that for every command (*ret_sandbox, if it has begun at all). */
static struct exec *find(struct core *core, const struct principal *principal,
			 const struct id *exec_id, struct id *ret_sandbox)
{
	struct code_context *context = code_context_of_cell(core, principal, exec_id);
	struct exec *exec;
	struct error error;
	uint64_t number;
	if (context) {
		*ret_sandbox = context->row.sandbox;
		return code_context_exec(context);
	}
	if (activity_started(core, exec_id, ret_sandbox, &number, &error) != 1) {
		*ret_sandbox = (struct id){0};
		return NULL;
	}
	struct sandbox *sandbox = sandbox_by_id(core, ret_sandbox);
	if (!sandbox || !sandbox_visible(principal, sandbox) ||
	    exec_find(sandbox, exec_id->text, &exec, &error) < 0)
		return NULL;
	return exec;
}

/* The cell, and its context; NULL: it is a command, or the context has another interpreter now. */
static const struct code_cell *cell_of(const struct following *following, const struct exec *exec,
				       struct code_context **ret_context)
{
	const struct code_cell *cell;
	struct error error;
	*ret_context = NULL;
	if (following->cell == 0 ||
	    code_context_find(exec->sandbox, exec->row.context.text, ret_context, &error) < 0 ||
	    !id_equal(&(*ret_context)->row.exec, &exec->row.id)) {
		*ret_context = NULL;
		return NULL;
	}
	return code_cell_find(*ret_context, following->cell, &cell, &error) < 0 ? NULL : cell;
}

static bool cell_over(const struct code_cell *cell)
{
	return cell && (cell->state == CELL_ENDED || cell->state == CELL_LOST);
}

/* --- the end --- */

/* Sets the part of the output to show, whether or not its cell is still known. */
static void set_view(const struct following *following, struct exec *exec,
		     const struct code_context *context, const struct code_cell *cell,
		     struct answer_view *view)
{
	if (cell) {
		answer_cell_view(exec, cell, view);
		return;
	}
	answer_view_all(exec, view);
	if (context && context->row.cells == following->cell) {
		view->output.out_begin = context->row.out_begin;
		view->output.err_begin = context->row.err_begin;
	}
}

static void answer(struct mcp_request *inner, struct exec *exec)
{
	struct following *following = inner->state;
	struct code_context *context;
	const struct code_cell *cell = cell_of(following, exec, &context);
	DONE_BUFFER struct buffer note = BUFFER(1 * KIB);
	struct answer_view view = {
	    .output = {.max = following->call.output_max, .read_more = "read_job"}};
	struct answer text;
	struct error error;
	if (cell && cell->state == CELL_LOST) {
		error_set(&error, ERROR_DAEMON_RESTARTING,
			  "the daemon was restarted just as this was sent to sandbox %s, and it is "
			  "not known whether it ran",
			  following->sandbox.text);
		mcp_fail(inner, &error);
		return;
	}
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		mcp_fail(inner, &error);
		return;
	}
	/* The message of the earlier daemon. */
	if (exec_ended(exec) && exec->row.end == EXEC_END_CANCELLED) {
		mcp_cancel(inner);
		return;
	}
	answer_begin(&text, following->call.output_max);
	set_view(following, exec, context, cell, &view);
	tool_exec_note_kept(exec->sandbox, &note);
	if (following->cell && !cell && !(context && context->row.language == CODE_BASH))
		(void)!buffer_append_text(&note, note.size ? "; values and figures are not kept"
							   : "values and figures are not kept");
	view.note = buffer_text(&note);
	if (cell)
		answer_cell(&text, context, cell, &view);
	else
		answer_exec(&text, exec, &view, NULL, 0);
	answer_send(inner, &text);
	answer_done(&text);
}

/* --- nothing is left --- */

static void lose(struct mcp_request *inner, const struct id *sandbox)
{
	struct error error;
	if (id_is_set(sandbox))
		error_set(&error, ERROR_DAEMON_RESTARTING,
			  "the daemon was restarted, and with it this task's answer was lost; "
			  "what it ran in sandbox %s is not on record any more, or the sandbox has "
			  "ended",
			  sandbox->text);
	else
		error_set(&error, ERROR_DAEMON_RESTARTING,
			  "the daemon was restarted, and with it this task's answer was lost. "
			  "Nothing that it ran is on record: it had not begun, or its sandbox has "
			  "ended, or its context_id was used again; the jobs that are there are in "
			  "the record sandbox://{sandbox}");
	mcp_fail(inner, &error);
}

/* --- waiting --- */

static void follow(struct mcp_request *inner, struct exec *exec);

/* In an interpreter that keeps variables, only the running cell is ended. */
static void stop(struct mcp_request *inner, struct exec *exec)
{
	struct code_context *context;
	const struct code_cell *cell = cell_of(inner->state, exec, &context);
	if (!context || context->once)
		exec_cancel(exec, &inner->principal);
	else if (cell && !cell_over(cell) && context->row.cells == cell->number)
		code_context_interrupt(context);
}

static struct exec *again(struct mcp_request *inner)
{
	const struct following *following = inner->state;
	struct sandbox *sandbox = sandbox_by_id(inner->core, &following->sandbox);
	struct exec *exec;
	struct error error;
	return sandbox && exec_find(sandbox, following->exec.text, &exec, &error) == 0 ? exec
										       : NULL;
}

static void cancelled(struct mcp_request *inner)
{
	struct following *following = inner->state;
	struct exec *exec = pending_kills(inner) ? again(inner) : NULL;
	if (following->wait)
		exec_wait_cancel(TAKE_PTR(following->wait));
	alarm_stop(&following->look);
	if (exec)
		stop(inner, exec);
	mcp_release(inner);
}

static void ended(void *data, struct exec *exec, const struct error *error)
{
	struct mcp_request *inner = data;
	struct following *following = inner->state;
	following->wait = NULL;
	if (!tool_back(inner))
		return;
	if (error)
		mcp_fail(inner, error);
	else
		follow(inner, exec);
	mcp_release(inner);
}

static void look(void *data)
{
	struct mcp_request *inner = data;
	struct following *following = inner->state;
	alarm_stop(&following->look);
	if (!tool_back(inner))
		return;
	struct exec *exec = again(inner);
	if (exec) {
		follow(inner, exec);
	} else {
		struct error error;
		core_forgotten_error(inner->core, &following->sandbox, &error);
		mcp_fail(inner, &error);
	}
	mcp_release(inner);
}

/* Is all its output and its value complete? */
static bool over(const struct following *following, struct exec *exec)
{
	struct code_context *context;
	const struct code_cell *cell = cell_of(following, exec, &context);
	/* A context without the cell has had so many later cells that it is not kept. */
	if (cell_over(cell) || (context && !cell))
		return true;
	/* An interpreter's end becomes its cell's end a moment later. */
	return exec_ended(exec) && !(cell && context->running);
}

static void follow(struct mcp_request *inner, struct exec *exec)
{
	struct following *following = inner->state;
	struct error error;
	if (over(following, exec)) {
		answer(inner, exec);
	} else if (following->cell) {
		following->look = alarm_after(inner->core->loop, CELL_LOOK_MS, look, inner);
		tool_wait(inner, cancelled);
	} else if (exec_wait_end(exec, FOLLOW_MS, ended, inner, &following->wait, &error) < 0) {
		mcp_fail(inner, &error);
	} else {
		tool_wait(inner, cancelled);
	}
}

/* --- found again --- */

/* Since when it is over; 0: it is not, or this is unknown. */
static int64_t over_since(const struct following *following, const struct exec *exec)
{
	struct code_context *context;
	const struct code_cell *cell = exec ? cell_of(following, exec, &context) : NULL;
	if (cell_over(cell))
		return cell->sent_wall + (int64_t)cell->duration_ns;
	return exec ? exec->row.ended_wall : 0;
}

/* As long as tasks.c keeps a task in memory. */
static bool is_kept(const struct following *following, struct exec *exec)
{
	int64_t now = clock_wall();
	int64_t age = now - (int64_t)following->call.began_ms * NSEC_PER_MSEC;
	if (age < TASK_TTL_MS * (int64_t)NSEC_PER_MSEC)
		return true;
	if (!exec || !over(following, exec))
		return exec;
	return now - over_since(following, exec) < TASK_KEEP_MS * (int64_t)NSEC_PER_MSEC;
}

/* Is it from an earlier daemon? */
static bool of_before(const struct mcp_request *request, const struct task_call *call)
{
	return (int64_t)call->began_ms * NSEC_PER_MSEC < request->server->began_wall;
}

/* Its hour counts from its own beginning. */
static void began_before(struct mcp_task *task)
{
	task->created_wall = (int64_t)task->call.began_ms * NSEC_PER_MSEC;
	int64_t age = MAX(clock_wall() - task->created_wall, 0) / NSEC_PER_MSEC;
	task->began -= MIN((uint64_t)age, task->began);
}

struct mcp_task *task_revive(struct mcp_request *request, const struct task_call *call,
			     const char *task_id)
{
	struct id sandbox;
	struct code_context *context =
	    code_context_of_cell(request->core, &request->principal, &call->exec);
	struct exec *exec = find(request->core, &request->principal, &call->exec, &sandbox);
	const struct following found = {
	    .call = *call,
	    .sandbox = sandbox,
	    .exec = exec ? exec->row.id : call->exec,
	    .cell = context ? context->row.cells : 0,
	};
	if ((!exec && !of_before(request, call)) || !is_kept(&found, exec) ||
	    !task_room(&request->principal))
		return NULL;
	struct mcp_task *task = task_new(request, call, task_id);
	struct following *following = malloc(sizeof(*following));
	if (!following)
		abort();
	struct mcp_request *inner = task->inner = task_inner_new(request, task);
	*following = found;
	inner->state = following;
	inner->state_free = following_free;
	began_before(task);
	if (exec)
		follow(inner, exec);
	else
		lose(inner, &sandbox);
	return task;
}
