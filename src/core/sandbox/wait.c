/* Watchers of a sandbox, waiting for a state, draining. Watchers are called in a later turn of the
 * loop, never during a change; the timers continue a drain, and every change wakes them. Called by
 * the edges and by the rest of core/; blocks for the store only. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/core_private.h"

#define NEVER INT64_MAX
#define DRAIN_RETRY (200 * NSEC_PER_MSEC)

bool sandbox_busy(const struct sandbox *sandbox)
{
	list_each (&sandbox->execs, node) {
		const struct exec *exec = list_entry(node, struct exec, link);
		if (!exec_ended(exec) && !id_is_set(&exec->row.context))
			return true;
	}
	return false;
}

/* --- watchers --- */

void sandbox_watch(struct sandbox *sandbox, struct sandbox_watcher *watcher)
{
	list_append(&sandbox->life->watchers, &watcher->link);
}

void sandbox_unwatch(struct sandbox_watcher *watcher)
{
	list_remove(&watcher->link);
}

/* Each may remove itself and others, so the loop takes them from a list that only gets shorter. */
static void watchers_tell(struct sandbox *sandbox, bool last)
{
	struct list due;
	list_take_all(&sandbox->life->watchers, &due);
	while (!list_empty(&due)) {
		struct sandbox_watcher *watcher =
		    list_entry(due.next, struct sandbox_watcher, link);
		list_remove(&watcher->link);
		if (!last)
			list_append(&sandbox->life->watchers, &watcher->link);
		watcher->changed(watcher, sandbox);
	}
}

static void watchers_tell_all(struct sandbox *sandbox)
{
	sandbox->life->notifying = false;
	watchers_tell(sandbox, false);
}

void sandbox_notify(struct sandbox *sandbox)
{
	if (sandbox->row.drain_wall != 0)
		timers_wake_at(sandbox->core, clock_boot());
	if (list_empty(&sandbox->life->watchers) || sandbox->life->notifying)
		return;
	sandbox->life->notifying = true;
	sandbox_later(sandbox, watchers_tell_all);
}

void watchers_ended(struct sandbox *sandbox)
{
	watchers_tell(sandbox, true);
	waiters_finish(&sandbox->life->drained, NULL);
}

void watchers_lost(struct sandbox *sandbox, const struct error *error)
{
	while (!list_empty(&sandbox->life->watchers)) {
		struct sandbox_watcher *watcher =
		    list_entry(sandbox->life->watchers.next, struct sandbox_watcher, link);
		list_remove(&watcher->link);
		watcher->lost(watcher, error);
	}
	waiters_finish(&sandbox->life->drained, error);
}

/* --- wait --- */

static const struct {
	const char *name;
	enum sandbox_state state;
} waits[] = {
    [WAIT_RUNNING] = {"running", SANDBOX_RUNNING}, [WAIT_STOPPED] = {"stopped", SANDBOX_STOPPED},
    [WAIT_PAUSED] = {"paused", SANDBOX_PAUSED},    [WAIT_ENDED] = {"ended", SANDBOX_ENDED},
    [WAIT_IDLE] = {"idle", SANDBOX_RUNNING},
};

int wait_for_parse(const char *text, enum wait_for *ret_what, struct error *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
		if (strcmp(waits[i].name, text) != 0)
			continue;
		*ret_what = (enum wait_for)i;
		return 0;
	}
	return error_set(
	    error, ERROR_INVALID,
	    "query parameter `for` must be running, stopped, paused, ended or idle, not `%.32s`",
	    text);
}

struct sandbox_wait {
	struct sandbox_watcher watcher;
	uv_timer_t timer; /* its time-out; 0 if the wait is over at once */
	struct core *core;
	struct id id;
	enum wait_for what;
	void (*done)(void *data, struct sandbox *sandbox, const struct error *error);
	void *data;
};

static bool wait_is_over(const struct sandbox *sandbox, enum wait_for what)
{
	return sandbox->row.state == waits[what].state &&
	       !(what == WAIT_IDLE && sandbox_busy(sandbox));
}

static void wait_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void wait_end(struct sandbox_wait *wait, struct sandbox *sandbox, const struct error *error)
{
	void (*done)(void *, struct sandbox *, const struct error *) = wait->done;
	sandbox_unwatch(&wait->watcher);
	uv_timer_stop(&wait->timer);
	uv_close((uv_handle_t *)&wait->timer, wait_closed);
	if (done)
		done(wait->data, sandbox, error);
}

void sandbox_wait_cancel(struct sandbox_wait *wait)
{
	wait->done = NULL;
	wait_end(wait, NULL, NULL);
}

static void wait_changed(struct sandbox_watcher *watcher, struct sandbox *sandbox)
{
	struct sandbox_wait *wait = container_of(watcher, struct sandbox_wait, watcher);
	struct error error;
	if (wait_is_over(sandbox, wait->what)) {
		wait_end(wait, sandbox, NULL);
	} else if (sandbox->row.state == SANDBOX_ENDED) {
		error_set(&error, ERROR_SANDBOX_ENDED,
			  "sandbox `%s` has ended (%s) and will never be %s", wait->id.text,
			  end_reason_name((enum end_reason)sandbox->row.end_reason),
			  waits[wait->what].name);
		wait_end(wait, NULL, &error);
	}
}

static void wait_lost(struct sandbox_watcher *watcher, const struct error *error)
{
	wait_end(container_of(watcher, struct sandbox_wait, watcher), NULL, error);
}

static void wait_time(uv_timer_t *timer)
{
	struct sandbox_wait *wait = timer->data;
	struct sandbox *sandbox = sandbox_by_id(wait->core, &wait->id);
	struct error error;
	if (sandbox && wait_is_over(sandbox, wait->what)) {
		wait_end(wait, sandbox, NULL);
		return;
	}
	/* Watchers are notified of the end before the sandbox is freed. */
	if (!sandbox)
		error_set(&error, ERROR_SANDBOX_ENDED, "sandbox `%s` has ended", wait->id.text);
	else
		error_set(&error, ERROR_WAIT_TIMED_OUT, "sandbox `%s` is %s%s, not yet %s",
			  wait->id.text, sandbox_state_name((enum sandbox_state)sandbox->row.state),
			  sandbox_busy(sandbox) ? " and runs a command" : "",
			  waits[wait->what].name);
	wait_end(wait, NULL, &error);
}

int sandbox_wait(struct sandbox *sandbox, enum wait_for what, uint32_t timeout_ms,
		 void (*done)(void *data, struct sandbox *sandbox, const struct error *error),
		 void *data, struct sandbox_wait **ret_wait, struct error *error UNUSED)
{
	struct sandbox_wait *wait = calloc(1, sizeof(*wait));
	if (!wait)
		abort();
	wait->watcher.changed = wait_changed;
	wait->watcher.lost = wait_lost;
	wait->core = sandbox->core;
	wait->id = sandbox->row.id;
	wait->what = what;
	wait->done = done;
	wait->data = data;
	uv_timer_init(sandbox->core->loop, &wait->timer);
	wait->timer.data = wait;
	sandbox_watch(sandbox, &wait->watcher);
	uv_timer_start(&wait->timer, wait_time, wait_is_over(sandbox, what) ? 0 : timeout_ms, 0);
	*ret_wait = wait;
	return 0;
}

/* --- drain --- */

/* Writes the drain into the row; nothing has changed when that fails. */
static int drain_store(struct sandbox *sandbox, int64_t wall, uint32_t options, struct error *error)
{
	int64_t wall_before = sandbox->row.drain_wall;
	uint32_t options_before = sandbox->row.options;
	sandbox->row.drain_wall = wall;
	sandbox->row.options = options;
	if (store_sandbox_update(sandbox->core->store, &sandbox->row, error) == 0)
		return 0;
	sandbox->row.drain_wall = wall_before;
	sandbox->row.options = options_before;
	return -1;
}

int sandbox_drain(struct sandbox *sandbox, const struct principal *principal,
		  uint32_t timeout_seconds, bool then_delete, SANDBOX_DONE, struct error *error)
{
	uint32_t options = sandbox->row.options & ~(uint32_t)OPTION_DRAIN_DELETE;
	if (sandbox_check_kept(sandbox, error) < 0)
		return -1;
	if (waiter_add(sandbox, &sandbox->life->drained, done, data, 0, false, error) < 0)
		return -1;
	if (drain_store(sandbox, clock_wall() + timeout_seconds * NSEC_PER_SEC,
			options | (then_delete ? OPTION_DRAIN_DELETE : 0), error) < 0) {
		waiter_take_back(&sandbox->life->drained);
		return -1;
	}
	sandbox->life->drained_by = principal_keep(principal);
	log_info("sandbox %s is drained", sandbox->row.id.text);
	timers_wake_at(sandbox->core, clock_boot());
	return 0;
}

int sandbox_drain_cancel(struct sandbox *sandbox, struct error *error)
{
	struct error cancelled;
	if (sandbox->row.drain_wall == 0)
		return 0;
	if (drain_store(sandbox, 0, sandbox->row.options & ~(uint32_t)OPTION_DRAIN_DELETE, error) <
	    0)
		return -1;
	error_set(&cancelled, ERROR_CANCELLED, "the drain of sandbox `%s` was taken back",
		  sandbox->row.id.text);
	waiters_finish(&sandbox->life->drained, &cancelled);
	return 0;
}

/* No command runs in it any more, or the drain has timed out. */
static int64_t drain_finish(struct sandbox *sandbox, int64_t now)
{
	const struct principal *principal = kept_principal_get(&sandbox->life->drained_by);
	struct error error;
	int result = sandbox->row.options & OPTION_DRAIN_DELETE
			 ? sandbox_delete(sandbox, principal, END_REASON_USER, "it was drained",
					  NULL, NULL, &error)
			 : sandbox_stop(sandbox, principal, NULL, NULL, &error);
	if (result == 0)
		return NEVER;
	log_warning("sandbox %s was drained and cannot be stopped yet: %s", sandbox->row.id.text,
		    error.message);
	return now + DRAIN_RETRY;
}

static int64_t drain_stopped(struct sandbox *sandbox, int64_t now)
{
	struct error error;
	if (sandbox->row.options & OPTION_DRAIN_DELETE)
		return drain_finish(sandbox, now);
	if (drain_store(sandbox, 0, sandbox->row.options, &error) < 0) {
		log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
		return now + DRAIN_RETRY;
	}
	waiters_finish(&sandbox->life->drained, NULL);
	return NEVER;
}

int64_t drain_check(struct sandbox *sandbox, int64_t now)
{
	const struct principal *principal = kept_principal_get(&sandbox->life->drained_by);
	struct error error;
	if (sandbox->row.drain_wall == 0)
		return NEVER;
	int64_t left = sandbox->row.drain_wall - clock_wall();
	bool over = left <= 0 || !sandbox_busy(sandbox);
	if (sandbox->row.state == SANDBOX_STOPPED)
		return drain_stopped(sandbox, now);
	/* Every other state is followed by one of these, which wakes the timers. */
	const struct state_facts *facts = state_facts(sandbox->row.state);
	if (!facts->lives || facts->passing)
		return NEVER;
	if (over)
		return drain_finish(sandbox, now);
	if (facts->runs)
		return now + left;
	/* Frozen commands would never end. */
	return sandbox_resume(sandbox, principal, NULL, NULL, &error) < 0 ? now + DRAIN_RETRY
									  : NEVER;
}
