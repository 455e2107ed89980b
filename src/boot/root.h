/* Makes a sandbox's root from inside, in its PID 1: the init in the namespace tier, a shim in
 * the others. It leaves the host's root for a small one and builds the sandbox's root there,
 * with short names (an overlay's options are limited to 256 bytes):
 *   l/N    the template's layers; they must be attached here before an overlay takes them
 *   k      the sandbox's disk
 *   b/N    the host's programs, below an overlay
 *   r      the sandbox's root
 * Layers and disk must not stay reachable afterwards: a process that may mount inside could make
 * an idmapped mount writable and write to the shared layer as the host's root.
 *
 * May block; allocates nothing. 0 (or a descriptor) or -errno; *ret_step then names the step. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/macros.h"
#include "proto/boot_messages.h"

/* Makes the small root, a tmpfs with these directories, and changes to it. Paths of the host
 * work until fs_enter("."). */
struct small_root {
	const char *size, *inodes; /* options of tmpfs */
	const char *const *directories;
	size_t directory_count;
	mode_t mode; /* of the directories */
};
NODISCARD int root_begin(const struct small_root *small, const char **ret_step);
/* Makes `r` from the disk and the layers of ASSIGN; `fds` are its descriptors. */
NODISCARD int root_make(const struct boot_assign *request, const int *fds, const char **ret_step);
/* After that, adds the host's directories and those that every root has. `covered`: puts an
 * overlay over each of the host's, so that watches and locks on its files are not shared with
 * the host and other sandboxes. */
NODISCARD int root_furnish(const struct boot_assign *request, const int *fds, bool covered,
			   const char **ret_step);

/* Makes a detached overlay of `count` layers, topmost first; `names`: their paths, separated by
 * colons. Without an upper directory it is read-only and stays so. */
NODISCARD int overlay_make(const int *lowers, uint32_t count, const char *names, const char *upper,
			   const char *work);
/* Attaches a detached mount at a new directory, <directory>/<index>. */
NODISCARD int root_stage(int mount_fd, const char *directory, uint32_t index);
