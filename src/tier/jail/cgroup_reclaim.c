/* Taking memory back from a sandbox whose processes stand still. Nothing is lost by it: the kernel
 * drops pages that are on a disk, and writes those that are not yet there first; what a program has
 * made up itself stays, since a sandbox has no swap.
 *
 * Version 1: memory.force_empty, which despite its name and its documentation takes a cgroup that
 * has processes, and reclaims until sixteen attempts in a row got nothing. Version 2:
 * memory.reclaim (Linux 5.19), else a memory.high that is put back.
 *
 * Called in a worker of the spawner's: it takes as long as the disk does (measured: 60 MB of
 * unwritten files in 0.15 s), and ends early when the worker is killed. */
#include "tier/jail/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "tier/jail/cgroup_hierarchy.h"

#define ROUNDS_MAX 16
/* What the host's file system needs for itself, and others write meanwhile. */
#define SPACE_RESERVE (16 * MIB)

/* A sandbox's disk is a file with holes: what it has not written yet may find no room on the host,
 * and its file system is read-only from then on. That may come by itself, but is not brought about:
 * space may be made before the kernel writes. */
static int check_space(const struct host *host, int work, bool unified, struct error *error)
{
	struct statvfs space;
	int64_t dirty =
	    cgroup_read_number(work, "memory.stat", unified ? "file_dirty" : "total_dirty");
	/* A kernel that does not count them. */
	if (dirty < 0)
		dirty = cgroup_read_number(
		    work, unified ? "memory.current" : "memory.usage_in_bytes", NULL);
	if (statvfs(host->state, &space) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "the host's disk space");
	if ((uint64_t)space.f_bavail * space.f_frsize < (uint64_t)MAX(dirty, 0) + SPACE_RESERVE)
		return error_set(error, ERROR_NO_SPACE,
				 "the host's disk is too full for what it has not written yet");
	return 0;
}

static int reclaim_v2(int work)
{
	int result = -ENOENT;
	for (int round = 0; round < ROUNDS_MAX; round++) {
		char text[32];
		int64_t used = cgroup_read_number(work, "memory.current", NULL);
		snprintf(text, sizeof(text), "%lld", (long long)used);
		result = used <= 0 ? 0 : fd_write_small(work, "memory.reclaim", text);
		/* EAGAIN: some of it, not all. */
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
				 "no memory cgroup is ours: a paused sandbox keeps its memory");
	if (check_space(host, work, unified, error) < 0)
		return -1;
	int result = unified ? reclaim_v2(work) : fd_write_small(work, "memory.force_empty", "0");
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "taking memory back");
	int64_t after = cgroup_read_number(work, usage, NULL);
	ret_reclaimed->before = (uint64_t)before;
	ret_reclaimed->after = (uint64_t)(after < 0 ? before : after);
	ret_reclaimed->done = 1;
	return 0;
}
