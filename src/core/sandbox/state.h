/* A sandbox's life as tables: what is true of it in each state, and what each wish comes to there.
 *
 *   creating ──> running <──> pausing ──> paused ──> resuming ──> running
 *                running, paused ──> stopping ──> stopped ──> starting ──> running
 *                any of them ──> deleting ──> ended
 *
 * Pure; nothing blocks. The transitions themselves are in create.c, transition.c
 * and delete.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* What time in a state counts as. */
enum counts_as { COUNTS_NOT, COUNTS_ASLEEP, COUNTS_PAUSED, COUNTS_ALIVE };

struct state_facts {
	const char *name;
	bool passing;      /* on its way: another state follows by itself */
	bool booting;      /* from nothing to an init that is configured */
	bool lives;        /* its processes are there, frozen or not, and its init answers */
	bool clock_stands; /* no time passes for its deadline */
	bool has_deadline; /* its time-out ends it */
	bool holds;        /* its memory and cpu count, in admission and budgets */
	bool going;        /* it is being deleted, or is gone */
	bool leaves_room;  /* creates that wait for room should try again */
	enum counts_as counts_as;
	const char *lost; /* why a command of it is lost, for people */
};
/* A number that is no state counts as SANDBOX_ENDED. */
const struct state_facts *state_facts(uint32_t state);

enum wish { WISH_STOP, WISH_START, WISH_PAUSE, WISH_RESUME, WISH_COUNT };
/* What it comes to. */
enum wish_outcome {
	OUTCOME_REFUSED,
	OUTCOME_DONE,      /* it is so */
	OUTCOME_JOINS,     /* it is under way: who wishes waits with the others */
	OUTCOME_BEGINS,    /* a transition */
	OUTCOME_TAKES_BACK /* the pause that is under way is taken back */
};
enum wish_outcome wish_outcome(enum wish wish, uint32_t state);
/* "stopped" and so on: what was wished for. */
const char *wish_name(enum wish wish);
