/* A connection that is held open for sandboxes to end with (core/sandbox/ephemeral.h). */
#pragma once

#include "cli/cli.h"

/* Opens it, and adds its label to create_options: what is created then ends with this process,
 * whatever ends that. */
NODISCARD int held_connection_open(struct client *client, struct exchange **ret_exchange,
				   struct error *error);
/* NULL is nothing to end. */
void held_connection_close(struct exchange *exchange);
