/* What the files of core/ share with each other and with nobody else.
 *
 *   core.c                start-up, stop, what the spawner says unasked, callbacks for later
 *   reconcile.c           rows against what exists on the host, at start-up
 *   timers.c              the one timer: deadlines, idle ones, waiters, retries, pruning
 *   sandbox.c             the record, finding it, small changes to it
 *   sandbox_spec.c        is what a create asks for allowed?
 *   sandbox_create.c      creating -> running
 *   sandbox_link.c        connection to the init: connect, configure, frames, reconnect
 *   sandbox_transition.c  stop, start, pause, resume, ready
 *   sandbox_delete.c      deleting -> ended, and ends that nobody asked for
 *   exec.c, exec_frames.c, exec_log.c, files.c
 *
 * A reply of the spawner's finds its sandbox again by id, never by pointer: see sandbox_ask(). */
#pragma once

#include "base/buffer.h"
#include "core/core.h"
#include "core/exec.h"
#include "core/files.h"
#include "core/guest_link.h"
#include "core/sandbox.h"
#include "core/spawner_client.h"

#define SPAWN_TIMEOUT_MS 15000
#define SPAWN_BOOT_TIMEOUT_MS 60000 /* many creates at once wait for each other */
#define CONNECT_TIMEOUT_MS 10000
#define CONFIGURE_TIMEOUT_MS 15000
#define READY_TIMEOUT_MS 10000 /* how long a request waits for a reconnect */
#define STOP_GRACE_MS 2000
#define LEFT_RUNNING_TIMEOUT_MS 5000
#define RECONNECT_MIN_MS 20
#define RECONNECT_MAX_MS 5000
#define REFUSED_MAX 3    /* so many refused connects, and nobody will ever listen again */
#define WAITERS_MAX 1024 /* per sandbox */
#define OPERATIONS_MAX 64
#define EXECS_KEPT 64 /* ended ones in memory */
#define EXEC_ROWS_MAX 4096
/* The sandbox's own environment: what CONFIGURE carries must fit a frame. */
#define SANDBOX_ENVIRONMENT_BYTES_MAX (64 * 1024)

/* exec->oom_kills_before when nobody knows. */
#define OOM_KILLS_UNKNOWN UINT64_MAX

#define BUCKETS 512

struct waiter {
	struct list link;
	void (*done)(void *data, const struct error *error);
	void *data;
	int64_t until; /* CLOCK_BOOTTIME; 0 = as long as it takes */
	bool wake; /* of sandbox_ready(): a paused one is to be resumed, a stopped one started */
};

struct log_work; /* exec_log.c */

/* Logs that are to be removed. */
struct log_removal {
	struct list link;
	struct id sandbox;
	struct id exec; /* unset: all of the sandbox's */
};

struct core_private {
	uv_timer_t timer; /* timers.c */
	int64_t wake_at;  /* CLOCK_BOOTTIME; 0: not running */
	uv_timer_t soon;  /* core_later() */
	struct list later;
	unsigned open_handles;
	struct list by_id[BUCKETS], by_name[BUCKETS];
	struct list removals;      /* struct log_removal */
	struct log_work *removing; /* the one under way */
	int logs_fd;               /* <state>/logs */
	int64_t prune_at;
	/* Start-up. */
	void (*ready)(void *data);
	void *ready_data;
	uint32_t probe;     /* the tier being asked for */
	struct list listed; /* struct host_entry, reconcile.c */
	bool started, stopping;
};

/* Beside the record: what is under way with a sandbox. Owned by it. */
struct sandbox_life {
	struct sandbox *sandbox;
	struct list by_id, by_name; /* in core_private's buckets */
	uint32_t generation;        /* of the transition; replies to an older one are dropped */
	struct list waiters;        /* struct waiter: for the end of the transition under way */
	struct list ready;          /* struct waiter: sandbox_ready() */
	uint32_t waiter_count;
	void (*created)(void *data, struct sandbox *sandbox, const struct error *error);
	void *created_data;

	int64_t deadline;      /* CLOCK_BOOTTIME, 0 = none */
	int64_t active;        /* CLOCK_BOOTTIME of the last activity */
	int64_t active_stored; /* the wall-clock time that is in the store */

	int64_t began, step; /* CLOCK_MONOTONIC: of the boot, of its step */
	bool booting;        /* creating or starting: connect, configure */
	int64_t boot_until;  /* CLOCK_BOOTTIME, 0 = not waiting for CONFIGURED */
	int64_t connected_at, reconnect_at;
	uint32_t reconnect_ms;
	uint32_t refused;        /* connects in a row that found nobody listening */
	struct error link_error; /* why there is no link; kind NONE while there is */
	bool resyncing;          /* LIST was sent, LIST_END has not come */
	uint64_t resync_key;     /* execs from this key on are younger than the LIST */

	bool kill_sent;     /* stopping */
	int64_t kill_at;    /* when SIGKILL follows the polite request */
	bool destroy_sent;  /* deleting */
	int64_t destroy_at; /* when it is tried again */
	uint32_t destroy_tries;

	int mount_fds[SANDBOX_MOUNTS_MAX]; /* for START; -1 after a restart of the daemon */
	uint32_t mount_count;

	uint64_t log_bytes; /* kept output of ended execs */
	uint32_t exec_rows;
	bool counters_known; /* sandbox->counters is of this boot */
};

/* core.c: calls back in a later turn of the loop. */
void core_later(struct core *core, void (*call)(void *data), void *data);
/* The same for a `done` that succeeded at once. */
void core_done_later(struct core *core, void (*done)(void *data, const struct error *error),
		     void *data);

/* timers.c */
void timers_start(struct core *core);
/* Everything that has a time is looked at then (CLOCK_BOOTTIME) at the latest. */
void timers_wake_at(struct core *core, int64_t at);

/* sandbox.c */
struct sandbox *sandbox_new(struct core *core, struct sandbox_row *row);
void sandbox_free(struct sandbox *sandbox);
void sandbox_unlist(struct sandbox *sandbox);
void sandbox_row_copy(const struct sandbox_row *from, struct sandbox_row *ret_row);
/* Writes the new state and begins a new generation; nothing has changed when it fails. */
NODISCARD int sandbox_set_state(struct sandbox *sandbox, enum sandbox_state state,
				struct error *error);
/* The same where there is no way back: a failing store is logged. */
void sandbox_force_state(struct sandbox *sandbox, enum sandbox_state state);
void sandbox_set_end(struct sandbox *sandbox, enum end_reason reason, const char *why);
/* deadline_wall into the boot-time clock. */
void sandbox_clock_deadline(struct sandbox *sandbox);
/* Adds to a list of waiters; BUSY when there are too many. */
NODISCARD int waiter_add(struct sandbox *sandbox, struct list *list,
			 void (*done)(void *data, const struct error *error), void *data,
			 int64_t until, bool wake, struct error *error);
/* The same for what is never refused. */
void waiter_append(struct sandbox *sandbox, struct list *list,
		   void (*done)(void *data, const struct error *error), void *data, int64_t until,
		   bool wake);
void waiters_finish(struct sandbox *sandbox, struct list *list, const struct error *error);
void sandbox_add_phase(struct sandbox *sandbox, const char *name, int64_t since_monotonic);

/* Asks the spawner about one sandbox. `done` gets the sandbox as it is then: NULL when it has gone,
 * `current` false when another transition has begun meanwhile. */
struct sandbox_answer {
	struct core *core;
	struct sandbox *sandbox;
	bool current;
	const struct spawn_message *reply; /* NULL when error is set and none came */
	const struct error *error;
	void *data;
	uint64_t number;
};
NODISCARD int sandbox_ask(struct sandbox *sandbox, struct spawn_message *message, const int *fds,
			  size_t fd_count, uint32_t timeout_ms,
			  void (*done)(const struct sandbox_answer *answer), void *data,
			  uint64_t number, struct error *error);

/* sandbox_spec.c */
NODISCARD int spec_check(struct core *core, const struct principal *principal,
			 const struct sandbox_spec *spec, struct sandbox_row *ret_row,
			 struct error *error);

/* sandbox_create.c */
void create_failed(struct sandbox *sandbox, const struct error *error);

/* sandbox_link.c */
extern const struct guest_link_callbacks sandbox_link_callbacks; /* data: the sandbox */
void link_connect(struct sandbox *sandbox);
void link_drop(struct sandbox *sandbox, const struct error *why);
void link_send_deadline(struct sandbox *sandbox);
/* NULL guest is GUEST_GONE. */
NODISCARD int sandbox_send(struct sandbox *sandbox, enum frame_type type, uint64_t id,
			   const void *payload, size_t size, const int *fds, size_t fd_count,
			   struct error *error);
/* CONFIGURED came, or the time for it has passed, or something broke: how a boot ends. */
void boot_done(struct sandbox *sandbox);
void boot_failed(struct sandbox *sandbox, const struct error *error);
void boot_message(const struct sandbox *sandbox, uint32_t type, struct spawn_message *message);
void boot_take_reply(struct sandbox *sandbox, const struct spawn_message *reply);

/* sandbox_transition.c */
void start_failed(struct sandbox *sandbox, const struct error *error);
void stop_kill(struct sandbox *sandbox);
/* After any change of state or link: waiters of sandbox_ready() are told, or something is begun. */
void ready_settle(struct sandbox *sandbox);

/* sandbox_delete.c */
void delete_send(struct sandbox *sandbox);
/* The spawner's answer to DESTROY; the sandbox may be gone afterwards. */
void delete_answered(struct sandbox *sandbox, const struct error *error);
void sandbox_delete_unasked(struct sandbox *sandbox, enum end_reason reason, const char *why);
/* Its processes are gone. */
void sandbox_processes_ended(struct sandbox *sandbox, enum end_cause cause);

/* reconcile.c */
void reconcile_listed(struct core *core, const struct id *id, const struct spawn_listed *listed);
void reconcile_ended(struct core *core, const struct id *id);
NODISCARD int reconcile(struct core *core, struct error *error);
void reconcile_done(struct core *core);

/* exec.c */
struct exec *exec_by_key(struct sandbox *sandbox, uint64_t key);
struct exec *exec_new(struct sandbox *sandbox, struct exec_row *row);
void exec_free(struct exec *exec);
void exec_notify(struct exec *exec);
/* Drops ended ones that nobody looks at. */
void exec_trim(struct sandbox *sandbox);
/* Those that the init may still know, from the store. */
NODISCARD int exec_load_live(struct sandbox *sandbox, struct error *error);
bool sandbox_has_running_exec(const struct sandbox *sandbox);
void exec_link_lost(struct sandbox *sandbox);
/* Tells the init what the consumers of a lossless exec have. */
void exec_acknowledge(struct exec *exec);
void exec_drained(struct sandbox *sandbox);
void exec_row_copy(const struct exec_row *from, struct exec_row *ret_row);

/* exec_frames.c */
struct left_query {
	struct list link;
	void (*done)(void *data, const struct left_process *processes, size_t count,
		     const struct error *error);
	void *data;
	int64_t until; /* CLOCK_BOOTTIME */
};
/* Those that have waited too long are told of none; when the next is due, INT64_MAX for never. */
int64_t left_queries_check(struct sandbox *sandbox, int64_t now);
void left_queries_finish(struct exec *exec, const struct left_process *processes, size_t count,
			 const struct error *error);

/* files.c */
void file_drained(struct sandbox *sandbox);
/* Operations that the init does nothing about fail; when to look again, INT64_MAX for never. */
int64_t file_check(struct sandbox *sandbox, int64_t now);
/* It was paused: nothing was to be expected of it meanwhile. */
void file_clock_goes_on(struct sandbox *sandbox);

/* exec_log.c */
NODISCARD int logs_open_directory(struct core *core, struct error *error);
NODISCARD int exec_logs_create(struct exec *exec, struct error *error);
NODISCARD int exec_logs_open(struct exec *exec);
void exec_logs_close(struct exec *exec);
void exec_logs_unlink(struct sandbox *sandbox, const struct id *exec);
void exec_logs_refresh(struct exec *exec);
uint64_t exec_logs_size(const struct exec_row *row);
/* An exec has ended: counts its output and removes the oldest logs above the configured maximum. */
void exec_logs_account(struct sandbox *sandbox, const struct exec_row *row);
/* Those of one exec, or with NULL all of the sandbox's. */
void logs_remove(struct core *core, const struct id *sandbox, const struct id *exec);
/* The same at once; may block. Knows nothing but its arguments: called in a thread. */
void logs_remove_now(int logs_fd, const struct log_removal *removal);
/* What is under way ends by itself; the rest is left to the next start. */
void logs_stop(struct core *core);
/* Directories whose sandbox is not alive any more. */
void logs_remove_strays(struct core *core);
