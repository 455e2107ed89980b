/* Which cgroup hierarchies this host has, which controllers are in each, and where in them we may
 * make our own: looked up once in /proc/self/mountinfo. Version 1 comes first: where a controller
 * is mounted there, version 2 does not offer it.
 *
 * As root our cgroups are at the root of each hierarchy. Without root they are below the cgroup
 * that we are in, where that was given to us (systemd's Delegate=yes, or a chown); which one that
 * was is noted down in <runtime>/cgroups, so that the next spawner finds the sandboxes of this one
 * from wherever it is started. Called by cgroup.c alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tier/jail/cgroup.h"

enum controller {
	CONTROLLER_CPU = 1 << 0,
	CONTROLLER_CPUACCT = 1 << 1,
	CONTROLLER_MEMORY = 1 << 2,
	CONTROLLER_PIDS = 1 << 3,
	CONTROLLER_FREEZER = 1 << 4,
	CONTROLLER_DEVICES = 1 << 5,
};

struct hierarchy {
	int root; /* what our cgroups are below: an O_PATH directory, kept open */
	bool unified;
	bool shared;          /* unified: others are in it, so that it cannot pass controllers on */
	uint32_t controllers; /* those of enum controller that we use here */
};

struct hierarchies {
	struct hierarchy list[CGROUP_HIERARCHIES_MAX];
	uint32_t count;
	uint32_t withheld; /* controllers that the host has, and that are not given to us */
};

/* Never NULL; empty where there is none. The first call, at the spawner's start, decides. */
const struct hierarchies *cgroup_hierarchies(const struct host *host);
/* "+memory" and the like, for each controller that a version 2 cgroup is to give to its children.
 * What it refuses shows by the attribute files that are then missing. */
void hierarchy_enable(const struct hierarchy *hierarchy, int directory);
