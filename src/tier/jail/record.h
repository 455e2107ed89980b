/* <runtime>/guests/<id>/: where the init's socket is, and `boot`, a few lines that say which
 * process it was: how a later spawner finds it. Root's, readable by the daemon's group alone.
 * Called in the spawner; does not block. */
#pragma once

#include "base/error.h"
#include "tier/guest.h"

/* Makes the directory and binds init.sock in it: a socket that nobody listens on yet. */
NODISCARD int record_make(const struct host *host, const struct id *id, int *ret_listener,
			  struct error *error);
/* Writes `boot` whole or not at all, from guest->init, slot, tier, limits. */
NODISCARD int record_write(const struct host *host, const struct guest *guest, struct error *error);
/* Reads it: fills guest->init.pid and start_time (no pidfd), limits. 1, or 0 when there is
 * none or it is not one of ours. */
NODISCARD int record_read(const struct host *host, struct guest *guest, struct error *error);
/* All of the directory; not there is fine. */
NODISCARD int record_remove(const struct host *host, const struct id *id, struct error *error);
