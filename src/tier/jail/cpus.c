/* Cpu affinity of sandboxes. See cpus.h. Called by boot.c and driver.c; does not block. */
#include "tier/jail/cpus.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "base/text.h"
#include "tier/jail/cgroup.h"

/* The n-th of the cpus that we may use ourselves, and those after it, round about. */
static int choose(uint32_t slot, uint32_t cpu_millis, cpu_set_t *ret_set)
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
	int result = choose(slot, cpu_millis, &set);
	if (result < 0)
		return result;
	return sched_setaffinity(pid, sizeof(set), &set) < 0 ? -errno : 0;
}

static void set_thread(pid_t thread, const void *set)
{
	/* It may have ended. */
	sched_setaffinity(thread, sizeof(cpu_set_t), set);
}

/* Where there are no cgroups that would list them. */
static void set_children(pid_t init, const cpu_set_t *set)
{
	char path[64];
	int child;
	if (text_format(path, sizeof(path), "/proc/%d/task/%d/children", (int)init, (int)init) < 0)
		return;
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	while (fscanf(file, "%d", &child) == 1)
		set_thread(child, set);
	fclose(file);
}

int cpus_assign(const struct host *host, const struct guest *guest, uint32_t cpu_millis)
{
	cpu_set_t set;
	int result = choose(guest->slot, cpu_millis, &set);
	if (result < 0)
		return result;
	/* Its init first: what that forks from now on is right. The launcher, which starts
	 * everything that runs inside, was forked with the old set. */
	if (sched_setaffinity(guest->init.pid, sizeof(set), &set) < 0)
		return -errno;
	cgroup_each_thread(host, &guest->place, set_thread, &set);
	set_children(guest->init.pid, &set);
	return 0;
}

void cpus_change(const struct host *host, const struct guest *guest, uint32_t cpu_millis)
{
	cpu_set_t set;
	if (choose(guest->slot, cpu_millis, &set) < 0)
		return;
	/* Twice: a thread that was forked during the first round has its parent's old set. */
	for (int round = 0; round < 2; round++)
		cgroup_each_thread(host, &guest->place, set_thread, &set);
}
