/* The limits of a sandbox's cgroups: setting them, and which of them are enforced. See cgroup.h. */
#include "tier/jail/cgroup/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "tier/jail/cgroup/cgroup_hierarchy.h"

#define CPU_PERIOD_US 100000u
/* The part of the memory limit that sockets may use on top of it; version 1 only. */
#define SOCKET_SHARE 4

static int file_write_number(int directory, const char *name, uint64_t value)
{
	char text[32];
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return fd_write_small(directory, name, text);
}

/* Memory plus swap gets the same limit as memory: no swap. The sum must never be below the
 * memory limit, so raising sets it first. */
static int memory_limit_set_v1(int work, uint64_t memory)
{
	int result = file_write_number(work, "memory.limit_in_bytes", memory);
	if (result == -EINVAL) {
		result = file_write_number(work, "memory.memsw.limit_in_bytes", memory);
		if (result >= 0)
			result = file_write_number(work, "memory.limit_in_bytes", memory);
	}
	if (result < 0)
		return result;
	result = file_write_number(work, "memory.memsw.limit_in_bytes", memory);
	/* Without swap accounting, a swappiness of 0 must suffice. */
	if (result == -ENOENT)
		result = file_write_number(work, "memory.swappiness", 0);
	if (result < 0)
		return result;
	/* Socket buffers (TCP and UDP, despite the file's name) are not part of the limit above.
	 * Without a limit of their own a sandbox could use all socket memory of the host. */
	result = file_write_number(work, "memory.kmem.tcp.limit_in_bytes", memory / SOCKET_SHARE);
	return result == -ENOENT ? 0 : result;
}

/* Lowering memory.max kills when more is in use. memory.high is set first: it only reclaims, and
 * slows down allocations until the limit is set. */
static int memory_limit_set_v2(int work, uint64_t memory)
{
	bool above = cgroup_read_number(work, "memory.current", NULL) > (int64_t)memory;
	int result = above ? file_write_number(work, "memory.high", memory) : 0;
	if (result < 0)
		return result;
	if (above && cgroup_read_number(work, "memory.current", NULL) > (int64_t)memory)
		result = -EBUSY;
	if (result >= 0)
		result = file_write_number(work, "memory.max", memory);
	if (above) {
		int back = fd_write_small(work, "memory.high", "max");
		result = MIN(result, MIN(back, 0));
	}
	if (result < 0)
		return result;
	result = fd_write_small(work, "memory.swap.max", "0");
	return result == -ENOENT ? 0 : result;
}

static int cpu_limit_set(int work, bool unified, uint32_t millis)
{
	char text[64];
	uint64_t quota = (uint64_t)millis * CPU_PERIOD_US / 1000;
	if (unified) {
		snprintf(text, sizeof(text), "%llu %u", (unsigned long long)quota, CPU_PERIOD_US);
		return fd_write_small(work, "cpu.max", text);
	}
	int result = file_write_number(work, "cpu.cfs_period_us", CPU_PERIOD_US);
	return result < 0 ? result : file_write_number(work, "cpu.cfs_quota_us", quota);
}

/* Whether the limit's file exists. Without it the limit is not enforced. */
bool cgroup_group_has_limit(const struct hierarchy *hierarchy, int work, uint32_t controller)
{
	const char *name = NULL;
	if (!(hierarchy->controllers & controller))
		return false;
	if (controller == CONTROLLER_CPU)
		name = hierarchy->unified ? "cpu.max" : "cpu.cfs_quota_us";
	else if (controller == CONTROLLER_MEMORY)
		name = hierarchy->unified ? "memory.max" : "memory.limit_in_bytes";
	else if (controller == CONTROLLER_PIDS)
		name = "pids.max";
	return name && faccessat(work, name, F_OK, 0) == 0;
}

int cgroup_group_set_limits(const struct hierarchy *hierarchy, int work,
			    const struct limits *limits, const char **ret_what)
{
	int result = 0;
	if (cgroup_group_has_limit(hierarchy, work, CONTROLLER_CPU)) {
		*ret_what = "cpu limit";
		result = cpu_limit_set(work, hierarchy->unified, limits->cpu_millis);
	}
	if (result >= 0 && cgroup_group_has_limit(hierarchy, work, CONTROLLER_MEMORY)) {
		*ret_what = "memory limit";
		result = hierarchy->unified ? memory_limit_set_v2(work, limits->memory)
					    : memory_limit_set_v1(work, limits->memory);
	}
	if (result >= 0 && cgroup_group_has_limit(hierarchy, work, CONTROLLER_PIDS)) {
		*ret_what = "pids limit";
		result = file_write_number(work, "pids.max", limits->pids + CGROUP_PIDS_RESERVE);
	}
	return result;
}

int cgroup_set_limits(const struct host *host, const struct id *id, const struct limits *limits,
		      struct error *error)
{
	const struct hierarchies *all = cgroup_hierarchies(host);
	for (uint32_t i = 0; i < all->count; i++) {
		const char *what = "cgroup";
		CLOSE_FD int work = cgroup_group_open(&all->list[i], host, id, "work");
		if (work == -ENOENT)
			continue;
		int result =
		    work < 0 ? work : cgroup_group_set_limits(&all->list[i], work, limits, &what);
		if (result == -EBUSY)
			return error_set(error, ERROR_LIMIT_EXCEEDED,
					 "%s: the sandbox uses more than that now", what);
		if (result < 0)
			return error_set_errno(error, error_kind_of_errno(result), result, "%s",
					       what);
	}
	return 0;
}

void cgroup_reasons(const struct host *host, const struct id *id, uint32_t reasons[LIMIT_COUNT])
{
	static const struct {
		enum limit_kind kind;
		uint32_t controller;
	} limited[] = {{LIMIT_CPU, CONTROLLER_CPU},
		       {LIMIT_MEMORY, CONTROLLER_MEMORY},
		       {LIMIT_PIDS, CONTROLLER_PIDS}};
	const struct hierarchies *all = cgroup_hierarchies(host);
	for (size_t i = 0; i < ARRAY_SIZE(limited); i++)
		reasons[limited[i].kind] = all->withheld & limited[i].controller
					       ? LIMIT_NO_CGROUP_DELEGATION
					       : LIMIT_NO_CGROUP_CONTROLLER;
	for (uint32_t h = 0; h < all->count; h++) {
		CLOSE_FD int work = cgroup_group_open(&all->list[h], host, id, "work");
		for (size_t i = 0; i < ARRAY_SIZE(limited); i++) {
			if (!(all->list[h].controllers & limited[i].controller))
				continue;
			bool holds = work >= 0 && cgroup_group_has_limit(&all->list[h], work,
									 limited[i].controller);
			reasons[limited[i].kind] = holds ? LIMIT_ENFORCED
						   : all->list[h].shared
						       ? LIMIT_CGROUP_SHARED
						       : LIMIT_NO_CGROUP_DELEGATION;
		}
	}
}
