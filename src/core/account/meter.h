/* What each sandbox uses, for as long as it is there: time alive and paused, cpu, memory and disk
 * over time, commands. Kept by the hour (store/usage.h), so that it can be summed over any stretch
 * of hours.
 *
 * Time is counted from one look to the next, at each change of state and at least once an interval,
 * by the state it was in; cpu by the cgroup's counter, whose last value comes with a sandbox's end.
 * Memory: between two samples their mean counts; before the first sample of a boot (or of this
 * daemon) that sample counts, and for one that ended without any its peak. Disk: what was in use at
 * the last sample, as long as the sandbox exists.
 *
 * What runs on without a daemon is counted when one is back: time by the wall clock, cpu by the
 * counter. A counter that is lower than it was (another boot) begins at zero. Of one whose
 * processes ended while no daemon ran, nothing after the last look is counted: nobody knows when
 * that was.
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
	struct usage_row row; /* of the hour under way; its strings are not set */
	int64_t counted;      /* CLOCK_BOOTTIME: up to here; 0: not begun */
	uint64_t memory;      /* at the last sample */
	bool memory_known;
	uint64_t unsampled_ns; /* alive without a sample so far */
	bool unsaved;
};

/* Of the core; in struct core_private. */
struct metering {
	int64_t due, looked_at; /* CLOCK_BOOTTIME */
	bool looking;           /* the spawner was asked */
	struct list waiting;    /* for the answer */
};

/* An earlier daemon's: before the row's state is settled. */
NODISCARD int meter_load(struct sandbox *sandbox, struct error *error);
/* What went on since the last look is not known, and not counted. */
void meter_forget_gap(struct sandbox *sandbox);
/* Its state has changed from that one. Writes the row. */
void meter_changed(struct sandbox *sandbox, enum sandbox_state from);
/* sandbox->counters is fresh. */
void meter_counters(struct sandbox *sandbox);
/* The row of a sandbox that has run before anybody owned it: what its counter was. Else the next
 * daemon would count its boot, if this one is killed before it writes a row. */
NODISCARD int meter_write_first(struct store *store, const struct sandbox_row *sandbox,
				uint64_t cpu_seen_ns, struct error *error);
/* A boot: its cgroups are new. */
void meter_booted(struct sandbox *sandbox);
/* The last: a row that could not be written is logged. */
void meter_ended(struct sandbox *sandbox);

/* For timers.c: looks at all when it is time; when to call again (CLOCK_BOOTTIME). */
int64_t meter_tend(struct core *core, int64_t now);
/* Looks at all of them and writes everything, then calls back; joins what is under way, and asks
 * nobody twice within half a second. */
NODISCARD int meter_refresh(struct core *core, void (*done)(void *data, const struct error *error),
			    void *data, struct error *error);
/* Sums of what is written, some rows per call: see struct usage_walk. */
NODISCARD int meter_walk(struct core *core, struct usage_walk *walk, uint32_t rows,
			 bool (*each)(void *data, const struct usage_row *row), void *data,
			 bool *ret_more, struct error *error);
/* A batch of the oldest rows that are not to be kept; true: there may be more. */
bool meter_prune(struct core *core);
/* Writes what is not written yet. */
void meter_flush(struct core *core);
/* The daemon stops: counts to the last and writes it. */
void meter_settle(struct core *core);
