/* <runtime>/guests/<id>/: the init's socket, and `boot`, a few lines that identify its process,
 * by which a later spawner finds it. Root's, readable by the daemon's group only. Called in the
 * spawner; does not block. */
#pragma once

#include "base/error.h"
#include "tier/guest.h"

/* Makes the directory and binds init.sock in it, without listening yet. */
NODISCARD int record_make(const struct host *host, const struct id *id, int *ret_listener,
			  struct error *error);
/* Writes `boot` completely or not at all, from guest->init, slot, tier, limits. */
NODISCARD int record_write(const struct host *host, const struct guest *guest, struct error *error);
/* Reads it: fills guest->init.pid and start_time (no pidfd), limits. 1, or 0: none, or not one
 * of ours. One of another version is an error. */
NODISCARD int record_read(const struct host *host, struct guest *guest, struct error *error);
/* Removes the directory; a missing one is fine. */
NODISCARD int record_remove(const struct host *host, const struct id *id, struct error *error);
