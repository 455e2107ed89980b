/* Creates that wait for room: a bounded queue per workspace, first come, first served; between
 * workspaces each gets its turn. What lets one in: a sandbox that is deleted, paused or stopped, a
 * budget that is raised or whose period begins anew, memory that the host has again. */
#pragma once

#include "core/account/workspace.h"

struct mount_spec;
struct sandbox;

#define WAIT_MS_MAX (10u * 60 * 1000)
#define QUEUE_ALL_MAX 4096 /* of all workspaces together */

/* Whether a sandbox with these limits may be made now: the host's count, the workspace's budgets,
 * the host's memory and disk. *ret_never: waiting will not help. */
NODISCARD int create_admit(struct core *core, struct workspace *workspace,
			   const struct limits *limits, bool *ret_never, struct error *error);
/* A create that has been checked. All but the row is borrowed. */
struct create_request {
	struct core *core;
	const struct principal *principal;
	struct sandbox_row row; /* owned; empty as soon as there is a sandbox */
	const struct mount_spec *mounts;
	size_t mount_count;
	uint32_t queued_ms;
	int (*named)(void *data, const struct id *id, struct error *error); /* as of the spec */
	void (*done)(void *data, struct sandbox *sandbox, const struct error *error);
	void *data;
};
/* create.c: makes it, whether there is room or not. */
NODISCARD int create_begin(struct create_request *create, struct error *error);

/* There is room, but others wait for theirs: what those were refused for. Returns -1. */
int create_queue_behind(const struct workspace *workspace, struct error *error);
/* Why it may not be made now is in *why; it waits for wait_ms at most. Takes the row when it
 * succeeds; else QUEUE_FULL. */
NODISCARD int create_queue_add(struct create_request *create, uint32_t wait_ms,
			       const struct error *why, struct error *error);
/* Whoever asked is gone: done(data) will not be called. False: it does not wait (any more). */
bool create_queue_leave(struct core *core, const void *data);
/* Something may have made room: those who wait are looked at in a later turn of the loop. */
void create_queue_turn(struct core *core);
/* For timers.c: when to call again (CLOCK_BOOTTIME). */
int64_t create_queue_tend(struct core *core, int64_t now);
bool create_queue_empty(const struct core *core);
void create_queue_fail_all(struct core *core, const struct error *error);
