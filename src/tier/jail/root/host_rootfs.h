/* Template `host`: a root made of this host's own programs and none of its data.
 *
 * It is an allow-list. The host provides /usr (and /bin, /lib... where they are not links into it)
 * as plain read-only binds. They are never idmapped, so that files which only the host's root may
 * read stay unreadable inside. Everything else is the skeleton, a directory under
 * <state>/templates/host that we make: copies of a few listed, world-readable files of /etc, our
 * own passwd and group, empty directories. Nothing of /etc, /var, /opt, /root or /home is ever
 * bound.
 *
 * Called in the spawner: prepare at its start, open at each boot. prepare may block for a second
 * when it makes the skeleton; open does not block. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tier/jail/root/rootfs.h"

/* Makes the skeleton if none exists, or if caisson or the host's files that it was made of have
 * changed. It is built beside the current one and renamed into place, so that a boot sees one or
 * the other. Skeletons in use are kept. On success *ret_digest is that of a sandbox without
 * folders. */
NODISCARD int host_rootfs_prepare(const struct host *host, char ret_digest[ROOTFS_DIGEST_TEXT],
				  struct error *error);
/* Opens a skeleton, the current one for digest "", and the host's directories. `ids`: the owner of
 * the skeleton, where owners cannot be mapped (without root); NULL: a sandbox without folders. */
NODISCARD int host_rootfs_open(const struct host *host, const char *digest,
			       const struct sandbox_ids *ids, struct rootfs *ret_rootfs,
			       struct error *error);
