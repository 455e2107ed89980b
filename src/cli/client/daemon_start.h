/* Starts a daemon for a client that found none. */
#pragma once

#include "cli/client/client.h"

/* Returns when a daemon answers, whichever client started it. The daemon runs in a new session and
 * outside the client's cgroup, with reopened standard descriptors and a cleaned environment. Two
 * clients at once get one daemon. */
NODISCARD int daemon_start(struct client *client, struct error *error);
