/* Mounts, as the new mount calls make them. For whoever sets up a sandbox from inside, before there
 * is any other process there. May block; allocates nothing; all return 0 (or a descriptor) or
 * -errno. */
#pragma once

#include "base/macros.h"

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
/* Detaches what is mounted there. */
NODISCARD int fs_detach(const char *path);
