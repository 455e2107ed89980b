/* Stop, start, pause, resume, and making a sandbox ready for work. Called by the edges; does not
 * block but for the store. Each transition is a row first, then a request to the spawner, and its
 * answer settles it; asking for what is under way already joins those who wait for it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "core/account/budget.h"
#include "core/core_private.h"

/* It is paused; what the host gets back is not waited for any longer. */
static void stop_waiting_for_reclaim(struct sandbox *sandbox)
{
	if (!sandbox->life->reclaiming)
		return;
	sandbox->life->reclaiming = false;
	activity_paused(sandbox);
	waiters_finish(sandbox, &sandbox->life->waiters, NULL);
}

/* The state of a transition is written and `done` waits for its end. */
static int begin(struct sandbox *sandbox, const struct principal *principal,
		 enum sandbox_state state, SANDBOX_DONE, struct error *error)
{
	struct list *waiters = &sandbox->life->waiters;
	stop_waiting_for_reclaim(sandbox);
	activity_transition_by(sandbox, principal);
	if (waiter_add(sandbox, waiters, done, data, 0, false, error) < 0)
		return -1;
	if (sandbox_set_state(sandbox, state, error) == 0)
		return 0;
	waiter_take_back(sandbox, waiters);
	return -1;
}

/* The transition has come to an end in `state`. */
static void settle(struct sandbox *sandbox, enum sandbox_state state, const struct error *error)
{
	sandbox_force_state(sandbox, state);
	waiters_finish(sandbox, &sandbox->life->waiters, error);
	ready_settle(sandbox);
}

/* The spawner is gone: the row stays as it is for the next daemon to settle. */
static bool left_to_next(struct sandbox *sandbox, const struct error *error)
{
	if (!error || error->kind != ERROR_SPAWNER_GONE)
		return false;
	waiters_finish(sandbox, &sandbox->life->waiters, error);
	return true;
}

/* begin(), then asks the spawner; when that is refused at once everything is as before, in the
 * state `back`. */
static int begin_asking(struct sandbox *sandbox, const struct principal *principal,
			enum sandbox_state state, enum sandbox_state back,
			struct spawn_message *message,
			void (*answered)(const struct sandbox_answer *answer), SANDBOX_DONE,
			struct error *error)
{
	struct sandbox_life *life = sandbox->life;
	bool boot = message->type == SPAWN_START;
	if (begin(sandbox, principal, state, done, data, error) < 0)
		return -1;
	if (sandbox_ask(sandbox, message, life->mount_fds, boot ? life->mount_count : 0,
			boot ? SPAWN_BOOT_TIMEOUT_MS : SPAWN_TIMEOUT_MS, answered, NULL, 0,
			error) == 0)
		return 0;
	waiter_take_back(sandbox, &life->waiters);
	sandbox_force_state(sandbox, back);
	return -1;
}

/* What a wish comes to in the state that it is in. 1: the caller begins it; 0: `done` will be
 * called; -1: it is refused. */
static int grant(struct sandbox *sandbox, const struct principal *principal, enum wish wish,
		 SANDBOX_DONE, struct error *error)
{
	const struct state_facts *facts = state_facts(sandbox->row.state);
	switch (wish_outcome(wish, sandbox->row.state)) {
	case OUTCOME_BEGINS:
		return 1;
	case OUTCOME_DONE:
		/* It is paused, but who asked is told what the host got back, too. */
		if (sandbox->life->reclaiming)
			break;
		core_done_later(sandbox->core, done, data);
		return 0;
	case OUTCOME_JOINS:
		break;
	case OUTCOME_TAKES_BACK:
		return sandbox_ready(sandbox, principal, true, done, data, error);
	case OUTCOME_REFUSED:
		return error_set(error, facts->passing ? ERROR_CONFLICT : ERROR_SANDBOX_STATE,
				 "sandbox `%s` is %s and cannot be %s%s", sandbox->row.id.text,
				 facts->name, wish_name(wish), facts->passing ? " yet" : "");
	}
	return waiter_add(sandbox, &sandbox->life->waiters, done, data, 0, false, error);
}

static void on_killed(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current || left_to_next(sandbox, answer->error))
		return;
	sandbox->life->kill_sent = false;
	if (!answer->error)
		counters_take(sandbox, &answer->reply->counters);
	if (answer->error && answer->error->kind != ERROR_SANDBOX_NOT_FOUND) {
		/* Something of it may live still: tried again until the spawner agrees. */
		log_error("sandbox %s cannot be stopped, trying again: %s", sandbox->row.id.text,
			  answer->error->message);
		waiters_finish(sandbox, &sandbox->life->waiters, answer->error);
		sandbox->life->kill_at = clock_boot() + NSEC_PER_SEC;
		timers_wake_at(sandbox->core, sandbox->life->kill_at);
		return;
	}
	log_info("sandbox %s is stopped", sandbox->row.id.text);
	link_drop(sandbox, NULL);
	exec_all_lost(sandbox);
	/* Whoever waited for one of them may have begun something else: a one-shot run is deleted.
	 */
	if (sandbox->row.state == SANDBOX_STOPPING)
		settle(sandbox, SANDBOX_STOPPED, NULL);
}

void stop_kill(struct sandbox *sandbox)
{
	struct spawn_message message = {.type = SPAWN_KILL};
	struct error error;
	if (sandbox->life->kill_sent)
		return;
	sandbox->life->kill_at = 0;
	sandbox->life->kill_sent = true;
	if (sandbox_ask(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, on_killed, NULL, 0, &error) ==
	    0)
		return;
	sandbox->life->kill_sent = false;
	sandbox->life->kill_at = clock_boot() + NSEC_PER_SEC;
	timers_wake_at(sandbox->core, sandbox->life->kill_at);
}

int sandbox_stop(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		 struct error *error)
{
	int granted = grant(sandbox, principal, WISH_STOP, done, data, error);
	if (granted <= 0)
		return granted;
	bool paused = sandbox->row.state == SANDBOX_PAUSED;
	if (begin(sandbox, principal, SANDBOX_STOPPING, done, data, error) < 0)
		return -1;
	/* Frozen processes cannot hear a polite request. */
	uint8_t room[4];
	struct writer writer = writer_on(room, sizeof(room));
	struct error ignored;
	sandbox->life->kill_sent = false;
	write_u32(&writer, STOP_GRACE_MS);
	if (paused ||
	    sandbox_send(sandbox, FRAME_SHUTDOWN, 0, room, sizeof(room), NULL, 0, &ignored) < 0) {
		stop_kill(sandbox);
		return 0;
	}
	/* Somewhat more: the init needs the end of its grace to kill and exit. */
	sandbox->life->kill_at = clock_boot() + (STOP_GRACE_MS + 500) * NSEC_PER_MSEC;
	timers_wake_at(sandbox->core, sandbox->life->kill_at);
	return 0;
}

void start_failed(struct sandbox *sandbox, const struct error *error)
{
	struct error copy = *error;
	link_drop(sandbox, &copy);
	if (left_to_next(sandbox, &copy))
		return;
	log_warning("sandbox %s could not be started: %s", sandbox->row.id.text, copy.message);
	activity_failed(sandbox, "start", &copy);
	waiters_finish(sandbox, &sandbox->life->waiters, &copy);
	waiters_finish(sandbox, &sandbox->life->ready, &copy);
	/* Whatever came to life ends, then it is `stopped` again. */
	sandbox_force_state(sandbox, SANDBOX_STOPPING);
	sandbox->life->kill_sent = false;
	stop_kill(sandbox);
}

static void on_started(const struct sandbox_answer *answer)
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
	struct sandbox_life *life = sandbox->life;
	int granted = grant(sandbox, principal, WISH_START, done, data, error);
	if (granted <= 0)
		return granted;
	if (folders_check(sandbox, error) < 0 || budget_check_wake(sandbox, principal, error) < 0 ||
	    admission_check(sandbox->core, &sandbox->row.limits, error) < 0)
		return -1;
	struct spawn_message message;
	boot_message(sandbox, SPAWN_START, &message);
	if (begin_asking(sandbox, principal, SANDBOX_STARTING, SANDBOX_STOPPED, &message,
			 on_started, done, data, error) < 0)
		return -1;
	sandbox->phase_count = 0;
	life->began = clock_monotonic();
	life->booting = true;
	return 0;
}

/* No error is one: a host that gives nothing back has a paused sandbox as well. */
static void on_reclaimed(const struct sandbox_answer *answer)
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
	stop_waiting_for_reclaim(sandbox);
}

static void on_frozen(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current || left_to_next(sandbox, answer->error))
		return;
	sandbox->life->waking = false;
	if (answer->error) {
		settle(sandbox, SANDBOX_RUNNING, answer->error);
		link_send_deadline(sandbox);
		return;
	}
	/* From here on it is paused, whatever becomes of the rest. */
	struct spawn_message message = {.type = SPAWN_RECLAIM};
	struct error error;
	sandbox->pause = (struct pause_report){0};
	sandbox->life->reclaiming = true;
	sandbox_force_state(sandbox, SANDBOX_PAUSED);
	statistics.pauses++;
	if (!list_empty(&sandbox->life->ready) ||
	    sandbox_ask(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, on_reclaimed, NULL, 0,
			&error) < 0)
		stop_waiting_for_reclaim(sandbox);
	ready_settle(sandbox);
}

int sandbox_pause(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		  struct error *error)
{
	int granted = grant(sandbox, principal, WISH_PAUSE, done, data, error);
	if (granted <= 0)
		return granted;
	struct spawn_message message = {.type = SPAWN_FREEZE};
	if (begin_asking(sandbox, principal, SANDBOX_PAUSING, SANDBOX_RUNNING, &message, on_frozen,
			 done, data, error) < 0)
		return -1;
	link_send_deadline(sandbox);
	return 0;
}

static void on_thawed(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current || left_to_next(sandbox, answer->error))
		return;
	if (answer->error) {
		waiters_finish(sandbox, &sandbox->life->ready, answer->error);
		settle(sandbox, SANDBOX_PAUSED, answer->error);
		return;
	}
	sandbox_force_state(sandbox, SANDBOX_RUNNING);
	statistics.resumes++;
	link_send_deadline(sandbox);
	waiters_finish(sandbox, &sandbox->life->waiters, NULL);
	ready_settle(sandbox);
}

int sandbox_resume(struct sandbox *sandbox, const struct principal *principal, SANDBOX_DONE,
		   struct error *error)
{
	int granted = grant(sandbox, principal, WISH_RESUME, done, data, error);
	if (granted <= 0)
		return granted;
	if (budget_check_wake(sandbox, principal, error) < 0)
		return -1;
	struct spawn_message message = {.type = SPAWN_THAW};
	return begin_asking(sandbox, principal, SANDBOX_RESUMING, SANDBOX_PAUSED, &message,
			    on_thawed, done, data, error);
}

static void on_thawed_again(const struct sandbox_answer *answer)
{
	if (answer->error && answer->error->kind != ERROR_SPAWNER_GONE)
		log_warning("a sandbox that was paused too late cannot be resumed: %s",
			    answer->error->message);
}

static void runs_again(struct sandbox *sandbox)
{
	stop_waiting_for_reclaim(sandbox);
	sandbox_force_state(sandbox, SANDBOX_RUNNING);
	link_send_deadline(sandbox);
	ready_settle(sandbox);
}

/* The others look after themselves: a stop and a delete are asked for again until they are true,
 * and a boot that took too long is followed by one of the two. */
void transition_late(struct core *core, uint32_t type, const struct spawn_message *reply)
{
	struct sandbox *sandbox = sandbox_by_id(core, &reply->sandbox);
	struct spawn_message message = {.type = SPAWN_THAW};
	struct error error;
	if (sandbox && type == SPAWN_LIMITS)
		limits_late(sandbox, reply);
	if (!sandbox || reply->result != ERROR_NONE)
		return;
	if (type == SPAWN_FREEZE && sandbox->row.state == SANDBOX_RUNNING) {
		/* Commands may have been started since, which would stand still. */
		if (sandbox_ask(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, on_thawed_again, NULL,
				0, &error) < 0)
			log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
	} else if (type == SPAWN_THAW && sandbox->row.state == SANDBOX_PAUSED) {
		runs_again(sandbox);
	}
}

/* Paused or stopped, and this request may not change that. */
static int asleep(const struct sandbox *sandbox, struct error *error)
{
	bool stopped =
	    sandbox->row.state == SANDBOX_STOPPED || sandbox->row.state == SANDBOX_STOPPING;
	return error_set(
	    error, stopped ? ERROR_SANDBOX_STATE : ERROR_SANDBOX_PAUSED,
	    "sandbox `%s` is %s; %s it first (a request with the scope to write does that by "
	    "itself)",
	    sandbox->row.id.text, sandbox_state_name((enum sandbox_state)sandbox->row.state),
	    stopped ? "start" : "resume");
}

/* One of those who wait may wake it: all get what they wait for. Else nobody does. */
static void wake_or_fail(struct sandbox *sandbox)
{
	struct error error;
	bool wake = false;
	list_each (&sandbox->life->ready, node)
		wake |= list_entry(node, struct waiter, link)->wake;
	int result = !wake ? asleep(sandbox, &error)
		     : sandbox->row.state == SANDBOX_PAUSED
			 ? sandbox_resume(sandbox, NULL, NULL, NULL, &error)
			 : sandbox_start(sandbox, NULL, NULL, NULL, &error);
	if (result < 0)
		waiters_finish(sandbox, &sandbox->life->ready, &error);
}

void ready_settle(struct sandbox *sandbox)
{
	if (list_empty(&sandbox->life->ready))
		return;
	if (sandbox->row.state == SANDBOX_PAUSED || sandbox->row.state == SANDBOX_STOPPED)
		wake_or_fail(sandbox);
	else if (sandbox->row.state == SANDBOX_RUNNING && sandbox->guest_ready)
		waiters_finish(sandbox, &sandbox->life->ready, NULL);
	else if (sandbox->row.state == SANDBOX_RUNNING &&
		 sandbox->life->link_error.kind == ERROR_GUEST_PROTOCOL)
		waiters_finish(sandbox, &sandbox->life->ready, &sandbox->life->link_error);
}

static void on_woken(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox)
		return;
	sandbox->life->waking = false;
	/* What became of the pause is the answer to that, and who waits has begun what is needed.
	 * Where nobody does any more, it runs all the same. */
	if (!answer->error && sandbox->row.state == SANDBOX_PAUSED)
		runs_again(sandbox);
}

/* Who needs it does not wait until it stands still: the spawner takes the pause back, and whoever
 * asked for that is told. Where it came too late it is paused first, and resumed for the request.
 */
static void stop_pausing(struct sandbox *sandbox)
{
	struct spawn_message message = {.type = SPAWN_THAW};
	struct error error;
	if (sandbox->life->waking)
		return;
	sandbox->life->waking = true;
	if (sandbox_ask(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, on_woken, NULL, 0, &error) <
	    0) {
		sandbox->life->waking = false;
		log_debug("sandbox %s: %s", sandbox->row.id.text, error.message);
	}
}

int sandbox_ready(struct sandbox *sandbox, const struct principal *principal, bool wake,
		  SANDBOX_DONE, struct error *error)
{
	struct sandbox_life *life = sandbox->life;
	uint32_t state = sandbox->row.state;
	if (state_facts(state)->going)
		return error_set(error, ERROR_SANDBOX_STATE, "sandbox `%s` is being deleted",
				 sandbox->row.id.text);
	bool paused = state == SANDBOX_PAUSING || state == SANDBOX_PAUSED;
	bool stopped = state == SANDBOX_STOPPING || state == SANDBOX_STOPPED;
	wake |= paused && (sandbox->row.options & OPTION_WAKE_ON_READ);
	if ((paused || stopped) && !wake)
		return asleep(sandbox, error);
	if (state == SANDBOX_RUNNING) {
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
	/* A boot has its own time-outs, which are longer. */
	int64_t until = clock_boot() + (sandbox->row.state == SANDBOX_RUNNING
					    ? READY_TIMEOUT_MS
					    : SPAWN_BOOT_TIMEOUT_MS + READY_TIMEOUT_MS) *
					   NSEC_PER_MSEC;
	if (waiter_add(sandbox, &life->ready, done, data, until, wake, error) < 0)
		return -1;
	if (wake)
		activity_woken_by(sandbox, principal);
	if (sandbox->row.state == SANDBOX_PAUSING)
		stop_pausing(sandbox);
	/* Only the states that begin something; a failure at once is told in a later turn. */
	if (sandbox->row.state == SANDBOX_PAUSED || sandbox->row.state == SANDBOX_STOPPED)
		sandbox_later(sandbox, ready_settle);
	return 0;
}
