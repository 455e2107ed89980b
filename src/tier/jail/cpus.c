/* Cpu affinity of sandboxes. See cpus.h. Called by boot.c and jail.c; does not block. */
#include "tier/jail/cpus.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "base/text.h"
#include "tier/jail/cgroup/cgroup.h"

/* As many of our own cpus as needed, beginning at number `slot` and wrapping around. */
static int cpus_choose(uint32_t slot, uint32_t cpu_millis, cpu_set_t *ret_set)
{
	cpu_set_t ours;
	int list[CPU_SETSIZE];
	uint32_t count = 0;
	if (sched_getaffinity(0, sizeof(ours), &ours) < 0)
		return -errno;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &ours))
			list[count++] = cpu;
	}
	if (count == 0)
		return -ENODEV;
	uint32_t wanted = MIN(MAX((cpu_millis + 999) / 1000, 1u), count);
	CPU_ZERO(ret_set);
	for (uint32_t i = 0; i < wanted; i++)
		CPU_SET(list[(slot + i) % count], ret_set);
	return 0;
}

int cpus_set(pid_t pid, uint32_t slot, uint32_t cpu_millis)
{
	cpu_set_t set;
	int result = cpus_choose(slot, cpu_millis, &set);
	if (result < 0)
		return result;
	return sched_setaffinity(pid, sizeof(set), &set) < 0 ? -errno : 0;
}

static void thread_set_cpus(pid_t thread, const void *set)
{
	/* The thread may have ended. */
	sched_setaffinity(thread, sizeof(cpu_set_t), set);
}

void cpus_change(const struct host *host, const struct guest *guest, uint32_t cpu_millis)
{
	cpu_set_t set;
	if (cpus_choose(guest->slot, cpu_millis, &set) < 0)
		return;
	/* Twice: a thread that was forked during the first round inherited the old set. */
	for (int round = 0; round < 2; round++)
		cgroup_each_thread(host, &guest->id, thread_set_cpus, &set);
}
