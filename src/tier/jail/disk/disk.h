/* The disk of a sandbox: a sparse ext4 image with exactly its size and number of inodes, on a loop
 * device that frees itself. The mount is attached nowhere on the host. Where the host cannot do
 * that, it is a plain directory without a limit, and limit_reasons say so.
 *
 *   <state>/disk-templates/<bytes>-<inodes>.img   an empty one, copied for each sandbox
 *   <state>/sandboxes/<id>/disk.img        or  <state>/sandboxes/<id>/files/
 *
 * Either contains upper/ and work/ (the root's overlay), and cow/<n>/{upper,work} for each
 * copy-on-write folder. They belong to the sandbox's uid range.
 *
 * The image's descriptor is locked, and the loop device holds the same open file. So the holder of
 * the lock knows that no earlier mount of it is left. Called in the spawner; the first disk of a
 * size runs mke2fs, an unclean one e2fsck (10 s at most). */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "tier/guest.h"

/* What it contains besides the root: for each tree the mode of its copy-on-write upper
 * directory, or -1. */
struct disk_request {
	const struct limits *limits;
	uid_t owner;
	enum boot_origin origin;
	uint32_t tree_count;
	int cow_modes[SANDBOX_MOUNTS_MAX];
};

/* Returns a detached mount in *ret_mount, and reasons[] for disk and inodes. On failure a new
 * disk is removed again. */
NODISCARD int disk_open(const struct host *host, const struct id *id,
			const struct disk_request *request, uint32_t reasons[LIMIT_COUNT],
			int *ret_mount, struct error *error);
/* The same reasons, of an existing sandbox. */
void disk_reasons(const struct host *host, const struct id *id, uint32_t reasons[LIMIT_COUNT]);
/* Its usage, if it has a limit; root: the sandbox's root directory, or -1. */
void disk_read_usage(const struct guest *guest, int root, struct spawn_counters *counters);
