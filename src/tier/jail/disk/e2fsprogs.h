/* Runs one of the host's e2fsprogs, with an empty environment and no descriptors. Called by disk.c;
 * blocks until it ends, 10 s at most. */
#pragma once

#include "base/macros.h"

/* Its exit status, or -errno: -ENOENT when it is not installed, -ETIMEDOUT, -EIO when a signal
 * ended it. `arguments` end in NULL. */
NODISCARD int e2fsprogs_run(const char *name, const char *const *arguments);
