/* The common part of run_shell, run_code and start_job: a call that waits for its command or code,
 * shows progress meanwhile, becomes a job when it has waited long enough, and ends its command when
 * it is cancelled.
 *
 * The struct is the request's state. While something is under way (exactly one of run, cell,
 * oneshot, starting, creating, waiting) the request is held, by tool_exec_enter(); only
 * tool_exec_leave() releases it. It is called once, by the first of these: the end, the change to a
 * job, the cancel. Each of them first takes or forgets the thing under way, so that no other can
 * come after it. */
#pragma once

#include "core/code/code.h"
#include "core/sandbox/ephemeral.h"
#include "core/exec/wait.h"
#include "core/exec/oneshot.h"
#include "edge/fields/exec_fields.h"
#include "mcp/alarm.h"
#include "mcp/tools/answer.h"
#include "mcp/tools/tool.h"

#define TOOL_COMMAND_MAX (100 * KIB)

struct tool_exec {
	struct mcp_request *request;
	/* The arguments; the texts belong to the request. */
	const char *sandbox_id, *language, *context_id;
	struct exec_fields exec;
	struct code_spec code;
	struct sandbox_spec oneshot_spec;
	struct ephemeral_labels labels;
	/* Under way. */
	struct foreground *foreground;
	struct foreground_cell *cell;
	struct oneshot *oneshot;
	struct exec_wait *starting; /* start_job's */
	bool creating;              /* creating a code context, which cannot be cancelled */
	struct list waiting;        /* for a code context that another call is creating */
	bool made_context;          /* this call has made its context */
	bool restarted;             /* its context had ended: the variables are lost */
	bool heard;                 /* for start_job: its first output has come */
	bool entered;
	bool ran; /* for a one-shot run: the answer is written, its sandbox is being removed */
	uint64_t cancelled_cell; /* its number, until its end is certain */
	int64_t began;
	struct id at_sandbox, at_exec; /* where the command runs */
	struct exec_progress progress;
	struct alarm *budget;
	struct answer answer;
};

struct tool_exec *tool_exec_new(struct mcp_request *request);
/* What the fields of a command, or the time-out of code, say; false: the request was answered. */
bool tool_exec_check(struct tool_exec *tool_exec);
/* Holds the request and starts the timer. hand_back is called at the time limit, while the request
 * is open: it must answer and leave. NULL: the operation limits itself. */
void tool_exec_enter(struct tool_exec *tool_exec, void (*cancelled)(struct mcp_request *request),
		     void (*hand_back)(void *tool_exec));
void tool_exec_leave(struct tool_exec *tool_exec);
/* There is new output. */
void tool_exec_changed(struct tool_exec *tool_exec, struct exec *exec);
/* The output to show, and the note which sandbox it was; `note` is the room for it. */
struct answer_view tool_exec_view(struct tool_exec *tool_exec, struct buffer *note);
/* It could not be run, or its end is unknown. If the daemon is being restarted, the command
 * continues as a job. */
void tool_exec_failed(struct tool_exec *tool_exec, const struct error *error);
/* Enters for a one-shot run: describes its sandbox, and sets up its cancel and its change to a job.
 * The caller then starts it, and writes the answer when it ran. */
void tool_exec_enter_oneshot(struct tool_exec *tool_exec);
/* If the sandbox was made for one run and stays: says so, and until when. */
void tool_exec_note_kept(const struct sandbox *sandbox, struct buffer *note);
/* `done` of one. */
void tool_exec_oneshot_done(void *tool_exec, const struct error *error);

/* run_code.c */
extern const struct field run_code_fields[];
void run_code(struct mcp_request *request, const json_t *arguments);
