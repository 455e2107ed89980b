/* What pool.c, member.c and demand.c share. */
#pragma once

#include "core/guest_link.h"
#include "core/pool/pool.h"

/* How long a member lives without a daemon. A member near its end is not given away: its init may
 * end it before it reads the owner's deadline. */
#ifdef CAISSON_FAULT_POINTS /* a test waits for it */
#define POOL_LIFE (15 * NSEC_PER_SEC)
#else
#define POOL_LIFE (600 * NSEC_PER_SEC)
#endif
#define POOL_LIFE_TO_GIVE (POOL_LIFE / 10)

struct pooled {
	struct list link; /* in core_private.pool.members, oldest first */
	struct core *core;
	struct pool_row row;
	enum pooled_state {
		POOLED_BOOTING,     /* the spawner makes it */
		POOLED_CONFIGURING, /* its init is being connected and configured */
		POOLED_COUNTING,    /* the spawner is asked what its boot used */
		POOLED_KEEPING,     /* an earlier daemon's: its init is told that there is a daemon
				       again */
		POOLED_READY,
		POOLED_TAKEN, /* a create has it */
		POOLED_GOING, /* it is being destroyed */
	} state;
	struct guest_link *guest;
	struct ready_logs ready_logs; /* of its first exec */
	struct guest_echo echo;       /* KEEPING */
	int64_t deadline;             /* CLOCK_BOOTTIME: when its init ends it */
	int64_t until; /* CONFIGURING: its time limit; GOING: the time of the next attempt */
	bool listed;   /* at start-up: it exists on the host */
	bool lost;     /* given away by another daemon */
};

struct pool *pool_of(struct core *core);

/* member.c */
struct pooled *pooled_new(struct core *core, const struct pool_row *row);
void pooled_free(struct pooled *pooled);
struct pooled *pooled_find(struct core *core, const struct id *id);
void pooled_set_state(struct pooled *pooled, enum pooled_state state);
/* Begins to make a member of that shape. */
void pooled_make(struct core *core, const struct pool_row *shape);
/* Connects to the init of an existing member. */
void pooled_connect(struct pooled *pooled);
/* Tells its init that there is a daemon. */
void pooled_renew(struct pooled *pooled);
/* It could not be made: destroys it and tries another later. It may be freed. */
void pooled_failed(struct pooled *pooled, const struct error *error);
/* Destroys it; it may be freed. */
void pooled_destroy(struct pooled *pooled);
/* The same again after a failure. */
void pooled_send_destroy(struct pooled *pooled);
void pool_refill_at(struct core *core, int64_t at);
/* Identifies what a member is made with today: the program and its init, the configuration of
 * sandboxes, the template's files. */
uint64_t pool_stamp(const struct core *core, const char *template);
uint32_t pool_count_packed(struct bytes packed);

/* demand.c */
/* Cpu and pids may differ: see pool_differs(). */
bool pool_same_shape(const struct pool_row *a, const struct pool_row *b);
/* The shape of a member for that sandbox; its template is borrowed from the row. */
struct pool_row pool_shape_of(const struct sandbox_row *row);
/* A create has asked for one. */
void pool_count_demand(struct core *core, const struct sandbox_row *row, int64_t now);
void pool_forget_demand(struct core *core);
/* Computes how many members of each shape there should be: demands[].wanted. */
void pool_find_wanted(struct core *core, int64_t now);
/* Are nearly all uid ranges in use? */
bool pool_crowds(const struct core *core, uint32_t members);
