/* Drops the daemon's privileges for good, before it reads the first byte from a client. */
#pragma once

#include "base/config.h"

/* Called when everything that must be open is open. config_path: "" without a file. A kernel
 * without Landlock is only logged; every other failure is an error. */
NODISCARD int privileges_drop(const struct config *config, const char *config_path,
			      struct error *error);
