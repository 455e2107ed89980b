/* What run_shell, run_code and start_job have in common: a call that waits for what it began, shows
 * progress meanwhile, hands back a job when it has waited long enough, and ends what it began when
 * it is cancelled.
 *
 * The struct is the request's state. While something is under way (exactly one of run, cell,
 * oneshot, starting, creating, waiting) the request is held, by tool_exec_enter();
 * tool_exec_leave() is the one place that lets go: it is called once, by whichever of these comes
 * first: the end, the hand-over to a job, the cancel. Each of them first takes away or forgets what
 * is under way, so that no other can come after it. */
#pragma once

#include "core/code/code.h"
#include "core/sandbox/ephemeral.h"
#include "core/exec/wait.h"
#include "core/exec/oneshot.h"
#include "edge/exec_fields.h"
#include "mcp/alarm.h"
#include "mcp/tools/answer.h"
#include "mcp/tools/tool.h"

#define TOOL_COMMAND_MAX (100 * KIB)

struct tool_exec {
	struct mcp_request *request;
	/* What was asked; texts are the request's. */
	const char *sandbox_id, *language, *context_id;
	struct exec_fields exec;
	struct code_spec code;
	struct sandbox_spec one_shot;
	struct ephemeral_labels labels;
	/* Under way. */
	struct foreground *run;
	struct foreground_cell *cell;
	struct oneshot *oneshot;
	struct exec_wait *starting; /* start_job's */
	bool creating;              /* a code context, which cannot be called off */
	struct list waiting;        /* for a code context that another call is creating */
	bool made_context;          /* it is this call's */
	bool restarted;             /* its context had ended: the variables are gone */
	bool heard;                 /* of start_job: its first words came */
	bool entered;
	bool ran; /* of a one-shot: the answer is written, its sandbox is being removed */
	uint64_t cancelled_cell; /* its number, until its end is sure */
	int64_t began;
	struct id at_sandbox, at_exec; /* where it runs */
	struct follow follow;
	struct alarm *budget;
	struct answer answer;
};

struct tool_exec *tool_exec_new(struct mcp_request *request);
/* What the fields of a command, or the time-out of code, say; false: the request was answered. */
bool tool_exec_check(struct tool_exec *running);
/* Holds the request and begins to count the time. hand_back is called when it is over, with the
 * request open: it must answer and leave. NULL: what is begun bounds itself. */
void tool_exec_enter(struct tool_exec *running, void (*cancelled)(struct mcp_request *request),
		     void (*hand_back)(void *running));
void tool_exec_leave(struct tool_exec *running);
/* Something was printed. */
void tool_exec_changed(struct tool_exec *running, struct exec *exec);
/* The output as it is to be shown, and the note which sandbox it was; `note` is the room for it. */
struct answer_view tool_exec_view(struct tool_exec *running, struct buffer *note);
/* Sends the answer that was put together. */
void tool_exec_answer(struct tool_exec *running);
/* It could not be run, or its end is not known. A daemon that is restarted leaves the command
 * running: that is a job then. */
void tool_exec_failed(struct tool_exec *running, const struct error *error);
/* Enters for a one-shot run: its sandbox is described, its cancel and its hand-over to a job are
 * seen to. What is left is to start it, and to write the answer when it ran. */
void tool_exec_one_shot(struct tool_exec *running);
/* Where the sandbox was made for one run alone and stays: says so, and until when. */
void tool_exec_note_kept(const struct sandbox *sandbox, struct buffer *note);
/* `done` of one. */
void tool_exec_shot_done(void *running, const struct error *error);

/* run_code.c */
extern const struct field run_code_fields[];
void run_code(struct mcp_request *request, const json_t *arguments);
