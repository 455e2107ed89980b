/* Demand: which shapes were requested lately, and how many members of each there should be. Called
 * by pool.c; reads the host's memory, does not block. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/pool/pool_private.h"

#define MEMORY_SHARE 32 /* the pool may use this part of the available memory */
#define SLOTS_KEPT 16   /* uid ranges kept for creates */

bool pool_same_shape(const struct pool_row *a, const struct pool_row *b)
{
	return a->tier == b->tier && a->network == b->network &&
	       strcmp(a->template, b->template) == 0 && a->limits.memory == b->limits.memory &&
	       a->limits.disk == b->limits.disk && a->limits.inodes == b->limits.inodes &&
	       a->limits.files == b->limits.files;
}

struct pool_row pool_shape_of(const struct sandbox_row *row)
{
	return (struct pool_row){.tier = row->tier,
				 .network = row->network,
				 .template = row->template,
				 .limits = row->limits};
}

/* Creates are counted in two windows of time: this one and the one before. */
static void pool_turn_window(struct pool *pool, int64_t now)
{
	int64_t passed = now - pool->window_start;
	if (passed < POOL_DEMAND_WINDOW)
		return;
	for (size_t i = 0; i < POOL_SHAPES_MAX; i++) {
		struct pool_demand *demand = &pool->demands[i];
		demand->before = passed < 2 * POOL_DEMAND_WINDOW ? demand->count : 0;
		demand->count = 0;
	}
	pool->window_start = now;
}

/* Which entry is replaced first: the shape with the least demand; of equals, the oldest. */
static bool demand_matters_less(const struct pool_demand *a, const struct pool_demand *b)
{
	uint32_t first = MAX(a->count, a->before), second = MAX(b->count, b->before);
	if (a->asked_at == 0 || b->asked_at == 0)
		return a->asked_at < b->asked_at;
	return first != second ? first < second : a->asked_at < b->asked_at;
}

/* The entry of that shape; made if missing. */
static struct pool_demand *demand_of_shape(struct pool *pool, const struct pool_row *shape)
{
	struct pool_demand *least = &pool->demands[0];
	for (size_t i = 0; i < POOL_SHAPES_MAX; i++) {
		struct pool_demand *demand = &pool->demands[i];
		if (demand->asked_at != 0 && pool_same_shape(&demand->shape, shape))
			return demand;
		if (demand_matters_less(demand, least))
			least = demand;
	}
	pool_row_done(&least->shape);
	*least = (struct pool_demand){.shape = *shape};
	least->shape.template = text_duplicate(shape->template);
	return least;
}

void pool_count_demand(struct core *core, const struct sandbox_row *row, int64_t now)
{
	struct pool *pool = &core->private->pool;
	const struct pool_row shape = pool_shape_of(row);
	pool_turn_window(pool, now);
	struct pool_demand *demand = demand_of_shape(pool, &shape);
	/* Cpu and pids of the last create, but no less cpu than the default: less would slow down
	 * the set-up. */
	demand->shape.limits = row->limits;
	demand->shape.limits.cpu_millis =
	    MAX(row->limits.cpu_millis, core->config.defaults.cpu_millis);
	demand->asked_at = now;
	demand->count++;
}

void pool_forget_demand(struct core *core)
{
	for (size_t i = 0; i < POOL_SHAPES_MAX; i++) {
		struct pool_demand *demand = &core->private->pool.demands[i];
		pool_row_done(&demand->shape);
		*demand = (struct pool_demand){0};
	}
}

/* Before the first create the pool has default sandboxes. */
static void pool_expect_default(struct core *core, int64_t now)
{
	const struct principal nobody = {.workspace = "default"};
	const struct sandbox_spec spec = {0};
	struct sandbox_row row;
	struct error ignored;
	for (size_t i = 0; i < POOL_SHAPES_MAX; i++)
		if (core->private->pool.demands[i].asked_at != 0)
			return;
	if (spec_check(core, &nobody, &spec, &row, &ignored) < 0)
		return;
	const struct pool_row shape = pool_shape_of(&row);
	demand_of_shape(&core->private->pool, &shape)->asked_at = now;
	sandbox_row_done(&row);
}

static int demand_by_time(const void *a, const void *b)
{
	const struct pool_demand *const *first = a, *const *second = b;
	return ((*second)->asked_at > (*first)->asked_at) -
	       ((*second)->asked_at < (*first)->asked_at);
}

void pool_find_wanted(struct core *core, int64_t now)
{
	struct pool *pool = &core->private->pool;
	const struct config *config = &core->config;
	struct pool_demand *sorted[POOL_SHAPES_MAX];
	struct host_room host;
	pool_expect_default(core, now);
	pool_turn_window(pool, now);
	admission_room(core, &host);
	uint64_t memory = host.memory_available / MEMORY_SHARE;
	uint32_t used = core->sandbox_count + SLOTS_KEPT;
	uint32_t room = used < SANDBOX_COUNT_PER_STATE_MAX ? SANDBOX_COUNT_PER_STATE_MAX - used : 0;
	room = config->pool_size == 0 ? 0 : MIN(room, MAX(config->pool_max, config->pool_size));
	for (size_t i = 0; i < POOL_SHAPES_MAX; i++)
		sorted[i] = &pool->demands[i];
	qsort(sorted, POOL_SHAPES_MAX, sizeof(sorted[0]), demand_by_time);
	/* The shape of the last create is kept ready without further demand. */
	for (size_t i = 0; i < POOL_SHAPES_MAX; i++) {
		struct pool_demand *demand = sorted[i];
		uint64_t cost = core->probes[demand->shape.tier].memory_idle;
		uint32_t wanted = MAX(demand->count, demand->before);
		if (i == 0)
			wanted = MAX(wanted, config->pool_size);
		demand->wanted = demand->asked_at == 0
				     ? 0
				     : (uint32_t)MIN(MIN(wanted, room), memory / MAX(cost, 1));
		room -= demand->wanted;
		memory -= demand->wanted * cost;
	}
}

bool pool_crowds(const struct core *core, uint32_t members)
{
	return core->sandbox_count + members + SLOTS_KEPT > SANDBOX_COUNT_PER_STATE_MAX;
}
