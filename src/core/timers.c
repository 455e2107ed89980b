/* The one timer of core/: deadlines, idle time-outs, time-outs of requests, retries, reconnects,
 * pruning. Code that must be called later calls timers_wake_at(). When the timer fires, every
 * sandbox is checked and the next time is computed, so that nothing has to be cancelled. Runs in
 * the loop; blocks for the store only. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/code/code.h"
#include "core/core_private.h"
#include "core/sandbox/create_queue.h"
#include "core/account/token.h"

#define PRUNE_INTERVAL (3600 * NSEC_PER_SEC)
#define PRUNE_AGAIN (100 * NSEC_PER_MSEC) /* while there are more: other work in between */
#define NEVER INT64_MAX

static void core_timer_due(uv_timer_t *timer);

void timers_wake_at(struct core *core, int64_t at)
{
	struct core_private *private = core->private;
	if (private->stopping || (private->wake_at != 0 && private->wake_at <= at))
		return;
	private->wake_at = at;
	int64_t delay = MAX(at - clock_boot(), 0);
	/* Rounded up: too early would find nothing due. */
	delay = (delay + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
	uv_timer_start(&private->timer, core_timer_due, (uint64_t)delay, 0);
}

void timers_start(struct core *core)
{
	core->private->timer.data = core;
	core->private->prune_at = clock_boot();
	timers_wake_at(core, core->private->prune_at);
}

static int64_t sandbox_check_deadline(struct sandbox *sandbox, int64_t now)
{
	if (!state_facts(sandbox->row.state)->has_deadline)
		return NEVER;
	int64_t deadline = sandbox->life->deadline;
	if (deadline == 0 || deadline > now)
		return deadline == 0 ? NEVER : deadline;
	sandbox_delete_unasked(sandbox, END_REASON_TIMEOUT, "its time-out has passed");
	return NEVER;
}

/* If that fails (a host without a freezer, a full disk) it is repeated after another idle time. */
static int64_t sandbox_pause_idle(struct sandbox *sandbox, int64_t now, int64_t allowed)
{
	struct error error;
	sandbox->life->active = now;
	if (sandbox_pause(sandbox, NULL, NULL, NULL, &error) == 0) {
		log_info("sandbox %s is idle and is paused", sandbox->row.id.text);
		return NEVER;
	}
	log_warning("sandbox %s is idle and cannot be paused: %s", sandbox->row.id.text,
		    error.message);
	return now + allowed;
}

static int64_t sandbox_check_idle(struct sandbox *sandbox, int64_t now)
{
	const struct sandbox_row *row = &sandbox->row;
	int64_t delete_after = row->idle_timeout_seconds * NSEC_PER_SEC;
	int64_t pause_after = row->auto_pause_seconds * NSEC_PER_SEC;
	if (row->options & OPTION_PERSISTENT && delete_after != 0) {
		pause_after = pause_after ? MIN(pause_after, delete_after) : delete_after;
		delete_after = 0;
	}
	int64_t allowed = delete_after && pause_after ? MIN(delete_after, pause_after)
						      : MAX(delete_after, pause_after);
	if (allowed == 0 || !state_facts(row->state)->may_exec)
		return NEVER;
	/* Watches, downloads and terminals are operations and execs: a sandbox with them is not
	 * idle, except for a watch that only observes. */
	if (file_any_active(sandbox) || sandbox_has_running_exec(sandbox)) {
		sandbox->life->active = now;
		return now + allowed;
	}
	if (sandbox->life->active + allowed > now)
		return sandbox->life->active + allowed;
	if (allowed == delete_after) {
		sandbox_delete_unasked(sandbox, END_REASON_IDLE,
				       "nothing was asked of it for its idle time");
		return NEVER;
	}
	return sandbox_pause_idle(sandbox, now, allowed);
}

/* Requests whose time to wait for a connection is over. */
static int64_t sandbox_check_ready(struct sandbox *sandbox, int64_t now)
{
	struct list due;
	int64_t next = NEVER;
	list_init(&due);
	list_each (&sandbox->life->ready, node) {
		struct waiter *waiter = list_entry(node, struct waiter, link);
		if (waiter->until > now) {
			next = MIN(next, waiter->until);
			continue;
		}
		list_remove(node);
		list_append(&due, node);
	}
	if (list_empty(&due))
		return next;
	struct error error = sandbox->life->link_error;
	if (error.kind == ERROR_NONE)
		error_set(&error, ERROR_GUEST_GONE, "sandbox `%s` did not become ready in time",
			  sandbox->row.id.text);
	waiters_finish(&due, &error);
	return next;
}

/* Calls `again` when its time has come. */
static int64_t sandbox_check_retry(struct sandbox *sandbox, int64_t at, int64_t now,
				   void (*again)(struct sandbox *sandbox))
{
	if (at == 0 || at > now)
		return at == 0 ? NEVER : at;
	again(sandbox);
	return NEVER;
}

static int64_t sandbox_check(struct sandbox *sandbox, int64_t now)
{
	struct sandbox_life *life = sandbox->life;
	int64_t next = sandbox_check_retry(sandbox, life->transition.due, now, transition_due);
	next = MIN(next, sandbox_check_ready(sandbox, now));
	next = MIN(next, sandbox_check_deadline(sandbox, now));
	next = MIN(next, sandbox_check_idle(sandbox, now));
	next = MIN(next, file_check(sandbox, now));
	next = MIN(next, left_queries_check(sandbox, now));
	next = MIN(next, exec_check_overdue(sandbox, now));
	next = MIN(next, code_check(sandbox, now));
	next = MIN(next, drain_check(sandbox, now));
	next = MIN(next, ephemeral_check(sandbox, now));
	next = MIN(next, sandbox_check_retry(sandbox, life->reconnect_at, now, link_connect));
	sandbox_check_retry(sandbox, life->save_at, now, sandbox_save_again);
	next = MIN(next, life->save_at == 0 ? NEVER : life->save_at);
	return next;
}

/* Removes a batch of old tombstones; returns when to continue. */
static int64_t core_prune(struct core *core)
{
	struct error error;
	int64_t days = core->config.tombstone_days;
	int64_t before = clock_wall() - days * 86400 * NSEC_PER_SEC;
	int gone = days > 0 ? store_sandbox_prune(core->store, before, &error) : 0;
	if (gone < 0)
		log_warning("old tombstones cannot be removed: %s", error.message);
	bool more = activity_prune(core) || gone > 0;
	more |= meter_prune(core);
	return clock_boot() + (more ? PRUNE_AGAIN : PRUNE_INTERVAL);
}

static void core_timer_due(uv_timer_t *timer)
{
	struct core *core = timer->data;
	struct core_private *private = core->private;
	int64_t now = clock_boot(), next = NEVER;
	if (private->let_go)
		return; /* the next daemon has its own timers */
	private->wake_at = 0;
	list_each (&core->sandboxes, node)
		next = MIN(next, sandbox_check(list_entry(node, struct sandbox, link), now));
	if (private->prune_at <= now) {
		private->prune_at = core_prune(core);
	}
	next = MIN(next, private->prune_at);
	next = MIN(next, counters_tend(core, now));
	next = MIN(next, meter_tend(core, now));
	next = MIN(next, create_queue_tend(core, now));
	next = MIN(next, pool_tend(core, now));
	next = MIN(next, tokens_tend(core, now));
	timers_wake_at(core, next);
}
