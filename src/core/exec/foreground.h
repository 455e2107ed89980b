/* An exec in the foreground: a caller waits for its end (REST, code contexts, one-shot execs, MCP).
 * It adds to exec_start() what outlives a request: standard input that is given whole, a cancel
 * that also works across a lost connection, the query for left-over processes.
 *
 * It belongs to its caller from foreground_start() until `done` was called or
 * foreground_abandon(). */
#pragma once

#include "core/exec/exec.h"

struct foreground;

struct foreground_callbacks {
	/* The exec has changed: output, stdin credit, start. May be NULL. */
	void (*changed)(struct foreground *foreground, struct exec *exec);
	/* Once, last, never from within foreground_start(). Either the exec has ended (also by
	 * time-out or cancel: see its row), and `left` are its live descendants; or error: it could
	 * not be started, its standard input was lost on the way (it is being cancelled), or its
	 * sandbox ended first. The exec is borrowed for the length of the call; with an error it
	 * may be NULL. The foreground exec is freed after the call. */
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
/* `done` is not called any more. kill: the command is killed; else it continues as a job. Not from
 * within `done`. */
void foreground_abandon(struct foreground *foreground, bool kill);
