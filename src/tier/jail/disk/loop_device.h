/* Mounts an ext4 image through a loop device that frees itself with the mount. Called by disk.c;
 * blocks for a millisecond or two. */
#pragma once

#include <stdint.h>

#include "base/macros.h"

/* A detached mount (nosuid, nodev) of the ext4 file system in an open image, or -errno. The
 * device keeps the image's open file while the mount lives. */
NODISCARD int loop_device_mount(int image, uint32_t block_size);
