/* What the shim gives up once the container runs and before a frame is read. */
#pragma once

#include "base/macros.h"

/* Every capability, root's id, and all system calls that the relay does not need. 0 or -errno. */
NODISCARD int shim_drop_privileges(void);
