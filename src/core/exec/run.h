/* A command from its start to its end, for whoever waits: REST, code contexts, one-shot runs, MCP.
 * It is exec_start() with what outlives a request: standard input that was given whole, a cancel
 * that holds across a lost connection, the question what is left running.
 *
 * A run belongs to its caller from run_start() until `done` was called or run_abandon(). */
#pragma once

#include "base/buffer.h"
#include "core/exec/exec.h"

struct run;

struct run_callbacks {
	/* Output, stdin credit, start: something about the exec has changed. May be NULL. */
	void (*changed)(struct run *run, struct exec *exec);
	/* Once, last, never from within run_start(): the exec has ended (also by time-out or
	 * cancel: see its row), and `left` are its descendants that live on; or error: it could not
	 * be started, its standard input got lost on the way (it is being cancelled), or its
	 * sandbox ended first. The exec is borrowed for the length of the call; with an error it
	 * may be NULL. The run is gone when it returns. */
	void (*done)(void *data, struct exec *exec, const struct left_process *left, size_t count,
		     const struct error *error);
};

/* The sandbox is ready. stdin_data (malloc'ed, taken also on failure, NULL: none) is fed and then
 * closed; the spec must say EXEC_STDIN then. */
NODISCARD int run_start(struct sandbox *sandbox, const struct exec_spec *spec, char *stdin_data,
			size_t stdin_size, const struct run_callbacks *callbacks, void *data,
			struct run **ret_run, struct error *error);
void *run_data(const struct run *run);
struct exec *run_exec(const struct run *run);
/* Kills every process of it; `done` comes. */
void run_cancel(struct run *run);
/* `done` is not called any more. kill: the command ends too; else it goes on as a job. Not from
 * within `done`. */
void run_abandon(struct run *run, bool kill);

/* The pieces, for who has a watcher of its own on the exec. */

/* Asks which descendants of an ended exec still run (nobody is asked where none do), then calls
 * back, at once or later, also when the answer cannot be had. */
void exec_finish(struct exec *exec,
		 void (*done)(void *data, const struct left_process *processes, size_t count),
		 void *data);
/* Why an exec that is EXEC_FAILED could not be started. */
void exec_start_error(const struct exec *exec, struct error *ret_error);
/* Kills it with every process it started; while its sandbox cannot be reached, as soon as it can.
 */
void exec_cancel(struct exec *exec, const struct principal *principal);
/* The terminal's line is cut, or the client of a command is gone: SIGHUP to its whole tree, as
 * above across a lost connection. */
void exec_hang_up(struct exec *exec, const struct principal *principal);
/* Bytes of its standard input were lost on the way, with the connection to the sandbox: what runs
 * has half an input. error says so. */
bool stdin_lost(const struct exec *exec, struct error *error);
/* Feeds bytes to an exec as it takes them, then closes its standard input, across a lost
 * connection. Where bytes got lost with it the exec is cancelled. Takes the data; outlives the
 * request. */
void stdin_feed(struct exec *exec, char *data, size_t size);

/* The first and the last bytes of [begin, end) of a stream, cut at line ends where there are any
 * near the cut and never inside a UTF-8 character: what fits into head_max and tail_max, with what
 * was left out between. All of it is in the head when nothing was. */
struct output_cut {
	struct buffer head, tail; /* tail is empty when nothing was left out */
	uint64_t total;           /* end - begin */
	uint64_t omitted;         /* bytes between head and tail */
	uint64_t tail_offset;     /* where the tail begins, in the stream */
};
NODISCARD int output_cut(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
			 uint64_t head_max, uint64_t tail_max, struct output_cut *ret_cut,
			 struct error *error);
void output_cut_done(struct output_cut *cut);
/* Bytes at the start of a text that are the rest of a character which began before it. */
size_t utf8_rest(const char *text, size_t size);
