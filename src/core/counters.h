/* The use of sandboxes: the latest counters of their cgroups, the cpu's load since then, and a ring
 * of samples every ten seconds, which metering also reads. The counters of all sandboxes are
 * requested from the spawner at once, while there are any. An end brings its sandbox's last
 * counters, so that no use is missed: sandbox->counters is fresh before the state changes. */
#pragma once

#include "core/sandbox/sandbox.h"

#define SAMPLES_MAX 120
#define SAMPLE_INTERVAL_MS 10000

struct sample {
	int64_t wall, boot; /* the time: clock_wall(), clock_boot() */
	struct spawn_counters counters;
	double cpu_percent; /* of one cpu since the sample before; below 0: unknown */
};

/* The newest for 0, the one before it for 1, ...; NULL if there are not so many. */
const struct sample *counters_sample(const struct sandbox *sandbox, size_t back);
/* Of one cpu, since the previous reading by anybody (at least half a second); below 0 if
 * unknown. */
double counters_cpu_percent(const struct sandbox *sandbox);
/* The clock_wall() time of sandbox->counters; 0: not read since this daemon started. */
int64_t counters_seen(const struct sandbox *sandbox);

/* Requests the counters of all running sandboxes at once; done when sandbox->counters of each is
 * fresh. */
NODISCARD int counters_refresh_all(struct core *core, SANDBOX_DONE, struct error *error);

/* Takes counters from the spawner; unknown values stay unchanged. */
void counters_take(struct sandbox *sandbox, const struct spawn_counters *counters);
/* A boot: its cgroups are new, and sandbox->counters is the use of the boot itself. */
void counters_begin(struct sandbox *sandbox);
void counters_free(struct sandbox *sandbox);
/* For timers.c: samples all when it is time; returns when to call again (CLOCK_BOOTTIME). */
int64_t counters_tend(struct core *core, int64_t now);
