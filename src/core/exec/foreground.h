/* An exec in the foreground: somebody waits for its end (REST, code contexts, one-shot execs, MCP).
 * It is exec_start() with what outlives a request: standard input that was given whole, a cancel
 * that holds across a lost connection, the question what is left running.
 *
 * It belongs to its caller from foreground_start() until `done` was called or foreground_abandon().
 */
#pragma once

#include "core/exec/exec.h"

struct foreground;

struct foreground_callbacks {
	/* Output, stdin credit, start: something about the exec has changed. May be NULL. */
	void (*changed)(struct foreground *foreground, struct exec *exec);
	/* Once, last, never from within foreground_start(): the exec has ended (also by time-out or
	 * cancel: see its row), and `left` are its descendants that live on; or error: it could not
	 * be started, its standard input got lost on the way (it is being cancelled), or its
	 * sandbox ended first. The exec is borrowed for the length of the call; with an error it
	 * may be NULL. The foreground exec is gone when it returns. */
	void (*done)(void *data, struct exec *exec, const struct left_process *left, size_t count,
		     const struct error *error);
};

/* The sandbox is ready. stdin_data (malloc'ed, taken also on failure, NULL: none) is fed and then
 * closed; the spec must say EXEC_STDIN then. */
NODISCARD int foreground_start(struct sandbox *sandbox, const struct exec_spec *spec,
			       char *stdin_data, size_t stdin_size,
			       const struct foreground_callbacks *callbacks, void *data,
			       struct foreground **ret_foreground, struct error *error);
void *foreground_data(const struct foreground *foreground);
struct exec *foreground_exec(const struct foreground *foreground);
/* Kills every process of it; `done` comes. */
void foreground_cancel(struct foreground *foreground);
/* `done` is not called any more. kill: the command ends too; else it goes on as a job. Not from
 * within `done`. */
void foreground_abandon(struct foreground *foreground, bool kill);
