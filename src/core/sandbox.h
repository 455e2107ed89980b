/* A sandbox: its record, its state, its life. The states and their arrows:
 *
 *            ┌───────────> ended (could not be made)
 *   creating ┴> running ─> pausing ─> paused ─> resuming ─> running
 *                  │  └──> stopping ─> stopped ─> starting ─> running
 *                  └─────> deleting ─> ended          (deleting from every state,
 *                                                      stopping from paused too)
 *
 * running -> stopped happens by itself when the processes end (host reboot, init killed) and its
 * files are there. `ended` is the tombstone. A transition is written to the store before its effect
 * is begun; core_start() finishes or undoes what a crash left in a state that ends in -ing.
 *
 * timeout_seconds is absolute: at its deadline a sandbox is deleted, files included, whether it
 * runs or is stopped (stopping one saves its processes, not its place on the disk). For a paused
 * one no time passes: it is never deleted by its timer, and when it leaves pausing, paused or
 * resuming, to whatever state, its deadline has moved by as long as it was in them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"

struct exec;
struct file_operation_handle;
struct guest_link;
struct sandbox_life;

struct mount_spec {
	enum mount_mode mode;
	const char *path;      /* inside, absolute */
	const char *host_path; /* for people */
	int fd;                /* a grant of the client's (proto/folder_grant.h); not taken */
};

struct pair {
	const char *key, *value;
};

/* What a create asks for. 0 and NULL mean: the configured default. Borrowed. */
struct sandbox_spec {
	const char *name;
	const char *template;
	enum tier tier;
	struct limits limits;
	bool timeout_set; /* timeout_seconds 0 then means none */
	uint32_t timeout_seconds, idle_timeout_seconds;
	uint32_t flags; /* enum create_flag */
	const struct pair *environment, *metadata;
	size_t environment_count, metadata_count;
	const struct mount_spec *mounts;
	size_t mount_count;
};

struct phase {
	char name[16];
	uint32_t microseconds;
};
#define SANDBOX_PHASES_MAX (SPAWN_PHASES_MAX + 4)

struct sandbox {
	struct list link; /* in core->sandboxes */
	struct core *core;
	struct sandbox_row row;
	struct guest_link *guest; /* NULL while there is no connection */
	bool guest_ready;         /* configured: user code may run */
	struct list execs;        /* struct exec, newest last */
	struct list operations;   /* struct file_operation_handle */
	uint64_t next_operation;
	struct phase phases[SANDBOX_PHASES_MAX];
	uint32_t phase_count;
	uint64_t boot_us;               /* create to ready */
	const char *boot_mode;          /* "cold"; later "pool", "restore", "fork" */
	struct spawn_counters counters; /* last seen */
	struct sandbox_life *life;      /* what is under way: core_private.h */
};

/* Calls back when it is running (init configured), with `sandbox`; or with error. */
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
/* Also finds tombstones: fills a row that the caller frees. */
NODISCARD int sandbox_find_row(struct core *core, const struct principal *principal,
			       const char *id_or_name, struct sandbox_row *ret_row,
			       struct error *error);
struct sandbox *sandbox_by_id(struct core *core, const struct id *id);

/* The transitions. Each is allowed from the states its arrow leaves; doing what is done already is
 * success. done(data, error): error is NULL on success. */
#define SANDBOX_DONE void (*done)(void *data, const struct error *error), void *data
NODISCARD int sandbox_stop(struct sandbox *sandbox, SANDBOX_DONE, struct error *error);
NODISCARD int sandbox_start(struct sandbox *sandbox, SANDBOX_DONE, struct error *error);
NODISCARD int sandbox_pause(struct sandbox *sandbox, SANDBOX_DONE, struct error *error);
NODISCARD int sandbox_resume(struct sandbox *sandbox, SANDBOX_DONE, struct error *error);
/* Never refused. */
NODISCARD int sandbox_delete(struct sandbox *sandbox, enum end_reason reason, const char *why,
			     SANDBOX_DONE, struct error *error);

/* Makes it ready for work: running and connected. Where `wake` says so, resumes a paused one and
 * starts a stopped one (else SANDBOX_STATE); waits for a transition or a reconnect under way; the
 * callback comes when it is ready. Counts as activity. */
NODISCARD int sandbox_ready(struct sandbox *sandbox, bool wake, SANDBOX_DONE, struct error *error);
/* Asks the spawner for its counters; done when sandbox->counters is fresh. */
NODISCARD int sandbox_refresh_counters(struct sandbox *sandbox, SANDBOX_DONE, struct error *error);
/* New absolute time-out from now; 0 = none. Stored, and told to the init. */
NODISCARD int sandbox_set_timeout(struct sandbox *sandbox, uint32_t seconds, struct error *error);
void sandbox_touch(struct sandbox *sandbox);

const char *sandbox_state_name(enum sandbox_state state);
const char *end_reason_name(enum end_reason reason);
/* Seconds until its deadline; -1 when there is none. */
int64_t sandbox_expires_in(const struct sandbox_row *row);
