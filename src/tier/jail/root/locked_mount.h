/* A detached mount whose flags cannot be cleared: a read-only mount stays read-only even for
 * processes that may mount in the sandbox. The kernel locks the flags of a mount when its
 * namespace is copied into one of a lesser user namespace, and clones keep the lock. So a
 * short-lived process attaches the mount in a namespace of its own, enters a new user namespace,
 * and returns a clone. (A flag set on a mount that the sandbox itself attaches is not locked.)
 * Called by idmap.c; costs a process and about a millisecond. */
#pragma once

#include "base/macros.h"

/* Takes a detached mount that is attached nowhere. A descriptor of a detached mount, or -errno. */
NODISCARD int mount_lock_flags(int mount);
