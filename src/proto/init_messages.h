/* The protocol between the daemon (or a shim, or a VMM) and the init of a sandbox.
 *
 * One stream connection, made from outside. The init serves one at a time; a new one replaces the
 * old one, for example after a restart of the daemon. Without a connection processes continue,
 * their output goes to the log, and deadlines hold.
 *
 * Ids: an exec has a key that the daemon chose (never 0, top bit clear) and that stays valid across
 * connections. Everything else (a file operation, a watch, a port connection) is an operation of
 * one connection: its id has the top bit set, is chosen by the daemon, and ends with the
 * connection.
 *
 * Flow control: DATA in either direction is limited by credit, counted in payload bytes per id.
 * Each direction starts with FILE_WINDOW bytes; the receiver returns credit with CREDIT as it
 * consumes. If a sender exceeds its credit, the operation is ended. No payload of DATA is longer
 * than FILE_CHUNK_MAX.
 *
 * A payload is a sequence of fields (codec.h) in the order of the struct's members below; `text` is
 * bytes without NUL. Both sides read and write payloads with the functions at the end, which are
 * fuzzed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/limits.h"
#include "proto/codec.h"
#include "proto/frame.h"

/* The versions that this build speaks, at both ends. A sandbox keeps its init while the daemon
 * is upgraded, so a daemon and an init of different builds meet: they speak the highest version
 * that both know (protocol_agree()). A new version may change every payload except those of
 * HELLO, HELLO_REPLY and REFUSED, which never change. Version 2 adds FILE_PACK and FILE_UNPACK
 * to version 1. */
#ifndef INIT_PROTOCOL_VERSION
#define INIT_PROTOCOL_VERSION 2
#endif
#ifndef INIT_PROTOCOL_OLDEST
#define INIT_PROTOCOL_OLDEST 1
#endif

#define OPERATION_ID_BIT (1ULL << 63)

enum frame_type {
	/* Connection. The daemon says HELLO first; the init answers HELLO_REPLY, or REFUSED and
	 * closes. */
	FRAME_HELLO = 1,       /* > struct hello */
	FRAME_HELLO_REPLY = 2, /* < struct hello_reply */
	FRAME_CONFIGURE = 3,   /* > struct configure; once in an init's life, before any exec */
	FRAME_CONFIGURED = 4,  /* < empty; from here on user code may run */
	FRAME_REFUSED = 5,     /* < struct failure; answers CONFIGURE, or precedes a close */
	FRAME_DEADLINE = 6,    /* > i64: nanoseconds of CLOCK_BOOTTIME at which the init ends the
				  sandbox by itself, 0 = never */
	FRAME_PING = 7,        /* > u64 */
	FRAME_PONG = 8,        /* < the same u64 */
	FRAME_SHUTDOWN = 9,    /* > u32 ms, or empty for 2000: SIGTERM to everything; the init exits
				* when every exec and every process that one left running has ended,
				* or when the time is over. No answer but the connection's end */

	/* Execs; id = the exec's key. */
	FRAME_EXEC = 20,         /* > struct exec_request, descriptors: see there */
	FRAME_STARTED = 21,      /* < u32 pid (inside) */
	FRAME_START_FAILED = 22, /* < struct failure; the exec is over and forgotten */
	FRAME_STDIN = 23,        /* > bytes for standard input; counts against credit */
	FRAME_STDIN_CLOSE = 24,  /* > empty */
	FRAME_SIGNAL = 25,       /* > struct signal_request */
	FRAME_RESIZE = 26,       /* > u16 rows, u16 columns */
	FRAME_PROGRESS = 27,     /* < struct output_totals: the log has grown to this */
	FRAME_OUTPUT = 28,   /* < u8 stream (1, 2), bytes: only without a log descriptor; credit */
	FRAME_EXITED = 29,   /* < struct exec_result; the record stays until FORGET */
	FRAME_CONSUMED = 30, /* > struct output_totals: a lossless exec may write more */
	FRAME_FORGET = 31,   /* > empty: the daemon has the result. An exec that still runs, or that
				left processes running, keeps its record until the last has ended */
	FRAME_LIST = 32,     /* > empty, id 0 */
	FRAME_LISTED = 33,   /* < struct exec_status, one per known exec; then LIST_END. If its
			      * standard input is fed, CREDIT follows: a new connection starts without
			      * credit for execs that it did not start, and with a full window for
			      * OUTPUT */
	FRAME_LIST_END = 34, /* < empty */
	FRAME_LEFT_RUNNING = 35, /* > empty; < u32 count, then per process: u32 pid, text command */
	FRAME_GONE = 36, /* < empty: the last process that an ended exec left running has ended */

	/* Operations; id with OPERATION_ID_BIT. One request, then DATA either way, then exactly one
	 * RESULT or FAILED, after which the id is free. */
	FRAME_FILE = 50,     /* > struct file_request */
	FRAME_DATA = 51,     /* <> bytes */
	FRAME_DATA_END = 52, /* <> empty: no more DATA from this side */
	FRAME_CREDIT = 53,   /* <> u32 bytes; also for STDIN (<) and OUTPUT (>) of an exec */
	FRAME_RESULT = 54,   /* < the operation's own payload, see enum file_operation */
	FRAME_FAILED = 55,   /* < struct failure */
	FRAME_CANCEL =
	    56, /* > empty; answered by FAILED(CANCELLED) unless the answer was already sent. An
		 * operation that does not end within a second is killed: a write or a rename by
		 * copy may then leave its `.caisson-...` temporary beside the target */
	FRAME_CONNECT =
	    57, /* > u16 port, text address ("" = 127.0.0.1): DATA both ways, then RESULT */
	FRAME_METRICS = 58, /* > empty; RESULT: struct guest_metrics */

	/* Reserved for tiers with snapshots of memory: stop accepting, confirm it, continue with a
	 * new identity. In this version FREEZE is answered by FAILED(UNSUPPORTED), THAW by
	 * REFUSED(UNSUPPORTED) whatever its payload, and FROZEN is never sent. */
	FRAME_FREEZE = 70,
	FRAME_FROZEN = 71,
	FRAME_THAW = 72,

	/* For a channel that exists for the init's whole life and cannot be replaced (the standard
	 * input of a container). The outside end is a shim, and successive daemons connect to it.
	 * > u32: the connection has ended, and the next HELLO begins another one; operations are
	 * cancelled as when a connection ends. < the same u32: everything that the init sent before
	 * belongs to the old connection, except OUTPUT, which is for the shim and continues under
	 * the existing credit. Until this reply the shim passes on nothing from the next daemon.
	 * Where a REFUSED would have closed a connection, the init drops everything until BEGIN. */
	FRAME_BEGIN = 80,
};

/* A failure. The kind is sent as a number and checked on arrival. The number is the kind's index
 * in error_kinds.def, and the two ends may be of different builds: new kinds are added at the
 * end of that table, and none is ever removed. */
struct failure {
	uint32_t kind; /* enum error_kind */
	uint32_t errnum;
	char message[256];
};

struct hello {
	uint32_t oldest, newest; /* the versions that the sender speaks */
};

struct hello_reply {
	uint32_t version;    /* the version in use from here on */
	uint32_t configured; /* 1: this init was configured before */
	uint64_t boot_ns;    /* CLOCK_BOOTTIME when the init was ready */
};

/* The last step of creating a sandbox, and the only step that receives text of a user. The
 * environment is the sandbox's default; an exec adds to it. */
struct configure {
	char hostname[NAME_MAX_LENGTH + 1];
	int64_t deadline; /* as FRAME_DEADLINE */
	uint32_t mount_count;
	struct {
		uint32_t index;    /* index of the tree that the spawner handed over */
		struct bytes path; /* absolute, inside, at most GUEST_PATH_MAX - 1 */
	} mounts[SANDBOX_MOUNTS_MAX];
	uint32_t environment_count;
	struct bytes environment; /* "K=V\0K=V\0..." */
};

enum exec_flag {
	EXEC_TTY = 1 << 0,      /* standard descriptors are a terminal; one output stream */
	EXEC_STDIN = 1 << 1,    /* standard input comes from STDIN frames; else it is /dev/null */
	EXEC_LOG = 1 << 2,      /* log descriptors come with the frame (stdout, then stderr unless
				 * EXEC_TTY): output is written there, PROGRESS reports it */
	EXEC_LOSSLESS = 1 << 3, /* the process blocks rather than losing output: see output_log.h */
};

struct exec_limit {
	uint32_t resource; /* RLIMIT_* of x86-64 Linux */
	uint64_t soft, hard;
};

struct exec_request {
	uint32_t flags;
	uint32_t timeout_ms; /* from the start of the process; 0 = none */
	uint16_t rows, columns;
	char user[64];    /* name, "name:group", or numbers; "" = root */
	struct bytes cwd; /* "" = /workspace; relative paths start there; ~ = the home directory */
	uint32_t argc;
	struct bytes argv; /* "a\0b\0..." exactly argc of them */
	uint32_t environment_count;
	struct bytes environment; /* "K=V\0..."; added to the sandbox's own, later ones win */
	uint32_t limit_count;
	struct exec_limit limits[EXEC_RUNLIMITS_MAX];
};

enum signal_scope {
	SIGNAL_LEADER = 0, /* the command itself; with a terminal, its foreground process group */
	SIGNAL_TREE = 1,   /* every descendant, double-forked and setsid ones too */
};

struct signal_request {
	uint32_t signal;
	uint32_t scope;
};

/* Bytes that each stream has produced since the exec began. */
struct output_totals {
	uint64_t out, err;
};

enum exec_end {
	EXEC_END_EXITED = 0,    /* code = exit status */
	EXEC_END_SIGNALED = 1,  /* code = signal */
	EXEC_END_TIMED_OUT = 2, /* its time-out; code = the signal that ended the leader */
	EXEC_END_CANCELLED = 3, /* SIGNAL_TREE with SIGKILL was requested */
	EXEC_END_LOST = 4,      /* its supervisor was killed from inside: the status is unknown */
	/* It kept forking beyond the sandbox's limit; code as for EXEC_END_TIMED_OUT. */
	EXEC_END_TOO_MANY_PROCESSES = 5,
	EXEC_ENDS
};

struct exec_result {
	uint32_t end; /* enum exec_end */
	uint32_t code;
	struct output_totals totals;
	uint64_t wall_ns, cpu_ns,
	    peak_memory;       /* cpu, peak: of the leader and the children it waited for */
	uint32_t left_running; /* how many descendants still run */
};

enum exec_phase { EXEC_PHASE_STARTING, EXEC_PHASE_RUNNING, EXEC_PHASE_ENDED };

struct exec_status {
	uint32_t phase;
	uint32_t pid;
	struct exec_result result; /* totals are true in every phase, the rest when ENDED */
};

/* File operations. `path` is resolved inside the sandbox, by a process of the sandbox, as
 * `user`. The comments say what DATA and RESULT contain. An entry is
 *   text name, u8 type (d_type letter: f d l p s c b), u32 mode, u32 uid, u32 gid, u64 size,
 *   i64 mtime_ns, u64 inode, text link target ("" unless l)
 * A device or FIFO is never opened: reading one is FILE_WRONG_TYPE. Paths in the DATA of glob,
 * grep and watch are joined to the request's `path` as it was written ("src" gives "src/a.c"). */
enum file_operation {
	FILE_STAT = 1, /* RESULT: entry (of the link itself with FILE_NO_FOLLOW) */
	FILE_LIST =
	    2, /* DATA: entries, whole ones in each frame; RESULT: u32 count, u8 truncated */
	FILE_READ = 3, /* offset, length (0 = to the end); first DATA_..., RESULT: u64 file size */
	FILE_WRITE =
	    4, /* DATA in, DATA_END commits; mode; temporary + rename; offset = its mtime in
		  nanoseconds, 0 = now (an older init ignores it). RESULT: u64 written */
	FILE_APPEND = 5,    /* the same, appended in place */
	FILE_MKDIR = 6,     /* mode; FILE_PARENTS: like mkdir -p. RESULT empty */
	FILE_REMOVE = 7,    /* FILE_RECURSIVE; never crosses a mount. RESULT: u64 entries removed */
	FILE_RENAME = 8,    /* path, path2; FILE_NO_REPLACE */
	FILE_COPY = 9,      /* path, path2; FILE_RECURSIVE. RESULT: u64 bytes */
	FILE_SYMLINK = 10,  /* path = the link, path2 = its target */
	FILE_READLINK = 11, /* RESULT: text */
	FILE_CHMOD = 12,    /* mode */
	FILE_CHOWN = 13,    /* path2 = owner: "user", "user:group", ":group", numbers;
			       FILE_RECURSIVE (chmod too) */
	FILE_GLOB = 14, /* path = base, pattern with * ? [] {} and **; DATA: texts; RESULT: u32, u8
			   truncated */
	FILE_GREP = 15, /* path = file or tree, pattern; FILE_REGEX, FILE_IGNORE_CASE; path2 = glob
			   that names must match, or "". DATA: matches (text path, u64 line, u64
			   offset of the match in the file, text line, of a longer one GREP_LINE_MAX
			   bytes around the match); RESULT: u64 matches (lines), u64 files that have
			   one, u8 truncated */
	FILE_REPLACE =
	    16, /* pattern -> replacement, exact text; limit (0 = all). RESULT: u64 count */
	FILE_WATCH = 17, /* FILE_RECURSIVE; DATA: u8 kind (enum watch_kind), text path, one event a
			    frame; first DATA is WATCH_READY; until CANCEL */
	/* Since version 2. RESULT of both: u64 entries, u64 bytes (of the archive; of the files),
	 * u64 special files that were left out. */
	FILE_PACK = 18,   /* path = directory or file; DATA: a tar archive of it */
	FILE_UNPACK = 19, /* path = directory; DATA in: a tar archive, DATA_END commits. The
			     directory is made where it is missing (FILE_PARENTS: those above too);
			     FILE_NO_REPLACE: it must be missing */
};
/* The version of the protocol that added an operation. */
#define FILE_OPERATION_SINCE(operation) ((operation) >= FILE_PACK ? 2u : 1u)

enum watch_kind {
	WATCH_READY = 0,
	WATCH_CREATED = 1,
	WATCH_MODIFIED = 2,
	WATCH_REMOVED = 3,
	WATCH_RENAMED_FROM = 4,
	WATCH_RENAMED_TO = 5,
	WATCH_ATTRIBUTES = 6,
	WATCH_OVERFLOW = 7, /* events were lost: read everything again */
};

enum file_flag {
	FILE_NO_FOLLOW = 1 << 0,
	FILE_RECURSIVE = 1 << 1,
	FILE_PARENTS = 1 << 2,
	FILE_NO_REPLACE =
	    1 << 3, /* rename, write, copy: fail with FILE_EXISTS if the target exists */
	FILE_REGEX = 1 << 4,
	FILE_IGNORE_CASE = 1 << 5,
	FILE_HIDDEN = 1 << 6, /* glob: wildcards match a leading dot too */
	/* For glob and grep. An older init may not know them: it ignores these bits, which have
	 * another meaning for other operations. */
	FILE_SORTED = FILE_NO_FOLLOW,         /* each directory by name */
	FILE_SKIP_GENERATED = FILE_NO_REPLACE /* .git and node_modules are not entered */
};

struct file_request {
	uint8_t operation;
	uint32_t flags;
	uint32_t mode;
	uint64_t offset, length;
	uint32_t limit;
	char user[64]; /* as in exec_request */
	struct bytes path, path2, pattern, replacement;
};

struct guest_metrics {
	uint32_t processes; /* inside, including the init's own */
	uint64_t uptime_ns; /* since the init was ready */
};

/* The highest version that both ends know, or 0 if there is none. */
uint32_t protocol_agree(struct hello ours, struct hello theirs);

/* Writers append the payload to a writer; readers fill the struct from a frame's payload and return
 * 0 or -EBADMSG. Members of type `bytes` point into the payload. */
void failure_write(struct writer *writer, const struct failure *failure);
NODISCARD int failure_read(const struct frame *frame, struct failure *ret_failure);
void hello_write(struct writer *writer, const struct hello *hello);
NODISCARD int hello_read(const struct frame *frame, struct hello *ret_hello);
void hello_reply_write(struct writer *writer, const struct hello_reply *reply);
NODISCARD int hello_reply_read(const struct frame *frame, struct hello_reply *ret_reply);
void configure_write(struct writer *writer, const struct configure *configure);
NODISCARD int configure_read(const struct frame *frame, struct configure *ret_configure);
void exec_request_write(struct writer *writer, const struct exec_request *request);
NODISCARD int exec_request_read(const struct frame *frame, struct exec_request *ret_request);
void signal_request_write(struct writer *writer, const struct signal_request *request);
NODISCARD int signal_request_read(const struct frame *frame, struct signal_request *ret_request);
void output_totals_write(struct writer *writer, const struct output_totals *totals);
NODISCARD int output_totals_read(const struct frame *frame, struct output_totals *ret_totals);
void exec_result_write(struct writer *writer, const struct exec_result *result);
NODISCARD int exec_result_read(const struct frame *frame, struct exec_result *ret_result);
void exec_status_write(struct writer *writer, const struct exec_status *status);
NODISCARD int exec_status_read(const struct frame *frame, struct exec_status *ret_status);
void file_request_write(struct writer *writer, const struct file_request *request);
NODISCARD int file_request_read(const struct frame *frame, struct file_request *ret_request);
void guest_metrics_write(struct writer *writer, const struct guest_metrics *metrics);
NODISCARD int guest_metrics_read(const struct frame *frame, struct guest_metrics *ret_metrics);

/* Checks that a packed string list ("a\0b\0") contains exactly `count` NUL-terminated strings. */
bool packed_valid(struct bytes packed, uint32_t count);
/* The next string, or NULL at the end; *at starts as 0. */
const char *packed_next(struct bytes packed, size_t *at);
