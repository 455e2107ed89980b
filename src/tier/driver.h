/* The seam: what a way of isolating has to do. A driver boots our init somewhere isolated and
 * leaves a Unix socket on which that init answers (proto/init_messages.h); all else that a user can
 * do to a sandbox goes through that socket and is the same for every tier.
 *
 * Drivers run in the spawner: privileged, one thread. A step may block for as long as it takes,
 * milliseconds as a rule, seconds where the host is busy or a disk has to be repaired; whoever asks
 * for another sandbox waits that long, so that what can take longer (erase) has a process of its
 * own, and what takes as long as a sandbox likes (its processes' end, their stopping) is begun by
 * one call and asked for by later ones. They are given numbers and descriptors, never a path or
 * text of a user's. Each function fills *error on failure and leaves nothing behind: what it had
 * made by then is undone.
 *
 * What is true of a sandbox is on the host, not in memory: `adopt` finds it again after the spawner
 * died, from its cgroup, its socket, its process's pid and start time. So a driver keeps no state
 * but what a `struct guest` holds, and writes nothing that `adopt` could not do without.
 *
 * Snapshot and restore are for tiers with memory on disk; a driver without them leaves the pointers
 * NULL, and the spawner answers UNSUPPORTED. docs/tiers.md says how the gvisor and vm tiers fill in
 * each function. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/id.h"
#include "base/process.h"
#include "proto/folder_grant.h"
#include "proto/spawner_messages.h"

/* Where everything is. Paths are the spawner's own, made once at its start. */
struct host {
	char state[256];   /* sandboxes' files, templates; root's, 0711 */
	char runtime[256]; /* sockets; root's, 0711 */
	char instance[32]; /* "caisson-1a2b3c4d": names our cgroups; one per state directory */
	int init_fd;       /* caisson-init: root's, mode 0711, opened O_PATH */
	uint32_t uid_base; /* first uid of the block of ranges this instance owns */
	uint32_t uid_slots;
	uid_t daemon_uid; /* who may connect to an init's socket */
	gid_t daemon_gid;
};

/* One sandbox as the spawner sees it. */
struct guest {
	struct id id;
	enum tier tier;
	uint32_t slot; /* its uid range: host.uid_base + slot * UID_RANGE_SIZE */
	struct limits limits;
	bool frozen;
	struct process
	    init; /* the process whose end is the end of the sandbox, of all its processes */
	uint32_t limit_reasons[LIMIT_COUNT];
	struct spawn_phase phases[SPAWN_PHASES_MAX]; /* of the last boot */
	uint32_t phase_count;
};

struct boot {
	const struct spawn_create *create;
	const struct folder_grant *folders; /* create->mount_count of them; not owned */
	/* First boot: make its files, in <state>/sandboxes/<id>, which the spawner has made
	 * (root's, 0700, with `slot` in it). Else they are there (START). */
	bool fresh;
};

struct driver {
	enum tier tier;
	const char *name;

	/* Once at the spawner's start, before any boot: what all sandboxes share. May take a
	 * second. NULL: nothing to do. */
	int (*prepare)(const struct host *host, struct error *error);
	/* Can this host run it, and what is enforced? Proves it by doing, caches nothing. */
	void (*probe)(const struct host *host, struct spawn_probe *ret_probe);
	/* To an init that listens on guest_socket_path(). Fills guest->init, limit_reasons, phases.
	 */
	int (*boot)(const struct host *host, struct guest *guest, const struct boot *boot,
		    struct error *error);
	/* Finds a guest that was booted by an earlier spawner; guest->id and ->slot are given. 1:
	 * it runs (guest is filled), 0: only its files are there, and what a crash has left of it,
	 * which has been killed and is to be released. */
	int (*adopt)(const struct host *host, struct guest *guest, struct error *error);
	int (*set_limits)(const struct host *host, struct guest *guest, const struct limits *limits,
			  struct error *error);
	/* All of its processes but the init stop, or go on. 0: they do; 1: they have been told, and
	 * it is to be called again until they do. Another wish, or kill, may come between. */
	int (*freeze)(const struct host *host, struct guest *guest, bool frozen,
		      struct error *error);
	int (*counters)(const struct host *host, struct guest *guest,
			struct spawn_counters *ret_counters, struct error *error);
	/* Every process is killed, frozen or stopping ones too. Does not wait for their end, which
	 * is that of guest->init. */
	int (*kill)(const struct host *host, struct guest *guest, struct error *error);
	/* After kill and the end of guest->init: what the host still has of it goes, but for files
	 * that START needs. 0: it has; 1: something is still leaving, and it is to be called again.
	 */
	int (*release)(const struct host *host, struct guest *guest, struct error *error);
	/* After release: its files, which the spawner has moved to <state>/trash/<id> by then, so
	 * that nothing is ever half deleted under a live name. May take long, so it runs in a
	 * process of its own; the spawner removes plain files and directories that are left. */
	int (*erase)(const struct host *host, struct guest *guest, struct error *error);
	/* Once at the spawner's start, and at its end: removes what the host has (cgroups of this
	 * instance, their processes) of sandboxes that are not known; when none is known, the
	 * instance's own directories too. NULL: there can be nothing. */
	int (*sweep)(const struct host *host, bool (*known)(void *data, const struct id *id),
		     void *data, struct error *error);

	int (*snapshot)(const struct host *host, struct guest *guest, int directory_fd,
			struct error *error);
	int (*restore)(const struct host *host, struct guest *guest, int directory_fd,
		       const struct boot *boot, struct error *error);
};

extern const struct driver namespace_driver;
/* The driver of a tier, or NULL when it is not built in. */
const struct driver *driver_of(enum tier tier);
const char *tier_name(enum tier tier);
/* TIER_COUNT when there is none of that name. */
enum tier tier_parse(const char *name);
const char *limit_name(enum limit_kind kind);
/* For people: why a limit is not enforced; "" when it is. */
const char *limit_reason_text(enum limit_reason reason);

/* <runtime>/guests/<id>/init.sock; the directory is root's, 0750, the daemon's group. */
#define GUEST_SOCKET_PATH_MAX 108
NODISCARD int guest_socket_path(const char *runtime, const struct id *id,
				char path[GUEST_SOCKET_PATH_MAX]);
