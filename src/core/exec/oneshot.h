/* A one-shot run: a sandbox is created, one command runs in it, and it is removed in every case: if
 * the command fails or times out, if the caller goes away, or if the daemon is killed (the sandbox
 * is marked, and the next daemon removes it, or finds it if that was requested).
 *
 * A oneshot belongs to its caller from oneshot_start() until `done` was called or
 * oneshot_cancel(). */
#pragma once

#include "core/exec/foreground.h"

struct oneshot;

struct oneshot_result {
	struct sandbox *sandbox;
	struct exec *exec; /* it has ended; its output can be read */
	const struct left_process *left;
	size_t left_count;
	uint64_t created_us, ran_us;
};

struct oneshot_callbacks {
	/* The command has new output. May be NULL. */
	void (*changed)(void *data, struct sandbox *sandbox, struct exec *exec);
	/* The command has ended and the sandbox still exists: take the needed data now. Not called
	 * if the command could not be started. */
	void (*ran)(void *data, const struct oneshot_result *result);
	/* Once, last; then the sandbox is removed, unless it is kept. error: why there is no
	 * result. */
	void (*done)(void *data, const struct error *error);
};

/* A sandbox with OPTION_DETACHED is not marked: it and its command outlive the daemon, until the
 * sandbox's idle time-out or its own time-out. exec->id is kept, and so is code->cell.
 *
 * Both specs are borrowed until `ran`, `done`, oneshot_cancel() or oneshot_detach(). stdin_data
 * (malloc'ed, taken also on failure, NULL: none) is fed and then closed. */
NODISCARD int oneshot_start(struct core *core, const struct principal *principal,
			    const struct sandbox_spec *sandbox, const struct exec_spec *exec,
			    char *stdin_data, size_t stdin_size,
			    const struct oneshot_callbacks *callbacks, void *data,
			    struct oneshot **ret_oneshot, struct error *error);
/* Kills the command and removes the sandbox; no callback comes. principal: who asked for it; NULL:
 * the caller is gone. */
void oneshot_cancel(struct oneshot *oneshot, const struct principal *principal);
/* The sandbox of a run with OPTION_DETACHED, if it was given a longer life or a name meanwhile
 * (then it has lost the option): it stays after the run. NULL: it does not stay. */
const struct sandbox *oneshot_kept(const struct oneshot *oneshot);
/* The life of a sandbox whose command has this time-out: long enough to report the command's
 * end. */
uint32_t oneshot_life(const struct core *core, uint32_t *timeout_ms);

/* The same with a piece of code (core/code/code.h) instead of the command. */
struct code_spec;
struct code_cell;
struct code_context;
struct oneshot_code_callbacks {
	/* There is new output or a new result. */
	void (*changed)(void *data, struct code_context *context, const struct code_cell *cell);
	/* The cell has ended and the sandbox still exists. */
	void (*ran)(void *data, struct code_context *context, const struct code_cell *cell);
	void (*done)(void *data, const struct error *error);
};
NODISCARD int oneshot_code_start(struct core *core, const struct principal *principal,
				 const struct sandbox_spec *sandbox, const struct code_spec *code,
				 const struct oneshot_code_callbacks *callbacks, void *data,
				 struct oneshot **ret_oneshot, struct error *error);
/* The same with what the caller itself runs in the sandbox, which has no time-out unless the spec
 * sets one. `ready` or, with why there is no
 * sandbox, `failed` comes once. After `ready` the caller ends the run by oneshot_cancel() or
 * oneshot_leave(); after `failed` the oneshot is gone. */
struct oneshot_sandbox_callbacks {
	void (*ready)(void *data, struct sandbox *sandbox);
	void (*failed)(void *data, const struct error *error);
};
NODISCARD int oneshot_sandbox_start(struct core *core, const struct principal *principal,
				    const struct sandbox_spec *sandbox,
				    const struct oneshot_sandbox_callbacks *callbacks, void *data,
				    struct oneshot **ret_oneshot, struct error *error);
/* The sandbox stays, as with oneshot_detach(). On failure nothing has changed. */
NODISCARD int oneshot_leave(struct oneshot *oneshot, struct error *error);

/* The command continues and its sandbox stays until its idle time-out (ONESHOT_LEFT_IDLE_SECONDS)
 * or its own; no callback comes.
 * -1: nothing runs yet, or it has ended already; then nothing has changed. */
NODISCARD int oneshot_detach(struct oneshot *oneshot, struct sandbox **ret_sandbox,
			     struct exec **ret_exec, struct error *error);
