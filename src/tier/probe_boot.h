/* Boots a whole sandbox and removes it: how a driver's probe proves that a tier works here.
 * Another sandbox may use the same uid range at the same time, because only our own init runs in
 * this one. Called by drivers, in a worker; waits until it is done. */
#pragma once

#include "base/error.h"
#include "tier/driver.h"

/* All limits except `memory` are the smallest. guest->limit_reasons say which limits were
 * enforced. Leaves nothing behind, also on failure. */
NODISCARD int probe_boot(const struct driver *driver, const struct host *host, uint64_t memory,
			 struct guest *guest, struct error *error);
