/* Stop, start, pause, resume, and making a sandbox ready for work. Each transition writes the row,
 * then asks the spawner; the answer ends it. A request for a transition that is under way waits for
 * the same end. Called by the edges; blocks for the store only. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "core/account/budget.h"
#include "core/core_private.h"

/* It is paused; RECLAIM is not waited for any longer. */
static void pause_finish(struct sandbox *sandbox)
{
	sandbox->life->transition.awaits_answer = false;
	activity_paused(sandbox);
	waiters_finish(&sandbox->life->transition.waiters, NULL);
}

/* Writes the state of the requested transition; `done` waits for its end. */
static int transition_begin(struct sandbox *sandbox, const struct principal *principal,
			    enum sandbox_event wish, SANDBOX_DONE, struct error *error)
{
	struct transition *transition = &sandbox->life->transition;
	uint32_t generation = transition->generation;
	if (transition->awaits_answer)
		pause_finish(sandbox);
	if (transition->generation != generation)
		return error_set(error, ERROR_CONFLICT, "sandbox `%s` is %s", sandbox->row.id.text,
				 state_facts(sandbox->row.state)->name);
	activity_transition_by(sandbox, principal);
	if (waiter_add(sandbox, &transition->waiters, done, data, 0, false, error) < 0)
		return -1;
	if (sandbox_step(sandbox, wish, error) == 0)
		return 0;
	waiter_take_back(&transition->waiters);
	return -1;
}

/* The transition ends. */
static void transition_end(struct sandbox *sandbox, enum sandbox_event event,
			   const struct error *error)
{
	sandbox_force_step(sandbox, event);
	waiters_finish(&sandbox->life->transition.waiters, error);
	ready_settle(sandbox);
}

/* The spawner has exited: the row stays unchanged for the next daemon. */
static bool transition_left(struct sandbox *sandbox, const struct error *error)
{
	if (!error || error->kind != ERROR_SPAWNER_GONE)
		return false;
	waiters_finish(&sandbox->life->transition.waiters, error);
	return true;
}

/* transition_begin() and the request to the spawner; if that cannot be sent, the state is as
 * before. */
static int transition_begin_asking(struct sandbox *sandbox, const struct principal *principal,
				   enum sandbox_event wish, struct spawn_message *message,
				   void (*answered)(const struct sandbox_answer *answer),
				   SANDBOX_DONE, struct error *error)
{
	struct sandbox_life *life = sandbox->life;
	bool boot = message->type == SPAWN_START;
	if (transition_begin(sandbox, principal, wish, done, data, error) < 0)
		return -1;
	if (sandbox_ask_spawner(sandbox, message, life->mount_fds, boot ? life->mount_count : 0,
				boot ? SPAWN_BOOT_TIMEOUT_MS : SPAWN_TIMEOUT_MS, answered, NULL, 0,
				error) == 0)
		return 0;
	waiter_take_back(&life->transition.waiters);
	sandbox_force_step(sandbox, SANDBOX_EVENT_UNDONE);
	return -1;
}

/* Decides about a request. 1: the caller begins the transition; 0: `done` will be called; -1: it is
 * refused. */
static int wish_grant(struct sandbox *sandbox, const struct principal *principal,
		      enum sandbox_event wish, SANDBOX_DONE, struct error *error)
{
	const struct state_facts *facts = state_facts(sandbox->row.state);
	enum sandbox_action action = sandbox_action(sandbox, wish);
	if (action == SANDBOX_ACTION_REFUSE)
		return error_set(error, facts->passing ? ERROR_CONFLICT : ERROR_SANDBOX_STATE,
				 "sandbox `%s` is %s and cannot be %s%s", sandbox->row.id.text,
				 facts->name, state_wish_name(wish), facts->passing ? " yet" : "");
	if (action == SANDBOX_ACTION_TAKE_BACK)
		return sandbox_ready(sandbox, principal, true, done, data, error);
	if (action != SANDBOX_ACTION_DONE && action != SANDBOX_ACTION_JOIN)
		return 1;
	/* The answer to a pause says how much memory was reclaimed: wait for that. */
	if (action == SANDBOX_ACTION_JOIN || sandbox->life->transition.awaits_answer)
		return waiter_add(sandbox, &sandbox->life->transition.waiters, done, data, 0, false,
				  error);
	core_done_later(sandbox->core, done, data);
	return 0;
}

static void kill_answered(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current || transition_left(sandbox, answer->error))
		return;
	sandbox->life->transition.awaits_answer = false;
	if (!answer->error)
		counters_take(sandbox, &answer->reply->counters);
	if (answer->error && answer->error->kind != ERROR_SANDBOX_NOT_FOUND) {
		/* Some of its processes may still live: repeated until the spawner confirms. */
		log_error("sandbox %s cannot be stopped, trying again: %s", sandbox->row.id.text,
			  answer->error->message);
		waiters_finish(&sandbox->life->transition.waiters, answer->error);
		transition_due_in(sandbox, REQUEST_RETRY_MS);
		return;
	}
	log_info("sandbox %s is stopped", sandbox->row.id.text);
	link_drop(sandbox, NULL);
	exec_all_lost(sandbox);
	/* A waiter of one of them may have begun something else: a one-shot deletes its sandbox. */
	if (sandbox->row.state == SANDBOX_STOPPING)
		transition_end(sandbox, SANDBOX_EVENT_KILLED, NULL);
}

void stop_kill(struct sandbox *sandbox)
{
	struct error error;
	if (transition_ask_spawner(sandbox, SPAWN_KILL, kill_answered, NULL, &error) < 0)
		transition_due_in(sandbox, REQUEST_RETRY_MS);
}

void stop_by_force(struct sandbox *sandbox, enum sandbox_event event)
{
	sandbox_force_step(sandbox, event);
	stop_kill(sandbox);
}

int sandbox_stop(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		 struct error *error)
{
	int granted = wish_grant(sandbox, principal, SANDBOX_EVENT_STOP, done, data, error);
	if (granted <= 0)
		return granted;
	enum sandbox_action action = sandbox_action(sandbox, SANDBOX_EVENT_STOP);
	if (transition_begin(sandbox, principal, SANDBOX_EVENT_STOP, done, data, error) < 0)
		return -1;
	uint8_t room[4];
	struct writer writer = writer_on(room, sizeof(room));
	struct error ignored;
	write_u32(&writer, STOP_GRACE_MS);
	if (action == SANDBOX_ACTION_KILL ||
	    sandbox_send(sandbox, FRAME_SHUTDOWN, 0, room, sizeof(room), NULL, 0, &ignored) < 0) {
		stop_kill(sandbox);
		return 0;
	}
	/* Somewhat longer: the init kills and exits at the end of its grace. */
	transition_due_in(sandbox, STOP_GRACE_MS + 500);
	return 0;
}

void start_failed(struct sandbox *sandbox, const struct error *error)
{
	struct error copy = *error;
	link_drop(sandbox, &copy);
	if (transition_left(sandbox, &copy))
		return;
	log_warning("sandbox %s could not be started: %s", sandbox->row.id.text, copy.message);
	activity_failed(sandbox, "start", &copy);
	/* Processes that exist already are killed; then it is `stopped` again. */
	stop_by_force(sandbox, SANDBOX_EVENT_BOOT_FAILED);
	waiters_finish(&sandbox->life->transition.waiters, &copy);
	waiters_finish(&sandbox->life->ready, &copy);
}

static void start_answered(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current || sandbox->row.state != SANDBOX_STARTING)
		return;
	if (answer->error) {
		boot_failed(sandbox, answer->error);
		return;
	}
	boot_take_reply(sandbox, answer->reply);
	link_connect(sandbox);
}

int sandbox_start(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		  struct error *error)
{
	int granted = wish_grant(sandbox, principal, SANDBOX_EVENT_START, done, data, error);
	if (granted <= 0)
		return granted;
	if (folders_check(sandbox, error) < 0 || budget_check_wake(sandbox, principal, error) < 0 ||
	    admission_check(sandbox->core, &sandbox->row.limits, error) < 0)
		return -1;
	struct spawn_message message;
	boot_message(sandbox, SPAWN_START, &message);
	if (transition_begin_asking(sandbox, principal, SANDBOX_EVENT_START, &message,
				    start_answered, done, data, error) < 0)
		return -1;
	sandbox->phase_count = 0;
	return 0;
}

/* An error changes nothing: the sandbox stays paused. */
static void reclaim_answered(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current)
		return;
	if (!answer->error) {
		const struct spawn_reclaimed *reclaimed = &answer->reply->reclaimed;
		sandbox->pause = (struct pause_report){.known = true,
						       .complete = reclaimed->done,
						       .memory_before = reclaimed->before,
						       .memory_after = reclaimed->after,
						       .microseconds = reclaimed->microseconds};
		sandbox->counters.memory = reclaimed->after;
		if (reclaimed->before > reclaimed->after)
			statistics.reclaimed_bytes += reclaimed->before - reclaimed->after;
	} else {
		snprintf(sandbox->pause.failure, sizeof(sandbox->pause.failure), "%s",
			 answer->error->message);
		log_debug("sandbox %s: nothing was taken back: %s", sandbox->row.id.text,
			  answer->error->message);
	}
	if (sandbox->life->transition.awaits_answer)
		pause_finish(sandbox);
}

static void freeze_answered(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current || transition_left(sandbox, answer->error))
		return;
	if (answer->error) {
		transition_end(sandbox, SANDBOX_EVENT_UNDONE, answer->error);
		link_send_deadline(sandbox);
		return;
	}
	/* It is paused, even if RECLAIM fails. */
	struct error error;
	sandbox->pause = (struct pause_report){0};
	sandbox_force_step(sandbox, SANDBOX_EVENT_FROZEN);
	statistics.pauses++;
	if (!list_empty(&sandbox->life->ready) ||
	    transition_ask_spawner(sandbox, SPAWN_RECLAIM, reclaim_answered, NULL, &error) < 0)
		pause_finish(sandbox);
	ready_settle(sandbox);
}

int sandbox_pause(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		  struct error *error)
{
	int granted = wish_grant(sandbox, principal, SANDBOX_EVENT_PAUSE, done, data, error);
	if (granted <= 0)
		return granted;
	struct spawn_message message = {.type = SPAWN_FREEZE};
	if (transition_begin_asking(sandbox, principal, SANDBOX_EVENT_PAUSE, &message,
				    freeze_answered, done, data, error) < 0)
		return -1;
	link_send_deadline(sandbox);
	return 0;
}

/* Its processes run again. */
static void resume_finish(struct sandbox *sandbox, enum sandbox_event event)
{
	bool runs = sandbox_action(sandbox, event) == SANDBOX_ACTION_RUN;
	if (runs && sandbox->life->transition.awaits_answer)
		pause_finish(sandbox);
	/* A waiter may have begun something else. */
	if (!runs || sandbox_action(sandbox, event) != SANDBOX_ACTION_RUN)
		return;
	sandbox_force_step(sandbox, event);
	link_send_deadline(sandbox);
	waiters_finish(&sandbox->life->transition.waiters, NULL);
	ready_settle(sandbox);
}

static void thaw_answered(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current || transition_left(sandbox, answer->error))
		return;
	if (answer->error) {
		waiters_finish(&sandbox->life->ready, answer->error);
		transition_end(sandbox, SANDBOX_EVENT_UNDONE, answer->error);
		return;
	}
	statistics.resumes++;
	resume_finish(sandbox, SANDBOX_EVENT_THAWED);
}

int sandbox_resume(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		   struct error *error)
{
	int granted = wish_grant(sandbox, principal, SANDBOX_EVENT_RESUME, done, data, error);
	if (granted <= 0)
		return granted;
	if (budget_check_wake(sandbox, principal, error) < 0)
		return -1;
	struct spawn_message message = {.type = SPAWN_THAW};
	return transition_begin_asking(sandbox, principal, SANDBOX_EVENT_RESUME, &message,
				       thaw_answered, done, data, error);
}

static void thaw_again_answered(const struct sandbox_answer *answer)
{
	if (answer->error && answer->error->kind != ERROR_SPAWNER_GONE)
		log_warning("a sandbox that was paused too late cannot be resumed: %s",
			    answer->error->message);
}

/* Other requests need nothing: KILL and DESTROY are repeated until they succeed, and one of them
 * follows a boot that took too long. */
void transition_late(struct core *core, uint32_t type, const struct spawn_message *reply)
{
	struct sandbox *sandbox = sandbox_by_id(core, &reply->sandbox);
	struct spawn_message message = {.type = SPAWN_THAW};
	struct error error;
	if (sandbox && type == SPAWN_LIMITS)
		limits_late(sandbox, reply);
	if (!sandbox || reply->result != ERROR_NONE)
		return;
	if (type == SPAWN_THAW)
		resume_finish(sandbox, SANDBOX_EVENT_THAWED_LATE);
	if (type == SPAWN_FREEZE &&
	    sandbox_action(sandbox, SANDBOX_EVENT_FROZEN_LATE) == SANDBOX_ACTION_THAW &&
	    sandbox_ask_spawner(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, thaw_again_answered,
				NULL, 0, &error) < 0)
		log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
}

void transition_due(struct sandbox *sandbox)
{
	enum sandbox_action action = sandbox_action(sandbox, SANDBOX_EVENT_DUE);
	struct error error;
	if (action == SANDBOX_ACTION_FAIL_BOOT) {
		error_set(&error, ERROR_TIMED_OUT,
			  "the sandbox's init did not finish its set-up in time");
		boot_failed(sandbox, &error);
	} else if (action == SANDBOX_ACTION_KILL) {
		stop_kill(sandbox);
	} else if (action == SANDBOX_ACTION_DESTROY) {
		delete_send(sandbox);
	}
}

/* It is paused or stopped, and this request may not wake it. */
static int sandbox_asleep_error(const struct sandbox *sandbox, struct error *error)
{
	bool stopped = state_facts(sandbox->row.state)->wakes == WAKES_BY_START;
	return error_set(
	    error, stopped ? ERROR_SANDBOX_STATE : ERROR_SANDBOX_PAUSED,
	    "sandbox `%s` is %s; %s it first (a request with the scope to write does that by "
	    "itself)",
	    sandbox->row.id.text, sandbox_state_name((enum sandbox_state)sandbox->row.state),
	    stopped ? "start" : "resume");
}

/* If one of the waiters may wake it, all of them get the running sandbox; else none does. */
static void ready_wake_or_fail(struct sandbox *sandbox)
{
	struct error error;
	bool wake = false;
	list_each (&sandbox->life->ready, node)
		wake |= list_entry(node, struct waiter, link)->wake;
	int result = !wake ? sandbox_asleep_error(sandbox, &error)
		     : state_facts(sandbox->row.state)->wakes == WAKES_BY_RESUME
			 ? sandbox_resume(sandbox, NULL, NULL, NULL, &error)
			 : sandbox_start(sandbox, NULL, NULL, NULL, &error);
	if (result < 0)
		waiters_finish(&sandbox->life->ready, &error);
}

void ready_settle(struct sandbox *sandbox)
{
	const struct state_facts *facts = state_facts(sandbox->row.state);
	if (list_empty(&sandbox->life->ready))
		return;
	if (facts->wakes && !facts->passing)
		ready_wake_or_fail(sandbox);
	else if (sandbox_may_exec(sandbox))
		waiters_finish(&sandbox->life->ready, NULL);
	else if (facts->may_exec && sandbox->life->link_error.kind == ERROR_GUEST_PROTOCOL)
		waiters_finish(&sandbox->life->ready, &sandbox->life->link_error);
}

static void wake_answered(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox)
		return;
	if (answer->current)
		sandbox->life->transition.awaits_answer = false;
	/* The answer to FREEZE ends the pause. If that has come first, the sandbox was thawed after
	 * it: it runs. */
	if (!answer->error)
		resume_finish(sandbox, SANDBOX_EVENT_THAWED_LATE);
}

/* A request needs it while it is being paused: asks the spawner to abort the pause, and the callers
 * of the pause get an error. If that comes too late, it is paused first and then resumed. */
static void pause_take_back(struct sandbox *sandbox)
{
	struct error error;
	if (transition_ask_spawner(sandbox, SPAWN_THAW, wake_answered, NULL, &error) < 0)
		log_debug("sandbox %s: %s", sandbox->row.id.text, error.message);
}

int sandbox_ready(struct sandbox *sandbox, const struct principal *principal, bool wake,
		  SANDBOX_DONE, struct error *error)
{
	struct sandbox_life *life = sandbox->life;
	const struct state_facts *facts = state_facts(sandbox->row.state);
	if (sandbox_check_kept(sandbox, error) < 0)
		return -1;
	wake |= facts->wakes == WAKES_BY_RESUME && (sandbox->row.options & OPTION_WAKE_ON_READ);
	if (facts->wakes && !wake)
		return sandbox_asleep_error(sandbox, error);
	if (facts->may_exec) {
		sandbox_touch(sandbox);
		if (sandbox->guest_ready) {
			core_done_later(sandbox->core, done, data);
			return 0;
		}
		if (life->link_error.kind == ERROR_GUEST_PROTOCOL) {
			*error = life->link_error;
			return -1;
		}
	}
	/* A boot has longer time-outs of its own. */
	int64_t until =
	    clock_boot() +
	    (facts->may_exec ? READY_TIMEOUT_MS : SPAWN_BOOT_TIMEOUT_MS + READY_TIMEOUT_MS) *
		NSEC_PER_MSEC;
	if (waiter_add(sandbox, &life->ready, done, data, until, wake, error) < 0)
		return -1;
	if (wake)
		activity_woken_by(sandbox, principal);
	if (sandbox->row.state == SANDBOX_PAUSING)
		pause_take_back(sandbox);
	/* These states begin a transition; a failure is reported in a later turn of the loop. */
	if (facts->wakes && !facts->passing)
		sandbox_later(sandbox, ready_settle);
	return 0;
}
