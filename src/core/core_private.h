/* Shared by the files of core/ only: the data beside the records, and functions that one file has
 * for others. A section names its file; each file's first comment says what it owns.
 *
 * An answer of the spawner finds its sandbox by id, never by pointer: see sandbox_ask_spawner(). */
#pragma once

#include "base/buffer.h"
#include "core/activity/activity.h"
#include "core/account/admission.h"
#include "core/core.h"
#include "core/counters.h"
#include "core/exec/exec.h"
#include "core/exec/ready_logs.h"
#include "core/file/files.h"
#include "core/guest_link.h"
#include "core/account/meter.h"
#include "core/pool/pool.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/transition.h"
#include "core/spawner_client.h"

#ifdef CAISSON_FAULT_POINTS /* a test waits for them */
#define SPAWN_TIMEOUT_MS 3000
#define SPAWN_BOOT_TIMEOUT_MS 5000
#else
#define SPAWN_TIMEOUT_MS 15000
#define SPAWN_BOOT_TIMEOUT_MS 60000 /* many creates at once wait for each other */
#endif
#define SAVE_RETRY_MS 1000
#define REQUEST_RETRY_MS 1000 /* repeats what the spawner did not do */
#define CONNECT_TIMEOUT_MS 10000
#define CONFIGURE_TIMEOUT_MS 15000
#define READY_TIMEOUT_MS 10000 /* how long a request waits for a reconnect */
#define STOP_GRACE_MS 2000
#define LEFT_RUNNING_TIMEOUT_MS 5000
#define OVERDUE_GRACE_MS 5000 /* a working init reports a timed-out exec sooner */
#define RECONNECT_MIN_MS 20
#define RECONNECT_MAX_MS 5000
#define REFUSED_MAX 3    /* after so many refused connects the init will never listen again */
#define WAITERS_MAX 1024 /* per sandbox */
#define OPERATIONS_MAX 64
#define EXECS_KEPT 64 /* ended ones in memory */
#define EXEC_ROWS_MAX 4096
/* The sandbox's own environment: CONFIGURE must fit a frame. */
#define SANDBOX_ENVIRONMENT_BYTES_MAX (64 * 1024)

/* exec->oom_kills_before when it is not known. */
#define OOM_KILLS_UNKNOWN UINT64_MAX

#define BUCKETS 512

struct waiter {
	struct list link;
	void (*done)(void *data, const struct error *error);
	void *data;
	int64_t until; /* CLOCK_BOOTTIME; 0 = no limit */
	bool wake;     /* of sandbox_ready(): resume a paused sandbox, start a stopped one */
};

struct log_work;   /* core/exec/log_removal.c */
struct spare_work; /* core/exec/log_spares.c */

/* Log files made ahead, by number. */
struct log_spares {
	uint64_t first;
	uint32_t count, target; /* how many exist, and should exist */
	bool started;           /* leftovers of an earlier daemon have been removed */
	struct spare_work *work;
};

/* Logs to be removed. */
struct log_removal {
	struct list link;
	struct id sandbox;
	struct id exec; /* unset: all of the sandbox's */
};

/* A cached look-up of a valid token: a look-up in the store would be most of the cost of a small
 * request. */
#define TOKENS_SEEN_MAX 64
struct token_seen {
	uint8_t hash[32];
	uint64_t changes; /* store_token_changes() then; another value makes it invalid */
	int64_t expires_wall;
	bool set;
	struct principal principal;
};

/* The newest entry of a sandbox's activity; the next one is chained to it
 * (core/activity/activity.c). */
struct activity_head {
	bool loaded;
	uint64_t first;  /* the oldest kept entry */
	uint64_t number; /* 0: no entry yet */
	uint8_t hash[ACTIVITY_HASH_SIZE];
	uint64_t dropped; /* dropped entries that are not reported yet */
};

/* The kinds of sandboxes that were requested, and so are made in advance (core/pool/demand.c). */
#define POOL_SHAPES_MAX 8
#define POOL_DEMAND_WINDOW (10 * NSEC_PER_SEC)
struct pool_demand {
	struct pool_row shape;
	int64_t asked_at;       /* CLOCK_BOOTTIME of the last request; 0: the entry is free */
	uint32_t count, before; /* creates in this window, and in the one before */
	uint32_t wanted;
};

/* core/pool/pool.c */
struct pool {
	struct list members; /* struct pooled */
	uint32_t count;
	struct pool_demand demands[POOL_SHAPES_MAX];
	int64_t window_start, quiet_until, refill_at; /* CLOCK_BOOTTIME */
	int64_t back_off;                             /* 0: the last attempt succeeded */
	bool started, ending;
	void (*ended)(void *data); /* called when the last member is gone */
	void *ended_data;
};

struct core_private {
	struct pool pool;
	struct activity_log *activity; /* core/activity/activity.c */
	uv_timer_t timer;              /* timers.c */
	int64_t wake_at;               /* CLOCK_BOOTTIME; 0: not running */
	uv_idle_t soon;                /* core_later() */
	uv_timer_t ends_timer;         /* core/exec/ends.c */
	struct list ending;            /* struct exec, told and not written */
	bool writing_ends;             /* one of them is being written */
	struct list later;
	unsigned open_handles;
	struct list by_id[BUCKETS], by_name[BUCKETS];
	struct list contexts;      /* struct code_context, of all sandboxes */
	struct list removals;      /* struct log_removal */
	struct log_work *removing; /* the removal under way */
	int logs_fd;               /* <state>/logs */
	struct log_spares spares;
	struct token_seen tokens_seen[TOKENS_SEEN_MAX]; /* core/account/token.c */
	struct list requests;                           /* core/account/idempotency.c: under way */
	int64_t requests_prune_at;
	int64_t prune_at, sample_at;
	struct list workspaces; /* struct workspace */
	struct admission admission;
	struct metering metering;
	bool queue_turning;         /* create_queue_turn() was called */
	struct list token_watchers; /* core/account/token.c */
	struct list holds;          /* struct ephemeral_hold */
	bool tokens_telling;
	/* Start-up. */
	void (*ready)(void *data);
	void *ready_data;
	uint32_t probe;     /* the tier that is being probed */
	struct list listed; /* struct host_entry, reconcile.c */
	bool started, stopping;
	bool let_go;      /* the next daemon takes over; this one changes nothing more */
	bool exec_leaves; /* the exec that is being freed was removed by itself; its sandbox still
			     exists */
};

/* The data of a live sandbox beside its record. Owned by the sandbox. */
struct sandbox_life {
	struct sandbox *sandbox;
	struct workspace *workspace; /* the core owns it */
	struct meter meter;
	struct list by_id, by_name; /* in core_private's buckets */
	struct transition transition;
	struct list ready;                 /* struct waiter: sandbox_ready() */
	char woken_by[ACTIVITY_ACTOR_MAX]; /* the caller whose request waits for it to wake */

	int64_t deadline;      /* CLOCK_BOOTTIME, 0 = none */
	int64_t active;        /* CLOCK_BOOTTIME of the last activity */
	int64_t active_stored; /* the wall-clock time that is in the store */
	int64_t save_at;       /* when to write again a row that could not be written; 0: written */
	struct ready_logs ready_logs;
	bool execs_unsaved; /* the row of one of its execs could not be written either */

	int64_t connected_at, reconnect_at;
	uint32_t reconnect_ms;
	uint32_t refused;        /* successive refused connects */
	struct error link_error; /* why there is no link; kind NONE while there is one */
	bool resyncing;          /* LIST was sent, LIST_END has not come */
	uint64_t resync_key;     /* execs with a higher key are younger than LIST */

	int64_t orphan_since; /* CLOCK_BOOTTIME since when nobody holds its connection; 0 = somebody
				 does */

	int mount_fds[SANDBOX_MOUNTS_MAX]; /* for START; -1 after a restart of the daemon */
	uint32_t mount_count;

	struct list watchers;             /* struct sandbox_watcher */
	struct list drained;              /* struct waiter: sandbox_drain() */
	struct kept_principal drained_by; /* the caller of the drain */
	bool notifying;                   /* a later turn tells the watchers */

	struct activity_head activity;

	struct list exec_listeners; /* struct exec_listener */
	uint64_t log_bytes;         /* kept output of settled execs */
	uint64_t log_bytes_pruned;  /* of all execs, when logs were last pruned */
	int64_t log_bytes_seen_at;  /* when the other execs were last counted */
	uint32_t exec_rows;
	bool counters_known;     /* sandbox->counters belongs to this boot */
	struct samples *samples; /* counters.c */
	bool limits_sent;        /* LIMITS was sent */
};

/* core.c: calls back in a later turn of the loop. */
void core_later(struct core *core, void (*call)(void *data), void *data);
/* The same for a `done` that succeeded at once. */
void core_done_later(struct core *core, void (*done)(void *data, const struct error *error),
		     void *data);

/* timers.c */
void timers_start(struct core *core);
/* Everything that has a time is checked at that time (CLOCK_BOOTTIME) at the latest. */
void timers_wake_at(struct core *core, int64_t at);

/* core/sandbox/ephemeral.c: the time of the next check; for a new sandbox. */
int64_t ephemeral_check(struct sandbox *sandbox, int64_t now);
void ephemeral_begin(struct sandbox *sandbox);

/* core/sandbox/sandbox.c */
struct sandbox *sandbox_new(struct core *core, struct sandbox_row *row);
void sandbox_free(struct sandbox *sandbox);
void sandbox_unlist(struct sandbox *sandbox);
/* After a change of row.name: finds it by the new name. */
void sandbox_relist(struct sandbox *sandbox);
void sandbox_set_end(struct sandbox *sandbox, enum end_reason reason, const char *why);
/* Converts deadline_wall to CLOCK_BOOTTIME. */
void sandbox_clock_deadline(struct sandbox *sandbox);
/* Adds to a list of waiters; BUSY if there are too many. */
NODISCARD int waiter_add(struct sandbox *sandbox, struct list *list,
			 void (*done)(void *data, const struct error *error), void *data,
			 int64_t until, bool wake, struct error *error);
/* The same without a maximum. */
void waiter_append(struct sandbox *sandbox, struct list *list,
		   void (*done)(void *data, const struct error *error), void *data, int64_t until,
		   bool wake);
/* Removes the newest waiter of a list: its transition has not begun. */
void waiter_take_back(struct list *list);
void waiters_finish(struct list *list, const struct error *error);
void sandbox_add_phase(struct sandbox *sandbox, const char *name, int64_t since_monotonic);

/* Calls back in a later turn of the loop, unless the sandbox is freed by then. */
void sandbox_later(struct sandbox *sandbox, void (*call)(struct sandbox *sandbox));

/* core/sandbox/spec.c */
NODISCARD int spec_check(struct core *core, const struct principal *principal,
			 const struct sandbox_spec *spec, struct sandbox_row *ret_row,
			 struct error *error);

/* For a change: checks only the requested values (not 0). */
NODISCARD int limits_check_change(const struct sandbox *sandbox, const struct limits *asked,
				  struct error *error);
NODISCARD int timeout_check(const struct config *config, uint32_t seconds, struct error *error);
/* 0 (none) if a sandbox may have no time-out. */
uint32_t timeout_longest(const struct config *config);
/* The tier for `auto` on this host; TIER_AUTO if no tier works. */
enum tier tier_automatic(const struct core *core);

/* core/sandbox/limits.c: of cpu, memory and pids. */
/* The limits after a change; 0 = unchanged. */
struct limits limits_changed(const struct limits *has, const struct limits *asked);
bool limits_same(const struct limits *a, const struct limits *b);
/* A reply to LIMITS came too late. */
void limits_late(struct sandbox *sandbox, const struct spawn_message *reply);
/* At start-up: sets the limits on the host to those of the row. */
void limits_reconcile(struct sandbox *sandbox, const struct spawn_listed *listed);

/* core/sandbox/create.c */
void create_failed(struct sandbox *sandbox, const struct error *error);
/* Answers the caller of sandbox_create(), once. */
void create_tell(struct sandbox *sandbox, const struct error *error);
void boot_message(const struct sandbox *sandbox, uint32_t type, struct spawn_message *message);
void boot_take_reply(struct sandbox *sandbox, const struct spawn_message *reply);
/* Tells the spawner that a sandbox of the pool has an owner; nothing waits for the answer. */
void boot_own(struct sandbox *sandbox);

/* core/sandbox/folders.c */
/* Keeps descriptors of these folders instead of earlier ones, until the daemon exits. */
NODISCARD int folders_keep(struct sandbox *sandbox, const struct mount_spec *mounts, size_t count,
			   struct error *error);
/* Does the daemon have the folders that its boot needs? */
NODISCARD int folders_check(const struct sandbox *sandbox, struct error *error);

/* core/sandbox/link.c */
extern const struct guest_link_callbacks sandbox_link_callbacks; /* data: the sandbox */
void link_connect(struct sandbox *sandbox);
void link_drop(struct sandbox *sandbox, const struct error *why);
void link_send_deadline(struct sandbox *sandbox);
void link_tell_deadline(struct guest_link *link, const struct id *id, int64_t deadline);
NODISCARD int link_configure(struct guest_link *link, const struct configure *configure,
			     struct error *error);
/* GUEST_GONE without a connection. */
NODISCARD int sandbox_send(struct sandbox *sandbox, enum frame_type type, uint64_t id,
			   const void *payload, size_t size, const int *fds, size_t fd_count,
			   struct error *error);
/* Ends a boot: its init is configured, or its time has passed, or something failed. */
void boot_done(struct sandbox *sandbox);
/* The row says that it runs, and its init is configured: user code may run. */
void boot_entered(struct sandbox *sandbox);
void boot_failed(struct sandbox *sandbox, const struct error *error);

/* core/sandbox/delete.c */
void delete_send(struct sandbox *sandbox);
/* The spawner has answered DESTROY; the sandbox may be freed. */
void delete_answered(struct sandbox *sandbox, const struct error *error);
void sandbox_delete_unasked(struct sandbox *sandbox, enum end_reason reason, const char *why);
/* Its processes have ended. */
void sandbox_processes_ended(struct sandbox *sandbox, enum end_cause cause);

/* core/sandbox/wait.c */
/* The sandbox has changed: notifies the watchers in a later turn. */
void sandbox_notify(struct sandbox *sandbox);
/* The last call of each watcher: the sandbox has ended, or the daemon ends. */
void watchers_ended(struct sandbox *sandbox);
void watchers_lost(struct sandbox *sandbox, const struct error *error);
/* Continues a drain; returns the time of the next check, INT64_MAX for never. */
int64_t drain_check(struct sandbox *sandbox, int64_t now);

/* core/activity/sandbox.c */
/* A transition begins: its entry will name the caller. */
void activity_transition_by(struct sandbox *sandbox, const struct principal *principal);
/* The same for a request that will wake it in a later turn. */
void activity_woken_by(struct sandbox *sandbox, const struct principal *principal);
/* After a change of row.state from `before`, with the action to be done: did it get an entry? */
bool activity_state(struct sandbox *sandbox, enum sandbox_state before, enum sandbox_action action);
void activity_paused(struct sandbox *sandbox);
void activity_created(struct sandbox *sandbox, const struct principal *principal);
void activity_failed(struct sandbox *sandbox, const char *what, const struct error *error);

/* core/activity/exec.c */
void activity_exec_started(struct exec *exec, const struct principal *principal,
			   const struct exec_spec *spec);
/* After a restart: its start may not have been written. */
void activity_exec_loaded(struct exec *exec);
void activity_exec_ended(struct exec *exec);
/* Hashes its output; true: in a thread, which then calls exec_save_end(). */
bool exec_digest_begin(struct exec *exec);
/* Does not wait for the thread any longer. */
void exec_digest_give_up(struct exec *exec);

/* core/activity/file.c */
struct file_note;
struct file_note *file_note_new(struct sandbox *sandbox, const struct principal *principal,
				const struct file_request *request);
/* Frees it; NULL is fine. */
void file_note_done(struct sandbox *sandbox, struct file_note *note, uint8_t operation,
		    const void *result, size_t size, const struct error *error);

/* reconcile.c */
void reconcile_listed(struct core *core, const struct id *id, const struct spawn_listed *listed);
void reconcile_ended(struct core *core, const struct id *id);
NODISCARD int core_reconcile(struct core *core, struct error *error);
void reconcile_done(struct core *core);

/* core/exec/exec.c */
struct exec *exec_by_key(struct sandbox *sandbox, uint64_t key);
struct exec *exec_new(struct sandbox *sandbox, struct exec_row *row);
void exec_free(struct exec *exec);
/* Notifies its watchers, and frees it. */
void exec_forget(struct exec *exec);
void exec_notify(struct exec *exec);
/* Is its end in the store, and none of its processes left? Then its output grows no more, and the
 * store knows how much it is. */
bool exec_settled(const struct exec *exec);
/* Frees ended execs without watchers. */
void exec_trim(struct sandbox *sandbox);
/* Loads from the store the execs that the init may still know. */
NODISCARD int exec_load_live(struct sandbox *sandbox, struct error *error);
bool sandbox_has_running_exec(const struct sandbox *sandbox);
void exec_link_lost(struct sandbox *sandbox);
/* Tells the init how much the consumers of a lossless exec have read. */
void exec_acknowledge(struct exec *exec);
void exec_row_copy(const struct exec_row *from, struct exec_row *ret_row);

/* core/exec/input.c */
/* It runs: sends the signals that were held until now. */
void exec_send_held(struct exec *exec);
void exec_drained(struct sandbox *sandbox);

/* core/exec/start.c: for its next exec. */
void sandbox_make_ready_logs(struct sandbox *sandbox);

/* core/exec/ends.c: has its end written in a moment, or with what is known now of its digest. */
void exec_write_end_soon(struct exec *exec);
void exec_write_end_now(struct exec *exec);
/* All that wait: for readers of the store, and at the end of the daemon. */
void execs_write_ends(struct core *core);
/* Those of this sandbox, before anything newer is recorded in its activity. */
void sandbox_write_ends(struct sandbox *sandbox);
/* Its output is hashed: writes its end, with its entry in the activity. */
void exec_save_end(struct exec *exec);
/* The number of its processes that are left has changed, or their output: the row gets it. */
void exec_save_left_running(struct exec *exec);
/* False if one of them still cannot be written. */
bool exec_save_again(struct sandbox *sandbox);

/* core/exec/frames.c */
void exec_send_forget(struct sandbox *sandbox, uint64_t key);
/* Its time-out begins: the init's, and the daemon's own in case the init does not enforce it. */
void exec_watch_time(struct exec *exec);
/* Ends execs whose end the init should have reported; returns when the next is due. */
int64_t exec_check_overdue(struct sandbox *sandbox, int64_t now);
bool exec_any_given_up(const struct sandbox *sandbox);
/* The init violates the protocol: returns -1. */
int frame_broken(struct error *error, const char *what);

/* core/file/files.c */
void file_drained(struct sandbox *sandbox);
/* Operations on which the init makes no progress fail; returns when to check again, INT64_MAX for
 * never. */
int64_t file_check(struct sandbox *sandbox, int64_t now);
/* The sandbox was paused: no progress was expected meanwhile. */
void file_clock_goes_on(struct sandbox *sandbox);

/* core/exec/left_running.c */
struct left_query {
	struct list link;
	struct exec *exec;
	void (*done)(void *data, const struct left_process *processes, size_t count,
		     const struct error *error);
	void *data;
	int64_t until; /* CLOCK_BOOTTIME */
};
/* Answers queries that have waited too long with an empty list; returns when the next is due,
 * INT64_MAX for never. */
int64_t left_queries_check(struct sandbox *sandbox, int64_t now);
void left_queries_finish(struct exec *exec, const struct left_process *processes, size_t count,
			 const struct error *error);
/* The init's answer to LEFT_RUNNING. */
NODISCARD int left_queries_answer(struct exec *exec, const struct frame *frame,
				  struct error *error);

/* core/exec/log.c */
NODISCARD int exec_logs_create(struct exec *exec, struct error *error);
NODISCARD int exec_logs_open(struct exec *exec);
void exec_logs_close(struct exec *exec);
void exec_logs_unlink(struct sandbox *sandbox, const struct id *exec);
void exec_logs_refresh(struct exec *exec);
uint64_t exec_logs_size(const struct exec_row *row);
/* Before an exec begins: determines how much of its output is kept: the requested or configured
 * size, but no more than the sandbox's remaining maximum. */
NODISCARD int exec_logs_fit(const struct sandbox *sandbox, const struct exec_spec *spec,
			    struct exec_row *row, struct error *error);
/* An exec may have become settled: counts its output, once, and removes the oldest logs above the
 * configured maximum. */
void exec_logs_account(struct exec *exec);
/* An exec that is not settled has new output: removes the oldest logs likewise. */
void exec_logs_grown(struct sandbox *sandbox);
#define LOG_PATH_MAX (2 * ID_LENGTH + 8)
void log_path(const struct id *sandbox, const struct id *exec, int stream, char path[LOG_PATH_MAX]);
NODISCARD int logs_open_directory(struct core *core, struct error *error);

/* core/exec/log_spares.c */
/* Makes files in advance when there are few; returns at once. */
void spares_fill(struct core *core);
/* Moves one of the spare log files to that path: returns its descriptor, or -errno. */
NODISCARD int spare_take(struct core *core, const char *path);
void spares_stop(struct core *core);

/* core/exec/log_removal.c */
/* Removes the logs of one exec, or with NULL all logs of the sandbox. */
void logs_remove(struct core *core, const struct id *sandbox, const struct id *exec);
/* The same at once; may block. Called in a thread: uses only its arguments. */
void logs_remove_now(int logs_fd, const struct log_removal *removal);
/* A removal under way finishes by itself; the next start removes the rest. */
void logs_stop(struct core *core);
/* Removes directories whose sandbox is not alive, and files whose exec has no output. */
void logs_remove_strays(struct core *core);
