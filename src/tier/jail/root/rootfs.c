/* See rootfs.h. */
#include "tier/jail/root/rootfs.h"

#include <string.h>

#include "base/fd.h"
#include "tier/jail/root/host_rootfs.h"

bool rootfs_digest_valid(const char *digest)
{
	return strnlen(digest, ROOTFS_DIGEST_TEXT) == ROOTFS_DIGEST_TEXT - 1 &&
	       strspn(digest, "0123456789abcdef") == ROOTFS_DIGEST_TEXT - 1;
}

int rootfs_open(const struct host *host, const struct spawn_rootfs *asked,
		const struct sandbox_ids *ids, struct rootfs *ret_rootfs, struct error *error)
{
	switch ((enum rootfs_kind)asked->kind) {
	case ROOTFS_HOST:
		if (host_rootfs_open(host, asked->digest, ids, ret_rootfs, error) < 0)
			return error_prepend(error, "template host");
		return 0;
	}
	return error_set(error, ERROR_TEMPLATE_UNAVAILABLE, "unknown root file system %u",
			 asked->kind);
}

void rootfs_done(struct rootfs *rootfs)
{
	for (uint32_t i = 0; i < rootfs->lower_count; i++)
		fd_close(&rootfs->lowers[i]);
	for (uint32_t i = 0; i < rootfs->bind_count; i++)
		fd_close(&rootfs->binds[i]);
	rootfs->lower_count = rootfs->bind_count = 0;
}
