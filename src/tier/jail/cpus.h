/* Which cpus a sandbox runs on: as many as its share rounded up, so that programs inside that count
 * them see its size; which ones, by its slot. The quota is the limit, not this. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"
#include "tier/guest.h"

/* A process that has no others yet; what it forks inherits it. */
NODISCARD int cpus_set(pid_t pid, uint32_t slot, uint32_t cpu_millis);
/* Every thread of a running sandbox. */
void cpus_change(const struct host *host, const struct guest *guest, uint32_t cpu_millis);
