/* Whose ids are in a sandbox's disk. An instance that a backup was restored into may own other uids
 * than the one that it was made of: <state>/sandboxes/<id>/owner then says which range the files on
 * the disk belong to, and the disk's mount shows them as the sandbox's own. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

/* `mount`: detached, not in use yet. 0 or -errno. Costs two short-lived system calls where nothing
 * is to be done, and a short-lived process where there is. */
NODISCARD int disk_owner_apply(const char *directory, int mount, uint32_t owner);
