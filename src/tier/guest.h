/* The data that the spawner, the jail and the tiers exchange about a host, a sandbox and a boot.
 * Data alone; nothing here blocks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/id.h"
#include "base/process.h"
#include "proto/folder_grant.h"
#include "proto/spawner_messages.h"

/* What the spawner may do on this host. Without root it runs in a user namespace of its own, as
 * root over the ids that it was given. */
enum rights {
	RIGHTS_ROOT =
	    0, /* the host's root: a range of uids per sandbox, idmapped layers, loop devices */
	RIGHTS_SUBUIDS, /* the user's id and the range that /etc/subuid grants */
	RIGHTS_ONE_ID,  /* the user's id alone */
};

/* The paths and ids of this instance. The spawner sets them once at its start. */
struct host {
	enum rights rights;
	char state[256];   /* sandboxes' files, templates; root's, 0711 */
	char runtime[256]; /* sockets; root's, 0711 */
	char instance[32]; /* "caisson-1a2b3c4d": names our cgroups; one per state directory */
	int init_fd;       /* caisson-init: root's, mode 0711, opened O_PATH */
	uint32_t uid_base; /* first uid of this instance's block of ranges */
	uint32_t uid_slots;
	uint32_t shared_ids; /* RIGHTS_SUBUIDS: number of ids besides the user's, from 1 on */
	uid_t daemon_uid;    /* who may connect to an init's socket */
	gid_t daemon_gid;
};

/* One sandbox as the spawner sees it. */
struct guest {
	struct id id;
	enum tier tier;
	uint32_t slot; /* its uid range: host.uid_base + slot * UID_RANGE_SIZE */
	struct limits limits;
	bool frozen;
	struct process init; /* its end is the end of all processes of the sandbox */
	uint32_t limit_reasons[LIMIT_COUNT];
	char rootfs_digest[ROOTFS_DIGEST_TEXT];      /* of the last boot */
	struct spawn_phase phases[SPAWN_PHASES_MAX]; /* durations of the last boot's phases */
	uint32_t phase_count;
};

/* Something that is mounted in a sandbox besides its root. The daemon tells the init where. */
struct mount {
	enum mount_source source;
	enum mount_mode mode;
	struct folder_grant folder; /* MOUNT_FOLDER */
};

/* What a sandbox starts from. */
enum boot_origin {
	BOOT_NEW,    /* no files: they are made in <state>/sandboxes/<id>, an existing directory
		      * (root's, 0700, with `slot` in it) */
	BOOT_STORED, /* its files from when it was stopped */
};

struct boot {
	const struct spawn_create *create;
	const struct mount *mounts; /* create->mount_count of them; not owned */
	enum boot_origin origin;
	/* The guest's process becomes a child of the caller's parent (CLONE_PARENT), because the
	 * caller is a worker that ends. */
	bool for_parent;
};
