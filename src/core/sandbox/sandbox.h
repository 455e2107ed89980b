/* A sandbox: its record, its state, its life. The states and their arrows:
 *
 *            ┌───────────> ended (could not be made)
 *   creating ┴> running ─> pausing ─> paused ─> resuming ─> running
 *                  │  └──> stopping ─> stopped ─> starting ─> running
 *                  └─────> deleting ─> ended          (deleting from every state,
 *                                                      stopping from paused too)
 *
 * running -> stopped also happens when the processes end unexpectedly (host reboot, init killed)
 * and its files exist. `ended` is the tombstone. A transition is written to the store before its
 * effect is begun; core_start() finishes or undoes what a crash left in a state that ends in -ing.
 *
 * timeout_seconds is absolute: at its deadline a sandbox is deleted, files included, whether it
 * runs or is stopped (stopping one saves its processes, not its place on the disk). While it is
 * paused, its time-out stands still: no timer deletes it, and when it leaves pausing, paused or
 * resuming, its deadline moves by the time that it spent in these states. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "core/sandbox/network.h"
#include "core/sandbox/state.h"

struct exec;
struct file_operation_handle;
struct guest_link;
struct sandbox_life;

struct mount_spec {
	enum mount_mode mode;
	const char *path;      /* in the sandbox; absolute */
	const char *host_path; /* for people */
	int fd;                /* the client's grant (proto/folder_grant.h); not taken */
};

/* A mount in a sandbox's row. */
struct sandbox_mount {
	enum mount_source source;
	enum mount_mode mode;
	const char *path;      /* in the sandbox */
	const char *host_path; /* for people, or "" */
};
/* The mount at *at, which is 0 for the first one and then points to the next; false at the end. */
bool sandbox_mount_next(const struct sandbox_row *row, size_t *at, struct sandbox_mount *ret_mount);

struct pair {
	const char *key, *value;
};

/* The request of a create. 0 and NULL mean the configured default. Borrowed. */
struct sandbox_spec {
	/* NULL, or called with the new id before its row is written, in the same transaction.
	 * `data` is sandbox_create()'s; -1 with *error refuses the create. */
	int (*named)(void *data, const struct id *id, struct error *error);
	const char *name;
	const char *template;
	bool allow_substitute; /* `host` may replace a template that is not installed */
	enum tier tier;
	enum network network;
	struct limits limits;
	bool timeout_set; /* timeout_seconds 0 then means none */
	uint32_t timeout_seconds, idle_timeout_seconds, auto_pause_seconds;
	uint32_t flags;   /* enum create_flag */
	uint32_t options; /* enum sandbox_option */
	const struct pair *environment, *metadata, *labels;
	size_t environment_count, metadata_count, label_count;
	const struct mount_spec *mounts;
	size_t mount_count;
	uint32_t wait_ms; /* wait so long for room; 0: not at all */
};

/* How a sandbox was made; the numbers are in the store. */
enum create_origin { ORIGIN_COLD = 0, ORIGIN_POOL = 1, ORIGIN_COUNT };
struct create_origin_facts {
	const char *name;           /* the API's boot_mode */
	bool environment_with_exec; /* its init does not have the sandbox's environment */
	bool counters_from_zero;    /* its cgroups are new */
};
/* A number that is no origin counts as ORIGIN_COLD. */
const struct create_origin_facts *create_origin_facts(uint32_t origin);

struct phase {
	char name[16];
	uint32_t microseconds;
};
#define SANDBOX_PHASES_MAX (SPAWN_PHASES_MAX + 4)

/* How much memory the last pause of this daemon returned to the host. */
struct pause_report {
	bool known;
	bool complete; /* false: it was resumed, or RECLAIM took too long */
	uint64_t memory_before, memory_after, microseconds;
	char failure[96]; /* not `known`: why nothing was reclaimed; "": not tried */
};

struct sandbox {
	struct list link; /* in core->sandboxes */
	struct core *core;
	struct sandbox_row row;
	struct guest_link *guest; /* NULL while there is no connection */
	bool guest_ready;         /* configured: user code may run */
	struct list execs;        /* struct exec, newest last */
	struct list operations;   /* struct file_operation_handle */
	uint64_t next_operation;
	uint32_t queued_ms; /* how long its create waited for room */
	struct phase phases[SANDBOX_PHASES_MAX];
	uint32_t phase_count;
	struct spawn_counters counters; /* last seen: core/counters.h */
	struct pause_report pause;
	struct sandbox_life *life; /* data of core/ beside it: core_private.h */
};

/* Calls back with `sandbox` when it runs (its init is configured), or with error. */
NODISCARD int sandbox_create(struct core *core, const struct principal *principal,
			     const struct sandbox_spec *spec,
			     void (*done)(void *data, struct sandbox *sandbox,
					  const struct error *error),
			     void *data, struct error *error);

/* By id or name, in the principal's workspace. SANDBOX_NOT_FOUND, SANDBOX_ENDED (with when and
 * why), ID_MALFORMED. */
NODISCARD int sandbox_find(struct core *core, const struct principal *principal,
			   const char *id_or_name, struct sandbox **ret_sandbox,
			   struct error *error);
/* Finds tombstones too; the caller frees the row. */
NODISCARD int sandbox_find_row(struct core *core, const struct principal *principal,
			       const char *id_or_name, struct sandbox_row *ret_row,
			       struct error *error);
struct sandbox *sandbox_by_id(struct core *core, const struct id *id);

/* The transitions. Each is allowed from the states that its arrow leaves; it succeeds at once when
 * the sandbox is in the wanted state. done(data, error): error is NULL on success; done may be
 * NULL. */
#define SANDBOX_DONE void (*done)(void *data, const struct error *error), void *data
NODISCARD int sandbox_stop(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
			   struct error *error);
NODISCARD int sandbox_start(struct sandbox *sandbox, const struct principal *principal,
			    SANDBOX_DONE, struct error *error);
/* Gives the folders of its create again, in any order, for the next start: a restarted daemon does
 * not have them. */
NODISCARD int sandbox_give_folders(struct sandbox *sandbox, const struct principal *principal,
				   const struct mount_spec *mounts, size_t count,
				   struct error *error);
NODISCARD int sandbox_pause(struct sandbox *sandbox, const struct principal *principal,
			    SANDBOX_DONE, struct error *error);
NODISCARD int sandbox_resume(struct sandbox *sandbox, const struct principal *principal,
			     SANDBOX_DONE, struct error *error);
/* Never refused. */
NODISCARD int sandbox_delete(struct sandbox *sandbox, const struct principal *principal,
			     enum end_reason reason, const char *why, SANDBOX_DONE,
			     struct error *error);

/* Makes it ready for work: running and connected. With `wake` it resumes a paused sandbox and
 * starts a stopped one; without it fails with SANDBOX_STATE or SANDBOX_PAUSED. Waits for a
 * transition or a reconnect that is under way. Counts as activity. */
NODISCARD int sandbox_ready(struct sandbox *sandbox, const struct principal *principal, bool wake,
			    SANDBOX_DONE, struct error *error);
/* --- wait.c --- */

/* Called in a later turn whenever its state has changed or one of its commands has ended. The call
 * in state SANDBOX_ENDED is the last one. */
struct sandbox_watcher {
	struct list link;
	void (*changed)(struct sandbox_watcher *watcher, struct sandbox *sandbox);
	/* The last call: the daemon ends, and the sandbox continues. */
	void (*lost)(struct sandbox_watcher *watcher, const struct error *error);
};
void sandbox_watch(struct sandbox *sandbox, struct sandbox_watcher *watcher);
void sandbox_unwatch(struct sandbox_watcher *watcher);

enum wait_for { WAIT_RUNNING, WAIT_STOPPED, WAIT_PAUSED, WAIT_ENDED, WAIT_IDLE };
/* "running" and so on; -1 with INVALID. */
NODISCARD int wait_for_parse(const char *text, enum wait_for *ret_what, struct error *error);
/* Waits for a state; idle: it runs and no command runs in it. done is called once, with the sandbox
 * (its state may be SANDBOX_ENDED) or an error: WAIT_TIMED_OUT with its state now, or
 * SANDBOX_ENDED: it will never be in that state. */
struct sandbox_wait;
NODISCARD int sandbox_wait(struct sandbox *sandbox, enum wait_for what, uint32_t timeout_ms,
			   void (*done)(void *data, struct sandbox *sandbox,
					const struct error *error),
			   void *data, struct sandbox_wait **ret_wait, struct error *error);
/* done will not be called. */
void sandbox_wait_cancel(struct sandbox_wait *wait);

/* Refuses new commands from now on. When the running ones have ended, or the time is over, it is
 * stopped or, with then_delete, deleted, and done is called. A restarted daemon continues a
 * drain. */
NODISCARD int sandbox_drain(struct sandbox *sandbox, const struct principal *principal,
			    uint32_t timeout_seconds, bool then_delete, SANDBOX_DONE,
			    struct error *error);
/* It takes commands again; waiters of the drain get CANCELLED. */
NODISCARD int sandbox_drain_cancel(struct sandbox *sandbox, struct error *error);
/* Does a command run in it? The interpreter of a code context does not count. */
bool sandbox_busy(const struct sandbox *sandbox);

/* --- change.c --- */

/* The values to change; the others stay. Borrowed for the length of the call. */
struct sandbox_change {
	bool name_set;
	const char *name;                     /* NULL: remove the name */
	const struct pair *metadata, *labels; /* merged in; a value of NULL removes the key */
	size_t metadata_count, label_count;
	bool timeout_set, idle_timeout_set, auto_pause_set;
	uint32_t timeout_seconds; /* from now on; 0 = none */
	uint32_t idle_timeout_seconds, auto_pause_seconds;
	uint32_t options,
	    options_mask;     /* enum sandbox_option: the options in the mask get these values */
	struct limits limits; /* cpu, memory, pids; 0 = as it is */
};
/* Changes everything or nothing. done: it is changed and stored. */
NODISCARD int sandbox_change(struct sandbox *sandbox, const struct principal *principal,
			     const struct sandbox_change *change, SANDBOX_DONE,
			     struct error *error);

/* Asks the spawner for its counters; done when sandbox->counters is fresh. */
NODISCARD int sandbox_refresh_counters(struct sandbox *sandbox, SANDBOX_DONE, struct error *error);
/* New cpu, memory and pids; 0 = unchanged. Valid at once if it runs or is paused, else from its
 * next start. Changes all or nothing; done: it is changed and stored. LIMIT_EXCEEDED if it uses
 * more memory than that and dropping caches does not help. */
NODISCARD int sandbox_set_limits(struct sandbox *sandbox, const struct principal *principal,
				 const struct limits *limits, SANDBOX_DONE, struct error *error);
/* A new absolute time-out from now; 0 = none. Stored, and sent to the init. */
NODISCARD int sandbox_set_timeout(struct sandbox *sandbox, uint32_t seconds, struct error *error);
void sandbox_touch(struct sandbox *sandbox);
/* Commands and file operations can begin at once: it runs, and its init is connected. */
bool sandbox_may_exec(const struct sandbox *sandbox);
/* The error if they cannot: SANDBOX_STATE, GUEST_GONE. Returns -1. */
NODISCARD int sandbox_refuse_exec(const struct sandbox *sandbox, struct error *error);
/* SANDBOX_STATE while it is being deleted, and afterwards. */
NODISCARD int sandbox_check_kept(const struct sandbox *sandbox, struct error *error);

/* By the name of an isolation: one of "auto,namespace,gvisor,vm". TIER_COUNT: unknown. */
enum tier sandbox_tier_parse(const char *isolation);
const char *sandbox_state_name(enum sandbox_state state);
const char *end_reason_name(enum end_reason reason);
/* Seconds until its deadline; -1 if it has none. */
int64_t sandbox_expires_in(const struct sandbox_row *row);
