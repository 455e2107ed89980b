/* A sandbox's transition from state to state: the one under way, and the only way to the next.
 *
 * The table in state.h says what follows from an event. sandbox_step() writes the new state into
 * the sandbox's row; then the caller carries out the action. The row comes first, so that after a
 * crash the next daemon knows which action may have begun (core/reconcile.c).
 *
 * After writing a transient state (`pausing`), a request goes to the spawner; its answer is the
 * next event. An answer that comes after the sandbox has entered another state does not belong to
 * the current transition: struct sandbox_answer says so. */
#pragma once

#include "core/activity/activity.h"
#include "core/sandbox/state.h"
#include "core/spawner_client.h"

/* Begins when the sandbox enters a state and ends when it enters the next one. */
struct transition {
	uint32_t generation; /* its number: an answer to an earlier one is recognized by it */
	int64_t began;       /* CLOCK_MONOTONIC */
	int64_t phase_began; /* the same, of a boot's phase */
	int64_t due;         /* CLOCK_BOOTTIME: when to raise SANDBOX_EVENT_DUE; 0 = never */
	uint32_t tries;      /* failed attempts of DESTROY */
	bool awaits_answer;  /* a request of transition_ask_spawner() is not answered yet */
	/* Kept until there is an end to tell, also over several states. */
	char begun_by[ACTIVITY_ACTOR_MAX]; /* who began it; "": nobody */
	struct list waiters;               /* struct waiter */
	void (*created)(void *data, struct sandbox *sandbox, const struct error *error);
	void *created_data;
};

/* --- step.c --- */

/* Moves the sandbox to the state that follows from the event; nothing has changed when its row
 * cannot be written. */
NODISCARD int sandbox_step(struct sandbox *sandbox, enum sandbox_event event, struct error *error);
/* The same with a function that writes the row. */
NODISCARD int sandbox_step_written(struct sandbox *sandbox, enum sandbox_event event,
				   int (*write)(void *data, struct error *error), void *data,
				   struct error *error);
/* The same for a change that cannot be undone: a row that cannot be written is written later. */
void sandbox_force_step(struct sandbox *sandbox, enum sandbox_event event);
/* The action that would follow if the event happened now. */
enum sandbox_action sandbox_action(const struct sandbox *sandbox, enum sandbox_event event);
/* Writes what could not be written: its own row, those of its execs. */
void sandbox_save_again(struct sandbox *sandbox);

/* Asks the spawner about one sandbox. `done` gets the sandbox as it is then: NULL if it was freed,
 * `current` false when another transition has begun meanwhile. */
struct sandbox_answer {
	struct core *core;
	struct sandbox *sandbox;
	bool current;
	const struct spawn_message *reply; /* NULL when error is set and none came */
	const struct error *error;
	void *data;
	uint64_t number;
};
NODISCARD int sandbox_ask_spawner(struct sandbox *sandbox, struct spawn_message *message,
				  const int *fds, size_t fd_count, uint32_t timeout_ms,
				  void (*done)(const struct sandbox_answer *answer), void *data,
				  uint64_t number, struct error *error);
/* The same for the request of a state: KILL while stopping, DESTROY while deleting, RECLAIM while
 * paused, THAW to abort a pause. Does nothing while an earlier one is not answered; `answered`
 * clears transition.awaits_answer. */
NODISCARD int transition_ask_spawner(struct sandbox *sandbox, uint32_t type,
				     void (*answered)(const struct sandbox_answer *answer),
				     void *data, struct error *error);
/* Sets the time of SANDBOX_EVENT_DUE. */
void transition_due_in(struct sandbox *sandbox, int64_t milliseconds);

/* --- transition.c --- */

/* Handles SANDBOX_EVENT_DUE: fails a boot, sends KILL or DESTROY (again). */
void transition_due(struct sandbox *sandbox);
/* The spawner has answered after the time-out: undoes its action, or adopts the result. */
void transition_late(struct core *core, uint32_t type, const struct spawn_message *reply);
void start_failed(struct sandbox *sandbox, const struct error *error);
/* Asks the spawner to kill every process of the sandbox, repeatedly until that succeeds. */
void stop_kill(struct sandbox *sandbox);
/* The same after an event that makes it `stopping`. */
void stop_by_force(struct sandbox *sandbox, enum sandbox_event event);
/* Called after any change of state or link: notifies the waiters of sandbox_ready(), or begins the
 * transition that they need. */
void ready_settle(struct sandbox *sandbox);
