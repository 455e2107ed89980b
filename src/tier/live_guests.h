/* Which sandboxes of a runtime directory run, according to their records: for programs that can
 * ask neither the spawner nor the daemon. Reads small files; never blocks. */
#pragma once

#include <stdbool.h>

#include "base/process.h"

/* Opens the process that the record of a guest in <runtime>/guests (`guests`) names, if it still
 * runs. 0 or -errno. */
NODISCARD int live_guest_open(int guests, const char *name, struct process *ret_process);
/* Whether any sandbox runs for which `counts` returns true. */
bool live_guests_any(const char *runtime, bool (*counts)(const void *data, const char *id),
		     const void *data);
