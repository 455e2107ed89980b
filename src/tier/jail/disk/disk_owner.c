/* Disks that belong to another uid range. See disk_owner.h. */
#include "tier/jail/disk/disk_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "tier/jail/ids.h"

/* Reads the range of the files on the disk; 1: it differs from the sandbox's. */
static int owner_read(const char *directory, uint32_t owner, uint32_t *ret_kept)
{
	char path[600], text[32];
	uint64_t kept;
	int result = text_format(path, sizeof(path), "%s/owner", directory);
	if (result < 0)
		return result;
	ssize_t length = fd_read_small(AT_FDCWD, path, text, sizeof(text));
	if (length == -ENOENT)
		return 0;
	if (length < 0)
		return (int)length;
	text[strcspn(text, "\n")] = '\0';
	/* A range with ids of root's own, or one that wraps, is invalid. */
	result = text_to_u64(text, UID_RANGE_SIZE, UINT32_MAX - UID_RANGE_SIZE, &kept);
	if (result < 0)
		return result;
	*ret_kept = (uint32_t)kept;
	return kept != owner;
}

int disk_owner_apply(const char *directory, int mount, uint32_t owner)
{
	uint32_t kept = 0;
	int differs = owner_read(directory, owner, &kept);
	if (differs <= 0)
		return differs;
	/* Root's own directories stay root's. */
	char ids[96];
	snprintf(ids, sizeof(ids), "0 0 1\n%u %u %u\n", kept, owner, UID_RANGE_SIZE);
	CLOSE_FD int map = ids_make_userns(ids, ids);
	if (map < 0)
		return map;
	struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (__u64)map};
	return sys_mount_setattr(mount, "", AT_EMPTY_PATH, &attributes);
}
