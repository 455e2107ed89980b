/* The jail: what every tier stands in. Namespaces and a range of ids of its own (boot.h, ids.h),
 * cgroups that carry its limits (cgroup.h), a disk of a fixed size (disk.h), and a record by which
 * a later spawner finds it (record.h). In it runs one process, whose end is the end of all: the
 * init in the namespace tier, a shim or a VMM in the others.
 *
 * The first part are functions of a driver (tier/driver.h says what they do), for tiers that have
 * nothing to add. The second part is the same for all tiers: the spawner calls it directly. Called
 * in the spawner; nothing blocks but what says so. */
#pragma once

#include "tier/guest.h"

/* Of a driver's boot: whether there are ids for one more. */
NODISCARD int jail_check_slot(const struct host *host, const struct guest *guest,
			      struct error *error);
NODISCARD int jail_adopt(const struct host *host, struct guest *guest, struct error *error);
NODISCARD int jail_set_limits(const struct host *host, struct guest *guest,
			      const struct limits *limits, struct error *error);
NODISCARD int jail_freeze(const struct host *host, struct guest *guest, bool frozen,
			  struct error *error);
NODISCARD int jail_kill(const struct host *host, struct guest *guest, struct error *error);
/* Of a driver's counters. `root`: where in the guest's mount namespace its root is. */
void jail_counters(const struct host *host, const struct guest *guest, const char *root,
		   struct spawn_counters *ret_counters);

/* A table, so that the spawner's tests can put another in its place. */
struct jail {
	/* The memory of a frozen guest goes back to the host as far as that loses nothing: what is
	 * on its disk as well. Called in a worker that may be killed. */
	int (*reclaim)(const struct host *host, struct guest *guest,
		       struct spawn_reclaimed *ret_reclaimed, struct error *error);
	/* Where the kernel may let a sandbox hold more memory than its limit says, and tells. Opens
	 * what has EPOLLPRI then, owned by the caller; -EOPNOTSUPP: it never lets it. */
	int (*memory_events_open)(const struct host *host, const struct guest *guest);
	/* After an event: 1: it holds more than it may; 0: it does not; -errno: there will be no
	 * more events. */
	int (*memory_events_read)(const struct host *host, const struct guest *guest, int events);
	/* Until it does not any more: memory is taken back, then processes are killed. Called in a
	 * worker that may be killed. */
	int (*memory_limit_enforce)(const struct host *host, struct guest *guest,
				    struct error *error);
	/* After kill and the end of guest->init: what the host still has of it goes, but for files
	 * that START needs. 0: it has; 1: something is still leaving, and it is to be called again.
	 */
	int (*release)(const struct host *host, struct guest *guest, struct error *error);
	/* At the spawner's start and at its end: removes what the host has (cgroups of this
	 * instance, their processes) of sandboxes that are not known; when none is known, the
	 * instance's own directories too. */
	int (*sweep)(const struct host *host, bool (*known)(void *data, const struct id *id),
		     void *data, struct error *error);
};
extern const struct jail host_jail;
