/* Metering. See meter.h. Called at every change of state, with every answer about counters, by
 * timers.c and for requests of the usage; blocks for the store's short calls only. */
#include "core/account/meter.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/account/budget.h"
#include "core/core_private.h"
#include "core/counters.h"

/* A sandbox that neither runs nor changes only uses its disk: it is sampled less often. */
#define ASLEEP_INTERVAL (300 * NSEC_PER_SEC)
#define REFRESH_MIN (500 * NSEC_PER_MSEC)
#define RETRY_INTERVAL (1 * NSEC_PER_SEC)
/* One period is split over at most so many hours (a clock may jump): the rest goes into the
 * last. */
#define HOURS_MAX 10000

struct counters_waiter {
	struct list link;
	void (*done)(void *data, const struct error *error);
	void *data;
};

static uint64_t byte_seconds(uint64_t bytes, uint64_t ns)
{
	return (uint64_t)((unsigned __int128)bytes * ns / NSEC_PER_SEC);
}

static int usage_row_save(struct sandbox *sandbox, struct error *error)
{
	struct meter *meter = &sandbox->life->meter;
	meter->row.sandbox = sandbox->row.id;
	meter->row.workspace = sandbox->row.workspace;
	meter->row.name = sandbox->row.name;
	int result = store_usage_put(sandbox->core->store, &meter->row, error);
	meter->row.workspace = meter->row.name = NULL;
	return result;
}

/* It ended without another sample: count at most its peak for that time. */
static void unsampled_settle(struct sandbox *sandbox)
{
	struct meter *meter = &sandbox->life->meter;
	if (meter->unsampled_ns == 0 || !sandbox->counters.known[KNOWN_PEAK])
		return;
	meter->row.memory_byte_seconds +=
	    byte_seconds(sandbox->counters.memory_peak, meter->unsampled_ns);
	meter->unsampled_ns = 0;
	meter->unsaved = true;
}

/* Writes its row together with the amounts that its workspace has spent: the next daemon continues
 * from the end of the row, and would not count earlier use for the budgets. */
static void usage_save_now(struct sandbox *sandbox)
{
	struct store *store = sandbox->core->store;
	struct workspace *workspace = sandbox->life->workspace;
	struct error error;
	if (sandbox->life->meter.counted == 0)
		return;
	int result = store_transaction_begin(store, &error);
	if (result == 0) {
		result = usage_row_save(sandbox, &error);
		if (result >= 0)
			result = budget_save(store, workspace, &error);
		result = store_transaction_end(store, result, &error);
	}
	sandbox->life->meter.unsaved = result < 0;
	if (result >= 0)
		budget_saved(workspace);
	else
		log_warning("sandbox %s: what it used is written later: %s", sandbox->row.id.text,
			    error.message);
}

/* Begins the row of another hour. If the old one cannot be written, the old one continues. */
static void turn_to_hour(struct sandbox *sandbox, int64_t hour)
{
	struct meter *meter = &sandbox->life->meter;
	struct error error;
	if (hour <= meter->row.hour)
		return;
	bool used = meter->row.alive_ns || meter->row.paused_ns || meter->row.cpu_ns ||
		    meter->row.disk_byte_seconds || meter->row.execs;
	if (used && usage_row_save(sandbox, &error) < 0) {
		log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
		return;
	}
	meter->row = (struct usage_row){.hour = hour,
					.counted_wall = meter->row.counted_wall,
					.cpu_seen_ns = meter->row.cpu_seen_ns,
					.disk_seen = meter->row.disk_seen};
}

static void usage_row_add(struct sandbox *sandbox, enum counts_as as, uint64_t ns, uint64_t cpu_ns,
			  uint64_t memory)
{
	struct usage_row *row = &sandbox->life->meter.row;
	if (as == COUNTS_ALIVE) {
		row->alive_ns += ns;
		row->memory_byte_seconds += byte_seconds(memory, ns);
	} else if (as == COUNTS_PAUSED) {
		row->paused_ns += ns;
	}
	if (as != COUNTS_NOT)
		row->disk_byte_seconds += byte_seconds(row->disk_seen, ns);
	row->cpu_ns += cpu_ns;
}

/* Counts from the last time up to `to`: the time by the state, the cpu used meanwhile, the memory
 * (the mean). Each hour gets its share. */
static void usage_count(struct sandbox *sandbox, enum counts_as as, int64_t to, uint64_t cpu_ns,
			uint64_t memory)
{
	struct meter *meter = &sandbox->life->meter;
	struct workspace *workspace = sandbox->life->workspace;
	int64_t shift = clock_wall() - clock_boot();
	if (meter->counted == 0)
		meter->counted = to;
	int64_t from = meter->counted, length = MAX(to - from, 0);
	uint64_t cpu_left = cpu_ns;
	for (int hours = 0; from < to && hours < HOURS_MAX; hours++) {
		int64_t hour = (from + shift) / NSEC_PER_HOUR;
		int64_t end = MIN(to, (hour + 1) * NSEC_PER_HOUR - shift);
		if (hours == HOURS_MAX - 1)
			end = to;
		uint64_t part = (uint64_t)(end - from);
		uint64_t share = end == to
				     ? cpu_left
				     : (uint64_t)((double)cpu_ns * ((double)part / (double)length));
		turn_to_hour(sandbox, hour);
		usage_row_add(sandbox, as, part, MIN(share, cpu_left), memory);
		cpu_left -= MIN(share, cpu_left);
		from = end;
	}
	if (length == 0) {
		turn_to_hour(sandbox, (to + shift) / NSEC_PER_HOUR);
		usage_row_add(sandbox, as, 0, cpu_ns, memory);
	}
	if (as == COUNTS_ALIVE) {
		budget_spend(workspace, BUDGET_WALL, (uint64_t)length);
		if (!meter->memory_known)
			meter->unsampled_ns += (uint64_t)length;
	}
	budget_spend(workspace, BUDGET_CPU, cpu_ns);
	meter->counted = to;
	meter->row.counted_wall = to + shift;
	meter->unsaved = true;
}

static enum counts_as sandbox_counts_as(const struct sandbox *sandbox)
{
	return state_facts(sandbox->row.state)->counts_as;
}

int meter_load(struct sandbox *sandbox, struct error *error)
{
	struct meter *meter = &sandbox->life->meter;
	const struct sandbox_row *row = &sandbox->row;
	int64_t shift = clock_wall() - clock_boot();
	int found = store_usage_last(sandbox->core->store, &row->id, &meter->row, error);
	if (found < 0)
		return -1;
	int64_t wall = found ? meter->row.counted_wall : row->started_wall;
	if (wall == 0)
		return 0; /* it never ran */
	meter->counted = MAX(MIN(wall - shift, clock_boot()), 1);
	/* It was paused, and the daemon was killed before the row was written. */
	if (row->paused_wall > wall)
		usage_count(sandbox, COUNTS_ALIVE, MIN(row->paused_wall - shift, clock_boot()), 0,
			    0);
	return 0;
}

void meter_forget_gap(struct sandbox *sandbox)
{
	if (sandbox->life->meter.counted != 0)
		sandbox->life->meter.counted = clock_boot();
}

int meter_write_first(struct store *store, const struct sandbox_row *sandbox, uint64_t cpu_seen_ns,
		      struct error *error)
{
	int64_t now = clock_wall();
	const struct usage_row row = {.sandbox = sandbox->id,
				      .hour = now / NSEC_PER_HOUR,
				      .workspace = sandbox->workspace,
				      .name = sandbox->name,
				      .counted_wall = now,
				      .cpu_seen_ns = cpu_seen_ns};
	return store_usage_put(store, &row, error);
}

void meter_booted(struct sandbox *sandbox)
{
	struct meter *meter = &sandbox->life->meter;
	meter->row.cpu_seen_ns = sandbox->counters.cpu_ns;
	meter->memory = 0;
	meter->memory_known = false;
	meter->unsampled_ns = 0;
}

void meter_changed(struct sandbox *sandbox, enum sandbox_state from)
{
	struct meter *meter = &sandbox->life->meter;
	enum counts_as before = state_facts(from)->counts_as, now = sandbox_counts_as(sandbox);
	if (meter->counted == 0) {
		/* A create: counting begins here. The row is written with the first sample. */
		if (now == COUNTS_ALIVE) {
			meter->counted = clock_boot();
			meter->row.counted_wall = clock_wall();
			meter->row.hour = meter->row.counted_wall / NSEC_PER_HOUR;
		}
		return;
	}
	if (before == now)
		return;
	usage_count(sandbox, before, clock_boot(), 0, meter->memory);
	if (from == SANDBOX_STARTING && now == COUNTS_ALIVE)
		meter_booted(sandbox); /* written with the row, also for the next daemon */
	/* A paused sandbox's memory may change, so the old sample is invalid after a resume. */
	if (before == COUNTS_ALIVE && now == COUNTS_PAUSED)
		meter->memory_known = false;
	if (now == COUNTS_ASLEEP)
		unsampled_settle(sandbox);
	usage_save_now(sandbox);
}

void meter_counters(struct sandbox *sandbox)
{
	const struct spawn_counters *counters = &sandbox->counters;
	struct meter *meter = &sandbox->life->meter;
	uint64_t cpu_ns = 0, memory = meter->memory;
	enum counts_as as = sandbox_counts_as(sandbox);
	if (meter->counted == 0)
		return;
	if (counters->known[KNOWN_CPU]) {
		uint64_t seen = meter->row.cpu_seen_ns;
		cpu_ns = counters->cpu_ns >= seen ? counters->cpu_ns - seen : counters->cpu_ns;
	}
	/* A sample that was taken after the end of all processes says nothing about the memory. */
	bool runs = state_facts(sandbox->row.state)->runs &&
		    !(counters->known[KNOWN_PROCESSES] && counters->processes == 0);
	if (counters->known[KNOWN_MEMORY] && runs) {
		memory = meter->memory_known ? (meter->memory + counters->memory) / 2 : 0;
		usage_count(sandbox, as, clock_boot(), cpu_ns, memory);
		meter->row.memory_byte_seconds +=
		    byte_seconds(counters->memory, meter->unsampled_ns);
		meter->unsampled_ns = 0;
		meter->memory = counters->memory;
		meter->memory_known = true;
	} else {
		usage_count(sandbox, as, clock_boot(), cpu_ns, memory);
	}
	if (counters->known[KNOWN_CPU])
		meter->row.cpu_seen_ns = counters->cpu_ns;
	if (counters->known[KNOWN_DISK])
		meter->row.disk_seen = counters->disk;
}

void meter_ended(struct sandbox *sandbox)
{
	struct meter *meter = &sandbox->life->meter;
	if (meter->counted == 0)
		return;
	unsampled_settle(sandbox);
	if (meter->unsaved)
		usage_save_now(sandbox);
}

/* --- all of them --- */

static int usage_save_all(struct core *core, struct error *error)
{
	list_each (&core->sandboxes, node) {
		struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		struct meter *meter = &sandbox->life->meter;
		if (meter->unsaved && meter->counted != 0 && usage_row_save(sandbox, error) < 0)
			return -1;
	}
	return budgets_save(core, error);
}

static bool usage_any_unsaved(const struct core *core)
{
	list_each (&core->sandboxes, node)
		if (list_entry(node, struct sandbox, link)->life->meter.unsaved)
			return true;
	return budgets_unsaved(core);
}

void meter_flush(struct core *core)
{
	struct error error;
	if (!usage_any_unsaved(core))
		return;
	if (store_transaction_begin(core->store, &error) < 0 ||
	    store_transaction_end(core->store, usage_save_all(core, &error), &error) < 0) {
		log_warning("what was used is written later: %s", error.message);
		return;
	}
	list_each (&core->sandboxes, node)
		list_entry(node, struct sandbox, link)->life->meter.unsaved = false;
	budgets_saved(core);
}

/* Also the sandboxes about which the spawner reports nothing. */
static void usage_count_time(struct core *core)
{
	int64_t now = clock_boot();
	list_each (&core->sandboxes, node) {
		struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		struct meter *meter = &sandbox->life->meter;
		enum counts_as as = sandbox_counts_as(sandbox);
		bool due = as == COUNTS_ALIVE ||
			   (as != COUNTS_NOT && now - meter->counted >= ASLEEP_INTERVAL);
		if (due && meter->counted != 0)
			usage_count(sandbox, as, now, 0, meter->memory);
	}
}

void meter_settle(struct core *core)
{
	usage_count_time(core);
	meter_flush(core);
}

static void metering_counters_refreshed(void *data, const struct error *error)
{
	struct core *core = data;
	struct metering *metering = &core->private->metering;
	struct list waiting;
	metering->looking = false;
	if (error && error->kind != ERROR_SPAWNER_GONE)
		log_warning("metering: %s", error->message);
	if (!core->private->let_go && !core->private->stopping)
		meter_settle(core);
	metering->looked_at = clock_boot();
	list_init(&waiting);
	while (!list_empty(&metering->waiting)) {
		struct list *node = metering->waiting.next;
		list_remove(node);
		list_append(&waiting, node);
	}
	while (!list_empty(&waiting)) {
		struct counters_waiter *next =
		    list_entry(waiting.next, struct counters_waiter, link);
		list_remove(&next->link);
		next->done(next->data, NULL);
		free(next);
	}
}

static int metering_refresh_counters(struct core *core, struct error *error)
{
	if (core->private->metering.looking)
		return 0;
	if (counters_refresh_all(core, metering_counters_refreshed, core, error) < 0)
		return -1;
	core->private->metering.looking = true;
	return 0;
}

int64_t meter_tend(struct core *core, int64_t now)
{
	struct metering *metering = &core->private->metering;
	struct error error;
	int64_t interval = MAX(core->config.usage_interval_seconds, 1u) * NSEC_PER_SEC;
	/* Without sandboxes there is nothing to do; a change of state wakes the timers. */
	if (list_empty(&core->sandboxes) && !budgets_unsaved(core)) {
		metering->due = 0;
		return INT64_MAX;
	}
	if (metering->due == 0)
		metering->due = now + interval;
	if (metering->due > now)
		return metering->due;
	metering->due = now + interval;
	if (list_empty(&core->sandboxes)) {
		meter_flush(core);
	} else if (metering_refresh_counters(core, &error) < 0) {
		metering->due = now + RETRY_INTERVAL;
		if (error.kind != ERROR_SPAWNER_GONE)
			log_warning("metering: %s", error.message);
	}
	return metering->due;
}

int meter_refresh(struct core *core, void (*done)(void *data, const struct error *error),
		  void *data, struct error *error)
{
	struct metering *metering = &core->private->metering;
	if (!metering->looking && metering->looked_at != 0 &&
	    clock_boot() - metering->looked_at < REFRESH_MIN) {
		core_done_later(core, done, data);
		return 0;
	}
	if (metering_refresh_counters(core, error) < 0)
		return -1;
	struct counters_waiter *waiting = calloc(1, sizeof(*waiting));
	if (!waiting)
		abort();
	*waiting = (struct counters_waiter){.done = done, .data = data};
	list_append(&metering->waiting, &waiting->link);
	return 0;
}

int meter_walk(struct core *core, struct usage_walk *walk, uint32_t rows,
	       bool (*each)(void *data, const struct usage_row *row), void *data, bool *ret_more,
	       struct error *error)
{
	return store_usage_walk(core->store, walk, rows, each, data, ret_more, error);
}

bool meter_prune(struct core *core)
{
	struct error error;
	int64_t days = core->config.usage_days;
	if (days == 0)
		return false;
	int64_t before = clock_wall() / NSEC_PER_HOUR - days * 24;
	int gone = store_usage_prune(core->store, before, &error);
	if (gone < 0)
		log_warning("old usage cannot be removed: %s", error.message);
	return gone > 0;
}
