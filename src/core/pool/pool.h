/* The pool: sandboxes that nobody owns yet. Each is an ordinary sandbox on the host, with the id,
 * host name and socket that it will keep, booted, connected, configured and hardened. A create that
 * fits one makes it the asker's: one transaction, and no question to the spawner or to its init.
 * The same for every tier.
 *
 * Members stand in a table of the store and in a list of their own: lists, budgets, admission,
 * metering, events, backups and the idle exit do not see them.
 *
 * A member is given away, or kept by the next daemon, only if it was made by the init,
 * configuration and template of today. Its init ends it after ten minutes without word from a
 * daemon; the daemon renews that, and destroys its members when it is told to end.
 *
 * How many there are: what the configuration says at least, as many as were asked for lately, up to
 * its maximum, and no more than memory and uid ranges allow. They are made one at a time, while no
 * create is under way. */
#pragma once

#include "core/sandbox/sandbox.h"
#include "store/pool.h"

struct guest_link;
struct pooled;

/* A member that fits what the row asks for, or NULL; counts as demand. It is the caller's until one
 * of the next two. */
struct pooled *pool_take(struct core *core, const struct sandbox_row *row);
/* Nothing came of it. It may be freed. */
void pool_put_back(struct pooled *pooled);
/* It has become that sandbox, whose row is written: hands over its connection, and is gone. */
void pool_give(struct pooled *pooled, struct sandbox *sandbox);
/* The row of the sandbox that it becomes: its id, what was enforced, its digest. */
void pool_fill_row(const struct pooled *pooled, struct sandbox_row *row);
/* Deletes its row: part of the transaction that writes the sandbox's. BUSY where an earlier daemon,
 * which had not ended yet, was faster. */
NODISCARD int pool_forget_row(struct pooled *pooled, struct error *error);
/* Must cpu or pids be set to what the row says? */
bool pool_differs(const struct pooled *pooled, const struct sandbox_row *row);

/* At start-up, with all that the spawner listed: true if it is one of the pool's, which is kept or
 * destroyed. */
NODISCARD int pool_load(struct core *core, struct error *error);
bool pool_adopt(struct core *core, const struct id *id, const struct spawn_listed *listed);
/* Those that were not listed are forgotten; filling begins. */
void pool_start(struct core *core);

/* Its processes are gone: true if it was one of the pool's. */
bool pool_ended(struct core *core, const struct id *id);
/* The configuration was read again: all go, and others are made. */
void pool_configure(struct core *core);
/* For timers.c: makes, renews or destroys what is due; when to call again (CLOCK_BOOTTIME). */
int64_t pool_tend(struct core *core, int64_t now);

/* All are destroyed and none is made any more; `done`, which may be called at once, when that is so
 * or two seconds have passed. */
void pool_end(struct core *core, void (*done)(void *data), void *data);
/* The next daemon has them: connections are closed, nothing else is touched. */
void pool_let_go(struct core *core);
/* All that this daemon knows of them is freed. */
void pool_stop(struct core *core);
