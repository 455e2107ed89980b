/* The parts of a sandbox's root, as descriptors. Called by boot.c in the spawner; does not
 * block. */
#pragma once

#include "proto/boot_messages.h"
#include "tier/guest.h"
#include "tier/jail/ids.h"

/* All are plain directories, O_PATH | O_DIRECTORY, owned here. */
struct rootfs {
	int lowers[BOOT_LOWERS_MAX]; /* overlay layers, topmost first: ours, may be idmapped */
	uint32_t lower_count;
	int binds[BOOT_BINDS_MAX]; /* the host's: read-only, nosuid, nodev, never idmapped */
	uint32_t bind_places[BOOT_BINDS_MAX]; /* enum boot_place */
	uint32_t bind_count;
	char digest[ROOTFS_DIGEST_TEXT]; /* of the layers */
};

/* Is the text, of ROOTFS_DIGEST_TEXT bytes at most, a digest? */
bool rootfs_digest_valid(const char *digest);
/* `ids`: the owner of the layers, where owners cannot be mapped (without root). */
NODISCARD int rootfs_open(const struct host *host, const struct spawn_rootfs *asked,
			  const struct sandbox_ids *ids, struct rootfs *ret_rootfs,
			  struct error *error);
/* Closes the descriptors, also of a half-filled one. */
void rootfs_done(struct rootfs *rootfs);
