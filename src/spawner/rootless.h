/* The spawner of an ordinary user. It enters a user and a mount namespace of its own once, at its
 * start and without a change of its pid, and is root in there over the ids that the host grants to
 * the user: a range of 65536 from /etc/subuid and /etc/subgid, through newuidmap and newgidmap, or
 * else the user's id alone. From then on the same code runs as for root; host.rights says what it
 * cannot do.
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

/* The first step of a start: sets host.rights and the ids that go with it. As the host's root it
 * changes nothing. */
NODISCARD int rootless_enter(struct spawner *spawner, struct error *error);

/* earlier_namespace.c: the user namespace of an earlier spawner of ours whose sandboxes live, as a
 * descriptor; -ENOENT when there is none. */
NODISCARD int earlier_namespace_find(const char *runtime);

/* For the daemon's process, before it gives up its privileges: the directories that it needs get a
 * way that its user can go. A home directory is closed to everyone else as a rule; in a mount
 * namespace of the daemon's own an empty one takes its place, with these directories in it and
 * nothing else. 0 or -errno. */
NODISCARD int rootless_open_paths(const struct spawner *spawner);

/* The same open directory in our own mount namespace, where only mounts of it can be made: a
 * client's descriptor comes from another. A descriptor; -ESTALE when it is not there. */
NODISCARD int rootless_reopen_folder(int directory);
