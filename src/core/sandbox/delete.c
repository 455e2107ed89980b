/* deleting -> ended, from every state, and unrequested ends. A failed destroy is repeated until it
 * succeeds: a row in `deleting` is a promise. Called by the edges, by timers.c and when the spawner
 * says that a sandbox's processes are gone; blocks for the store only. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "core/core_private.h"
#include "core/sandbox/create_queue.h"
#include "core/account/token.h"

#define DESTROY_RETRY_MAX_MS 60000
/* The init ends a sandbox at its deadline by itself; its clock and the daemon's differ by no more
 * than this. */
#define DEADLINE_SLACK (2 * NSEC_PER_SEC)

/* Writes the tombstone, tells everybody, frees the record. */
static void sandbox_end(struct sandbox *sandbox)
{
	struct core *core = sandbox->core;
	struct list *waiters = &sandbox->life->transition.waiters;
	struct error error, gone;
	link_drop(sandbox, NULL);
	exec_all_lost(sandbox);
	meter_ended(sandbox);
	sandbox->row.ended_wall = clock_wall();
	if (sandbox_step(sandbox, SANDBOX_EVENT_DESTROYED, &error) < 0) {
		log_error("%s; its end is written later", error.message);
		transition_due_in(sandbox, REQUEST_RETRY_MS);
		/* The deletion itself is done: only this row is left. */
		waiters_finish(waiters, NULL);
		return;
	}
	if (sandbox->row.end_reason < STATISTICS_REASONS)
		statistics.ends[sandbox->row.end_reason]++;
	log_info("sandbox %s has ended: %s%s%s", sandbox->row.id.text,
		 end_reason_name((enum end_reason)sandbox->row.end_reason),
		 sandbox->row.end_message ? ", " : "",
		 sandbox->row.end_message ? sandbox->row.end_message : "");
	sandbox_unlist(sandbox);
	exec_forget_all(sandbox);
	error_set(&gone, ERROR_SANDBOX_ENDED, "sandbox `%s` has ended (%s)", sandbox->row.id.text,
		  end_reason_name((enum end_reason)sandbox->row.end_reason));
	create_tell(sandbox, &gone);
	waiters_finish(&sandbox->life->ready, &gone);
	waiters_finish(waiters, NULL);
	watchers_ended(sandbox);
	logs_remove(core, &sandbox->row.id, NULL);
	admission_observe(core, sandbox->row.limits.memory, sandbox->counters.memory_peak,
			  sandbox->counters.disk);
	tokens_end_with(core, &sandbox->row.id);
	sandbox_free(sandbox);
	create_queue_turn(core);
}

void delete_answered(struct sandbox *sandbox, const struct error *error)
{
	struct transition *transition = &sandbox->life->transition;
	transition->awaits_answer = false;
	if (!error || error->kind == ERROR_SANDBOX_NOT_FOUND) {
		sandbox_end(sandbox);
		return;
	}
	if (error->kind != ERROR_SPAWNER_GONE) {
		log_error("sandbox %s cannot be destroyed, trying again: %s", sandbox->row.id.text,
			  error->message);
		uint32_t delay = REQUEST_RETRY_MS << MIN(transition->tries, 6u);
		transition->tries++;
		transition_due_in(sandbox, MIN(delay, DESTROY_RETRY_MAX_MS));
	}
	waiters_finish(&transition->waiters, error);
}

static void destroy_answered(const struct sandbox_answer *answer)
{
	/* Its last counters are recorded before its state changes. */
	if (answer->sandbox && answer->reply && !answer->error)
		counters_take(answer->sandbox, &answer->reply->counters);
	if (answer->sandbox && answer->sandbox->row.state == SANDBOX_DELETING)
		delete_answered(answer->sandbox, answer->error);
}

void delete_send(struct sandbox *sandbox)
{
	struct error error;
	if (transition_ask_spawner(sandbox, SPAWN_DESTROY, destroy_answered, NULL, &error) < 0)
		transition_due_in(sandbox, REQUEST_RETRY_MS);
}

int sandbox_delete(struct sandbox *sandbox, const struct principal *principal,
		   enum end_reason reason, const char *why, SANDBOX_DONE,
		   struct error *error UNUSED)
{
	struct error cancelled;
	struct list *waiters = &sandbox->life->transition.waiters;
	if (sandbox->row.state == SANDBOX_DELETING) {
		waiter_append(sandbox, waiters, done, data, 0, false);
		delete_send(sandbox);
		return 0;
	}
	error_set(&cancelled, ERROR_CANCELLED, "sandbox `%s` is being deleted",
		  sandbox->row.id.text);
	sandbox_set_end(sandbox, reason, why);
	activity_transition_by(sandbox, principal);
	/* Deleting must work on a full disk too. If the row cannot be written and the daemon
	 * crashes, the next one finds a sandbox without files and ends it. */
	sandbox_force_step(sandbox, SANDBOX_EVENT_DELETE);
	sandbox->life->reconnect_at = 0;
	/* Tells those who wait for another transition that it will not happen. */
	waiters_finish(waiters, &cancelled);
	waiter_append(sandbox, waiters, done, data, 0, false);
	delete_send(sandbox);
	return 0;
}

void sandbox_delete_unasked(struct sandbox *sandbox, enum end_reason reason, const char *why)
{
	struct error error;
	if (sandbox->row.state != SANDBOX_DELETING &&
	    sandbox_delete(sandbox, NULL, reason, why, NULL, NULL, &error) < 0)
		log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
}

/* Did its time-out end it? Not while its clock stands still: an init that did not hear of the pause
 * may end it, and then its files stay. */
static bool sandbox_past_deadline(const struct sandbox *sandbox, enum end_cause cause)
{
	const struct sandbox_row *row = &sandbox->row;
	if (row->paused_wall != 0)
		return cause == END_DEADLINE && row->state == SANDBOX_PAUSING &&
		       row->paused_wall >= row->deadline_wall - DEADLINE_SLACK;
	return cause == END_DEADLINE || (sandbox->life->deadline != 0 &&
					 clock_boot() >= sandbox->life->deadline - DEADLINE_SLACK);
}

void sandbox_processes_ended(struct sandbox *sandbox, enum end_cause cause)
{
	uint32_t state = sandbox->row.state;
	enum sandbox_action action = sandbox_action(sandbox, SANDBOX_EVENT_PROCESSES_ENDED);
	struct error error;
	error_set(&error, ERROR_GUEST_GONE, "the processes of sandbox `%s` have ended",
		  sandbox->row.id.text);
	if (action == SANDBOX_ACTION_FAIL_BOOT) {
		error_prepend(&error, "while it was being booted");
		boot_failed(sandbox, &error);
	}
	if (action == SANDBOX_ACTION_KILL)
		stop_kill(sandbox);
	if (action != SANDBOX_ACTION_LOSE)
		return;
	link_drop(sandbox, &error);
	exec_all_lost(sandbox);
	/* A waiter of one of them may have begun something else: a one-shot deletes its sandbox. */
	if (sandbox->row.state != state)
		return;
	if (sandbox_past_deadline(sandbox, cause)) {
		sandbox_delete_unasked(sandbox, END_REASON_TIMEOUT, "its time-out has passed");
		return;
	}
	log_info("the processes of sandbox %s have ended (%s); its files are kept",
		 sandbox->row.id.text, cause == END_KILLED ? "killed" : "exited");
	sandbox_force_step(sandbox, SANDBOX_EVENT_PROCESSES_ENDED);
	waiters_finish(&sandbox->life->transition.waiters, &error);
	ready_settle(sandbox);
}
