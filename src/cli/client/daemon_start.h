/* Starts a daemon for a client that found none. */
#pragma once

#include "cli/client/client.h"

/* Returns when one answers (whoever started it). New session, standard descriptors reopened, the
 * client's environment scrubbed, its cgroup left; two clients at once get one daemon. */
NODISCARD int daemon_start(struct client *client, struct error *error);
