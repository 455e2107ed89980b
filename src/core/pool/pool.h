/* The pool: sandboxes without an owner. Each is an ordinary sandbox on the host: booted, connected,
 * configured and hardened, with the id, host name and socket that it will keep. A create that fits
 * a member gets it in one transaction, without a request to the spawner or the init. All tiers have
 * a pool.
 *
 * Members have a table in the store and a list of their own: lists, budgets, admission, metering,
 * events, backups and the idle exit do not see them.
 *
 * A member is given away, or kept by the next daemon, only if it was made with today's init,
 * configuration and template. Its init ends it after ten minutes without a daemon. The daemon
 * renews that time, and destroys its members when it is told to end.
 *
 * Their number is the configured size, or the number of recent creates if that is larger, but never
 * more than the configured maximum, and never more than memory and uid ranges allow. They are made
 * one at a time, while no create is under way. */
#pragma once

#include "core/sandbox/sandbox.h"
#include "store/pool.h"

struct guest_link;
struct pooled;

/* Takes a member that fits the row, or returns NULL; counts as demand. The caller then calls one of
 * the next two functions. */
struct pooled *pool_take(struct core *core, const struct sandbox_row *row);
/* The create failed. The member may be freed. */
void pool_put_back(struct pooled *pooled);
/* The row of the sandbox is written: moves the connection to it and frees the member. */
void pool_give(struct pooled *pooled, struct sandbox *sandbox);
/* Fills the sandbox's row with the member's id, reasons of limits and digest. */
void pool_fill_row(const struct pooled *pooled, struct sandbox_row *row);
/* In the transaction that writes the sandbox's row: deletes the member's, and begins the metering
 * where the member's counters were at the last sample. BUSY if an earlier daemon that has not ended
 * yet gave it away first. */
NODISCARD int pool_write_given(struct pooled *pooled, const struct sandbox_row *row,
			       struct error *error);
/* Does the row request other cpu or pids than the member has? */
bool pool_differs(const struct pooled *pooled, const struct sandbox_row *row);

/* Is it the id of a member? */
bool pool_has(struct core *core, const struct id *id);
/* At start-up: the rows; then every sandbox that the spawner listed. True if it is a member, which
 * is kept or destroyed. */
NODISCARD int pool_load(struct core *core, struct error *error);
bool pool_adopt(struct core *core, const struct id *id, const struct spawn_listed *listed);
/* Forgets members that were not listed; begins to refill. */
void pool_start(struct core *core);

/* A sample of its counters; nothing happens if it is no member. */
void pool_counted(struct core *core, const struct id *id, const struct spawn_counters *counters);
/* Its processes are gone: true if it was a member. */
bool pool_ended(struct core *core, const struct id *id);
/* The configuration has changed: all members are destroyed, and others are made. */
void pool_configure(struct core *core);
/* For timers.c: makes, renews or destroys due members; returns when to call again
 * (CLOCK_BOOTTIME). */
int64_t pool_tend(struct core *core, int64_t now);

/* Destroys all members and makes no others. `done` is called when they are gone or after two
 * seconds; it may be called at once. */
void pool_end(struct core *core, void (*done)(void *data), void *data);
/* The next daemon keeps them: connections are closed, nothing else changes. */
void pool_let_go(struct core *core);
/* Frees all data about the members. */
void pool_stop(struct core *core);
