/* Boots a guest: from nothing to an init that listens. Called by driver.c, in the spawner; blocks
 * for a few milliseconds, ten seconds at most. */
#pragma once

#include "base/error.h"
#include "tier/driver.h"

/* Fills guest->init, limit_reasons, phases. On failure nothing is left. */
NODISCARD int boot_guest(const struct host *host, struct guest *guest, const struct boot *boot,
			 struct error *error);
/* Waits for the end of a process that was told to end, and reaps it if it is our child. */
NODISCARD int boot_reap(struct process *process, int timeout_ms);
