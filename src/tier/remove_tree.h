/* Deletes a directory tree that a sandbox wrote: any depth, any names, no symlink followed, no
 * other file system entered. Blocks for as long as it takes. */
#pragma once

#include "base/macros.h"

/* 0 (also when it is not there) or the first -errno; what can be deleted is deleted all the same.
 */
NODISCARD int remove_tree(int parent, const char *name);
