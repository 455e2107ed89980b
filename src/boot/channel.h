/* The sandbox's end of BOOT_FD (proto/boot_messages.h): what its PID 1, the init or a tier's shim,
 * is handed by the spawner, and what it reports. Receiving blocks; allocates nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "proto/boot_messages.h"

#define WORK_CGROUPS_MAX 16

/* What PREPARE brings; -1 where there is none. */
struct boot_handles {
	int listener; /* bound by the spawner; its owner calls listen() when ready to serve */
	/* cgroup.procs of the `work` cgroup in each hierarchy, write-only: writing "0" moves the
	 * writer in. None where the host has no cgroups for us. */
	int work_cgroups[WORK_CGROUPS_MAX];
	uint32_t work_cgroup_count;
	int memory_usage, memory_limit, memory_stat; /* of the work cgroup */
	int process_events;                          /* pids.events of the work cgroup */
};
void boot_handles_clear(struct boot_handles *handles);

/* Both begin the report of their request. 0, or -1 with *failure. */
NODISCARD int boot_receive_prepare(struct boot_handles *ret_handles, struct failure *failure);
/* The descriptors are disk, lowers, binds, trees; the caller closes all of them. At most `trees` of
 * the last. */
NODISCARD int boot_receive_assign(uint32_t trees, struct boot_assign *ret_request,
				  int fds[BOOT_FDS_MAX], size_t *ret_count,
				  struct failure *failure);

/* A report: begun, told what took how long, sent. `failure` NULL: all went well. */
void boot_report_begin(uint32_t request);
void boot_report_phase(const char *name);
/* 0 or -errno: the spawner may be gone. */
NODISCARD int boot_report_send(const struct failure *failure);

/* Fills *failure and returns -1. `result` is an errno, negative or not. */
int boot_fail(struct failure *failure, int result, const char *what);
NODISCARD int boot_loopback_up(void);
