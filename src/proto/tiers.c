/* See tiers.h. */
#include "proto/tiers.h"

#include <string.h>

#include "base/text.h"

static const char *const tier_names[TIER_COUNT] = {
    [TIER_AUTO] = "auto",
    [TIER_NAMESPACE] = "namespace",
    [TIER_GVISOR] = "gvisor",
    [TIER_VM] = "vm",
};

static const char *const limit_names[LIMIT_COUNT] = {
    [LIMIT_CPU] = "cpu",   [LIMIT_MEMORY] = "memory", [LIMIT_PIDS] = "pids",
    [LIMIT_DISK] = "disk", [LIMIT_INODES] = "inodes", [LIMIT_FILES] = "files",
};

const char *tier_name(enum tier tier)
{
	return (unsigned)tier < TIER_COUNT ? tier_names[tier] : "unknown";
}

enum tier tier_parse(const char *name)
{
	for (unsigned tier = 0; tier < TIER_COUNT; tier++) {
		if (strcmp(name, tier_names[tier]) == 0)
			return (enum tier)tier;
	}
	return TIER_COUNT;
}

const char *limit_name(enum limit_kind kind)
{
	return (unsigned)kind < LIMIT_COUNT ? limit_names[kind] : "unknown";
}

const char *limit_reason_text(enum limit_reason reason)
{
	switch (reason) {
	case LIMIT_ENFORCED:
		return "";
	case LIMIT_NO_CGROUP_CONTROLLER:
		return "the kernel has no cgroup controller for it, or it is not mounted";
	case LIMIT_NO_CGROUP_DELEGATION:
		return "no delegated cgroup controller (see `caisson doctor`)";
	case LIMIT_NO_DISK_MECHANISM:
		return "the host cannot mount ext4 images on loop devices (or mke2fs is missing)";
	case LIMIT_NEEDS_ROOT:
		return "a disk of a fixed size needs a loop device, which only root may use";
	case LIMIT_CGROUP_SHARED:
		return "other processes are in the daemon's own cgroup, so it cannot delegate "
		       "controllers: start it in a cgroup of its own";
	case LIMIT_OTHER_KERNEL:
		return "the sandbox has a kernel of its own: the host cannot count its processes, "
		       "so it limits the threads of that kernel instead";
	case LIMIT_NOT_ASKED:
		return "no limit was asked for";
	}
	return "the reason is unknown to this version";
}

int guest_socket_path(const char *runtime, const struct id *id, char path[GUEST_SOCKET_PATH_MAX])
{
	return text_format(path, GUEST_SOCKET_PATH_MAX, "%s/guests/%s/init.sock", runtime,
			   id->text);
}
