/* The jail: the isolation that all tiers share. It consists of namespaces and a range of ids
 * (boot.h, ids.h), cgroups with its limits (cgroup.h), a disk of a fixed size (disk.h), and a
 * record by which a later spawner finds it (record.h). One process in it represents the whole
 * guest and ends with it: the init in the namespace tier, a shim or a VMM in the others.
 *
 * The first functions are for drivers (tier/driver.h describes them), if a tier has nothing to
 * add. The others are the same for all tiers, and the spawner calls them directly. Called in the
 * spawner; only functions that say so block. */
#pragma once

#include "tier/guest.h"

/* For a driver's boot: whether the slot has a uid range. */
NODISCARD int jail_check_slot(const struct host *host, const struct guest *guest,
			      struct error *error);
NODISCARD int jail_adopt(const struct host *host, struct guest *guest, struct error *error);
NODISCARD int jail_set_limits(const struct host *host, struct guest *guest,
			      const struct limits *limits, struct error *error);
NODISCARD int jail_freeze(const struct host *host, struct guest *guest, bool frozen,
			  struct error *error);
NODISCARD int jail_kill(const struct host *host, struct guest *guest, struct error *error);
/* For a driver's counters. `root`: the guest's root in its mount namespace. */
void jail_counters(const struct host *host, const struct guest *guest, const char *root,
		   struct spawn_counters *ret_counters);

/* A table, so that the spawner's tests can replace it. */
struct jail {
	/* Reclaims the memory of a frozen guest without losing data. Called in a worker that may
	 * be killed. */
	int (*reclaim)(const struct host *host, struct guest *guest,
		       struct spawn_reclaimed *ret_reclaimed, struct error *error);
	/* For kernels that may let a sandbox exceed its memory limit and report it. Opens a
	 * descriptor that gets EPOLLPRI then, owned by the caller; -EOPNOTSUPP: the kernel never
	 * lets it. */
	int (*memory_events_open)(const struct host *host, const struct guest *guest);
	/* After an event. 1: it is above its limit; 0: it is not; -errno: there will be no more
	 * events. */
	int (*memory_events_read)(const struct host *host, const struct guest *guest, int events);
	/* Reclaims memory, then kills processes, until it is within its limit. Called in a
	 * worker that may be killed. */
	int (*memory_limit_enforce)(const struct host *host, struct guest *guest,
				    struct error *error);
	/* After kill and the end of guest->init: removes everything of it from the host except
	 * the files that START needs. 0: done; 1: something is still ending, call again. */
	int (*release)(const struct host *host, struct guest *guest, struct error *error);
	/* At the spawner's start and end: removes cgroups of this instance, with their
	 * processes, whose sandboxes are not known; when none is known, the instance's own
	 * directories too. */
	int (*sweep)(const struct host *host, bool (*known)(void *data, const struct id *id),
		     void *data, struct error *error);
};
extern const struct jail host_jail;
