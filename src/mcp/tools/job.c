/* start_job and stop_job, and the table with read_job (read_job.c): commands that outlast one
 * call. Called by tools.c; waits through callbacks. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "core/account/access.h"
#include "mcp/tools/find_job.h"
#include "mcp/tools/job.h"
#include "mcp/tools/tool_exec.h"

/* So long start_job waits for its end or its first output, to notice a server that dies at once;
 * and after that for further output. */
#define START_WAIT_MS 1000
#define START_QUIET_MS 150
/* The time from asking a job to end until killing it, and from that until giving up; and the wait
 * after a named signal. */
#define STOP_GRACE_MS 3000
#define STOP_KILL_MS 5000
#define STOP_NAMED_MS 1000
/* The watchers of an interpreter are not notified of a cell's end; an interpreter that does not
 * react is killed after some seconds (core/code/code.h). */
#define STOP_LOOK_MS 100
#define STOP_CELL_MS 15000
#define STATE_OUTPUT (4 * KIB)
/* stop_job: a model that stops a job has read the rest, or does not want it. Per stream. */
#define STOP_OUTPUT (1 * KIB)

/* Shows only the last lines, and says how to read all of it. */
static void view_last(struct exec *exec, struct answer_view *view, struct buffer *to)
{
	struct output_view *output = &view->output;
	output->out_begin = MAX(output->out_begin, output_tail(exec, EXEC_STDOUT, STOP_OUTPUT));
	output->err_begin = MAX(output->err_begin, output_tail(exec, EXEC_STDERR, STOP_OUTPUT));
	if (output->out_begin + output->err_begin > 0 &&
	    buffer_printf(to, "[the last lines; all of it: read_job {\"job_id\":\"%s\"}]\n",
			  exec->row.id.text) < 0)
		return;
}

static void answer_state(struct mcp_request *request, struct exec *exec, bool stopped)
{
	uint64_t max = STATE_OUTPUT;
	struct job job = job_of(exec);
	struct answer answer;
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = {.output = {.max = max, .read_more = "read_job"}};
	/* For a running job the text contains its id. */
	if (job_over(&job) && buffer_printf(&note, "job_id %s%s", exec->row.id.text,
					    request->sandbox_chosen ? ", " : "") < 0)
		return;
	target_note(request, &note);
	view.note = buffer_text(&note);
	answer_begin(&answer, max);
	if (job.cell)
		answer_cell_view(exec, job.cell, &view);
	else
		answer_view_all(exec, &view);
	if (stopped && !job.cell)
		view_last(exec, &view, &answer.text);
	if (!job_over(&job))
		answer_running(&answer, exec, &view);
	else if (job.cell)
		answer_cell(&answer, job.context, job.cell, &view);
	else
		answer_exec(&answer, exec, &view, NULL, 0);
	answer_send(request, &answer);
	answer_done(&answer);
}

/* --- start_job --- */

static void start_job_cancelled(struct mcp_request *request)
{
	struct tool_exec *tool_exec = request->state;
	struct sandbox *sandbox = sandbox_by_id(request->core, &tool_exec->at_sandbox);
	struct exec *exec;
	struct error error;
	if (tool_exec->starting)
		exec_wait_cancel(TAKE_PTR(tool_exec->starting));
	/* The client has not heard of it: it would run unnoticed. */
	if (pending_kills(request) && sandbox &&
	    exec_find(sandbox, tool_exec->at_exec.text, &exec, &error) == 0)
		exec_cancel(exec, &request->principal);
	tool_exec_leave(tool_exec);
}

static void start_job_waited(void *data, struct exec *exec, const struct error *error)
{
	struct tool_exec *tool_exec = data;
	struct mcp_request *request = tool_exec->request;
	int64_t left =
	    tool_exec->began / NSEC_PER_MSEC + START_WAIT_MS - clock_monotonic() / NSEC_PER_MSEC;
	struct error failed;
	tool_exec->starting = NULL;
	if (!request->open) {
		tool_exec_leave(tool_exec);
		return;
	}
	/* The first output has come: waits a little for more. */
	if (!error && !exec_ended(exec) && !tool_exec->heard && left > 0) {
		tool_exec->heard = true;
		if (exec_wait_end(exec, (uint32_t)MIN(left, START_QUIET_MS), start_job_waited,
				  tool_exec, &tool_exec->starting, &failed) == 0)
			return;
	}
	if (error) {
		tool_exec_failed(tool_exec, error);
	} else if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &failed);
		mcp_fail(request, &failed);
	} else {
		answer_state(request, exec, false);
	}
	tool_exec_leave(tool_exec);
}

static void start_job_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct tool_exec *tool_exec = request->state;
	struct exec *exec;
	struct error error;
	tool_exec->began = clock_monotonic();
	tool_exec_enter(tool_exec, start_job_cancelled, NULL);
	if (exec_start(sandbox, &tool_exec->exec.spec, &exec, &error) < 0) {
		mcp_fail(request, &error);
		tool_exec_leave(tool_exec);
		return;
	}
	tool_exec->at_sandbox = sandbox->row.id;
	tool_exec->at_exec = exec->row.id;
	if (exec_wait_output(exec, 0, 0, START_WAIT_MS, start_job_waited, tool_exec,
			     &tool_exec->starting, &error) < 0) {
		mcp_fail(request, &error);
		tool_exec_leave(tool_exec);
	}
}

static const struct field start_job_fields[] = {
    {"command", FIELD_TEXT_AT(struct tool_exec, exec.shell), FIELD_REQUIRED, 1, TOOL_COMMAND_MAX},
    {"sandbox_id", FIELD_TEXT_AT(struct tool_exec, sandbox_id)},
    {"timeout_seconds", FIELD_NUMBER_AT(struct tool_exec, exec.timeout_seconds),
     .max = EXEC_TIMEOUT_MCP_MAX},
    {FIELD_ROWS_AT(struct tool_exec, exec, struct exec_fields), .inner = exec_fields,
     .words = "timeout_seconds,stdin,max_output_bytes"},
    {0},
};

static void start_job(struct mcp_request *request, const json_t *arguments)
{
	struct tool_exec *tool_exec = tool_exec_new(request);
	if (tool_arguments(request, arguments, tool_exec) && tool_exec_check(tool_exec))
		target_ready(request, tool_exec->sandbox_id, 0, start_job_act);
}

/* --- stop_job --- */

struct stop_job_state {
	struct mcp_request *request;
	const char *job_id, *sandbox_id, *signal_name;
	int signal; /* 0: none was named: the job is asked to end, and then killed */
	bool killed;
	int64_t deadline; /* clock_monotonic() */
	struct exec_wait *wait;
};

static void stop_job_leave(struct stop_job_state *stopping)
{
	stopping->request->on_cancel = NULL;
	mcp_release(stopping->request);
}

/* The signals stay sent. */
static void stop_job_cancelled(struct mcp_request *request)
{
	struct stop_job_state *stopping = request->state;
	if (stopping->wait)
		exec_wait_cancel(TAKE_PTR(stopping->wait));
	stop_job_leave(stopping);
}

static void stop_job_step(struct stop_job_state *stopping, struct exec *exec);

static void stop_job_woke(void *data, struct exec *exec, const struct error *error)
{
	struct stop_job_state *stopping = data;
	stopping->wait = NULL;
	if (!stopping->request->open) {
		stop_job_leave(stopping);
	} else if (error) {
		mcp_fail(stopping->request, error);
		stop_job_leave(stopping);
	} else {
		stop_job_step(stopping, exec);
	}
}

static void stop_job_wait(struct stop_job_state *stopping, struct exec *exec, int64_t milliseconds)
{
	struct error error;
	if (exec_wait_end(exec, (uint32_t)MAX(milliseconds, 1), stop_job_woke, stopping,
			  &stopping->wait, &error) < 0) {
		mcp_fail(stopping->request, &error);
		stop_job_leave(stopping);
	}
}

static void stop_job_step(struct stop_job_state *stopping, struct exec *exec)
{
	struct job job = job_of(exec);
	int64_t left = (stopping->deadline - clock_monotonic()) / NSEC_PER_MSEC;
	if (!job_over(&job) && left > 0) {
		stop_job_wait(stopping, exec, MIN(left, job.cell ? STOP_LOOK_MS : left));
		return;
	}
	if (!job_over(&job) && stopping->signal == 0 && !stopping->killed) {
		stopping->killed = true;
		stopping->deadline = clock_monotonic() + STOP_KILL_MS * NSEC_PER_MSEC;
		exec_cancel(exec, &stopping->request->principal);
		stop_job_wait(stopping, exec, STOP_KILL_MS);
		return;
	}
	answer_state(stopping->request, exec, true);
	stop_job_leave(stopping);
}

/* The job has ended, but its left-over processes have not. */
static void stop_job_rest(struct stop_job_state *stopping, struct exec *exec)
{
	struct error error;
	int signal = stopping->signal ? stopping->signal : SIGKILL;
	if (exec->row.left_running > 0 &&
	    exec_signal(exec, &stopping->request->principal, signal, SIGNAL_TREE, &error) == 0)
		content_reply(stopping->request,
			      "[job %s had ended (%s, exit code %d); what it had left running was "
			      "sent SIG%s]",
			      exec->row.id.text, exec_state_text(&exec->row),
			      exec_exit_code(&exec->row),
			      sigabbrev_np(signal) ? sigabbrev_np(signal) : "?");
	else
		content_reply(stopping->request, "[job %s had ended already: %s, exit code %d]",
			      exec->row.id.text, exec_state_text(&exec->row),
			      exec_exit_code(&exec->row));
}

static void stop_job_act(struct mcp_request *request, struct sandbox *sandbox)
{
	struct stop_job_state *stopping = request->state;
	struct exec *exec;
	struct error error;
	int64_t wait = stopping->signal ? STOP_NAMED_MS : STOP_GRACE_MS;
	if (exec_find(sandbox, stopping->job_id, &exec, &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	struct job job = job_of(exec);
	if (exec_ended(exec)) {
		stop_job_rest(stopping, exec);
		return;
	}
	if (job_over(&job)) {
		answer_state(request, exec, true);
		return;
	}
	/* In an interpreter that keeps variables, only the running cell is stopped. */
	if (stopping->signal == 0 && job.context && code_context_interrupt(job.context)) {
		wait = STOP_CELL_MS;
	} else if (exec_signal(exec, &request->principal,
			       stopping->signal ? stopping->signal : SIGTERM, SIGNAL_TREE,
			       &error) < 0) {
		mcp_fail(request, &error);
		return;
	}
	stopping->deadline = clock_monotonic() + wait * NSEC_PER_MSEC;
	/* Until stop_job_leave(): an answer would free the request with this state. */
	tool_wait(request, stop_job_cancelled);
	stop_job_step(stopping, exec);
}

static void stop_job_found(struct mcp_request *request, struct exec *exec)
{
	struct stop_job_state *stopping = request->state;
	if (exec_ended(exec) && exec->row.left_running == 0)
		stop_job_rest(stopping, exec);
	else
		target_ready(request, exec->sandbox->row.id.text, 0, stop_job_act);
}

static const struct field stop_job_fields[] = {
    {"job_id", FIELD_TEXT_AT(struct stop_job_state, job_id), FIELD_REQUIRED, 1},
    {"sandbox_id", FIELD_TEXT_AT(struct stop_job_state, sandbox_id)},
    {"signal", FIELD_TEXT_AT(struct stop_job_state, signal_name),
     .mcp = "Such as INT, HUP or KILL."},
    {0},
};

static void stop_job(struct mcp_request *request, const json_t *arguments)
{
	struct stop_job_state *stopping = calloc(1, sizeof(*stopping));
	if (!stopping)
		abort();
	stopping->request = request;
	request->state = stopping;
	request->state_free = free;
	if (!tool_arguments(request, arguments, stopping))
		return;
	if (stopping->signal_name && stopping->signal_name[0]) {
		stopping->signal = signal_by_name(stopping->signal_name);
		if (stopping->signal < 1) {
			content_refuse(request,
				       "field `signal` is `%.16s`; accepted: a name like `TERM`, "
				       "`INT`, `HUP`, `KILL`, `USR1`, or left out: TERM, then KILL",
				       stopping->signal_name);
			return;
		}
	}
	job_find(request, stopping->sandbox_id, stopping->job_id, stop_job_found);
}

const struct mcp_tool job_tools[] = {
    {.name = "start_job",
     .title = "Start a background job",
     .description =
	 "Start a shell command that keeps running (a server, a build, a watcher) and get its "
	 "job_id within a second, with its first output or its early failure. It lives until it "
	 "ends, stop_job, or its sandbox's end.",
     .fields = start_job_fields,
     .example = "{\"command\":\"python3 -m http.server 8000\"}",
     .scope = SCOPE_WRITE,
     .toolsets = TOOLSET_DEFAULT | TOOLSET_JOBS,
     .hints = TOOL_DESTROYS | TOOL_OPEN_WORLD,
     .call = start_job},
    {.name = "read_job",
     .title = "Read a job's output",
     .description =
	 "Get a job's state, exit code and output: all of it shortened, or a page from a byte "
	 "offset on, or only the lines that match a regex. With wait_seconds it waits for some new "
	 "output, a match or the end; until end: for the end alone.",
     .fields = read_job_fields,
     .example = "{\"job_id\":\"abc\",\"offset\":0,\"wait_seconds\":30}",
     .scope = SCOPE_READ,
     .toolsets = TOOLSET_DEFAULT | TOOLSET_JOBS,
     .hints = TOOL_READS | TOOL_REPEATABLE,
     .call = read_job},
    {.name = "stop_job",
     .title = "Stop a job",
     .description = "Stop a job and every process it started: TERM, then KILL after 3 s; or send "
		    "one signal. Returns its last output and how it ended.",
     .fields = stop_job_fields,
     .example = "{\"job_id\":\"abc\"}",
     .scope = SCOPE_WRITE,
     .toolsets = TOOLSET_DEFAULT | TOOLSET_JOBS,
     .hints = TOOL_DESTROYS | TOOL_REPEATABLE,
     .call = stop_job},
    {0},
};
