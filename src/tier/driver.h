/* The seam: what differs between the ways of isolating. A driver boots our init somewhere isolated
 * and leaves a Unix socket on which that init answers (proto/init_messages.h); all else that a user
 * can do to a sandbox goes through that socket and is the same for every tier. Every tier stands in
 * a jail (tier/jail/jail.h): where a tier has nothing of its own to do, its function is the jail's.
 *
 * Drivers run in the spawner: privileged, one thread, which everybody waits for. So what can take
 * long (probe, boot) is called in a forked worker, and what takes as long as a sandbox likes (its
 * processes' end, their stopping) is begun by one call and asked for by later ones; all else is a
 * matter of microseconds. They are given numbers and descriptors, never a path or text of a user's.
 * Each function fills *error on failure and, but for boot, leaves nothing
 * behind: what it had made by then is undone.
 *
 * What is true of a sandbox is on the host, not in memory: `adopt` finds it again after the spawner
 * died, from its cgroup, its socket, its process's pid and start time. So a driver keeps no state
 * but what a `struct guest` holds, and writes nothing that `adopt` could not do without.
 *
 * Snapshot and restore are for tiers with memory on disk; a driver without them leaves the pointers
 * NULL. No driver has them yet and nobody calls them. docs/tiers.md says how the gvisor and vm
 * tiers fill in each function. */
#pragma once

#include "tier/guest.h"

struct driver {
	enum tier tier;
	const char *name;

	/* Can this host run it, and what is enforced? Proves it by doing where `auto` would choose
	 * it. Called in a worker: seconds are fine. */
	void (*probe)(const struct host *host, struct spawn_probe *ret_probe);
	/* To an init that listens on guest_socket_path(). Fills guest->init, limit_reasons, phases.
	 * Called in a worker: it may block for ten seconds. On failure guest->init may be set; what
	 * was made by then is ended by kill and the jail's release. */
	int (*boot)(const struct host *host, struct guest *guest, const struct boot *boot,
		    struct error *error);

	/* Finds a guest that was booted by an earlier spawner; guest->id and ->slot are given. 1:
	 * it runs (guest is filled), 0: only its files are there, and what a crash has left of it,
	 * which has been killed and is to be released. */
	int (*adopt)(const struct host *host, struct guest *guest, struct error *error);
	/* All of them or none. What it uses beyond new limits is taken back first, which may take
	 * long: called in a worker; guest->limits are the caller's to remember. */
	int (*set_limits)(const struct host *host, struct guest *guest, const struct limits *limits,
			  struct error *error);
	/* All of its processes but guest->init stop, or go on. 0: they do; 1: they have been told,
	 * and it is to be called again until they do. Another wish, or kill, may come between. */
	int (*freeze)(const struct host *host, struct guest *guest, bool frozen,
		      struct error *error);
	/* All that it does not know is not `known`. After the end of guest->init, and before
	 * release: the last there is to count. */
	int (*counters)(const struct host *host, struct guest *guest,
			struct spawn_counters *ret_counters, struct error *error);
	/* Every process is killed, frozen or stopping ones too. Does not wait for their end, which
	 * is that of guest->init. */
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
