/* run_shell, and the table with run_code (run_code.c): a command in a sandbox, or in a fresh one
 * that is removed afterwards. Called by tools.c; waits through callbacks (tool_exec.h). */
#include "core/account/access.h"
#include "mcp/tools/tool_exec.h"
#include "mcp/tasks/task.h"

/* --- in a sandbox --- */

static void run_shell_exec_changed(struct foreground *foreground, struct exec *exec)
{
	tool_exec_changed(foreground_data(foreground), exec);
}

static void run_shell_exec_done(void *data, struct exec *exec, const struct left_process *left,
				size_t count, const struct error *error)
{
	struct tool_exec *tool_exec = data;
	tool_exec->foreground = NULL;
	if (tool_exec->request->open) {
		DONE_BUFFER struct buffer note = BUFFER(256);
		struct answer_view view = tool_exec_view(tool_exec, &note);
		if (error) {
			tool_exec_failed(tool_exec, error);
		} else {
			answer_view_all(exec, &view);
			answer_exec(&tool_exec->answer, exec, &view, left, count);
			answer_send(tool_exec->request, &tool_exec->answer);
		}
	}
	tool_exec_leave(tool_exec);
}

static void run_shell_cancelled(struct mcp_request *request)
{
	struct tool_exec *tool_exec = request->state;
	if (tool_exec->foreground)
		pending_abandon(request, TAKE_PTR(tool_exec->foreground));
	tool_exec_leave(tool_exec);
}

static void run_shell_hand_back(void *data)
{
	struct tool_exec *tool_exec = data;
	struct exec *exec = foreground_exec(tool_exec->foreground);
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = tool_exec_view(tool_exec, &note);
	answer_view_all(exec, &view);
	/* It may have ended, while its left-over processes are still being queried. */
	if (exec_ended(exec))
		answer_exec(&tool_exec->answer, exec, &view, NULL, 0);
	else
		answer_running(&tool_exec->answer, exec, &view);
	foreground_abandon(TAKE_PTR(tool_exec->foreground), false);
	answer_send(tool_exec->request, &tool_exec->answer);
	tool_exec_leave(tool_exec);
}

static void run_shell_act(struct mcp_request *request, struct sandbox *sandbox)
{
	static const struct foreground_callbacks callbacks = {.changed = run_shell_exec_changed,
							      .done = run_shell_exec_done};
	struct tool_exec *tool_exec = request->state;
	struct error error;
	tool_exec_enter(tool_exec, run_shell_cancelled, run_shell_hand_back);
	if (foreground_start(sandbox, &tool_exec->exec.spec, TAKE_PTR(tool_exec->exec.stdin_data),
			     tool_exec->exec.stdin_size, &callbacks, tool_exec,
			     &tool_exec->foreground, &error) < 0) {
		mcp_fail(request, &error);
		tool_exec_leave(tool_exec);
		return;
	}
	tool_exec->at_sandbox = sandbox->row.id;
	tool_exec->at_exec = foreground_exec(tool_exec->foreground)->row.id;
}

/* --- one-shot --- */

static void run_shell_oneshot_changed(void *data, struct sandbox *sandbox, struct exec *exec)
{
	(void)sandbox;
	tool_exec_changed(data, exec);
}

/* The sandbox still exists: the answer is written now and sent after the removal. */
static void run_shell_oneshot_ran(void *data, const struct oneshot_result *result)
{
	struct tool_exec *tool_exec = data;
	DONE_BUFFER struct buffer note = BUFFER(256);
	struct answer_view view = tool_exec_view(tool_exec, &note);
	answer_view_all(result->exec, &view);
	answer_exec(&tool_exec->answer, result->exec, &view, result->left, result->left_count);
	tool_exec->ran = true;
}

static void run_shell_oneshot_start(struct mcp_request *request)
{
	static const struct oneshot_callbacks callbacks = {.changed = run_shell_oneshot_changed,
							   .ran = run_shell_oneshot_ran,
							   .done = tool_exec_oneshot_done};
	struct tool_exec *tool_exec = request->state;
	struct error error;
	tool_exec_enter_oneshot(tool_exec);
	if (oneshot_start(request->core, &request->principal, &tool_exec->oneshot_spec,
			  &tool_exec->exec.spec, TAKE_PTR(tool_exec->exec.stdin_data),
			  tool_exec->exec.stdin_size, &callbacks, tool_exec, &tool_exec->oneshot,
			  &error) < 0) {
		mcp_fail(request, &error);
		tool_exec_leave(tool_exec);
	}
}

static const struct field run_shell_fields[] = {
    {"command", FIELD_TEXT_AT(struct tool_exec, exec.shell), FIELD_REQUIRED, 1, TOOL_COMMAND_MAX},
    {"sandbox_id", FIELD_TEXT_AT(struct tool_exec, sandbox_id),
     .mcp = "Id or name. May be left out when there is only one."},
    {FIELD_ROWS_AT(struct tool_exec, exec, struct exec_fields), .inner = exec_fields},
    {0},
};

static void run_shell(struct mcp_request *request, const json_t *arguments)
{
	struct tool_exec *tool_exec = tool_exec_new(request);
	if (!tool_arguments(request, arguments, tool_exec) || !tool_exec_check(tool_exec))
		return;
	/* With this id the task is found again after a restart of the daemon. */
	if (request->task)
		tool_exec->exec.spec.id = *task_exec(request->task);
	answer_begin(&tool_exec->answer, tool_exec->exec.answer_max);
	if (target_fresh(request, tool_exec->sandbox_id))
		run_shell_oneshot_start(request);
	else
		target_ready(request, tool_exec->sandbox_id, 0, run_shell_act);
}

const struct mcp_tool run_tools[] = {
    {.name = "run_shell",
     .title = "Run a shell command",
     .description =
	 "Run a shell command (sh -c) in a sandbox and get its stdout, stderr and exit code. "
	 "With no sandbox at all, or sandbox_id new, it runs once in a fresh one that is then "
	 "gone. A command that runs longer than one call waits goes on as a job: the answer gives "
	 "its job_id for read_job. Long output is cut in the middle; the answer says how to "
	 "read the rest.",
     .fields = run_shell_fields,
     .meta = "{\"anthropic/alwaysLoad\":true}",
     .example = "{\"command\":\"ls -la /workspace\"}",
     .scope = SCOPE_WRITE,
     .toolsets = TOOLSET_DEFAULT,
     .hints = TOOL_DESTROYS | TOOL_OPEN_WORLD | TOOL_TASK,
     .call = run_shell},
    {.name = "run_code",
     .title = "Run code",
     .description =
	 "Run a piece of python, node or bash and get what it prints, the value of its last "
	 "expression, figures as images, and its traceback if it fails. Each call is a fresh "
	 "interpreter unless context_id is given. Waits, sandbox and output as for run_shell.",
     .fields = run_code_fields,
     .example = "{\"language\":\"python\",\"code\":\"print(6 * 7)\"}",
     .scope = SCOPE_WRITE,
     .toolsets = TOOLSET_DEFAULT,
     .hints = TOOL_DESTROYS | TOOL_OPEN_WORLD | TOOL_TASK,
     .call = run_code},
    {0},
};
