/* See rootfs.h. */
#include "tier/jail/root/rootfs.h"

#include "base/fd.h"
#include "tier/jail/root/host_rootfs.h"

int rootfs_open(const struct host *host, enum rootfs_kind kind, const struct sandbox_ids *ids,
		struct rootfs *ret_rootfs, struct error *error)
{
	switch (kind) {
	case ROOTFS_HOST:
		if (host_rootfs_open(host, ids, ret_rootfs, error) < 0)
			return error_prepend(error, "template host");
		return 0;
	}
	return error_set(error, ERROR_TEMPLATE_UNAVAILABLE, "unknown root file system %u",
			 (unsigned)kind);
}

void rootfs_done(struct rootfs *rootfs)
{
	for (uint32_t i = 0; i < rootfs->lower_count; i++)
		fd_close(&rootfs->lowers[i]);
	for (uint32_t i = 0; i < rootfs->bind_count; i++)
		fd_close(&rootfs->binds[i]);
	rootfs->lower_count = rootfs->bind_count = 0;
}
