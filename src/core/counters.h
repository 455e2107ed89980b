/* What sandboxes use: the counters of their cgroups as they were seen last, how busy the cpu was
 * since, and a ring of samples every ten seconds, which is also what metering reads. Asked of the
 * spawner for all sandboxes at once while there are any; an end brings the last of them with it, so
 * that nothing that was used is missed: sandbox->counters is fresh before the state changes. */
#pragma once

#include "core/sandbox/sandbox.h"

#define SAMPLES_MAX 120
#define SAMPLE_INTERVAL_MS 10000

struct sample {
	int64_t wall, boot; /* when: clock_wall(), clock_boot() */
	struct spawn_counters counters;
	double cpu_percent; /* of one cpu since the sample before; below 0: not known */
};

/* The newest for 0, the one before it for 1, ...; NULL when there are not so many. */
const struct sample *counters_sample(const struct sandbox *sandbox, size_t back);
/* Of one cpu, since the last time that anybody looked (half a second at least); below 0 when it is
 * not known. */
double counters_cpu_percent(const struct sandbox *sandbox);
/* When sandbox->counters was seen, clock_wall(); 0: never since this daemon runs. */
int64_t counters_seen(const struct sandbox *sandbox);

/* Asks for all that run at once; done when sandbox->counters of each is fresh. */
NODISCARD int counters_refresh_all(struct core *core, SANDBOX_DONE, struct error *error);

/* What came of the spawner; what it does not know stays as it was. */
void counters_take(struct sandbox *sandbox, const struct spawn_counters *counters);
/* A boot: its cgroups are new, and sandbox->counters is what the boot itself has used. */
void counters_begin(struct sandbox *sandbox);
void counters_free(struct sandbox *sandbox);
/* For timers.c: takes a sample of all when it is time; when to call again (CLOCK_BOOTTIME). */
int64_t counters_tend(struct core *core, int64_t now);
