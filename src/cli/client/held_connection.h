/* A connection that is held open so that sandboxes end with it (core/sandbox/ephemeral.h). */
#pragma once

#include "cli/cli.h"

/* Opens it and adds its label to create_options. Sandboxes that are created then end with this
 * process, however it ends. */
NODISCARD int held_connection_open(struct client *client, struct exchange **ret_exchange,
				   struct error *error);
/* NULL is allowed. */
void held_connection_close(struct exchange *exchange);
