/* Which sandboxes of a runtime directory live, by the records that their boots left there: for who
 * has neither spawner nor daemon to ask. Reads small files; never blocks. */
#pragma once

#include <stdbool.h>

#include "base/process.h"

/* The process that the record of a guest in <runtime>/guests (`guests`) names, while it is still
 * that one. 0 or -errno. */
NODISCARD int live_guest_open(int guests, const char *name, struct process *ret_process);
/* Whether any sandbox lives that `counts` says yes to. */
bool live_guests_any(const char *runtime, bool (*counts)(const void *data, const char *id),
		     const void *data);
