/* The seam: what differs between the tiers. A driver boots our init in isolation and leaves a
 * Unix socket on which that init answers (proto/init_messages.h). Everything else that a user
 * does to a sandbox goes through that socket and is the same for every tier. Every tier uses a
 * jail (tier/jail/jail.h): if a tier needs nothing else for a function, it uses the jail's.
 *
 * Drivers run in the spawner, which is privileged, has one thread and serves everybody. So slow
 * functions (probe, boot, set_limits) are called in a forked worker. An action that a sandbox can
 * delay (the end of its processes, their freezing) is begun by one call and checked by later
 * ones. All others take microseconds. Drivers are given numbers and descriptors, never a path or
 * text of a user's. Each function fills *error on failure and undoes what it made, except boot.
 *
 * The host holds the truth about a sandbox, not our memory: after the spawner died, `adopt` finds a
 * sandbox by its cgroup, its socket, and its process's pid and start time. So a driver keeps no
 * state besides `struct guest`, and writes nothing that `adopt` needs.
 *
 * Snapshot and restore are for tiers with memory on disk; other drivers leave the pointers NULL. No
 * driver has them yet and nothing calls them. docs/tiers.md says how the gvisor and vm tiers fill
 * in each function. */
#pragma once

#include "tier/guest.h"

struct driver {
	enum tier tier;
	const char *name;

	/* Whether this host can run the tier, which limits are enforced, and how much memory it
	 * needs. A tier that `auto` may choose is tested with a real sandbox. Called in a worker:
	 * may take seconds. */
	void (*probe)(const struct host *host, struct spawn_probe *ret_probe);
	/* Boots until the init listens on guest_socket_path(). Fills guest->init, limit_reasons,
	 * phases. Called in a worker: may block for ten seconds. On failure guest->init may be
	 * set; kill and the jail's release remove what was made. */
	int (*boot)(const struct host *host, struct guest *guest, const struct boot *boot,
		    struct error *error);

	/* Finds a guest that an earlier spawner booted; guest->id and ->slot are given. 1: it
	 * runs, and guest is filled; 0: it has only files, and leftovers of a crash, which were
	 * killed and are to be released. */
	int (*adopt)(const struct host *host, struct guest *guest, struct error *error);
	/* Sets all limits or none. Memory above the new limit is reclaimed first, which may take
	 * long: called in a worker. The caller stores guest->limits. */
	int (*set_limits)(const struct host *host, struct guest *guest, const struct limits *limits,
			  struct error *error);
	/* Freezes or thaws all of its processes except guest->init. 0: done; 1: begun, call
	 * again until it is done. The opposite call, or kill, may come before that. */
	int (*freeze)(const struct host *host, struct guest *guest, bool frozen,
		      struct error *error);
	/* Values that the tier cannot count are not marked `known`. Also called between the end
	 * of guest->init and release, for the final values. */
	int (*counters)(const struct host *host, struct guest *guest,
			struct spawn_counters *ret_counters, struct error *error);
	/* Kills every process, frozen ones too. Does not wait: the end of guest->init is the end
	 * of all of them. */
	int (*kill)(const struct host *host, struct guest *guest, struct error *error);
	int (*snapshot)(const struct host *host, struct guest *guest, int directory_fd,
			struct error *error);
	int (*restore)(const struct host *host, struct guest *guest, int directory_fd,
		       const struct boot *boot, struct error *error);
};

extern const struct driver namespace_driver;
extern const struct driver gvisor_driver;
/* The driver of a tier, or NULL when it is not built in. */
const struct driver *driver_of(enum tier tier);
