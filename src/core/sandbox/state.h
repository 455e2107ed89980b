/* A sandbox's life as tables: the facts of each state, and the effect of each event.
 *
 *   creating ──> running <──> pausing ──> paused ──> resuming ──> running
 *                running, paused ──> stopping ──> stopped ──> starting ──> running
 *                any of them ──> deleting ──> ended
 *
 * Pure; nothing blocks. step.c moves a sandbox on by the table. The actions are carried out in
 * create.c, link.c, transition.c and delete.c, at start-up in core/reconcile.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

#define SANDBOX_STATE_NAMES                                                                        \
	"creating,running,pausing,paused,resuming,stopping,stopped,starting,deleting,ended"

/* What the time in a state counts as. */
enum counts_as { COUNTS_NOT, COUNTS_ASLEEP, COUNTS_PAUSED, COUNTS_ALIVE };

/* What a request that needs it does first, where it may wake it. */
enum wakes { WAKES_NOT, WAKES_BY_RESUME, WAKES_BY_START };

struct state_facts {
	const char *name;
	bool passing;      /* another state follows by itself */
	bool booting;      /* its init is being started and configured */
	bool lives;        /* its processes exist, frozen or not, and its init answers */
	bool runs;         /* its processes run: they are neither frozen nor about to be */
	bool may_exec;     /* commands and file operations may begin */
	bool clock_stands; /* no time passes for its deadline */
	bool has_deadline; /* its time-out ends it */
	bool holds; /* it counts as running: its memory and cpu do, in admission and budgets */
	bool going; /* it is being deleted, or has ended */
	bool leaves_room;         /* creates that wait for room should try again */
	enum counts_as counts_as; /* how its time is billed */
	enum wakes wakes;         /* it is asleep, or about to be; a request wakes it so */
	const char *lost;         /* why a command of it is lost, for people */
};
/* A number that is no state counts as SANDBOX_ENDED. */
const struct state_facts *state_facts(uint32_t state);

enum sandbox_event {
	/* Requests of a client or of the daemon itself (a deadline, a drain). */
	SANDBOX_EVENT_STOP,
	SANDBOX_EVENT_START,
	SANDBOX_EVENT_PAUSE,
	SANDBOX_EVENT_RESUME,
	SANDBOX_EVENT_DELETE,
	/* Its init and its boot. */
	SANDBOX_EVENT_CONFIGURED,
	SANDBOX_EVENT_BOOT_FAILED, /* whatever the cause */
	SANDBOX_EVENT_INIT_LOST,   /* the init cannot be used again */
	/* The spawner's answers. */
	SANDBOX_EVENT_UNDONE, /* nothing was done: it refused, or could not be asked */
	SANDBOX_EVENT_FROZEN,
	SANDBOX_EVENT_THAWED,
	SANDBOX_EVENT_FROZEN_LATE, /* an answer that is not of the transition under way */
	SANDBOX_EVENT_THAWED_LATE, /* the same */
	SANDBOX_EVENT_KILLED,
	SANDBOX_EVENT_DESTROYED,
	/* Unrequested events. */
	SANDBOX_EVENT_PROCESSES_ENDED,
	SANDBOX_EVENT_DUE, /* the transition has timed out, or its request is to be repeated */
	/* Findings of the daemon on the host when it starts. */
	SANDBOX_EVENT_FOUND_RUNNING,
	SANDBOX_EVENT_FOUND_FROZEN,
	SANDBOX_EVENT_FOUND_STOPPED,  /* its files, and no process */
	SANDBOX_EVENT_FOUND_UNUSABLE, /* its files are gone, or its client is */
	SANDBOX_EVENTS
};

/* What the caller has to do. */
enum sandbox_action {
	/* The pair is not in the table: a request is refused, any other event is impossible. */
	SANDBOX_ACTION_REFUSE,
	SANDBOX_ACTION_NONE,
	/* For a request. */
	SANDBOX_ACTION_DONE,      /* it is so already */
	SANDBOX_ACTION_JOIN,      /* it is under way: wait for its end */
	SANDBOX_ACTION_TAKE_BACK, /* ask the spawner to abort the pause that is under way */
	/* Ask the init to end everything, with KILL to follow. */
	SANDBOX_ACTION_SHUT_DOWN,
	/* Ask the spawner. */
	SANDBOX_ACTION_BOOT,
	SANDBOX_ACTION_FREEZE,
	SANDBOX_ACTION_RECLAIM, /* the memory of a paused one */
	SANDBOX_ACTION_THAW,
	SANDBOX_ACTION_KILL,
	SANDBOX_ACTION_DESTROY,
	/* Another event follows. */
	SANDBOX_ACTION_FAIL_BOOT, /* BOOT_FAILED */
	SANDBOX_ACTION_DELETE,    /* DELETE */
	/* For its processes. */
	SANDBOX_ACTION_RUN,           /* they run: tell the waiters */
	SANDBOX_ACTION_LOSE,          /* they have ended: close the link, end the commands */
	SANDBOX_ACTION_ADOPT,         /* they are an earlier daemon's: connect */
	SANDBOX_ACTION_CONTINUE_BOOT, /* the same of a boot that is under way */
};

struct state_step {
	enum sandbox_state next; /* the same state if the event changes none */
	enum sandbox_action action;
};
struct state_step state_step(uint32_t state, enum sandbox_event event);
/* "stopped" and so on: the state that STOP, START, PAUSE, RESUME request. */
const char *state_wish_name(enum sandbox_event wish);
