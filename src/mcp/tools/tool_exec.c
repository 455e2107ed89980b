/* See tool_exec.h. Called by run_shell.c and run_code.c, on the loop; everything waits through
 * callbacks and alarms. */
#include "mcp/tools/tool_exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "core/account/access.h"
#include "mcp/tools/tool.h"

static void tool_exec_free(void *state)
{
	struct tool_exec *tool_exec = state;
	alarm_stop(&tool_exec->budget);
	exec_progress_stop(&tool_exec->progress);
	answer_done(&tool_exec->answer);
	exec_fields_done(&tool_exec->exec);
	free(tool_exec);
}

struct tool_exec *tool_exec_new(struct mcp_request *request)
{
	struct tool_exec *tool_exec = calloc(1, sizeof(*tool_exec));
	if (!tool_exec)
		abort();
	tool_exec->request = request;
	list_init(&tool_exec->waiting);
	tool_exec->began = clock_monotonic();
	request->state = tool_exec;
	request->state_free = tool_exec_free;
	return tool_exec;
}

bool tool_exec_check(struct tool_exec *tool_exec)
{
	struct error error;
	struct exec_fields *exec = &tool_exec->exec;
	/* Models write an empty text for none. */
	if (tool_exec->sandbox_id && tool_exec->sandbox_id[0] == '\0')
		tool_exec->sandbox_id = NULL;
	exec->spec.principal = tool_exec->code.principal = &tool_exec->request->principal;
	int result = exec->shell
			 ? exec_fields_check(exec, FIELDS_MCP, &error)
			 : exec_timeout_check(exec->timeout_seconds, 0, CODE_TIMEOUT_MAX * 1000,
					      FIELDS_MCP, &exec->spec.timeout_ms, &error);
	if (result < 0)
		content_refuse(tool_exec->request, "%s", error.message);
	tool_exec->code.timeout_ms = exec->spec.timeout_ms;
	return result == 0;
}

/* --- the time it may take --- */

void tool_exec_enter(struct tool_exec *tool_exec, void (*cancelled)(struct mcp_request *request),
		     void (*hand_back)(void *tool_exec))
{
	struct mcp_request *request = tool_exec->request;
	int64_t budget = request->core->config.mcp_block_seconds * 1000LL;
	if (!tool_exec->entered)
		mcp_hold(request);
	tool_exec->entered = true;
	request->on_cancel = cancelled;
	/* Nothing waits for the answer of a task. The time for waking the sandbox, or for starting
	 * an interpreter, counts; at least a second is left. */
	if (request->task || tool_exec->budget || !hand_back)
		return;
	budget -= (clock_monotonic() - tool_exec->began) / NSEC_PER_MSEC;
	tool_exec->budget =
	    alarm_after(request->core->loop, (uint64_t)MAX(budget, 1000), hand_back, tool_exec);
}

void tool_exec_leave(struct tool_exec *tool_exec)
{
	struct mcp_request *request = tool_exec->request;
	tool_exec->foreground = NULL;
	tool_exec->cell = NULL;
	tool_exec->oneshot = NULL;
	tool_exec->starting = NULL;
	tool_exec->creating = false;
	tool_exec->entered = false;
	list_remove(&tool_exec->waiting);
	alarm_stop(&tool_exec->budget);
	exec_progress_stop(&tool_exec->progress);
	request->on_cancel = NULL;
	mcp_release(request);
}

/* --- what is seen meanwhile --- */

void tool_exec_changed(struct tool_exec *tool_exec, struct exec *exec)
{
	tool_exec->at_sandbox = exec->sandbox->row.id;
	tool_exec->at_exec = exec->row.id;
	exec_progress_changed(&tool_exec->progress, tool_exec->request, exec);
}

/* --- answers --- */

struct answer_view tool_exec_view(struct tool_exec *tool_exec, struct buffer *note)
{
	struct answer_view view = {
	    .output = {.max = tool_exec->exec.answer_max, .read_more = "read_job"},
	};
	const struct sandbox *kept = tool_exec->oneshot ? oneshot_kept(tool_exec->oneshot) : NULL;
	if ((tool_exec->oneshot || tool_exec->ran) && !kept) {
		view.gone = true;
		view.output.read_more = NULL;
	}
	target_note(tool_exec->request, note);
	if (kept)
		(void)!buffer_printf(note, "in sandbox %s, which was made for this and is kept",
				     kept->row.id.text);
	view.note = buffer_text(note);
	return view;
}

void tool_exec_failed(struct tool_exec *tool_exec, const struct error *error)
{
	struct mcp_request *request = tool_exec->request;
	if (error->kind == ERROR_DAEMON_RESTARTING && !tool_exec->oneshot &&
	    id_is_set(&tool_exec->at_exec)) {
		content_reply(request,
			      "[status: running, job_id %s; the server is being restarted and the "
			      "command goes on; next, in a few seconds: read_job "
			      "{\"job_id\":\"%s\"}]",
			      tool_exec->at_exec.text, tool_exec->at_exec.text);
		return;
	}
	/* For a task this is a failure: that its interpreter was removed is not a result of the
	 * code. */
	if (error->kind == ERROR_CONTEXT_ENDED && request->task && !tool_exec->context_id)
		request->tool = NULL;
	mcp_fail(request, error);
}

/* --- one-shot --- */

/* The command continues in its sandbox. NULL: it was answered, or hand_back will be called once
 * more. */
static struct exec *tool_exec_detach(struct tool_exec *tool_exec,
				     void (*hand_back)(void *tool_exec))
{
	struct mcp_request *request = tool_exec->request;
	struct sandbox *sandbox;
	struct exec *exec;
	struct error error;
	if (tool_exec->ran) {
		/* It has ended and its sandbox is being removed: `done` comes, and finds the
		 * request answered. */
		answer_send(tool_exec->request, &tool_exec->answer);
		return NULL;
	}
	if (oneshot_detach(tool_exec->oneshot, &sandbox, &exec, &error) == 0) {
		tool_exec->oneshot = NULL;
		tool_exec->at_sandbox = sandbox->row.id;
		return exec;
	}
	alarm_stop(&tool_exec->budget);
	if (id_is_set(&tool_exec->at_exec)) {
		/* It has ended, and its end is about to be reported. */
		tool_exec->budget = alarm_after(request->core->loop, 1000, hand_back, tool_exec);
	} else {
		oneshot_cancel(TAKE_PTR(tool_exec->oneshot), &request->principal);
		content_refuse(request,
			       "no sandbox was ready within %u s (%s); nothing was run. Try again, "
			       "or create_sandbox first",
			       request->core->config.mcp_block_seconds, error.message);
		tool_exec_leave(tool_exec);
	}
	return NULL;
}

void tool_exec_note_kept(const struct sandbox *sandbox, struct buffer *note)
{
	if (sandbox->row.options & OPTION_DETACHED)
		(void)!buffer_printf(
		    note,
		    "in sandbox %s, which was made for this and ends after %d min in which nothing "
		    "ran or was asked, in %lld s at the latest",
		    sandbox->row.id.text, ONESHOT_LEFT_IDLE_SECONDS / 60,
		    (long long)sandbox_expires_in(&sandbox->row));
}

static void oneshot_cancelled(struct mcp_request *request)
{
	struct tool_exec *tool_exec = request->state;
	if (tool_exec->oneshot)
		oneshot_cancel(TAKE_PTR(tool_exec->oneshot), &request->principal);
	tool_exec_leave(tool_exec);
}

static void oneshot_hand_back(void *data)
{
	struct tool_exec *tool_exec = data;
	struct exec *exec = tool_exec_detach(tool_exec, oneshot_hand_back);
	if (!exec)
		return;
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = tool_exec_view(tool_exec, &note);
	buffer_clear(&note);
	tool_exec_note_kept(exec->sandbox, &note);
	view.note = buffer_text(&note);
	answer_view_all(exec, &view);
	answer_running(&tool_exec->answer, exec, &view);
	answer_send(tool_exec->request, &tool_exec->answer);
	tool_exec_leave(tool_exec);
}

void tool_exec_enter_oneshot(struct tool_exec *tool_exec)
{
	struct mcp_request *request = tool_exec->request;
	uint32_t *timeout = &tool_exec->exec.spec.timeout_ms;
	tool_exec->oneshot_spec.timeout_seconds = oneshot_life(request->core, timeout);
	tool_exec->oneshot_spec.timeout_set = true;
	tool_exec->code.timeout_ms = *timeout;
	/* A task also gets its result after a restart of the daemon: the command must still exist
	 * then. */
	if (request->task) {
		uint32_t idle = request->core->config.idle_timeout_seconds;
		tool_exec->oneshot_spec.options |= OPTION_DETACHED;
		tool_exec->oneshot_spec.idle_timeout_seconds =
		    idle == 0 ? ONESHOT_LEFT_IDLE_SECONDS : MIN(idle, ONESHOT_LEFT_IDLE_SECONDS);
	}
	/* It may become a sandbox that stays, at the change to a job. */
	if (request->view.ephemeral)
		ephemeral_mark(&tool_exec->oneshot_spec, &request->view.connection,
			       &tool_exec->labels);
	tool_exec_enter(tool_exec, oneshot_cancelled, oneshot_hand_back);
}

void tool_exec_oneshot_done(void *data, const struct error *error)
{
	struct tool_exec *tool_exec = data;
	if (tool_exec->request->open) {
		if (error)
			tool_exec_failed(tool_exec, error);
		else
			answer_send(tool_exec->request, &tool_exec->answer);
	}
	tool_exec_leave(tool_exec);
}
