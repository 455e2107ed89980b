/* The sandbox's end of BOOT_FD (proto/boot_messages.h): PID 1, which is the init or a tier's
 * shim, receives descriptors from the spawner and sends reports. Receiving blocks; allocates
 * nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "proto/boot_messages.h"

#define WORK_CGROUPS_MAX 16

/* The descriptors of PREPARE; -1: none. */
struct boot_handles {
	int listener; /* bound by the spawner; its owner calls listen() when ready to serve */
	/* cgroup.procs of the `work` cgroup in each hierarchy, write-only: writing "0" moves the
	 * writer into it. Empty if the host delegates no cgroups to us. */
	int work_cgroups[WORK_CGROUPS_MAX];
	uint32_t work_cgroup_count;
	int memory_usage, memory_limit, memory_stat; /* of the work cgroup */
	int process_events;                          /* pids.events of the work cgroup */
};
void boot_handles_clear(struct boot_handles *handles);

/* Receive a request and begin its report. 0, or -1 with *failure. */
NODISCARD int boot_receive_prepare(struct boot_handles *ret_handles, struct failure *failure);
/* The descriptors are the disk, lowers, binds and at most `trees` trees; the caller closes all
 * of them. */
NODISCARD int boot_receive_assign(uint32_t trees, struct boot_assign *ret_request,
				  int fds[BOOT_FDS_MAX], size_t *ret_count,
				  struct failure *failure);

/* A report: begin it, add phases with the time they took, send it. `failure` NULL: success. */
void boot_report_begin(uint32_t request);
void boot_report_phase(const char *name);
/* 0, or -errno: the spawner may have ended. */
NODISCARD int boot_report_send(const struct failure *failure);

/* Fills *failure and returns -1. `result` is an errno of either sign. */
int boot_fail(struct failure *failure, int result, const char *what);
NODISCARD int boot_loopback_up(void);
