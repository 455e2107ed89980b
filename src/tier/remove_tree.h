/* Deletes a directory tree that a sandbox wrote: any depth, any names, no symlink followed, no
 * other file system entered. May block for long. */
#pragma once

#include "base/macros.h"

/* 0 (also when it does not exist) or the first -errno; the rest is deleted anyway. */
NODISCARD int remove_tree(int parent, const char *name);
