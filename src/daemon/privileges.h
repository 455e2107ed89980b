/* What the daemon gives up for good before it hears the first stranger. */
#pragma once

#include "base/config.h"

/* After everything that must be open is open. config_path: "" when there is no file. A kernel
 * without Landlock is logged and lived with; anything else that fails is an error. */
NODISCARD int privileges_drop(const struct config *config, const char *config_path,
			      struct error *error);
