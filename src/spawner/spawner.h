/* The spawner: `caisson serve`. The only privileged process and the parent of the others. */
#pragma once

#include "base/config.h"

/* Serves until SIGTERM or SIGINT, or until the daemon ends for good; sandboxes run on. config_path:
 * the file that the configuration came from, read again on SIGHUP; NULL when there is none. Returns
 * the exit code of the program; what went wrong is in the log. */
int spawner_main(const struct config *config, const char *config_path);
