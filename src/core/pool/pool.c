/* The pool as a whole: which members are used, kept, made. See pool.h. Called by
 * core/sandbox/create.c, reconcile.c, core.c and timers.c; blocks for the store only. */
#include "core/pool/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/pool/pool_private.h"
#include "core/sandbox/template.h"

/* So long after the last create nothing is made: refilling would slow down a burst of creates. */
#define QUIET (20 * NSEC_PER_MSEC)

bool pool_ended(struct core *core, const struct id *id)
{
	struct pooled *pooled = pooled_find(core, id);
	if (!pooled)
		return false;
	if (pooled->state != POOLED_GOING) {
		log_info("sandbox %s of the pool has ended by itself", id->text);
		/* Not at once: the next member may end in the same way. */
		pool_refill_at(core, clock_boot() + NSEC_PER_SEC);
	}
	pooled_destroy(pooled);
	return true;
}

void pool_counted(struct core *core, const struct id *id, const struct spawn_counters *counters)
{
	struct pooled *pooled = pooled_find(core, id);
	if (pooled && counters->known[KNOWN_CPU])
		pooled->row.cpu_ns = counters->cpu_ns;
}

/* ---- How many there are. */

/* A create is under way or a member is being made: its end continues the refill. */
static bool pool_is_busy(struct core *core, int64_t now)
{
	if (now < pool_of(core)->quiet_until || statistics.pool_making > 0)
		return true;
	list_each (&core->sandboxes, node)
		if (state_facts(list_entry(node, struct sandbox, link)->row.state)->booting)
			return true;
	return false;
}

/* Destroys a member that was made with old files, for example before a security update. */
static bool pool_destroy_stale(struct core *core)
{
	list_each (&pool_of(core)->members, node) {
		struct pooled *pooled = list_entry(node, struct pooled, link);
		if (pooled->state != POOLED_READY ||
		    pooled->row.stamp == pool_stamp(core, pooled->row.template))
			continue;
		log_info("sandbox %s of the pool goes: what it was made with has changed",
			 pooled->row.id.text);
		pooled_destroy(pooled);
		return true;
	}
	return false;
}

/* Makes room for a sandbox of another shape. */
static void pool_destroy_one(struct core *core)
{
	list_each (&pool_of(core)->members, node) {
		struct pooled *pooled = list_entry(node, struct pooled, link);
		if (pooled->state != POOLED_READY)
			continue;
		pooled_destroy(pooled);
		return;
	}
}

/* Counts the members of each shape off its demand; destroys one without demand. */
static bool pool_destroy_unwanted(struct core *core)
{
	struct pool *pool = pool_of(core);
	list_each (&pool->members, node) {
		struct pooled *pooled = list_entry(node, struct pooled, link);
		struct pool_demand *demand = NULL;
		if (pooled->state == POOLED_GOING || pooled->state == POOLED_TAKEN)
			continue;
		for (size_t i = 0; i < POOL_SHAPES_MAX && !demand; i++)
			if (pool->demands[i].wanted > 0 &&
			    pool_same_shape(&pool->demands[i].shape, &pooled->row))
				demand = &pool->demands[i];
		if (!demand) {
			pooled_destroy(pooled);
			return true;
		}
		demand->wanted--;
	}
	return false;
}

static bool pool_make_wanted(struct core *core)
{
	struct pool *pool = pool_of(core);
	/* Members that are being destroyed count until they are gone. */
	if (pool->count >= MAX(core->config.pool_max, core->config.pool_size))
		return false;
	for (size_t i = 0; i < POOL_SHAPES_MAX; i++) {
		struct pool_demand *demand = &pool->demands[i];
		if (demand->wanted == 0 || !core->probes[demand->shape.tier].available)
			continue;
		pooled_make(core, &demand->shape);
		return true;
	}
	return false;
}

static void pool_refill(struct core *core, int64_t now)
{
	struct pool *pool = pool_of(core);
	if (pool_is_busy(core, now)) {
		pool->refill_at = MAX(pool->quiet_until, now + QUIET);
		return;
	}
	if (pool_destroy_stale(core)) {
		pool->refill_at = now + QUIET;
		return;
	}
	pool_find_wanted(core, now);
	/* The demand that is left is missing. */
	bool changed = pool_destroy_unwanted(core) || pool_make_wanted(core);
	/* Demand changes with the window; until then nothing has to be done. */
	if (pool->back_off == 0 || pool->refill_at <= now)
		pool->refill_at = now + (changed ? QUIET : POOL_DEMAND_WINDOW);
}

static int64_t pooled_tend(struct pooled *pooled, int64_t now)
{
	struct error error;
	if (pooled->state == POOLED_READY) {
		if (pooled->deadline <= now) {
			pooled_destroy(pooled); /* its init has ended it or is about to */
			return INT64_MAX;
		}
		if (pooled->deadline - now < POOL_LIFE / 2)
			pooled_renew(pooled);
		return pooled->deadline - POOL_LIFE / 2;
	}
	if (pooled->until == 0 || pooled->until > now)
		return pooled->until == 0 ? INT64_MAX : pooled->until;
	if (pooled->state == POOLED_GOING) {
		pooled_send_destroy(pooled);
	} else {
		error_set(&error, ERROR_TIMED_OUT, "its init did not finish its set-up in time");
		pooled_failed(pooled, &error);
	}
	return INT64_MAX;
}

int64_t pool_tend(struct core *core, int64_t now)
{
	struct pool *pool = pool_of(core);
	int64_t next_look = INT64_MAX;
	if (!pool->started || pool->ending)
		return next_look;
	list_each (&pool->members, node)
		next_look = MIN(next_look, pooled_tend(list_entry(node, struct pooled, link), now));
	if (core->config.pool_size == 0 && pool->count == 0)
		return next_look;
	if (now >= pool->refill_at)
		pool_refill(core, now);
	return MIN(next_look, pool->refill_at);
}

/* ---- Giving a member away. */

/* Can such a sandbox come from the pool at all? */
static bool row_can_be_pooled(const struct sandbox_row *row)
{
	struct bytes environment = {(const uint8_t *)row->environment, row->environment_size};
	return row->flags == 0 && row->mounts_size == 0 &&
	       environment.size <= POOL_ENVIRONMENT_BYTES_MAX &&
	       pool_count_packed(environment) <= POOL_ENVIRONMENT_MAX;
}

static bool pooled_limit_fits(const struct pooled *pooled, enum limit_kind kind, uint32_t has,
			      uint32_t wants)
{
	return has == wants || pooled->row.limit_reasons[kind] == LIMIT_ENFORCED;
}

static bool pooled_fits(const struct pooled *pooled, const struct sandbox_row *row, int64_t now)
{
	const struct pool_row shape = pool_shape_of(row);
	const struct limits *has = &pooled->row.limits, *wants = &row->limits;
	return pooled->state == POOLED_READY && pool_same_shape(&pooled->row, &shape) &&
	       pooled_limit_fits(pooled, LIMIT_CPU, has->cpu_millis, wants->cpu_millis) &&
	       pooled_limit_fits(pooled, LIMIT_PIDS, has->pids, wants->pids) &&
	       pooled->deadline - now > POOL_LIFE_TO_GIVE;
}

bool pool_differs(const struct pooled *pooled, const struct sandbox_row *row)
{
	return pooled->row.limits.cpu_millis != row->limits.cpu_millis ||
	       pooled->row.limits.pids != row->limits.pids;
}

struct pooled *pool_take(struct core *core, const struct sandbox_row *row)
{
	struct pool *pool = pool_of(core);
	struct pooled *found = NULL;
	int64_t now = clock_boot();
	pool->quiet_until = now + QUIET;
	if (!row_can_be_pooled(row))
		return NULL;
	pool_count_demand(core, row, now);
	/* After a failure not every create tries to make a member. */
	if (pool->back_off == 0)
		pool_refill_at(core, pool->quiet_until);
	list_each (&pool->members, node) {
		struct pooled *pooled = list_entry(node, struct pooled, link);
		if (!pooled_fits(pooled, row, now))
			continue;
		if (!found || (pool_differs(found, row) && !pool_differs(pooled, row)))
			found = pooled;
	}
	if (!found) {
		if (pool_crowds(core, pool->count + 1))
			pool_destroy_one(core);
		return NULL;
	}
	if (found->row.stamp != pool_stamp(core, row->template)) {
		pool_destroy_stale(core);
		return NULL;
	}
	pooled_set_state(found, POOLED_TAKEN);
	return found;
}

void pool_put_back(struct pooled *pooled)
{
	if (pooled->lost)
		pooled_free(pooled);
	else
		pooled_set_state(pooled, POOLED_READY);
}

void pool_fill_row(const struct pooled *pooled, struct sandbox_row *row)
{
	uint32_t cap = pooled->core->config.files_cap;
	row->id = pooled->row.id;
	row->create_origin = ORIGIN_POOL;
	memcpy(row->limit_reasons, pooled->row.limit_reasons, sizeof(row->limit_reasons));
	free(row->rootfs_digest);
	row->rootfs_digest = text_duplicate(pooled->row.rootfs_digest);
	if (cap != 0)
		row->limits.files = MIN(row->limits.files, cap);
}

int pool_write_given(struct pooled *pooled, const struct sandbox_row *row, struct error *error)
{
	struct store *store = pooled->core->store;
	int deleted = store_pool_delete(store, &pooled->row.id, error);
	if (deleted > 0)
		return meter_write_first(store, row, pooled->row.cpu_ns, error);
	if (deleted < 0)
		return -1;
	pooled->lost = true;
	return error_set(error, ERROR_BUSY, "another daemon is still ending: try again");
}

void pool_give(struct pooled *pooled, struct sandbox *sandbox)
{
	sandbox->guest = TAKE_PTR(pooled->guest);
	sandbox->life->ready_logs = pooled->ready_logs;
	pooled->ready_logs.made = false;
	guest_link_set_callbacks(sandbox->guest, &sandbox_link_callbacks, sandbox);
	guest_link_set_share(sandbox->guest,
			     core_share_of_guests(sandbox->core, sandbox->row.workspace));
	sandbox->counters = (struct spawn_counters){.cpu_ns = pooled->row.cpu_ns};
	pooled_free(pooled);
}

/* ---- At start-up. */

bool pool_has(struct core *core, const struct id *id)
{
	return pooled_find(core, id) != NULL;
}

static void pool_load_row(void *data, const struct pool_row *row)
{
	struct pooled *pooled = pooled_new(data, row);
	pooled->state = POOLED_KEEPING;
}

int pool_load(struct core *core, struct error *error)
{
	return store_pool_each(core->store, pool_load_row, core, error);
}

/* An earlier daemon's member: was it made of what boots get today? */
static bool pooled_is_current(const struct pooled *pooled)
{
	const struct pool_row *row = &pooled->row;
	const struct template *template = template_find(row->template);
	if (!template || row->stamp != pool_stamp(pooled->core, row->template))
		return false;
	return strcmp(row->rootfs_digest, template->rootfs.kind == ROOTFS_HOST
					      ? pooled->core->host_digest
					      : template->rootfs.digest) == 0;
}

bool pool_adopt(struct core *core, const struct id *id, const struct spawn_listed *listed)
{
	struct pooled *pooled = pooled_find(core, id);
	if (!pooled)
		return false;
	pooled->listed = true;
	if (pooled->row.ready && listed->running && !listed->frozen && core->config.pool_size > 0 &&
	    pooled_is_current(pooled))
		pooled_connect(pooled);
	else
		pooled_destroy(pooled);
	return true;
}

void pool_start(struct core *core)
{
	struct error error;
	list_each (&pool_of(core)->members, node) {
		struct pooled *pooled = list_entry(node, struct pooled, link);
		if (pooled->listed)
			continue;
		if (store_pool_delete(core->store, &pooled->row.id, &error) < 0)
			log_warning("%s", error.message);
		pooled_free(pooled);
	}
	pool_of(core)->started = true;
	pool_refill_at(core, clock_boot());
}

/* ---- The end. */

static void pool_destroy_all(struct core *core)
{
	list_each (&pool_of(core)->members, node) {
		struct pooled *pooled = list_entry(node, struct pooled, link);
		if (pooled->state != POOLED_TAKEN)
			pooled_destroy(pooled);
	}
}

void pool_configure(struct core *core)
{
	pool_of(core)->back_off = 0;
	pool_forget_demand(core);
	pool_destroy_all(core);
	pool_refill_at(core, clock_boot());
}

void pool_end(struct core *core, void (*done)(void *data), void *data)
{
	struct pool *pool = pool_of(core);
	pool->ending = true;
	pool_destroy_all(core);
	if (list_empty(&pool->members)) {
		done(data);
		return;
	}
	pool->ended = done;
	pool->ended_data = data;
}

void pool_let_go(struct core *core)
{
	struct pool *pool = pool_of(core);
	pool->ending = true;
	list_each (&pool->members, node) {
		struct pooled *pooled = list_entry(node, struct pooled, link);
		if (pooled->state != POOLED_GOING)
			pooled_free(pooled);
	}
}

void pool_stop(struct core *core)
{
	struct pool *pool = pool_of(core);
	pool->ending = true;
	pool->ended = NULL;
	while (!list_empty(&pool->members))
		pooled_free(list_entry(pool->members.next, struct pooled, link));
	pool_forget_demand(core);
}
