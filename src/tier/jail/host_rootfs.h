/* Template `host`: a root made of this host's own programs, and of nothing of this host's data.
 *
 * It is an allow-list. What the host shows is /usr (and /bin, /lib... where they are not links into
 * it) as plain read-only binds, never idmapped: a file that only the host's root may read stays
 * unreadable inside. All else is the skeleton, a directory under <state>/templates/host that we
 * make: copies of a listed few world-readable files of /etc, a made-up passwd and group, empty
 * directories. Nothing of /etc, /var, /opt, /root or /home is ever bound.
 *
 * Called in the spawner:
 * prepare at its start, open at each boot. prepare may block for a second when the skeleton is to
 * be made; open does not. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tier/jail/rootfs.h"

/* Makes the skeleton if there is none, or if caisson or the host's files that it was made of have
 * changed: built beside the current one and renamed into place, so that a sandbox that is being
 * booted sees one or the other. Skeletons that sandboxes still stand on are kept. */
NODISCARD int host_rootfs_prepare(const struct host *host, struct error *error);
/* The current skeleton and the host's trees. `ids`: whose the skeleton is, where owners cannot be
 * mapped (without root); NULL: a sandbox without folders of the user's. */
NODISCARD int host_rootfs_open(const struct host *host, const struct sandbox_ids *ids,
			       struct rootfs *ret_rootfs, struct error *error);
