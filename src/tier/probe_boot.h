/* A whole sandbox, from nothing to an init that listens, and back: how a driver's probe proves that
 * a tier works here. Its uid range may be another's at the same time: nothing but our own init runs
 * in it. Called by drivers, in a worker; waits for all of it. */
#pragma once

#include "base/error.h"
#include "tier/driver.h"

/* With the smallest limits but for `memory`. guest->limit_reasons say what held. Whether it worked
 * or not, nothing is left of it. */
NODISCARD int probe_boot(const struct driver *driver, const struct host *host, uint64_t memory,
			 struct guest *guest, struct error *error);
