/* Drops the shim's privileges once the container runs, before it reads a frame. */
#pragma once

#include "base/macros.h"

/* Drops every capability, root's id, and all system calls that the relay does not need. 0 or
 * -errno. */
NODISCARD int shim_drop_privileges(void);
