/* A shell command for a dialect's tool: begins it, follows it, kills it with its request, and knows
 * when its lines came. Called by the tools of the dialects; waits through callbacks, nothing
 * blocks. */
#include "mcp/dialects/dialect.h"

#include <stdlib.h>

#include "base/clock.h"
#include "core/account/access.h"

/* If there are many marks, every second one is sufficient. */
static void output_mark(struct output_marks *marks, uint64_t total)
{
	if (marks->count > 0 && marks->marks[marks->count - 1].offset == total)
		return;
	if (marks->count == COMMAND_MARKS) {
		for (uint32_t i = 0; i < COMMAND_MARKS / 2; i++)
			marks->marks[i] = marks->marks[2 * i + 1];
		marks->count = COMMAND_MARKS / 2;
	}
	marks->marks[marks->count++] = (struct command_mark){total, clock_wall()};
}

static void command_note_output(struct command_state *state, struct exec *exec)
{
	for (int i = 0; i < 2; i++)
		output_mark(&state->marks[i], exec_total(exec, EXEC_STDOUT + i));
}

int64_t command_time(const struct command_state *state, const struct exec *exec,
		     enum exec_stream stream, uint64_t offset)
{
	const struct output_marks *marks = &state->marks[stream - EXEC_STDOUT];
	for (uint32_t i = 0; i < marks->count; i++)
		if (marks->marks[i].offset >= offset)
			return marks->marks[i].wall;
	return exec->row.ended_wall ? exec->row.ended_wall : clock_wall();
}

static void command_changed(struct foreground *foreground, struct exec *exec)
{
	struct mcp_request *request = foreground_data(foreground);
	struct command_state *state = request->state;
	command_note_output(state, exec);
	if (!state->fields.background) {
		exec_progress_changed(&state->progress, request, exec);
		return;
	}
	if (exec->row.state != EXEC_RUNNING)
		return;
	foreground_abandon(foreground, false);
	if (pending_over(request))
		state->finish(request, exec);
	mcp_release(request);
}

static void command_done(void *data, struct exec *exec, const struct left_process *left,
			 size_t count, const struct error *error)
{
	struct mcp_request *request = data;
	struct command_state *state = request->state;
	(void)left, (void)count;
	if (pending_over(request)) {
		bool no_bash = error && error->kind == ERROR_PROGRAM_NOT_FOUND &&
			       state->fields.bash && !state->plain_shell;
		struct sandbox *sandbox = no_bash ? target_again(request) : NULL;
		if (sandbox) {
			state->plain_shell = true;
			command_begin(request, sandbox);
		} else if (!no_bash && error) {
			mcp_fail(request, error);
		} else if (!no_bash) {
			command_note_output(state, exec);
			state->finish(request, exec);
		}
	}
	mcp_release(request);
}

static const struct foreground_callbacks callbacks = {.changed = command_changed,
						      .done = command_done};

static void state_free(void *data)
{
	struct command_state *state = data;
	exec_progress_stop(&state->progress);
	free(state);
}

struct command_state *command_new(struct mcp_request *request)
{
	return pending_state(request, sizeof(struct command_state), state_free);
}

void command_begin(struct mcp_request *request, struct sandbox *sandbox)
{
	struct command_state *state = request->state;
	struct error error;
	const char *shell[4] = {0};
	const char *const bash[] = {"bash", "-c", state->fields.command, NULL};
	bool plain = !state->fields.bash || state->plain_shell;
	shell_argv(state->fields.command, shell);
	struct exec_spec spec = {.argv = plain ? shell : bash,
				 .argc = 3,
				 .cwd = state->fields.cwd,
				 .timeout_ms = state->fields.timeout_ms,
				 .principal = &request->principal};
	pending_begin(request);
	if (foreground_start(sandbox, &spec, NULL, 0, &callbacks, request,
			     &state->pending.foreground, &error) < 0)
		pending_refused(request, &error);
}
