/* Passes frames between the daemon and the init inside: one daemon after another on the single
 * channel to the init (FRAME_BEGIN in proto/init_messages.h). Called by shim.c. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

/* Sends BEGIN to the init and waits for its answer: 0 or -errno. */
NODISCARD int relay_wait_for_init(int channel, int64_t deadline);
/* Serves daemons until `guest_process` ends. SIGCHLD must be blocked. */
_Noreturn void relay_serve(int listener, pid_t guest_process);
