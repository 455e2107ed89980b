/* See output_progress.h. Called by the tools that run commands, on the loop; waits by an alarm. */
#include "mcp/tools/output_progress.h"

#include "base/clock.h"
#include "core/account/access.h"
#include "mcp/alarm.h"

static void look(void *data)
{
	struct follow *follow = data;
	struct mcp_request *request = follow->request;
	struct exec *exec;
	struct error error;
	struct sandbox *sandbox = sandbox_by_id(request->core, &follow->sandbox);
	alarm_stop(&follow->alarm);
	if (!sandbox || exec_find(sandbox, follow->exec.text, &exec, &error) < 0)
		return;
	/* A message may be what shows that the client is gone: then all this is over after it. */
	mcp_hold(request);
	if (output_progress(request, &follow->follower, exec))
		follow->alarm = alarm_after(request->core->loop, MCP_PROGRESS_MS, look, follow);
	mcp_release(request);
}

/* In a turn of its own, so that whatever comes of a message does not come from within a callback
 * of the domain. */
void follow_changed(struct follow *follow, struct mcp_request *request, struct exec *exec)
{
	follow->request = request;
	follow->sandbox = exec->sandbox->row.id;
	follow->exec = exec->row.id;
	if (follow->alarm || !request->open || (!request->progress_token && !request->task))
		return;
	int64_t wait = (request->progress_due - clock_monotonic()) / NSEC_PER_MSEC;
	if (request->task)
		wait = MCP_PROGRESS_MS;
	follow->alarm = alarm_after(request->core->loop,
				    (uint64_t)MIN(MAX(wait, 0), MCP_PROGRESS_MS), look, follow);
}

void follow_stop(struct follow *follow)
{
	alarm_stop(&follow->alarm);
}
