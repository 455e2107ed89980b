/* Which uids own the files on a sandbox's disk. A backup may be restored into an instance that
 * owns other uids. <state>/sandboxes/<id>/owner then names the range of the files on the disk,
 * and the mount maps them to the sandbox's own range. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

/* `mount`: detached and unused. 0 or -errno. Costs two system calls when nothing is to be done,
 * else a short-lived process. */
NODISCARD int disk_owner_apply(const char *directory, int mount, uint32_t owner);
