/* Changes cpu, memory and processes of an existing sandbox. The row is written first, then the
 * spawner sets the limits. If it refuses, the row gets the old ones again. If the daemon dies in
 * between, the next one finds that the limits on the host differ from the row, and sets them again.
 * Called by the edges and by reconcile.c; blocks for the store only. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/account/budget.h"
#include "core/core_private.h"

struct limits_call {
	struct limits before;
	void (*done)(void *data, const struct error *error);
	void *data;
};

struct limits limits_changed(const struct limits *has, const struct limits *asked)
{
	struct limits limits = *has;
	limits.cpu_millis = asked->cpu_millis ? asked->cpu_millis : has->cpu_millis;
	limits.memory = asked->memory ? asked->memory : has->memory;
	limits.pids = asked->pids ? asked->pids : has->pids;
	return limits;
}

bool limits_same(const struct limits *a, const struct limits *b)
{
	return a->cpu_millis == b->cpu_millis && a->memory == b->memory && a->pids == b->pids;
}

/* A row that cannot be written is written later; the row in memory is right. */
static void limits_put_back(struct sandbox *sandbox, const struct limits *before)
{
	struct error error;
	sandbox->row.limits = *before;
	if (store_sandbox_update(sandbox->core->store, &sandbox->row, &error) == 0)
		return;
	log_error("sandbox %s: its limits cannot be stored, trying again: %s", sandbox->row.id.text,
		  error.message);
	sandbox->life->save_at = clock_boot() + SAVE_RETRY_MS * NSEC_PER_MSEC;
	timers_wake_at(sandbox->core, sandbox->life->save_at);
}

/* It has stopped or is about to: its next start takes the limits of the row. */
static bool limits_error_harmless(const struct error *error)
{
	return !error || error->kind == ERROR_SANDBOX_STATE ||
	       error->kind == ERROR_SANDBOX_NOT_FOUND || error->kind == ERROR_CONFLICT;
}

static void limits_answered(const struct sandbox_answer *answer)
{
	struct limits_call *call = answer->data;
	const struct error *error = limits_error_harmless(answer->error) ? NULL : answer->error;
	struct sandbox *sandbox = answer->sandbox;
	if (sandbox) {
		sandbox->life->limits_sent = false;
		/* Without the spawner the result is unknown: the next daemon compares. */
		if (error && error->kind != ERROR_SPAWNER_GONE)
			limits_put_back(sandbox, &call->before);
	}
	if (call->done)
		call->done(call->data, error);
	free(call);
}

static int limits_ask_spawner(struct sandbox *sandbox, const struct limits *before, SANDBOX_DONE,
			      struct error *error)
{
	struct spawn_message message = {.type = SPAWN_LIMITS, .limits = sandbox->row.limits};
	struct limits_call *call = malloc(sizeof(*call));
	if (!call)
		abort();
	*call = (struct limits_call){.before = *before, .done = done, .data = data};
	if (sandbox_ask_spawner(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, limits_answered, call,
				0, error) < 0) {
		free(call);
		return -1;
	}
	sandbox->life->limits_sent = true;
	return 0;
}

static int limits_check_state(const struct sandbox *sandbox, struct error *error)
{
	const struct state_facts *facts = state_facts(sandbox->row.state);
	if (sandbox_check_kept(sandbox, error) < 0)
		return -1;
	if (facts->passing)
		return error_set(error, ERROR_CONFLICT,
				 "sandbox `%s` is %s; its limits cannot be changed yet",
				 sandbox->row.id.text, facts->name);
	if (sandbox->life->limits_sent)
		return error_set(error, ERROR_CONFLICT,
				 "the limits of sandbox `%s` are being changed",
				 sandbox->row.id.text);
	return 0;
}

int sandbox_set_limits(struct sandbox *sandbox, const struct principal *principal,
		       const struct limits *asked, SANDBOX_DONE, struct error *error)
{
	const struct limits before = sandbox->row.limits;
	if ((asked->disk && asked->disk != before.disk) ||
	    (asked->inodes && asked->inodes != before.inodes) ||
	    (asked->files && asked->files != before.files))
		return error_set(error, ERROR_UNSUPPORTED,
				 "disk, inodes and open files of a sandbox cannot be changed after "
				 "its creation; cpu, memory and pids can");
	if (limits_check_change(sandbox, asked, error) < 0 ||
	    limits_check_state(sandbox, error) < 0)
		return -1;
	const struct limits limits = limits_changed(&before, asked);
	if (limits_same(&limits, &before)) {
		core_done_later(sandbox->core, done, data);
		return 0;
	}
	if (budget_check_change(sandbox, principal, &limits, error) < 0)
		return -1;
	sandbox->row.limits = limits;
	if (store_sandbox_update(sandbox->core->store, &sandbox->row, error) < 0) {
		sandbox->row.limits = before;
		return -1;
	}
	if (sandbox->row.state == SANDBOX_STOPPED) {
		core_done_later(sandbox->core, done, data);
		return 0;
	}
	if (limits_ask_spawner(sandbox, &before, done, data, error) == 0)
		return 0;
	if (error->kind != ERROR_SPAWNER_GONE)
		limits_put_back(sandbox, &before);
	return -1;
}

void limits_late(struct sandbox *sandbox, const struct spawn_message *reply)
{
	/* The row has the old limits again: they are set once more. */
	struct error error;
	if (reply->result == ERROR_NONE && !sandbox->life->limits_sent &&
	    limits_ask_spawner(sandbox, &sandbox->row.limits, NULL, NULL, &error) < 0)
		log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
}

void limits_reconcile(struct sandbox *sandbox, const struct spawn_listed *listed)
{
	struct limits holds = sandbox->row.limits;
	struct error error;
	if (listed->limits.memory == 0)
		return; /* the spawner does not know them */
	holds.cpu_millis = listed->limits.cpu_millis;
	holds.memory = listed->limits.memory;
	/* Else the tier does not count pids in the way that was asked for. */
	if (sandbox->row.limit_reasons[LIMIT_PIDS] == LIMIT_ENFORCED)
		holds.pids = listed->limits.pids;
	if (limits_same(&holds, &sandbox->row.limits))
		return;
	log_info("sandbox %s: its limits are being made what they were asked to be",
		 sandbox->row.id.text);
	if (limits_ask_spawner(sandbox, &holds, NULL, NULL, &error) < 0)
		log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
}
