/* The cpus that a sandbox runs on. Their number is its share rounded up, so that programs inside
 * that count cpus see its size; its slot chooses which. The quota is the limit, not this. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"
#include "tier/guest.h"

/* Sets those of a process before it forks; its children inherit them. */
NODISCARD int cpus_set(pid_t pid, uint32_t slot, uint32_t cpu_millis);
/* Changes those of every thread of a running sandbox. */
void cpus_change(const struct host *host, const struct guest *guest, uint32_t cpu_millis);
