/* Reclaims memory from a sandbox whose processes are frozen. No data is lost: the kernel drops
 * pages that are on disk, and writes dirty ones first. Memory that programs allocated stays,
 * because a sandbox has no swap.
 *
 * Version 1: memory.force_empty. Despite its name and documentation it works with processes in the
 * cgroup, and stops after sixteen attempts without success. Version 2: memory.reclaim (Linux 5.19),
 * else memory.high for a moment.
 *
 * Called in a worker of the spawner's. It takes as long as the disk (measured: 60 MB of dirty files
 * in 0.15 s) and ends early when the worker is killed. */
#include "tier/jail/cgroup/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "tier/jail/cgroup/cgroup_hierarchy.h"

#define ROUNDS_MAX 16
/* Reserve for the host's file system itself, and for other writers. */
#define SPACE_RESERVE (16 * MIB)

/* A sandbox's disk is a sparse file. If the host is full when dirty pages are written, the file
 * system inside becomes read-only. That may happen anyway, but reclaiming must not cause it: the
 * administrator may free space before the kernel writes. */
static int host_check_disk_space(const struct host *host, int work, bool unified,
				 struct error *error)
{
	struct statvfs space;
	int64_t dirty =
	    cgroup_read_number(work, "memory.stat", unified ? "file_dirty" : "total_dirty");
	/* This kernel does not count dirty pages. */
	if (dirty < 0)
		dirty = cgroup_read_number(
		    work, unified ? "memory.current" : "memory.usage_in_bytes", NULL);
	if (statvfs(host->state, &space) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "the host's disk space");
	if ((uint64_t)space.f_bavail * space.f_frsize < (uint64_t)MAX(dirty, 0) + SPACE_RESERVE)
		return error_set(error, ERROR_NO_SPACE,
				 "the host's disk is too full for the sandbox's unwritten data");
	return 0;
}

static int group_reclaim_v2(int work)
{
	int result = -ENOENT;
	for (int round = 0; round < ROUNDS_MAX; round++) {
		char text[32];
		int64_t used = cgroup_read_number(work, "memory.current", NULL);
		snprintf(text, sizeof(text), "%lld", (long long)used);
		result = used <= 0 ? 0 : fd_write_small(work, "memory.reclaim", text);
		/* EAGAIN: it reclaimed some, not all. */
		if (result != -EAGAIN ||
		    used - cgroup_read_number(work, "memory.current", NULL) < (int64_t)MIB)
			break;
	}
	if (result != -ENOENT)
		return result == -EAGAIN ? 0 : result;
	result = fd_write_small(work, "memory.high", "0");
	int back = fd_write_small(work, "memory.high", "max");
	return MIN(result, back);
}

int cgroup_reclaim(const struct host *host, struct guest *guest,
		   struct spawn_reclaimed *ret_reclaimed, struct error *error)
{
	bool unified;
	CLOSE_FD int work = cgroup_open_work(host, &guest->id, CONTROLLER_MEMORY, &unified);
	const char *usage = unified ? "memory.current" : "memory.usage_in_bytes";
	int64_t before = work < 0 ? -1 : cgroup_read_number(work, usage, NULL);
	if (before < 0)
		return error_set(error, ERROR_UNSUPPORTED,
				 "no memory cgroup for it: a paused sandbox keeps its memory");
	if (host_check_disk_space(host, work, unified, error) < 0)
		return -1;
	int result =
	    unified ? group_reclaim_v2(work) : fd_write_small(work, "memory.force_empty", "0");
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "reclaiming memory");
	int64_t after = cgroup_read_number(work, usage, NULL);
	ret_reclaimed->before = (uint64_t)before;
	ret_reclaimed->after = (uint64_t)(after < 0 ? before : after);
	ret_reclaimed->done = 1;
	return 0;
}
