/* An exec: a command in a sandbox, its output by offset, its end. It belongs to its sandbox and
 * outlives the request that began it; add a watcher to follow an exec.
 *
 * Output is read from the logs (proto/output_log.h), by any reader at any time, by offset: also
 * after a restart of the daemon, after a reconnect of the client, or after the exec's end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "core/exec/stage.h"
#include "core/sandbox/sandbox.h"
#include "proto/init_messages.h"
#include "proto/output_log.h"

enum exec_stream { EXEC_STDOUT = 1, EXEC_STDERR = 2 };

/* Borrowed; 0 and NULL mean the default. */
struct exec_spec {
	struct id id;            /* unset: a new one */
	const char *const *argv; /* argc >= 1 */
	size_t argc;
	const struct pair *environment;
	size_t environment_count;
	const char *cwd;
	const char *user;
	uint32_t flags; /* EXEC_TTY, EXEC_STDIN, EXEC_LOSSLESS */
	uint32_t timeout_ms;
	uint16_t rows, columns;
	const struct exec_limit *limits;
	size_t limit_count;
	uint64_t head, tail;               /* retention per stream */
	const struct principal *principal; /* the caller; NULL: the daemon itself */
	const struct id *context;          /* the code context, if it is an interpreter */
	const char *title;                 /* lists show this instead of argv */
};

/* The error for a text that cannot be an exec's id. */
#define EXEC_ID_MALFORMED                                                                          \
	"that is not the id of an exec, which is 16 characters a-z, 0-9; `caisson jobs SANDBOX` "  \
	"lists them"

struct exec_digest {
	bool known;
	uint8_t sha256[32];
};

struct exec {
	struct list link; /* in sandbox->execs */
	struct sandbox *sandbox;
	struct exec_row row;
	uint32_t pid;              /* inside */
	struct output_log logs[2]; /* stdout, stderr; the descriptors are owned here */
	uint64_t log_counted;      /* its part of life->log_bytes */
	uint64_t stdin_credit;
	bool stdin_closed;
	uint64_t oom_kills_before; /* the sandbox's counter when it began */
	struct list watchers;      /* struct exec_watcher */
	/* Private to core/. The flags below are facts that are independent of the stage. */
	enum exec_stage stage;
	enum exec_written written;
	struct list ending; /* in the core's list, while EXEC_TOLD */
	bool stdin_broken;  /* data under way was lost with the connection */
	bool stdin_wanted;  /* a write was refused: call `changed` when there is room */
	bool listed;        /* seen in the init's list since the last resync */
	bool logs_removed;  /* the oldest logs were removed: reading them gives a gap */
	bool idle;          /* an interpreter that waits for code: it is no activity */
	uint32_t telling;   /* callers on the stack that still use it: it must not be removed */
	struct exec_digest digests[2]; /* of stdout and stderr, after its end */
	struct exec_result result;     /* while EXEC_STAGE_ASKING */
	int64_t overdue_at; /* CLOCK_BOOTTIME: the end must be reported by then; 0: no limit */
	struct output_totals consumed, consumed_sent; /* lossless */
	uint64_t notified;                            /* number of notifications */
	struct list left_queries;                     /* struct left_query */
	bool left_running_requested;                  /* the init owes an answer to LEFT_RUNNING */
	uint64_t held_signals[2]; /* by signal_scope, held until it has started */
};

/* Called whenever the exec has changed: started, output, stdin credit, ended, left-over processes
 * gone. The callback looks up the change in the exec.
 *
 * A lossless exec continues when every consumer has read its output: among the watchers that
 * consume a stream, the slowest one counts. Without a consumer nothing counts as consumed, and the
 * command blocks when its log is full, until one is added; the other watchers do not count. A
 * consumer that begins later than at offset 0 (it has the data before) reports this with
 * exec_watcher_consumed(). */
struct exec_watcher {
	struct list link;
	void (*changed)(struct exec_watcher *watcher, struct exec *exec);
	/* The last call: the exec is being freed (its sandbox ends). */
	void (*forgotten)(struct exec_watcher *watcher);
	bool consumes;
	enum exec_stream only; /* 0: both streams; else another watcher consumes the other one */
	/* Set by exec_watch(). */
	struct exec *exec;
	struct output_totals consumed;
	uint64_t notified;
};

/* The sandbox is ready (sandbox_ready()). The exec is in EXEC_STARTING; after a spawn error it
 * becomes EXEC_FAILED with row.error_kind, which watchers see like any end. */
NODISCARD int exec_start(struct sandbox *sandbox, const struct exec_spec *spec,
			 struct exec **ret_exec, struct error *error);
/* Loads an exec from the store if it is not in memory. */
NODISCARD int exec_find(struct sandbox *sandbox, const char *id, struct exec **ret_exec,
			struct error *error);
void exec_watch(struct exec *exec, struct exec_watcher *watcher);
void exec_unwatch(struct exec_watcher *watcher);
/* The reader of a lossless exec leaves it running: while there is no other consumer, its output
 * counts as read, so that the command does not block. When the last consumer leaves after the end,
 * this happens by itself, for the processes that the command left running. */
void exec_reader_leaves(struct exec *exec);
/* A flag of a row, beside those of enum exec_flag; append only. */
#define EXEC_READER_LEFT (1u << 16)
/* Is there a watcher that consumes both streams? */
bool exec_has_consumer(const struct exec *exec);

/* Removes the record and the logs of an ended exec. Its watchers are notified. SANDBOX_STATE while
 * it runs, or while its end is still to be reported or written. That includes every callback about
 * this exec (of a watcher, of a listener, `done` of a foreground exec): use exec_purge() there. If
 * it returns 0, the exec is freed; else it is unchanged. */
NODISCARD int exec_remove(struct exec *exec, const struct principal *principal,
			  struct error *error);
/* Kills the exec if it runs, and removes it in a separate turn as soon as it has ended: may be
 * called anywhere. */
void exec_purge(struct exec *exec, const struct principal *principal);

/* Called whenever any exec of a sandbox has changed: begun, output, ended. */
struct exec_listener {
	struct list link;
	void (*changed)(struct exec_listener *listener, struct exec *exec);
	/* The sandbox ends: the last call. */
	void (*forgotten)(struct exec_listener *listener);
};
void exec_listen(struct sandbox *sandbox, struct exec_listener *listener);
void exec_unlisten(struct exec_listener *listener);

bool exec_ended(const struct exec *exec);
/* Is it an internal exec that a code context needs beside its interpreter (core/code/start.c)? */
bool exec_internal(const struct exec_row *row);
uint64_t exec_total(const struct exec *exec, enum exec_stream stream);
/* As output_log_read(). */
NODISCARD ssize_t exec_read(struct exec *exec, enum exec_stream stream, uint64_t offset, void *data,
			    size_t size, uint64_t *ret_gap);
/* This consumer has read everything before `offset`. Does nothing for a watcher that does not
 * consume. */
void exec_watcher_consumed(struct exec_watcher *watcher, enum exec_stream stream, uint64_t offset);

/* Writes as many bytes as there is credit for; returns how many. `changed` is called for new
 * credit. */
NODISCARD ssize_t exec_stdin(struct exec *exec, const void *data, size_t size, struct error *error);
NODISCARD int exec_stdin_close(struct exec *exec, struct error *error);
/* A signal for an exec that is being started is held until it runs. */
NODISCARD int exec_signal(struct exec *exec, const struct principal *principal, int signal,
			  enum signal_scope scope, struct error *error);
NODISCARD int exec_resize(struct exec *exec, uint16_t rows, uint16_t columns, struct error *error);

struct left_process {
	uint32_t pid;
	char command[128];
};
/* Asks the init which descendants still run; the answer is none if the init does not reply in
 * time. */
NODISCARD int exec_left_running(struct exec *exec,
				void (*done)(void *data, const struct left_process *processes,
					     size_t count, const struct error *error),
				void *data, struct error *error);

/* Asks which descendants of an ended exec still run (without a request if there are none), then
 * calls back, at once or later, also if there is no answer. */
void exec_finish(struct exec *exec,
		 void (*done)(void *data, const struct left_process *processes, size_t count),
		 void *data);
/* Why an exec in EXEC_FAILED could not be started. */
void exec_start_error(const struct exec *exec, struct error *ret_error);
/* Kills it with every process that it started; if its sandbox cannot be reached, as soon as it
 * can. */
void exec_cancel(struct exec *exec, const struct principal *principal);
/* The terminal was disconnected, or the client of a command has gone: sends SIGHUP to its whole
 * tree, also across a lost connection. */
void exec_hang_up(struct exec *exec, const struct principal *principal);
/* Were bytes of its standard input lost with the connection to the sandbox? Then the command has
 * partial input. error says so. */
bool stdin_lost(const struct exec *exec, struct error *error);
/* Feeds bytes to an exec as it accepts them, then closes its standard input, also across a lost
 * connection. If bytes were lost with it, the exec is cancelled. Takes the data; outlives the
 * request. */
void stdin_feed(struct exec *exec, char *data, size_t size);

/* --- output for an answer --- */

/* The first and the last bytes of [begin, end) of a stream that fit into head_max and tail_max, cut
 * at line ends near the cut if possible, and never inside a UTF-8 character. If nothing was
 * omitted, all of it is in the head. */
struct output_cut {
	struct buffer head, tail; /* tail is empty if nothing was omitted */
	uint64_t total;           /* end - begin */
	uint64_t omitted;         /* bytes between head and tail */
	uint64_t tail_offset;     /* where the tail begins, in the stream */
};
NODISCARD int output_cut(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
			 uint64_t head_max, uint64_t tail_max, struct output_cut *ret_cut,
			 struct error *error);
void output_cut_done(struct output_cut *cut);
/* The number of bytes at the start of a text that belong to a character which began before it. */
size_t utf8_rest(const char *text, size_t size);

/* --- words and numbers --- */

/* Of each enum exec_end. */
struct exec_end_facts {
	const char *name;  /* in the timeline and in metrics */
	const char *state; /* exec_state_text() */
	const char *log;   /* in log lines; NULL: they say its exit code */
	int exit_code;     /* exec_exit_code() */
	bool with_code;    /* with row.code added */
};
/* A number that is no end counts as EXEC_END_LOST. */
const struct exec_end_facts *exec_end_facts(uint32_t end);
/* As a shell reports it: 128 + n after signal n, 124 after a time-out, -1 if unknown. */
int exec_exit_code(const struct exec_row *row);
/* "starting", "running", "failed", and for an ended exec how it ended: "exited", "killed",
 * "cancelled", "timed_out", "lost". */
const char *exec_state_text(const struct exec_row *row);
/* For an exec that ended with EXEC_END_TOO_MANY_PROCESSES. */
#define EXEC_TOO_MANY_PROCESSES "it kept asking for processes beyond the sandbox's limit"
/* "TERM", "SIGTERM" or "15"; -1: no such signal. */
int signal_by_name(const char *name);
/* The argv of a shell command: three words and NULL, in static storage except the command, which is
 * borrowed. */
void shell_argv(const char *command, const char *argv[4]);

/* --- core/ alone --- */

/* Called by core/sandbox/link.c. */
NODISCARD int exec_handle_frame(struct sandbox *sandbox, const struct frame *frame,
				struct error *error);
/* After a (re)connect: asks the init for its execs and settles every exec by the answer. */
NODISCARD int exec_resync(struct sandbox *sandbox, struct error *error);
/* The processes have ended: every exec that ran has ended as LOST, with its output kept. */
void exec_all_lost(struct sandbox *sandbox);
void exec_forget_all(struct sandbox *sandbox);
