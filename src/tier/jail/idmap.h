/* Detached mounts of directories that the host has, with the owners that the sandbox is to see.
 *
 * Our own layers are idmapped with the sandbox's map: what root owns on disk is its root's. The
 * host's trees never are: through an idmapped mount the sandbox's root would read the 0600 files of
 * the host's. A user's folder maps exactly that user and group to the sandbox's root, and nobody
 * else: the sandbox can do no more in it than the user could.
 *
 * Nothing below a directory that is a mount of its own comes along. Called by boot.c in the
 * spawner; a folder costs two short-lived processes, the rest microseconds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "proto/spawner_messages.h"

/* A layer of ours, read-only; `userns`: the sandbox's user namespace, -1: its owners as they are. A
 * descriptor or -errno. */
NODISCARD int idmap_mount_layer(int directory, int userns);
/* A directory of the host's: read-only, nosuid, nodev, owners as they are. */
NODISCARD int idmap_mount_host_directory(int directory);

struct folder {
	int directory; /* opened by the user for reading; not owned */
	uint32_t mode; /* enum mount_mode */
	uid_t uid;     /* who gives it; root gives it as its owner */
	gid_t gid;
	uint32_t owner; /* first id of the sandbox's range */
	bool plain;     /* without root: not idmapped, its owner is the sandbox's root anyway */
};
/* A user's folder, after a look whether that user may use it so. A descriptor, or -1. */
NODISCARD int idmap_mount_folder(const struct folder *folder, struct error *error);
