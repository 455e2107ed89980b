/* CONFIGURE: the last step of creating a sandbox. */
#pragma once

#include "base/macros.h"
#include "proto/init_messages.h"

/* Sets folders, hostname, environment and deadline, hardens PID 1, starts the launcher. May
 * block: nothing runs yet. 0, or -1 with *ret_failure; after a failure the sandbox must be
 * destroyed. */
NODISCARD int configure(const struct configure *message, struct failure *ret_failure);
