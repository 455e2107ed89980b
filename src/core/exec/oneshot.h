/* A one-shot run: a sandbox is created, one command runs in it, and it is removed, whatever
 * happens: the command fails, its time is over, whoever asked goes away, the daemon is killed in
 * the middle (its sandbox is marked, and the next daemon removes it, or finds it where that was
 * asked for).
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
	/* Output of the command: something has changed. May be NULL. */
	void (*changed)(void *data, struct sandbox *sandbox, struct exec *exec);
	/* The command has ended and the sandbox is there still: what is wanted of them is taken
	 * now. Not called where the command could not be started. */
	void (*ran)(void *data, const struct oneshot_result *result);
	/* Once, last: the sandbox is gone, or was kept. error: why there was no result. */
	void (*done)(void *data, const struct error *error);
};

/* A sandbox with OPTION_DETACHED is not marked: it and what runs in it live on when the daemon ends
 * in the middle, until its idle time-out or its own time. exec->id is kept, code->cell too.
 *
 * Both specs are borrowed until `ran`, `done`, oneshot_cancel() or oneshot_detach(). stdin_data
 * (malloc'ed, taken also on failure, NULL: none) is fed and then closed. */
NODISCARD int oneshot_start(struct core *core, const struct principal *principal,
			    const struct sandbox_spec *sandbox, const struct exec_spec *exec,
			    char *stdin_data, size_t stdin_size,
			    const struct oneshot_callbacks *callbacks, void *data,
			    struct oneshot **ret_oneshot, struct error *error);
/* Nobody waits any more: the command is killed and the sandbox removed; no callback comes. */
void oneshot_cancel(struct oneshot *oneshot, const struct principal *principal);
/* Its sandbox, one with OPTION_DETACHED, where that was given a longer life or a name meanwhile (it
 * has lost the option then): it stays after the run. NULL: it does not. */
const struct sandbox *oneshot_kept(const struct oneshot *oneshot);
/* How long a sandbox lives whose command may run for so long, so that the command's end is told. */
uint32_t oneshot_life(const struct core *core, uint32_t *timeout_ms);

/* The same with a piece of code (core/code/code.h) in the place of the command. */
struct code_spec;
struct code_cell;
struct code_context;
struct oneshot_code_callbacks {
	/* Output, results: something has changed. May be NULL. */
	void (*changed)(void *data, struct code_context *context, const struct code_cell *cell);
	/* The cell has ended and the sandbox is there still. */
	void (*ran)(void *data, struct code_context *context, const struct code_cell *cell);
	void (*done)(void *data, const struct error *error);
};
NODISCARD int oneshot_code_start(struct core *core, const struct principal *principal,
				 const struct sandbox_spec *sandbox, const struct code_spec *code,
				 const struct oneshot_code_callbacks *callbacks, void *data,
				 struct oneshot **ret_oneshot, struct error *error);
/* A sandbox that stays for its job is deleted when nothing has run in it, nor been asked of it, for
 * so long; or when its own time is over. */
#define ONESHOT_DETACHED_IDLE_SECONDS 600
/* What runs goes on and its sandbox stays, marked as such, as long as said above; no callback
 * comes. -1: nothing runs yet, or it has ended already; then everything is as it was.
 */
NODISCARD int oneshot_detach(struct oneshot *oneshot, struct sandbox **ret_sandbox,
			     struct exec **ret_exec, struct error *error);
