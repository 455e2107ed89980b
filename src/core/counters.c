/* See counters.h. Called by the edges, by timers.c and with answers of the spawner; does not
 * block. */
#include "core/counters.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "core/core_private.h"

/* Two readings that are closer together say nothing about the cpu's load. */
#define PERCENT_INTERVAL (500 * NSEC_PER_MSEC)
/* The minimum distance of readings in the ring, even if clients ask in between. */
#define RING_INTERVAL ((SAMPLE_INTERVAL_MS - 500) * NSEC_PER_MSEC)

struct samples {
	struct sample ring[SAMPLES_MAX];
	uint32_t next, count;
	int64_t seen_wall;
	/* Where the measurement of the cpu's share begins. */
	int64_t base_boot;
	uint64_t base_cpu_ns;
	bool base_known;
	double percent;
};

static struct samples *sandbox_samples(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	if (!life->samples) {
		life->samples = calloc(1, sizeof(*life->samples));
		if (!life->samples)
			abort();
		life->samples->percent = -1;
	}
	return life->samples;
}

void counters_free(struct sandbox *sandbox)
{
	free(sandbox->life->samples);
	sandbox->life->samples = NULL;
}

const struct sample *counters_sample(const struct sandbox *sandbox, size_t back)
{
	const struct samples *samples = sandbox->life->samples;
	if (!samples || back >= samples->count)
		return NULL;
	return &samples->ring[(samples->next + SAMPLES_MAX - 1 - back) % SAMPLES_MAX];
}

double counters_cpu_percent(const struct sandbox *sandbox)
{
	return sandbox->life->samples ? sandbox->life->samples->percent : -1;
}

int64_t counters_seen(const struct sandbox *sandbox)
{
	return sandbox->life->samples ? sandbox->life->samples->seen_wall : 0;
}

void counters_begin(struct sandbox *sandbox)
{
	struct samples *samples = sandbox_samples(sandbox);
	samples->base_boot = clock_boot();
	samples->base_cpu_ns = sandbox->counters.cpu_ns;
	samples->base_known = true;
	samples->percent = -1;
	meter_booted(sandbox);
}

static double samples_percent_between(uint64_t cpu_before, uint64_t cpu, int64_t before,
				      int64_t now)
{
	if (now <= before || cpu < cpu_before)
		return -1;
	return (double)(cpu - cpu_before) * 100 / (double)(now - before);
}

static void sample_keep(struct sandbox *sandbox, struct samples *samples, int64_t now)
{
	const struct sample *last = counters_sample(sandbox, 0);
	if (last && now - last->boot < RING_INTERVAL)
		return;
	struct sample *sample = &samples->ring[samples->next];
	double percent = -1;
	if (last && last->counters.known[KNOWN_CPU] && sandbox->counters.known[KNOWN_CPU])
		percent = samples_percent_between(last->counters.cpu_ns, sandbox->counters.cpu_ns,
						  last->boot, now);
	*sample = (struct sample){.wall = samples->seen_wall,
				  .boot = now,
				  .counters = sandbox->counters,
				  .cpu_percent = percent};
	samples->next = (samples->next + 1) % SAMPLES_MAX;
	samples->count = MIN(samples->count + 1, (uint32_t)SAMPLES_MAX);
}

/* Takes each number if it is known. */
static void counters_merge(struct spawn_counters *to, const struct spawn_counters *from)
{
	const uint8_t *known = from->known;
	if (known[KNOWN_CPU])
		to->cpu_ns = from->cpu_ns;
	if (known[KNOWN_MEMORY])
		to->memory = from->memory;
	if (known[KNOWN_PEAK])
		to->memory_peak = from->memory_peak;
	if (known[KNOWN_OOM])
		to->oom_kills = from->oom_kills;
	if (known[KNOWN_PROCESSES])
		to->processes = from->processes;
	if (known[KNOWN_DISK]) {
		to->disk = from->disk;
		to->disk_inodes = from->disk_inodes;
	}
	for (size_t i = 0; i < KNOWN_COUNT; i++)
		to->known[i] |= known[i];
}

void counters_take(struct sandbox *sandbox, const struct spawn_counters *counters)
{
	struct samples *samples = sandbox_samples(sandbox);
	int64_t now = clock_boot();
	bool any = false;
	for (size_t i = 0; i < KNOWN_COUNT; i++)
		any |= counters->known[i];
	if (!any)
		return;
	counters_merge(&sandbox->counters, counters);
	samples->seen_wall = clock_wall();
	if (!samples->base_known || now - samples->base_boot >= PERCENT_INTERVAL) {
		if (samples->base_known)
			samples->percent =
			    samples_percent_between(samples->base_cpu_ns, sandbox->counters.cpu_ns,
						    samples->base_boot, now);
		samples->base_boot = now;
		samples->base_cpu_ns = sandbox->counters.cpu_ns;
		samples->base_known = sandbox->counters.known[KNOWN_CPU];
	}
	sample_keep(sandbox, samples, now);
	meter_counters(sandbox);
}

/* ---- Of all at once. */

struct counters_refresh {
	struct core *core;
	void (*done)(void *data, const struct error *error);
	void *data;
};

static void counters_refresh_done(void *data, const struct spawn_message *reply UNUSED,
				  const struct error *error)
{
	struct counters_refresh *refresh = data;
	if (refresh->done)
		refresh->done(refresh->data, error);
	else if (error && error->kind != ERROR_SPAWNER_GONE)
		log_warning("the counters of the sandboxes: %s", error->message);
	free(refresh);
}

int counters_refresh_all(struct core *core, SANDBOX_DONE, struct error *error)
{
	struct spawn_message message = {.type = SPAWN_COUNTERS};
	if (!core->spawner)
		return error_set(error, ERROR_SPAWNER_GONE, "the daemon is stopping");
	struct counters_refresh *refresh = calloc(1, sizeof(*refresh));
	if (!refresh)
		abort();
	*refresh = (struct counters_refresh){.core = core, .done = done, .data = data};
	if (spawner_request(core->spawner, &message, NULL, 0, SPAWN_TIMEOUT_MS,
			    counters_refresh_done, refresh, error) < 0) {
		free(refresh);
		return -1;
	}
	return 0;
}

/* Is there a sandbox whose counters change? */
static bool any_sandbox_running(const struct core *core)
{
	list_each (&core->sandboxes, node) {
		const struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		if (state_facts(sandbox->row.state)->runs)
			return true;
	}
	return false;
}

int64_t counters_tend(struct core *core, int64_t now)
{
	struct core_private *private = core->private;
	struct error error;
#ifdef CAISSON_FAULT_POINTS /* tests count the passes of each fault point */
	return INT64_MAX;
#endif
	/* A change of state wakes the timers: nothing is requested while no sandbox runs. */
	if (!any_sandbox_running(core))
		return INT64_MAX;
	if (private->sample_at > now)
		return private->sample_at;
	private->sample_at = now + SAMPLE_INTERVAL_MS * NSEC_PER_MSEC;
	if (counters_refresh_all(core, NULL, NULL, &error) < 0 && error.kind != ERROR_SPAWNER_GONE)
		log_warning("the counters of the sandboxes: %s", error.message);
	return private->sample_at;
}
