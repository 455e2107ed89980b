/* An exec: a command in a sandbox, its output by offset, its end. It belongs to its sandbox and
 * outlives the request that began it; whoever wants to follow one adds a watcher.
 *
 * Output is read from its logs (proto/output_log.h), by everyone and at any time, by offset: after
 * a restart of the daemon, after the client came back, after the exec ended. */
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
	const struct principal *principal; /* who runs it; NULL: the daemon itself */
	const struct id *context;          /* the code context whose interpreter it is */
	const char *title;                 /* what lists show in the place of argv */
};

/* Said of a text that cannot be one's id, wherever it was given. */
#define EXEC_ID_MALFORMED                                                                          \
	"that is not the id of an exec, which is 16 characters a-z, 0-9; `caisson jobs SANDBOX` "  \
	"lists them"

struct exec {
	struct list link; /* in sandbox->execs */
	struct sandbox *sandbox;
	struct exec_row row;
	uint32_t pid;              /* inside */
	struct output_log logs[2]; /* stdout, stderr; the descriptors are owned here */
	uint64_t stdin_credit;
	bool stdin_closed;
	uint64_t oom_kills_before; /* the sandbox's counter when it began */
	struct list watchers;      /* struct exec_watcher */
	/* Private to core/. What is no stage is a fact that holds beside any of them. */
	enum exec_stage stage;
	enum exec_written written;
	bool stdin_broken;    /* what was on the way when the link broke is lost */
	bool stdin_wanted;    /* somebody was refused: tell when there is room */
	bool listed;          /* seen in the init's list since the last resync */
	bool logs_removed;    /* they were the oldest: reading gives a gap */
	bool idle;            /* an interpreter that waits for code: no activity */
	uint32_t telling;     /* callers above us that go on with it: it must not be removed */
	bool digest_known[2]; /* of stdout and stderr, when it has ended */
	uint8_t digests[2][32];
	struct exec_result result; /* while EXEC_STAGE_ASKING */
	int64_t overdue_at;        /* CLOCK_BOOTTIME: its end is not told by then; 0: no matter */
	struct output_totals consumed, consumed_sent; /* lossless */
	uint64_t notified;                            /* how often watchers were told */
	struct list left_queries;                     /* struct left_query */
	bool left_asked;                              /* the init owes an answer to LEFT_RUNNING */
	uint64_t held_signals[2];                     /* by signal_scope, until it has started */
};

/* Told whenever something about the exec has changed: started, output, stdin credit, ended,
 * left-over processes gone. What changed is to be looked up in the exec.
 *
 * A lossless exec writes on when every consumer has what was written: what counts is the slowest of
 * the watchers that consume a stream. Where there is none nothing counts as consumed, and the
 * command blocks when its log is full, until one comes; the others only look on. A consumer that
 * begins later than at 0 (it has what is before) says so with exec_watcher_consumed(). */
struct exec_watcher {
	struct list link;
	void (*changed)(struct exec_watcher *watcher, struct exec *exec);
	/* The exec is being forgotten (its sandbox ends): the last call. */
	void (*forgotten)(struct exec_watcher *watcher);
	bool consumes;
	enum exec_stream only; /* 0: both streams; else the other one waits for somebody else */
	/* Set by exec_watch(). */
	struct exec *exec;
	struct output_totals consumed;
	uint64_t notified;
};

/* The sandbox is ready (sandbox_ready()). The exec is in EXEC_STARTING; a spawn error makes it
 * EXEC_FAILED with row.error_kind, like any end seen by a watcher. */
NODISCARD int exec_start(struct sandbox *sandbox, const struct exec_spec *spec,
			 struct exec **ret_exec, struct error *error);
/* Loads one that ended long ago from the store where it is not in memory. */
NODISCARD int exec_find(struct sandbox *sandbox, const char *id, struct exec **ret_exec,
			struct error *error);
void exec_watch(struct exec *exec, struct exec_watcher *watcher);
void exec_unwatch(struct exec_watcher *watcher);
/* The reader of a lossless exec leaves it running: while nobody else consumes its output, that
 * counts as read, so that the command does not wait. */
void exec_reader_leaves(struct exec *exec);
/* Of a row's flags, beside those of enum exec_flag; append only. */
#define EXEC_READER_LEFT (1u << 16)
/* Is there a watcher that consumes both streams? */
bool exec_has_consumer(const struct exec *exec);

/* Forgets an ended one: its record and its logs. Whoever watches it is told. SANDBOX_STATE while it
 * runs, or while its end is still to be told or written: so in every callback about this exec (of a
 * watcher, of a listener, `done` of a foreground exec), where exec_purge() is the way. The exec is
 * gone when it returns 0, and as it was when it does not. */
NODISCARD int exec_remove(struct exec *exec, const struct principal *principal,
			  struct error *error);
/* Kills it where it runs, and forgets it as soon as it has ended, in a turn of its own: from
 * anywhere. */
void exec_purge(struct exec *exec, const struct principal *principal);

/* Told whenever something about any exec of a sandbox has changed: begun, output, ended. */
struct exec_listener {
	struct list link;
	void (*changed)(struct exec_listener *listener, struct exec *exec);
	/* The sandbox ends: the last call. */
	void (*forgotten)(struct exec_listener *listener);
};
void exec_listen(struct sandbox *sandbox, struct exec_listener *listener);
void exec_unlisten(struct exec_listener *listener);

bool exec_row_ended(const struct exec_row *row);
bool exec_ended(const struct exec *exec);
/* What a code context needs beside its interpreter (core/code/start.c): nothing that anybody ran.
 */
bool exec_internal(const struct exec_row *row);
uint64_t exec_total(const struct exec *exec, enum exec_stream stream);
/* As output_log_read(). */
NODISCARD ssize_t exec_read(struct exec *exec, enum exec_stream stream, uint64_t offset, void *data,
			    size_t size, uint64_t *ret_gap);
/* This consumer has everything before `offset`. Does nothing for one that does not consume. */
void exec_watcher_consumed(struct exec_watcher *watcher, enum exec_stream stream, uint64_t offset);

/* As many bytes as there is credit for: how many were taken; `changed` tells of new credit. */
NODISCARD ssize_t exec_stdin(struct exec *exec, const void *data, size_t size, struct error *error);
NODISCARD int exec_stdin_close(struct exec *exec, struct error *error);
/* One that comes while it is being started waits until it runs. */
NODISCARD int exec_signal(struct exec *exec, const struct principal *principal, int signal,
			  enum signal_scope scope, struct error *error);
NODISCARD int exec_resize(struct exec *exec, uint16_t rows, uint16_t columns, struct error *error);

struct left_process {
	uint32_t pid;
	char command[128];
};
/* Asks the init which descendants of it still run; none when it does not answer in time. */
NODISCARD int exec_left_running(struct exec *exec,
				void (*done)(void *data, const struct left_process *processes,
					     size_t count, const struct error *error),
				void *data, struct error *error);

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

/* --- output for an answer --- */

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
/* As a shell would say it: 128 + n after signal n, 124 after a time-out, -1 when nobody knows. */
int exec_exit_code(const struct exec_row *row);
/* "starting", "running", "ended", "failed". */
const char *exec_state_name(uint32_t state);
/* The same, and how it ended: "exited", "killed", "cancelled", "timed_out", "lost". */
const char *exec_state_text(const struct exec_row *row);
/* Of an exec that ended with EXEC_END_TOO_MANY_PROCESSES. */
#define EXEC_TOO_MANY_PROCESSES "it kept asking for processes beyond the sandbox's limit"
/* "TERM", "SIGTERM" or "15"; -1: no such signal. */
int signal_by_name(const char *name);
/* How a shell command is run: argv (three words and NULL) is of static storage but for the command,
 * which is borrowed. */
void shell_argv(const char *command, const char *argv[4]);

/* --- core/ alone --- */

/* Called by core/sandbox/link.c. */
NODISCARD int exec_handle_frame(struct sandbox *sandbox, const struct frame *frame,
				struct error *error);
/* After a (re)connect: asks the init what it knows and settles every exec by the answer. */
NODISCARD int exec_resync(struct sandbox *sandbox, struct error *error);
/* The processes are gone: every exec that ran has ended as LOST, with its output kept. */
void exec_all_lost(struct sandbox *sandbox);
void exec_forget_all(struct sandbox *sandbox);
