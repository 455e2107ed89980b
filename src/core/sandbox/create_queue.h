/* Creates that wait for room: a bounded queue per workspace, first come, first served; the
 * workspaces take turns. Room comes from a sandbox that is deleted, paused or stopped, from a
 * budget that is raised or whose period begins again, or from free memory of the host. */
#pragma once

#include "core/account/workspace.h"

struct mount_spec;
struct sandbox;

#define WAIT_MS_MAX (10u * 60 * 1000)
#define QUEUE_ALL_MAX 4096 /* of all workspaces together */

/* May a sandbox with these limits be made now? Checks the host's count, the workspace's budgets,
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
/* create.c: begins it, whether there is room or not. */
NODISCARD int create_begin(struct create_request *create, struct error *error);

/* There is room, but others wait: *error is why. Returns -1. */
int create_queue_behind(const struct workspace *workspace, struct error *error);
/* Waits for wait_ms at most; *why says why it may not be made now. Takes the row on success; else
 * QUEUE_FULL. */
NODISCARD int create_queue_add(struct create_request *create, uint32_t wait_ms,
			       const struct error *why, struct error *error);
/* The client is gone: done(data) will not be called. False: no such create waits. */
bool create_queue_leave(struct core *core, const void *data);
/* There may be room: a later turn of the loop begins what may begin. */
void create_queue_turn(struct core *core);
/* For timers.c: when to call again (CLOCK_BOOTTIME). */
int64_t create_queue_tend(struct core *core, int64_t now);
bool create_queue_empty(const struct core *core);
void create_queue_fail_all(struct core *core, const struct error *error);
