/* Which state directory and which runtime directory belong to one daemon. Every verb means the
 * daemon of the client's runtime directory (client_setup()). Its state directory is the one that
 * this daemon serves. The configured one is used only if no daemon runs there. */
#pragma once

#include "cli/client/client.h"

struct instance {
	int pid; /* of the daemon that serves the directory; 0: none */
	/* From the lock file, also after the daemon has ended; "" if this user may not read it. */
	char state[256], runtime[256];
};
void instance_read(const char *directory, struct instance *ret_instance);
bool instance_same_directory(const char *a, const char *b);

/* Sets client->config.state by that rule. Fails if CAISSON_STATE contradicts it. */
NODISCARD int instance_find_state(struct client *client, struct error *error);
/* Points the client at the daemon that serves the state directory. Returns 1, or 0 if none does. */
NODISCARD int instance_use_state(struct client *client, const char *state, struct error *error);
