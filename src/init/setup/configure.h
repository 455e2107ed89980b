/* CONFIGURE: the last step of a creation. */
#pragma once

#include "base/macros.h"
#include "proto/init_messages.h"

/* Folders, hostname, environment, deadline, hardening, launcher. May block, once: nothing runs yet.
 * 0, or -1 with *ret_failure; after a failure the sandbox is of no use and is to be destroyed. */
NODISCARD int configure(const struct configure *message, struct failure *ret_failure);
