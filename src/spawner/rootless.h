/* The spawner of an ordinary user. At its start it enters a user and a mount namespace of its own,
 * without changing its pid. There it is root over the ids that the host grants to the user: a range
 * of 65536 from /etc/subuid and /etc/subgid through newuidmap and newgidmap, or else the user's id
 * alone. After that the same code runs as for root; host.rights says what is not possible.
 *
 *   0        the user who started it
 *   1..N-1   the sandboxes'       N is 65536, with a range
 *   N        the daemon's
 *
 * Called by main.c and daemon_child.c; runs two small programs at the start, and does not block
 * otherwise. */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "spawner/internal.h"

/* The first step of a start: sets host.rights and the ids. Changes nothing as the host's root. */
NODISCARD int rootless_enter(struct spawner *spawner, struct error *error);

/* earlier_namespace.c: a descriptor of the user namespace of an earlier spawner whose sandboxes
 * run; -ENOENT: there is none. */
NODISCARD int earlier_namespace_find(const char *runtime);

/* For the daemon's process, before it drops its privileges: makes the directories that it needs
 * reachable for its user. A home directory is usually closed to other users. In a mount
 * namespace of the daemon's own it is covered by an empty one that holds only these directories.
 * 0 or -errno. */
NODISCARD int rootless_open_paths(const struct spawner *spawner);

/* Opens the same directory in our own mount namespace, because only its mounts can be cloned; a
 * client's descriptor comes from another namespace. A descriptor, or -ESTALE when it is not
 * there. */
NODISCARD int rootless_reopen_folder(int directory);
