/* See pending_operation.h. Called by the tools that wait, on the loop; nothing blocks. */
#include "mcp/pending_operation.h"

#include <signal.h>
#include <stdlib.h>

#include "base/log.h"
#include "core/exec/wait.h"
#include "core/file/tasks.h"
#include "core/exec/foreground.h"
#include "mcp/alarm.h"
#include "mcp/server.h"

/* --- any operation --- */

void tool_wait(struct mcp_request *request, void (*on_cancel)(struct mcp_request *request))
{
	mcp_hold(request);
	request->on_cancel = on_cancel;
}

bool tool_back(struct mcp_request *request)
{
	request->on_cancel = NULL;
	if (request->open)
		return true;
	mcp_release(request);
	return false;
}

/* --- another turn --- */

static void tool_turn_come(struct work *work)
{
	struct tool_turn *turn = container_of(work, struct tool_turn, work);
	turn->come(turn->data);
}

void tool_turn_wait(struct mcp_request *request, struct tool_turn *turn)
{
	struct work_share *share = core_share(request->core, &request->principal);
	turn->work.run = tool_turn_come;
	work_wait(&turn->work, share);
	work_share_release(share);
}

void tool_turn_cancel(struct tool_turn *turn)
{
	work_cancel(&turn->work);
}

/* --- those that are the same for many --- */

static void pending_free_state(void *state)
{
	struct pending_operation *pending = state;
	alarm_stop(&pending->alarm);
	pending->state_free(state);
}

void *pending_state(struct mcp_request *request, size_t size, void (*state_free)(void *state))
{
	void *state = calloc(1, size);
	if (!state)
		abort();
	((struct pending_operation *)state)->state_free = state_free ? state_free : free;
	request->state = state;
	request->state_free = pending_free_state;
	return state;
}

static void pending_deadline_passed(void *data)
{
	struct mcp_request *request = data;
	struct pending_operation *pending = request->state;
	void (*stop)(struct mcp_request *) = request->on_cancel;
	struct error error;
	alarm_stop(&pending->alarm);
	if (!request->open)
		return;
	mcp_hold(request);
	request->on_cancel = NULL;
	if (stop)
		stop(request);
	error_set(&error, ERROR_TIMED_OUT, "%s", pending->late);
	mcp_fail(request, &error);
	mcp_release(request);
}

void pending_deadline(struct mcp_request *request, double seconds, const char *late)
{
	struct pending_operation *pending = request->state;
	double most = 24 * 3600;
	pending->late = late;
	pending->alarm = alarm_after(request->core->loop, (uint64_t)(MIN(seconds, most) * 1000),
				     pending_deadline_passed, request);
}

bool pending_kills(const struct mcp_request *request)
{
	return !request->server->ending;
}

void pending_abandon(const struct mcp_request *request, struct foreground *foreground)
{
	struct exec *exec = foreground_exec(foreground);
	bool kills = pending_kills(request);
	struct error error;
	/* It has ended, and its left-over processes are being queried: they are killed too. If the
	 * sandbox cannot be reached, nothing can kill them until it ends. */
	if (kills && exec_ended(exec) && exec->row.left_running > 0 &&
	    exec_signal(exec, &request->principal, SIGKILL, SIGNAL_TREE, &error) < 0)
		log_info("exec %s: %s", exec->row.id.text, error.message);
	foreground_abandon(foreground, kills);
}

static void pending_cancelled(struct mcp_request *request)
{
	struct pending_operation *pending = request->state;
	if (pending->task)
		file_task_cancel(TAKE_PTR(pending->task));
	else if (pending->wait)
		exec_wait_cancel(TAKE_PTR(pending->wait));
	else if (pending->foreground)
		pending_abandon(request, TAKE_PTR(pending->foreground));
	else
		return; /* its callback still comes, and finds the request closed */
	mcp_release(request);
}

void pending_begin(struct mcp_request *request)
{
	tool_wait(request, pending_cancelled);
}

void pending_refused(struct mcp_request *request, const struct error *error)
{
	request->on_cancel = NULL;
	mcp_fail(request, error);
	mcp_release(request);
}

bool pending_over(struct mcp_request *request)
{
	struct pending_operation *pending = request->state;
	pending->task = NULL;
	pending->wait = NULL;
	pending->foreground = NULL;
	request->on_cancel = NULL;
	return request->open;
}

bool pending_back(struct mcp_request *request)
{
	if (pending_over(request))
		return true;
	mcp_release(request);
	return false;
}
