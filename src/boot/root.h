/* How a sandbox's root is made, by its PID 1 from inside: the init in the namespace tier, a shim in
 * the others. The host's root is left for a small one, and the sandbox's own is built there, by
 * short names (an overlay's options are limited to 256 bytes):
 *   l/N    the template's layers; they must be attached here before an overlay takes them
 *   k      the sandbox's disk
 *   b/N    the host's programs, below an overlay
 *   r      the sandbox's root
 * Layers and disk must not stay reachable afterwards: whoever may mount inside could make an
 * idmapped mount writable and write the shared layer as the host's root.
 *
 * May block; allocates nothing. 0 (or a descriptor) or -errno, then *ret_step says at what. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/macros.h"
#include "proto/boot_messages.h"

/* The small root becomes the working directory: a tmpfs of its own with these directories. Paths of
 * the host's still work until fs_enter("."). */
struct small_root {
	const char *size, *inodes; /* options of tmpfs */
	const char *const *directories;
	size_t directory_count;
	mode_t mode; /* the directories' */
};
NODISCARD int root_begin(const struct small_root *small, const char **ret_step);
/* `r`, of the disk and the layers of ASSIGN (its descriptors, from the first on). */
NODISCARD int root_make(const struct boot_assign *request, const int *fds, const char **ret_step);
/* Then, in it, the host's directories and those that every root has. `covered`: each of the host's
 * below an overlay of its own, so that watches and locks on its files are not shared with the host
 * and with other sandboxes. */
NODISCARD int root_furnish(const struct boot_assign *request, const int *fds, bool covered,
			   const char **ret_step);

/* A detached overlay of `count` layers, topmost first; `names`: their paths, separated by colons.
 * Without an upper directory it is read-only for good. */
NODISCARD int overlay_make(const int *lowers, uint32_t count, const char *names, const char *upper,
			   const char *work);
/* Attaches a detached mount at a new directory, <directory>/<index>. */
NODISCARD int root_stage(int mount_fd, const char *directory, uint32_t index);
