/* Sandboxes that are ready before anybody asks: namespaces, cgroups, disk and init, all but the
 * files of a template. How many: what the configuration says at least; as many as were asked for
 * lately, up to its maximum; no more than memory and uid ranges allow. They are made one at a time
 * while nobody waits for anything, and are like the last one that was asked for.
 *
 * The pool is the spawner's alone: a daemon comes and goes without noticing, and when the spawner
 * is gone its members end by themselves, since nobody holds their channel. Called by boots.c and
 * loop.c; never waits, but for pool_drain. */
#include "spawner/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "tier/remove_tree.h"

/* After the last request: a burst is not to be slowed down by refilling. */
#define QUIET (20 * NSEC_PER_MSEC)
#define DEMAND_WINDOW (10 * NSEC_PER_SEC)
#define BACK_OFF_FIRST NSEC_PER_SEC
#define BACK_OFF_MOST (60 * NSEC_PER_SEC)
#define MEMORY_SHARE 32       /* the pool may take this part of what is available */
#define MEMORY_COST (4 * MIB) /* one of them, amply */
#define SLOTS_KEPT 16         /* for sandboxes that somebody asks for */
#define DRAIN_TIMEOUT (2 * NSEC_PER_SEC)

static bool is_member(const struct entry *entry)
{
	return entry->state == ENTRY_PREPARING || entry->state == ENTRY_PREPARED;
}

static uint32_t members(const struct spawner *spawner)
{
	uint32_t count = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		count += is_member(&spawner->entries[i]);
	return count;
}

static bool fits(const struct entry *entry, const struct spawn_create *create)
{
	return entry->guest.tier == (enum tier)create->tier && create->mount_count == 0 &&
	       entry->guest.limits.disk == create->limits.disk &&
	       entry->guest.limits.inodes == create->limits.inodes;
}

/* Counts creates by windows of time: the one that runs and the one before. */
static void count_demand(struct pool *pool, int64_t now)
{
	int64_t passed = now - pool->window_start;
	if (passed >= DEMAND_WINDOW) {
		pool->demand_before = passed < 2 * DEMAND_WINDOW ? pool->demand : 0;
		pool->demand = 0;
		pool->window_start = now;
	}
}

struct entry *pool_take(struct spawner *spawner, const struct spawn_create *create)
{
	struct pool *pool = &spawner->pool;
	const struct driver *driver = spawner->driver_of((enum tier)create->tier);
	int64_t now = clock_monotonic();
	pool->quiet_until = now + QUIET;
	/* A folder of a user's has to be looked at, which may take long: never here. */
	if (create->mount_count > 0 || !driver->boot_ahead)
		return NULL;
	count_demand(pool, now);
	pool->demand++;
	if (pool->back_off == 0)
		pool->refill_at = pool->quiet_until;
	pool->like = *create;
	pool->like_known = true;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct entry *entry = &spawner->entries[i];
		if (entry->state == ENTRY_PREPARED && fits(entry, create))
			return entry;
	}
	return NULL;
}

static void drop(struct spawner *spawner, struct entry *entry)
{
	prepared_done(&entry->prepared);
	guests_undo(spawner, entry, true);
}

void pool_make_room(struct spawner *spawner)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		if (spawner->entries[i].state == ENTRY_PREPARED) {
			drop(spawner, &spawner->entries[i]);
			return;
		}
}

static uint64_t memory_available(void)
{
	char text[8192];
	unsigned long long kilobytes;
	if (fd_read_small(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
		return 0;
	const char *line = strstr(text, "MemAvailable:");
	return line && sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1 ? kilobytes * KIB : 0;
}

static uint32_t target(struct spawner *spawner, int64_t now)
{
	struct pool *pool = &spawner->pool;
	const struct config *config = &spawner->config;
	uint32_t used = 0;
	if (config->pool_size == 0)
		return 0;
	count_demand(pool, now);
	uint64_t wanted = MAX(config->pool_size, MAX(pool->demand, pool->demand_before));
	wanted = MIN(wanted, MAX(config->pool_max, config->pool_size));
	wanted = MIN(wanted, memory_available() / MEMORY_SHARE / MEMORY_COST);
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		used += spawner->entries[i].state != ENTRY_FREE && !is_member(&spawner->entries[i]);
	uint32_t room = UID_BLOCK_SLOTS - used;
	return (uint32_t)MIN(wanted, room > SLOTS_KEPT ? room - SLOTS_KEPT : 0);
}

/* What the next ones are like. */
static struct spawn_create pattern(const struct spawner *spawner)
{
	struct spawn_create create = {.tier = TIER_NAMESPACE, .limits = spawner->config.defaults};
	if (spawner->pool.like_known) {
		create.tier = spawner->pool.like.tier;
		create.limits = spawner->pool.like.limits;
	}
	return create;
}

static bool drop_unlike(struct spawner *spawner, const struct spawn_create *create)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct entry *entry = &spawner->entries[i];
		if (entry->state == ENTRY_PREPARED && !fits(entry, create)) {
			drop(spawner, entry);
			return true;
		}
	}
	return false;
}

static void back_off(struct pool *pool, int64_t now, const char *why)
{
	pool->back_off =
	    pool->back_off == 0 ? BACK_OFF_FIRST : MIN(pool->back_off * 2, BACK_OFF_MOST);
	pool->refill_at = now + pool->back_off;
	log_warning("no sandbox could be made ready in advance: %s; next try in %d s", why,
		    (int)(pool->back_off / NSEC_PER_SEC));
}

void pool_filled(struct spawner *spawner, struct entry *entry)
{
	struct pool *pool = &spawner->pool;
	pool->back_off = 0;
	pool->filling = false;
	entry->state = ENTRY_PREPARED;
	entry->look_at = 0;
}

void pool_failed(struct spawner *spawner, const char *why)
{
	spawner->pool.filling = false;
	back_off(&spawner->pool, clock_monotonic(), why);
}

static bool nothing_to_do(const struct spawner *spawner)
{
	return !spawner->adopted || spawner->quitting || spawner->pool.filling ||
	       (spawner->config.pool_size == 0 && members(spawner) == 0);
}

void pool_changed(struct spawner *spawner)
{
	spawner->pool.refill_at = spawner->pool.back_off = 0;
}

void pool_tend(struct spawner *spawner)
{
	struct pool *pool = &spawner->pool;
	int64_t now = clock_monotonic();
	struct error error;
	if (nothing_to_do(spawner) || now < pool->refill_at)
		return;
	if (now < pool->quiet_until || boots_count(spawner) > 0) {
		pool->refill_at = MAX(pool->quiet_until, now + QUIET);
		return;
	}
	struct spawn_create create = pattern(spawner);
	const struct driver *driver = spawner->driver_of((enum tier)create.tier);
	uint32_t count = members(spawner), wanted = target(spawner, now);
	/* Demand fades by the window; until then there is nothing to look at. */
	pool->refill_at = now + DEMAND_WINDOW;
	if (!driver || !driver->boot_ahead)
		return;
	if (count > wanted) {
		pool_make_room(spawner);
		pool->refill_at = now + QUIET;
	} else if (count < wanted || drop_unlike(spawner, &create)) {
		pool->filling = true;
		pool->refill_at = now;
		if (boots_ahead(spawner, &create, &error) < 0)
			pool_failed(spawner, error.message);
	}
}

int64_t pool_next(const struct spawner *spawner)
{
	const struct pool *pool = &spawner->pool;
	if (nothing_to_do(spawner))
		return 0;
	return MAX(pool->refill_at, 1);
}

/* ---- The end. */

/* In place, not by way of the trash: nobody will be there to empty it. */
static void erase(struct spawner *spawner, struct entry *entry)
{
	char path[SPAWNER_PATH_MAX];
	struct error error;
	int result = spawner->jail->release(&spawner->host, &entry->guest, &error);
	for (int turn = 0; result > 0 && turn < 500; turn++) {
		nanosleep(&(struct timespec){.tv_nsec = NSEC_PER_MSEC}, NULL);
		result = spawner->jail->release(&spawner->host, &entry->guest, &error);
	}
	if (result < 0)
		log_warning("%s", error.message);
	if (guests_path(spawner, "sandboxes", &entry->guest.id, path) == 0 &&
	    remove_tree(AT_FDCWD, path) < 0)
		log_warning("%s cannot be removed", path);
	*entry = (struct entry)ENTRY_NONE;
}

void pool_drain(struct spawner *spawner)
{
	int64_t until = clock_monotonic() + DRAIN_TIMEOUT;
	struct error error;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct entry *entry = &spawner->entries[i];
		if (entry->state == ENTRY_PREPARING)
			boots_stop_worker(spawner, entry);
		if (!is_member(entry))
			continue;
		prepared_done(&entry->prepared);
		if (entry->driver->kill(&spawner->host, &entry->guest, &error) < 0)
			log_warning("%s", error.message);
	}
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct entry *entry = &spawner->entries[i];
		if (!is_member(entry))
			continue;
		int64_t left = (until - clock_monotonic()) / NSEC_PER_MSEC;
		if (process_wait_end(&entry->guest.init, (int)MAX(left, 0)) < 0 &&
		    entry->guest.init.pidfd >= 0)
			log_warning("one of the pool does not end");
		guests_forget_process(spawner, entry);
		erase(spawner, entry);
	}
}
