/* The container: its description for runsc, its start and its end. Called by shim.c. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/resources.h"

/* Writes ROOT_BUNDLE/config.json: numbers of ours and constants, nothing of a user's. */
NODISCARD int container_describe(const struct id *id, const struct limits *limits);

struct container_order {
	const char *platform; /* of runsc's */
	int channel;          /* becomes the container's standard input */
	/* cgroup.procs of `work` in each hierarchy, which runsc joins before it is executed. */
	const int *work_cgroups;
	uint32_t work_cgroup_count;
	int64_t deadline; /* CLOCK_BOOTTIME */
};
/* Runs `runsc run --detach` to its end. *ret_sentry is the process whose end is the container's: it
 * is our child then. 0, or -errno: -EIO when runsc failed, and container_errors() says why. */
NODISCARD int container_start(const struct container_order *order, pid_t *ret_sentry);
/* What runsc, or an init that could not start, wrote: printable, one line, "" when nothing. */
void container_errors(char *text, size_t room);
