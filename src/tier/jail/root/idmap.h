/* Detached mounts of existing directories, with the owners that the sandbox sees.
 *
 * Our own layers are idmapped with the sandbox's map: files of root on disk belong to its root. The
 * host's directories are never idmapped: otherwise the sandbox's root could read files with mode
 * 0600 of the host's root. A user's folder maps only that user and group to the sandbox's root, so
 * that the sandbox can do no more in it than the user.
 *
 * Mounts below a directory are not included. Called by boot.c in the spawner; a folder costs two
 * short-lived processes, the others microseconds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "proto/spawner_messages.h"

/* One of our layers, read-only; `userns`: the sandbox's user namespace, -1: owners unchanged. A
 * descriptor or -errno. */
NODISCARD int idmap_mount_layer(int directory, int userns);
/* A directory of the host's: read-only, nosuid, nodev, owners unchanged. */
NODISCARD int idmap_mount_host_directory(int directory);

struct folder {
	int directory; /* opened by the user for reading; not owned */
	uint32_t mode; /* enum mount_mode */
	uid_t uid;     /* the giver; for root the folder's owner is used */
	gid_t gid;
	uint32_t owner; /* first id of the sandbox's range */
	bool plain;     /* without root: not idmapped, because its owner is the sandbox's root
			 * already */
};
/* A user's folder, after a check that the user may use it this way. A descriptor, or -1. */
NODISCARD int idmap_mount_folder(const struct folder *folder, struct error *error);
