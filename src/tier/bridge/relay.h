/* The way between the daemon and the init inside: frames both ways, one daemon after the other on
 * the one channel to the init (FRAME_BEGIN in proto/init_messages.h). Called by shim.c. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

/* Asks the init whether it is there, and waits for its answer: 0 or -errno. */
NODISCARD int relay_wait_for_init(int channel, int64_t deadline);
/* Serves daemons until the container ends, whose process is `sentry`. SIGCHLD is blocked. */
_Noreturn void relay_serve(int listener, pid_t sentry);
