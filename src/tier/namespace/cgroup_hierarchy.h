/* Which cgroup hierarchies this host has, and which controllers are in each: looked up once in
 * /proc/self/mountinfo. Version 1 comes first: where a controller is mounted there, version 2 does
 * not offer it. Called by cgroup.c alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tier/namespace/cgroup.h"

enum controller {
	CONTROLLER_CPU = 1 << 0,
	CONTROLLER_CPUACCT = 1 << 1,
	CONTROLLER_MEMORY = 1 << 2,
	CONTROLLER_PIDS = 1 << 3,
	CONTROLLER_FREEZER = 1 << 4,
	CONTROLLER_DEVICES = 1 << 5,
};

struct hierarchy {
	int root; /* O_PATH directory, kept open */
	bool unified;
	uint32_t controllers; /* those of enum controller that we use here */
};

struct hierarchies {
	struct hierarchy list[CGROUP_HIERARCHIES_MAX];
	uint32_t count;
};

/* Never NULL; empty where there is none. */
const struct hierarchies *cgroup_hierarchies(void);
/* "+memory" and the like, for each controller that a version 2 cgroup is to give to its children.
 * What it refuses shows by the attribute files that are then missing. */
void hierarchy_enable(const struct hierarchy *hierarchy, int directory);
