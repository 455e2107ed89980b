/* A detached mount whose flags nobody can take back: what is read-only stays so, also for whoever
 * may mount in the sandbox. The kernel locks the flags of a mount when its namespace is copied into
 * one of a lesser user namespace, and copies of the copy keep the lock: so a short-lived process
 * attaches the mount in a namespace of its own, enters a new user namespace, and hands a copy back.
 * (A flag set on a mount that the sandbox itself attaches has no lock.) Called by idmap.c; costs a
 * process and about a millisecond. */
#pragma once

#include "base/macros.h"

/* Takes a detached mount, attached nowhere yet. A descriptor of a detached mount, or -errno. */
NODISCARD int mount_lock_flags(int mount);
