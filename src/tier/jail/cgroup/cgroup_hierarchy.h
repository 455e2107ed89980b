/* The cgroup hierarchies of this host: which controllers each has, and where in them we may make
 * our own cgroups. Read once from /proc/self/mountinfo. Version 1 takes precedence: version 2 does
 * not offer a controller that is mounted there.
 *
 * As root our cgroups are at the root of each hierarchy. Without root they are below our own
 * cgroup, if it was delegated to us (systemd's Delegate=yes, or a chown). That cgroup is recorded
 * in <runtime>/cgroups, so that the next spawner finds the sandboxes wherever it is started. Called
 * by the cgroup files alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tier/jail/cgroup/cgroup.h"

enum controller {
	CONTROLLER_CPU = 1 << 0,
	CONTROLLER_CPUACCT = 1 << 1,
	CONTROLLER_MEMORY = 1 << 2,
	CONTROLLER_PIDS = 1 << 3,
	CONTROLLER_FREEZER = 1 << 4,
	CONTROLLER_DEVICES = 1 << 5,
};

struct hierarchy {
	int root; /* parent of our cgroups: an O_PATH directory, kept open */
	bool unified;
	bool shared;          /* unified: other processes are in it, so that it cannot pass
			       * controllers on */
	uint32_t controllers; /* the controllers (enum controller) that we use here */
};

struct hierarchies {
	struct hierarchy list[CGROUP_HIERARCHIES_MAX];
	uint32_t count;
	uint32_t withheld; /* controllers of the host that are not delegated to us */
};

/* Never NULL; empty without cgroups. The result of the first call is kept. */
const struct hierarchies *cgroup_hierarchies(const struct host *host);
/* Enables our controllers for the children of a version 2 cgroup. Where the kernel refuses one,
 * its files are missing in the children. */
void hierarchy_enable(const struct hierarchy *hierarchy, int directory);

/* The cgroup `leaf` of a sandbox in one hierarchy ("": the parent of both leaves): an O_PATH
 * descriptor or -errno. */
NODISCARD int cgroup_group_open(const struct hierarchy *hierarchy, const struct host *host,
				const struct id *id, const char *leaf);
/* cgroup_limits.c: the limits of a work cgroup in one hierarchy. *ret_what: what failed. */
NODISCARD int cgroup_group_set_limits(const struct hierarchy *hierarchy, int work,
				      const struct limits *limits, const char **ret_what);
bool cgroup_group_has_limit(const struct hierarchy *hierarchy, int work, uint32_t controller);
