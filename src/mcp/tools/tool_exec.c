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
	struct tool_exec *running = state;
	alarm_stop(&running->budget);
	follow_stop(&running->follow);
	answer_done(&running->answer);
	exec_fields_done(&running->exec);
	free(running);
}

struct tool_exec *tool_exec_new(struct mcp_request *request)
{
	struct tool_exec *running = calloc(1, sizeof(*running));
	if (!running)
		abort();
	running->request = request;
	list_init(&running->waiting);
	running->began = clock_monotonic();
	request->state = running;
	request->state_free = tool_exec_free;
	return running;
}

bool tool_exec_check(struct tool_exec *running)
{
	struct error error;
	struct exec_fields *exec = &running->exec;
	/* Models write an empty text for none. */
	if (running->sandbox_id && running->sandbox_id[0] == '\0')
		running->sandbox_id = NULL;
	exec->spec.principal = running->code.principal = &running->request->principal;
	int result = exec->shell
			 ? exec_fields_check(exec, FIELDS_MCP, &error)
			 : exec_timeout_check(exec->timeout_seconds, 0, CODE_TIMEOUT_MAX * 1000,
					      FIELDS_MCP, &exec->spec.timeout_ms, &error);
	if (result < 0)
		content_refuse(running->request, "%s", error.message);
	running->code.timeout_ms = exec->spec.timeout_ms;
	return result == 0;
}

/* --- the time it may take --- */

void tool_exec_enter(struct tool_exec *running, void (*cancelled)(struct mcp_request *request),
		     void (*hand_back)(void *running))
{
	struct mcp_request *request = running->request;
	int64_t budget = request->core->config.mcp_block_seconds * 1000LL;
	if (!running->entered)
		mcp_hold(request);
	running->entered = true;
	request->on_cancel = cancelled;
	/* Nothing waits for the answer of a task. The time for waking the sandbox, or for starting
	 * an interpreter, counts; at least a second is left. */
	if (request->task || running->budget || !hand_back)
		return;
	budget -= (clock_monotonic() - running->began) / NSEC_PER_MSEC;
	running->budget =
	    alarm_after(request->core->loop, (uint64_t)MAX(budget, 1000), hand_back, running);
}

void tool_exec_leave(struct tool_exec *running)
{
	struct mcp_request *request = running->request;
	running->run = NULL;
	running->cell = NULL;
	running->oneshot = NULL;
	running->starting = NULL;
	running->creating = false;
	running->entered = false;
	list_remove(&running->waiting);
	alarm_stop(&running->budget);
	follow_stop(&running->follow);
	request->on_cancel = NULL;
	mcp_release(request);
}

/* --- what is seen meanwhile --- */

void tool_exec_changed(struct tool_exec *running, struct exec *exec)
{
	running->at_sandbox = exec->sandbox->row.id;
	running->at_exec = exec->row.id;
	follow_changed(&running->follow, running->request, exec);
}

/* --- answers --- */

struct answer_view tool_exec_view(struct tool_exec *running, struct buffer *note)
{
	struct answer_view view = {
	    .output = {.max = running->exec.answer_max, .read_more = "read_job"},
	};
	const struct sandbox *kept = running->oneshot ? oneshot_kept(running->oneshot) : NULL;
	if ((running->oneshot || running->ran) && !kept) {
		view.gone = true;
		view.output.read_more = NULL;
	}
	target_note(running->request, note);
	if (kept)
		(void)!buffer_printf(note, "in sandbox %s, which was made for this and is kept",
				     kept->row.id.text);
	view.note = buffer_text(note);
	return view;
}

void tool_exec_answer(struct tool_exec *running)
{
	answer_send(running->request, &running->answer);
}

void tool_exec_failed(struct tool_exec *running, const struct error *error)
{
	struct mcp_request *request = running->request;
	if (error->kind == ERROR_DAEMON_RESTARTING && !running->oneshot &&
	    id_is_set(&running->at_exec)) {
		content_reply(request,
			      "[status: running, job_id %s; the server is being restarted and the "
			      "command goes on; next, in a few seconds: read_job "
			      "{\"job_id\":\"%s\"}]",
			      running->at_exec.text, running->at_exec.text);
		return;
	}
	/* For a task this is a failure: that its interpreter was removed is not a result of the
	 * code. */
	if (error->kind == ERROR_CONTEXT_ENDED && request->task && !running->context_id)
		request->tool = NULL;
	mcp_fail(request, error);
}

/* --- one-shot --- */

/* The command continues in its sandbox. NULL: it was answered, or hand_back will be called once
 * more. */
static struct exec *detach(struct tool_exec *running, void (*hand_back)(void *running))
{
	struct mcp_request *request = running->request;
	struct sandbox *sandbox;
	struct exec *exec;
	struct error error;
	if (running->ran) {
		/* It has ended and its sandbox is being removed: `done` comes, and finds the
		 * request answered. */
		tool_exec_answer(running);
		return NULL;
	}
	if (oneshot_detach(running->oneshot, &sandbox, &exec, &error) == 0) {
		running->oneshot = NULL;
		running->at_sandbox = sandbox->row.id;
		return exec;
	}
	alarm_stop(&running->budget);
	if (id_is_set(&running->at_exec)) {
		/* It has ended, and its end is about to be reported. */
		running->budget = alarm_after(request->core->loop, 1000, hand_back, running);
	} else {
		oneshot_cancel(TAKE_PTR(running->oneshot), &request->principal);
		content_refuse(request,
			       "no sandbox was ready within %u s (%s); nothing was run. Try again, "
			       "or create_sandbox first",
			       request->core->config.mcp_block_seconds, error.message);
		tool_exec_leave(running);
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
		    sandbox->row.id.text, ONESHOT_DETACHED_IDLE_SECONDS / 60,
		    (long long)sandbox_expires_in(&sandbox->row));
}

static void shot_cancelled(struct mcp_request *request)
{
	struct tool_exec *running = request->state;
	if (running->oneshot)
		oneshot_cancel(TAKE_PTR(running->oneshot), &request->principal);
	tool_exec_leave(running);
}

static void shot_hand_back(void *data)
{
	struct tool_exec *running = data;
	struct exec *exec = detach(running, shot_hand_back);
	if (!exec)
		return;
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = tool_exec_view(running, &note);
	buffer_clear(&note);
	tool_exec_note_kept(exec->sandbox, &note);
	view.note = buffer_text(&note);
	answer_view_all(exec, &view);
	answer_running(&running->answer, exec, &view);
	tool_exec_answer(running);
	tool_exec_leave(running);
}

void tool_exec_one_shot(struct tool_exec *running)
{
	struct mcp_request *request = running->request;
	uint32_t *timeout = &running->exec.spec.timeout_ms;
	running->one_shot.timeout_seconds = oneshot_life(request->core, timeout);
	running->one_shot.timeout_set = true;
	running->code.timeout_ms = *timeout;
	/* A task also gets its result after a restart of the daemon: the command must still exist
	 * then. */
	if (request->task) {
		uint32_t idle = request->core->config.idle_timeout_seconds;
		running->one_shot.options |= OPTION_DETACHED;
		running->one_shot.idle_timeout_seconds =
		    idle == 0 ? ONESHOT_DETACHED_IDLE_SECONDS
			      : MIN(idle, ONESHOT_DETACHED_IDLE_SECONDS);
	}
	/* It may become a sandbox that stays, at the change to a job. */
	if (request->view.ephemeral)
		ephemeral_mark(&running->one_shot, &request->view.connection, &running->labels);
	tool_exec_enter(running, shot_cancelled, shot_hand_back);
}

void tool_exec_shot_done(void *data, const struct error *error)
{
	struct tool_exec *running = data;
	if (running->request->open) {
		if (error)
			tool_exec_failed(running, error);
		else
			tool_exec_answer(running);
	}
	tool_exec_leave(running);
}
