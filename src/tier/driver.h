/* The seam: what a way of isolating has to do. A driver boots our init somewhere isolated and
 * leaves a Unix socket on which that init answers (proto/init_messages.h); all else that a user can
 * do to a sandbox goes through that socket and is the same for every tier.
 *
 * Drivers run in the spawner: privileged, one thread, which everybody waits for. So what can take
 * long (probe, boot, erase) is called in a forked worker, and what takes as long as a sandbox likes
 * (its processes' end, their stopping) is begun by one call and asked for by later ones; all else
 * is a matter of microseconds. They are given numbers and descriptors, never a path or
 * text of a user's. Each function fills *error on failure and, but for boot and what belongs to
 * it, leaves nothing behind: what it had made by then is undone.
 *
 * What is true of a sandbox is on the host, not in memory: `adopt` finds it again after the spawner
 * died, from its cgroup, its socket, its process's pid and start time. So a driver keeps no state
 * but what a `struct guest` holds, and writes nothing that `adopt` could not do without.
 *
 * Snapshot and restore are for tiers with memory on disk; a driver without them leaves the pointers
 * NULL. No driver has them yet and nobody calls them. docs/tiers.md says how the gvisor and vm
 * tiers fill in each function. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/id.h"
#include "base/process.h"
#include "proto/folder_grant.h"
#include "proto/spawner_messages.h"

/* What the spawner may do on this host. Without root it lives in a user namespace of its own, where
 * it is root over the ids that it was given. */
enum rights {
	RIGHTS_ROOT =
	    0, /* the host's root: a range of uids per sandbox, idmapped layers, loop devices */
	RIGHTS_SUBUIDS, /* the user's id and the range that /etc/subuid grants */
	RIGHTS_ONE_ID,  /* the user's id alone */
};

/* Where everything is. Paths are the spawner's own, made once at its start. */
struct host {
	enum rights rights;
	char state[256];   /* sandboxes' files, templates; root's, 0711 */
	char runtime[256]; /* sockets; root's, 0711 */
	char instance[32]; /* "caisson-1a2b3c4d": names our cgroups; one per state directory */
	int init_fd;       /* caisson-init: root's, mode 0711, opened O_PATH */
	uint32_t uid_base; /* first uid of the block of ranges this instance owns */
	uint32_t uid_slots;
	uint32_t shared_ids; /* RIGHTS_SUBUIDS: ids that we have beside the user's, from 1 on */
	uid_t daemon_uid;    /* who may connect to an init's socket */
	gid_t daemon_gid;
};

/* One sandbox as the spawner sees it. */
struct guest {
	struct id id;
	struct id place; /* names its cgroups; another than `id` where it came from the pool */
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
	/* The process that stands for the guest becomes a child of the caller's parent
	 * (CLONE_PARENT): the caller is a worker that will be gone. */
	bool for_parent;
};

/* A guest that was made without knowing for whom: it waits for its files. What is in it is the
 * driver's, but for `channel`, which is readable when `assigned` has something to do. Descriptors
 * are owned; -1 when unset. */
#define PREPARED_FDS_MAX 2
struct prepared {
	int channel;
	int fds[PREPARED_FDS_MAX];
	uint32_t step;
	int64_t phase_start; /* CLOCK_MONOTONIC */
};
#define PREPARED_NONE ((struct prepared){.channel = -1, .fds = {-1, -1}})
void prepared_done(struct prepared *prepared);

struct driver {
	enum tier tier;
	const char *name;

	/* Once at the spawner's start, before any boot: what all sandboxes share. May take a
	 * second. NULL: nothing to do. */
	int (*prepare)(const struct host *host, struct error *error);
	/* Can this host run it, and what is enforced? Proves it by doing where `auto` would choose
	 * it. Called in a worker: seconds are fine. */
	void (*probe)(const struct host *host, struct spawn_probe *ret_probe);
	/* To an init that listens on guest_socket_path(). Fills guest->init, limit_reasons, phases.
	 * Called in a worker: it may block for ten seconds. On failure guest->init may be set; what
	 * was made by then is ended by kill, release and, of a fresh one, erase. */
	int (*boot)(const struct host *host, struct guest *guest, const struct boot *boot,
		    struct error *error);

	/* The pool; all three, or none. `boot` in two: what can be done before anybody asks, in a
	 * worker, for a sandbox of boot->create's limits and without folders; its id and place are
	 * made up. Failure as of `boot`. */
	int (*boot_ahead)(const struct host *host, struct guest *guest, const struct boot *boot,
			  struct prepared *ret_prepared, struct error *error);
	/* And the rest, in the spawner itself: it may take a few hundred microseconds and never
	 * waits. guest->id is the one it has from now on, and its files have been moved there; what
	 * it was until now is guest->place. */
	int (*assign)(const struct host *host, struct guest *guest, struct prepared *prepared,
		      const struct boot *boot, struct error *error);
	/* The channel is readable. 0: it listens, as after `boot`; 1: more is to come. */
	int (*assigned)(const struct host *host, struct guest *guest, struct prepared *prepared,
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
	/* The memory of a frozen one goes back to the host as far as that loses nothing: what is on
	 * its disk as well. Called in a worker that may be killed. NULL: there is no way. */
	int (*reclaim)(const struct host *host, struct guest *guest,
		       struct spawn_reclaimed *ret_reclaimed, struct error *error);
	/* Where the kernel may let a sandbox hold more memory than its limit says, and tells. Opens
	 * what has EPOLLPRI then, owned by the caller; -EOPNOTSUPP: it never lets it. All three, or
	 * none. */
	int (*over_open)(const struct host *host, const struct guest *guest);
	/* After an event: 1: it holds more than it may; 0: it does not; -errno: there will be no
	 * more events. */
	int (*over_read)(const struct host *host, const struct guest *guest, int events);
	/* Until it does not any more: memory is taken back, then processes are killed. Called in a
	 * worker that may be killed. */
	int (*over_end)(const struct host *host, struct guest *guest, struct error *error);
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
extern const struct driver gvisor_driver;
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
