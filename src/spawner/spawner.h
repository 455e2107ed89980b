/* The spawner: `caisson serve`. The only privileged process and the parent of the others. */
#pragma once

#include "base/config.h"

/* Serves until SIGTERM or SIGINT, or until the daemon ends for good; sandboxes run on.
 * config_path: the file that the configuration was read from, read again on SIGHUP; NULL: none.
 * Returns the program's exit code; errors are in the log. */
int spawner_main(const struct config *config, const char *config_path);
