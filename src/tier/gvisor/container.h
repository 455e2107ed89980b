/* Describes the container for runsc, starts it and reads its errors. Called by shim.c. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/resources.h"

/* Writes ROOT_BUNDLE/config.json from our own numbers and constants, without data of a user's. */
NODISCARD int container_describe(const struct id *id, const struct limits *limits);

struct container_order {
	const char *platform; /* runsc's platform */
	int channel;          /* becomes the container's standard input */
	/* cgroup.procs of `work` in each hierarchy; runsc joins them before it is executed. */
	const int *work_cgroups;
	uint32_t work_cgroup_count;
	int64_t deadline; /* CLOCK_BOOTTIME */
};
/* Runs `runsc run --detach` until it exits. *ret_sentry is the process whose end is the end of
 * the container; it has become our child. 0, or -errno: -EIO when runsc failed (see
 * container_errors()). */
NODISCARD int container_start(const struct container_order *order, pid_t *ret_sentry);
/* The error output of runsc, or of an init that could not start: printable, one line, "" when
 * empty. */
void container_errors(char *text, size_t room);
