/* The one place that changes a sandbox's state: the row, the data that depend on the state, and the
 * requests to the spawner. See transition.h. Called by the rest of core/; blocks for the store
 * only. */
#include "core/sandbox/transition.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/core_private.h"
#include "core/sandbox/create_queue.h"

/* While it is pausing, paused or resuming, no time passes for its deadline: leaving these states
 * moves the deadline by the time that it spent in them. */
static void row_set_state(struct sandbox_row *row, enum sandbox_state state)
{
	int64_t now = clock_wall();
	row->state = state;
	if (state_facts(state)->clock_stands) {
		if (row->paused_wall == 0)
			row->paused_wall = now;
		return;
	}
	if (row->paused_wall == 0)
		return;
	if (row->deadline_wall != 0)
		row->deadline_wall += MAX(now - row->paused_wall, 0);
	row->paused_wall = 0;
	/* A paused sandbox is not idle. */
	row->active_wall = now;
}

/* The data that depend on the row's times and are not in the row. */
static void sandbox_clock_continue(struct sandbox *sandbox)
{
	sandbox_clock_deadline(sandbox);
	sandbox->life->active = clock_boot();
	file_clock_goes_on(sandbox);
}

static void transition_enter(struct sandbox *sandbox, const struct sandbox_row *before)
{
	struct transition *transition = &sandbox->life->transition;
	transition->generation++;
	transition->began = clock_monotonic();
	transition->due = 0;
	transition->tries = 0;
	transition->awaits_answer = false;
	if (before->paused_wall != 0 && sandbox->row.paused_wall == 0)
		sandbox_clock_continue(sandbox);
	meter_changed(sandbox, (enum sandbox_state)before->state);
	if (state_facts(sandbox->row.state)->leaves_room)
		create_queue_turn(sandbox->core);
	/* Entering a state rechecks the timers: an earlier check skipped the ones that apply only
	 * to this state. */
	timers_wake_at(sandbox->core, clock_boot());
	sandbox_notify(sandbox);
	log_debug("sandbox %s is %s", sandbox->row.id.text, state_facts(sandbox->row.state)->name);
}

/* A bug: a test build aborts, a daemon logs it and keeps the state. */
static void step_impossible(const struct sandbox *sandbox, enum sandbox_event event,
			    struct error *error)
{
	error_set(error, ERROR_INTERNAL, "event %d is impossible while it is %s", (int)event,
		  state_facts(sandbox->row.state)->name);
#if defined(CAISSON_FAULT_POINTS) || defined(__SANITIZE_ADDRESS__)
	log_error("sandbox %s: %s", sandbox->row.id.text, error->message);
	abort();
#endif
}

static int sandbox_enter(struct sandbox *sandbox, enum sandbox_event event, bool force,
			 int (*write)(void *data, struct error *error), void *data,
			 struct error *error)
{
	struct sandbox_life *life = sandbox->life;
	struct sandbox_row before = sandbox->row;
	struct state_step step = state_step(before.state, event);
	if (step.action == SANDBOX_ACTION_REFUSE) {
		step_impossible(sandbox, event, error);
		return -1;
	}
	if (step.next == before.state)
		return 0;
	row_set_state(&sandbox->row, step.next);
	bool recorded = activity_state(sandbox, (enum sandbox_state)before.state, step.action);
	int result = activity_save(sandbox->core, write, data, error);
	if (result < 0 && !force) {
		if (recorded)
			activity_take_back(sandbox);
		sandbox->row = before; /* no string has changed */
		return -1;
	}
	if (result < 0) {
		life->save_at = clock_boot() + SAVE_RETRY_MS * NSEC_PER_MSEC;
	} else {
		life->active_stored = sandbox->row.active_wall;
		/* The row of an exec may still wait to be written. */
		if (!life->execs_unsaved)
			life->save_at = 0;
	}
	transition_enter(sandbox, &before);
	return result;
}

static int sandbox_write_row(void *data, struct error *error)
{
	struct sandbox *sandbox = data;
	return store_sandbox_update(sandbox->core->store, &sandbox->row, error);
}

int sandbox_step_written(struct sandbox *sandbox, enum sandbox_event event,
			 int (*write)(void *data, struct error *error), void *data,
			 struct error *error)
{
	return sandbox_enter(sandbox, event, false, write, data, error);
}

int sandbox_step(struct sandbox *sandbox, enum sandbox_event event, struct error *error)
{
	int result = sandbox_enter(sandbox, event, false, sandbox_write_row, sandbox, error);
	return result < 0 ? error_prepend(error, "sandbox %s", sandbox->row.id.text) : 0;
}

void sandbox_force_step(struct sandbox *sandbox, enum sandbox_event event)
{
	struct error error;
	if (sandbox_enter(sandbox, event, true, sandbox_write_row, sandbox, &error) < 0)
		log_error("sandbox %s: %s; what cannot be written is tried again",
			  sandbox->row.id.text, error.message);
}

enum sandbox_action sandbox_action(const struct sandbox *sandbox, enum sandbox_event event)
{
	return state_step(sandbox->row.state, event).action;
}

void sandbox_save_again(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	struct error error;
	life->save_at = 0;
	int result = sandbox_write_row(sandbox, &error);
	if (result == 0 && (!life->execs_unsaved || exec_save_again(sandbox))) {
		life->execs_unsaved = false;
		log_info("sandbox %s is written down again", sandbox->row.id.text);
		return;
	}
	life->save_at = clock_boot() + SAVE_RETRY_MS * NSEC_PER_MSEC;
}

struct sandbox_request {
	struct core *core;
	struct id id;
	uint32_t generation;
	void (*done)(const struct sandbox_answer *answer);
	void *data;
	uint64_t number;
};

static void sandbox_request_answered(void *data, const struct spawn_message *reply,
				     const struct error *error)
{
	struct sandbox_request *request = data;
	struct sandbox *sandbox = sandbox_by_id(request->core, &request->id);
	struct sandbox_answer answer = {
	    .core = request->core,
	    .sandbox = sandbox,
	    .current = sandbox && sandbox->life->transition.generation == request->generation,
	    .reply = reply,
	    .error = error,
	    .data = request->data,
	    .number = request->number,
	};
	request->done(&answer);
	free(request);
}

int sandbox_ask_spawner(struct sandbox *sandbox, struct spawn_message *message, const int *fds,
			size_t fd_count, uint32_t timeout_ms,
			void (*done)(const struct sandbox_answer *answer), void *data,
			uint64_t number, struct error *error)
{
	if (!sandbox->core->spawner)
		return error_set(error, ERROR_SPAWNER_GONE, "the daemon is stopping");
	struct sandbox_request *request = calloc(1, sizeof(*request));
	if (!request)
		abort();
	*request = (struct sandbox_request){
	    .core = sandbox->core,
	    .id = sandbox->row.id,
	    .generation = sandbox->life->transition.generation,
	    .done = done,
	    .data = data,
	    .number = number,
	};
	message->sandbox = sandbox->row.id;
	if (spawner_request(sandbox->core->spawner, message, fds, fd_count, timeout_ms,
			    sandbox_request_answered, request, error) < 0) {
		free(request);
		return -1;
	}
	return 0;
}

int transition_ask_spawner(struct sandbox *sandbox, uint32_t type,
			   void (*answered)(const struct sandbox_answer *answer), void *data,
			   struct error *error)
{
	struct transition *transition = &sandbox->life->transition;
	struct spawn_message message = {.type = type};
	transition->due = 0;
	if (transition->awaits_answer)
		return 0;
	transition->awaits_answer = true;
	if (sandbox_ask_spawner(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, answered, data, 0,
				error) == 0)
		return 0;
	transition->awaits_answer = false;
	return -1;
}

void transition_due_in(struct sandbox *sandbox, int64_t milliseconds)
{
	sandbox->life->transition.due = clock_boot() + milliseconds * NSEC_PER_MSEC;
	timers_wake_at(sandbox->core, sandbox->life->transition.due);
}
