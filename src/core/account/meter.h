/* Meters each sandbox while it exists: time alive and paused, cpu, memory and disk over time,
 * commands. Usage is kept by the hour (store/usage.h), so that it can be summed over any range of
 * hours.
 *
 * Time is counted at each sample, at each change of state and at least once an interval, for the
 * state that the sandbox was in; cpu by the cgroup's counter, whose last value comes with a
 * sandbox's end. Memory: between two samples their mean counts; before the first sample of a boot
 * (or of this daemon) that sample counts, and for a sandbox that ended without a sample its peak.
 * Disk: the use at the last sample, while the sandbox exists.
 *
 * Sandboxes that run without a daemon are counted by the next daemon: time by the wall clock, cpu
 * by the counter. A counter that is lower than before (another boot) begins at zero. If the
 * processes of a sandbox ended while no daemon ran, nothing after the last sample is counted, since
 * the time of their end is unknown.
 *
 * A row is written at each change of state, at the end, and with all others in one transaction
 * every interval. The first one comes with the first of these, or with the hand-out of a member of
 * the pool: until then started_wall of the sandbox's own row says from when it counts. */
#pragma once

#include "core/core.h"
#include "store/usage.h"

struct sandbox;

/* Of one sandbox; in struct sandbox_life. */
struct meter {
	struct usage_row row; /* of the current hour; its strings are not set */
	int64_t counted;      /* CLOCK_BOOTTIME: counted up to here; 0: not begun */
	uint64_t memory;      /* at the last sample */
	bool memory_known;
	uint64_t unsampled_ns; /* alive without a sample so far */
	bool unsaved;
};

/* Of the core; in struct core_private. */
struct metering {
	int64_t due, looked_at; /* CLOCK_BOOTTIME */
	bool looking;           /* a request to the spawner is under way */
	struct list waiting;    /* they wait for the answer */
};

/* Loads the meter of an earlier daemon, before the state in the row is settled. */
NODISCARD int meter_load(struct sandbox *sandbox, struct error *error);
/* The use since the last sample is unknown, and is not counted. */
void meter_forget_gap(struct sandbox *sandbox);
/* The state has changed from `before`. Writes the row. */
void meter_changed(struct sandbox *sandbox, enum sandbox_state from);
/* sandbox->counters is fresh. */
void meter_counters(struct sandbox *sandbox);
/* The row of a sandbox that has run before anybody owned it: what its counter was. Else the next
 * daemon would count its boot, if this one is killed before it writes a row. */
NODISCARD int meter_write_first(struct store *store, const struct sandbox_row *sandbox,
				uint64_t cpu_seen_ns, struct error *error);
/* A boot: its cgroups are new. */
void meter_booted(struct sandbox *sandbox);
/* The last call: a row that cannot be written is only logged. */
void meter_ended(struct sandbox *sandbox);

/* For timers.c: samples all when it is time; returns when to call again (CLOCK_BOOTTIME). */
int64_t meter_tend(struct core *core, int64_t now);
/* Samples all sandboxes and writes everything, then calls back. Joins a refresh that is under way,
 * and does not ask twice within half a second. */
NODISCARD int meter_refresh(struct core *core, void (*done)(void *data, const struct error *error),
			    void *data, struct error *error);
/* Sums the written rows, some per call: see struct usage_walk. */
NODISCARD int meter_walk(struct core *core, struct usage_walk *walk, uint32_t rows,
			 bool (*each)(void *data, const struct usage_row *row), void *data,
			 bool *ret_more, struct error *error);
/* Removes a batch of the oldest expired rows; true: there may be more. */
bool meter_prune(struct core *core);
/* Writes all unwritten rows. */
void meter_flush(struct core *core);
/* The daemon stops: counts up to now and writes everything. */
void meter_settle(struct core *core);
