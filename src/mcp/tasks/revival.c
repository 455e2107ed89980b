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
#include "mcp/pending_operation.h"
#include "mcp/tools/tool_exec.h"
#include "mcp/server.h"
#include "mcp/tasks/task_private.h"

/* A wait has a time limit; it is then begun again. */
#define FOLLOW_MS (24u * 3600 * 1000)
/* The watchers of an interpreter are not notified of a cell's end. */
#define CELL_LOOK_MS 200

struct revival {
	struct task_call call;
	struct id sandbox, exec; /* for a cell: its interpreter */
	uint64_t cell;           /* its number; 0: a command */
	struct exec_wait *wait;  /* for a command, or: */
	struct alarm *look;
};

static void revival_free(void *state)
{
	struct revival *revival = state;
	alarm_stop(&revival->look);
	free(revival);
}

/* The exec of the task, if the principal may see it. An id does not say in which sandbox it runs;
 * the activity has that for every command (*ret_sandbox, if it has begun at all). */
static struct exec *task_exec_find(struct core *core, const struct principal *principal,
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
static const struct code_cell *revival_cell(const struct revival *revival, const struct exec *exec,
					    struct code_context **ret_context)
{
	const struct code_cell *cell;
	struct error error;
	*ret_context = NULL;
	if (revival->cell == 0 ||
	    code_context_find(exec->sandbox, exec->row.context.text, ret_context, &error) < 0 ||
	    !id_equal(&(*ret_context)->row.exec, &exec->row.id)) {
		*ret_context = NULL;
		return NULL;
	}
	return code_cell_find(*ret_context, revival->cell, &cell, &error) < 0 ? NULL : cell;
}

static bool cell_over(const struct code_cell *cell)
{
	return cell && (cell->state == CELL_ENDED || cell->state == CELL_LOST);
}

/* --- the end --- */

/* Sets the part of the output to show, whether or not its cell is still known. */
static void revival_set_view(const struct revival *revival, struct exec *exec,
			     const struct code_context *context, const struct code_cell *cell,
			     struct answer_view *view)
{
	if (cell) {
		answer_cell_view(exec, cell, view);
		return;
	}
	answer_view_all(exec, view);
	if (context && context->row.cells == revival->cell) {
		view->output.out_begin = context->row.out_begin;
		view->output.err_begin = context->row.err_begin;
	}
}

static void revival_answer(struct mcp_request *inner, struct exec *exec)
{
	struct revival *revival = inner->state;
	struct code_context *context;
	const struct code_cell *cell = revival_cell(revival, exec, &context);
	DONE_BUFFER struct buffer note = BUFFER(1 * KIB);
	struct answer_view view = {
	    .output = {.max = revival->call.output_max, .read_more = "read_job"}};
	struct answer text;
	struct error error;
	if (cell && cell->state == CELL_LOST) {
		error_set(&error, ERROR_DAEMON_RESTARTING,
			  "the daemon was restarted just as this was sent to sandbox %s, and it is "
			  "not known whether it ran",
			  revival->sandbox.text);
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
	answer_begin(&text, revival->call.output_max);
	revival_set_view(revival, exec, context, cell, &view);
	tool_exec_note_kept(exec->sandbox, &note);
	if (revival->cell && !cell && !(context && context->row.language == CODE_BASH))
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

static void task_fail_lost(struct mcp_request *inner, const struct id *sandbox)
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

static void revival_follow(struct mcp_request *inner, struct exec *exec);

/* In an interpreter that keeps variables, only the running cell is ended. */
static void revival_stop(struct mcp_request *inner, struct exec *exec)
{
	struct code_context *context;
	const struct code_cell *cell = revival_cell(inner->state, exec, &context);
	if (!context || context->once)
		exec_cancel(exec, &inner->principal);
	else if (cell && !cell_over(cell) && context->row.cells == cell->number)
		code_context_interrupt(context);
}

static struct exec *revival_exec(struct mcp_request *inner)
{
	const struct revival *revival = inner->state;
	struct sandbox *sandbox = sandbox_by_id(inner->core, &revival->sandbox);
	struct exec *exec;
	struct error error;
	return sandbox && exec_find(sandbox, revival->exec.text, &exec, &error) == 0 ? exec : NULL;
}

static void revival_cancelled(struct mcp_request *inner)
{
	struct revival *revival = inner->state;
	struct exec *exec = pending_kills(inner) ? revival_exec(inner) : NULL;
	if (revival->wait)
		exec_wait_cancel(TAKE_PTR(revival->wait));
	alarm_stop(&revival->look);
	if (exec)
		revival_stop(inner, exec);
	mcp_release(inner);
}

static void revival_exec_ended(void *data, struct exec *exec, const struct error *error)
{
	struct mcp_request *inner = data;
	struct revival *revival = inner->state;
	revival->wait = NULL;
	if (!tool_back(inner))
		return;
	if (error)
		mcp_fail(inner, error);
	else
		revival_follow(inner, exec);
	mcp_release(inner);
}

static void revival_look(void *data)
{
	struct mcp_request *inner = data;
	struct revival *revival = inner->state;
	alarm_stop(&revival->look);
	if (!tool_back(inner))
		return;
	struct exec *exec = revival_exec(inner);
	if (exec) {
		revival_follow(inner, exec);
	} else {
		struct error error;
		core_forgotten_error(inner->core, &revival->sandbox, &error);
		mcp_fail(inner, &error);
	}
	mcp_release(inner);
}

/* Is all its output and its value complete? */
static bool revival_is_over(const struct revival *revival, struct exec *exec)
{
	struct code_context *context;
	const struct code_cell *cell = revival_cell(revival, exec, &context);
	/* A context without the cell has had so many later cells that it is not kept. */
	if (cell_over(cell) || (context && !cell))
		return true;
	/* An interpreter's end becomes its cell's end a moment later. */
	return exec_ended(exec) && !(cell && context->running_cell);
}

static void revival_follow(struct mcp_request *inner, struct exec *exec)
{
	struct revival *revival = inner->state;
	struct error error;
	if (revival_is_over(revival, exec)) {
		revival_answer(inner, exec);
	} else if (revival->cell) {
		revival->look = alarm_after(inner->core->loop, CELL_LOOK_MS, revival_look, inner);
		tool_wait(inner, revival_cancelled);
	} else if (exec_wait_end(exec, FOLLOW_MS, revival_exec_ended, inner, &revival->wait,
				 &error) < 0) {
		mcp_fail(inner, &error);
	} else {
		tool_wait(inner, revival_cancelled);
	}
}

/* --- found again --- */

/* Since when it is over; 0: it is not, or this is unknown. */
static int64_t revival_over_since(const struct revival *revival, const struct exec *exec)
{
	struct code_context *context;
	const struct code_cell *cell = exec ? revival_cell(revival, exec, &context) : NULL;
	if (cell_over(cell))
		return cell->sent_wall + (int64_t)cell->duration_ns;
	return exec ? exec->row.ended_wall : 0;
}

/* As long as tasks.c keeps a task in memory. */
static bool revival_is_kept(const struct revival *revival, struct exec *exec)
{
	int64_t now = clock_wall();
	int64_t age = now - (int64_t)revival->call.began_ms * NSEC_PER_MSEC;
	if (age < TASK_TTL_MS * (int64_t)NSEC_PER_MSEC)
		return true;
	if (!exec || !revival_is_over(revival, exec))
		return exec;
	return now - revival_over_since(revival, exec) < TASK_KEEP_MS * (int64_t)NSEC_PER_MSEC;
}

/* Is it from an earlier daemon? */
static bool call_is_of_earlier_daemon(const struct mcp_request *request,
				      const struct task_call *call)
{
	return (int64_t)call->began_ms * NSEC_PER_MSEC < request->server->began_wall;
}

/* Its hour counts from its own beginning. */
static void task_set_began(struct mcp_task *task)
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
	struct exec *exec =
	    task_exec_find(request->core, &request->principal, &call->exec, &sandbox);
	const struct revival found = {
	    .call = *call,
	    .sandbox = sandbox,
	    .exec = exec ? exec->row.id : call->exec,
	    .cell = context ? context->row.cells : 0,
	};
	if ((!exec && !call_is_of_earlier_daemon(request, call)) ||
	    !revival_is_kept(&found, exec) || !task_room(&request->principal))
		return NULL;
	struct mcp_task *task = task_new(request, call, task_id);
	struct revival *revival = malloc(sizeof(*revival));
	if (!revival)
		abort();
	struct mcp_request *inner = task->inner = task_inner_new(request, task);
	*revival = found;
	inner->state = revival;
	inner->state_free = revival_free;
	task_set_began(task);
	if (exec)
		revival_follow(inner, exec);
	else
		task_fail_lost(inner, &sandbox);
	return task;
}
