/* The parts of setup.c that stand alone: mounts as the new mount calls make them, and the two
 * things that do not depend on what a sandbox is for, its /proc and its /dev. Paths are relative to
 * the working directory, which is the small root that PREPARE makes. Private to the set-up; may
 * block; all return 0 (or a descriptor) or -errno. */
#pragma once

#include "init/setup.h"

/* The most words that an fs_make() takes, its NULL included. */
#define FS_OPTIONS_MAX 8

/* A new filesystem as a detached mount. `options`: "key", "value", ... ending in NULL; a NULL value
 * makes it a flag. */
NODISCARD int fs_make(const char *type, const char *const *options, unsigned attributes);
/* Attaches a detached mount. */
NODISCARD int fs_attach(int mount_fd, const char *path);
/* The same two at once. */
NODISCARD int fs_mount(const char *type, const char *const *options, unsigned attributes,
		       const char *path);
/* What is at `from` is also seen at `to`, there with these attributes (MOUNT_ATTR_*). */
NODISCARD int fs_bind(const char *from, const char *to, unsigned attributes);
/* Moves an attached mount with all that is mounted below it. */
NODISCARD int fs_move(const char *from, const char *to);
/* The directory becomes the root; the root there was is gone. The working directory is `/` then. */
NODISCARD int fs_enter(const char *path);
/* mkdir that takes an existing directory, and no symlink for one. */
NODISCARD int fs_directory(const char *path, unsigned mode);

/* /dev at `path`: must run while the host's is still there. On failure *ret_step says at what. */
NODISCARD int setup_devices(const char *path, const char **ret_step);
/* /proc at `path`, with what it must not show masked by `empty_file` and `empty_directory`, and
 * `meminfo` in the place of its own. */
NODISCARD int setup_proc(const char *path, const char *empty_file, const char *empty_directory,
			 const char *meminfo, const char **ret_step);
/* Then, in it, read-only what only an administrator of the host would write. */
NODISCARD int setup_proc_readonly(const char *path, const char **ret_step);
