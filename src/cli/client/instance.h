/* Which state and which runtime directory belong to one daemon. Every verb means the daemon of the
 * client's runtime directory (client_setup()); its state directory is the one that this daemon
 * serves, and the configured one only while nobody serves there. */
#pragma once

#include "cli/client/client.h"

struct instance {
	int pid; /* of who serves the directory; 0: nobody does */
	/* As its lock file says, of the last who served it too; "" where this user may not know. */
	char state[256], runtime[256];
};
void instance_read(const char *directory, struct instance *ret_instance);
bool instance_same_directory(const char *a, const char *b);

/* Sets client->config.state by that rule; fails where CAISSON_STATE contradicts it. */
NODISCARD int instance_find_state(struct client *client, struct error *error);
/* Points the client at whoever serves the state directory: 1, or 0 where nobody does. */
NODISCARD int instance_use_state(struct client *client, const char *state, struct error *error);
