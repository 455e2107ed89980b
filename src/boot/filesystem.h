/* Mounts, made with the new mount calls. For setting up a sandbox from inside, before it has
 * other processes. May block; allocates nothing; all return 0 (or a descriptor) or -errno. */
#pragma once

#include "base/macros.h"

/* Makes a filesystem as a detached mount. `options`: "key", "value", ..., NULL; a NULL value
 * makes its key a flag. */
NODISCARD int fs_make(const char *type, const char *const *options, unsigned attributes);
/* Attaches a detached mount. */
NODISCARD int fs_attach(int mount_fd, const char *path);
/* The same two at once. */
NODISCARD int fs_mount(const char *type, const char *const *options, unsigned attributes,
		       const char *path);
/* Bind-mounts `from` at `to` with these attributes (MOUNT_ATTR_*). */
NODISCARD int fs_bind(const char *from, const char *to, unsigned attributes);
/* Moves an attached mount and all mounts below it. */
NODISCARD int fs_move(const char *from, const char *to);
/* Makes the directory the root, detaches the old root and changes to `/`. */
NODISCARD int fs_enter(const char *path);
/* mkdir() that accepts an existing directory, but no symlink. */
NODISCARD int fs_directory(const char *path, unsigned mode);
/* Detaches the mount at this path. */
NODISCARD int fs_detach(const char *path);
