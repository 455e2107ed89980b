/* The namespace tier: user, mount, pid, net, ipc, uts and cgroup namespaces on the host's own
 * kernel. This file is the driver's table and all of a guest's life but its boot (boot.c). Called
 * by the spawner; a boot waits up to ten seconds, the rest is quick but for erase. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "tier/driver.h"
#include "tier/namespace/boot.h"
#include "tier/namespace/cgroup.h"
#include "tier/namespace/cpus.h"
#include "tier/namespace/disk.h"
#include "tier/namespace/record.h"
#include "tier/namespace/template.h"
#include "tier/trial.h"

#define REMOVE_TIMEOUT_MS 2000

static int namespace_prepare(const struct host *host, struct error *error)
{
	if (template_host_prepare(host, error) < 0)
		return error_prepend(error, "template host");
	return 0;
}

static int check_request(const struct host *host, const struct guest *guest,
			 const struct boot *boot, struct error *error)
{
	const struct spawn_create *create = boot->create;
	if (guest->slot >= host->uid_slots)
		return error_set(error, ERROR_BUSY, "all %u uid ranges of this host are in use",
				 host->uid_slots);
	if (create->mount_count > SANDBOX_MOUNTS_MAX)
		return error_set(error, ERROR_INVALID, "at most %d folders can be mounted",
				 SANDBOX_MOUNTS_MAX);
	for (uint32_t i = 0; i < create->mount_count; i++) {
		if (create->mount_modes[i] > MOUNT_COPY_ON_WRITE)
			return error_set(error, ERROR_INVALID, "mount %u: no such mode", i + 1);
	}
	if (create->template != 0)
		return error_set(error, ERROR_TEMPLATE_UNAVAILABLE, "template %u is not installed",
				 create->template);
	return 0;
}

static int namespace_boot(const struct host *host, struct guest *guest, const struct boot *boot,
			  struct error *error)
{
	guest->tier = TIER_NAMESPACE;
	guest->place = guest->id;
	guest->limits = boot->create->limits;
	if (check_request(host, guest, boot, error) < 0)
		return -1;
	return boot_guest(host, guest, boot, error);
}

static int namespace_boot_ahead(const struct host *host, struct guest *guest,
				const struct boot *boot, struct prepared *ret_prepared,
				struct error *error)
{
	guest->tier = TIER_NAMESPACE;
	guest->place = guest->id;
	guest->limits = boot->create->limits;
	*ret_prepared = PREPARED_NONE;
	if (check_request(host, guest, boot, error) < 0)
		return -1;
	return boot_ahead(host, guest, boot, ret_prepared, error);
}

static int namespace_assign(const struct host *host, struct guest *guest, struct prepared *prepared,
			    const struct boot *boot, struct error *error)
{
	if (check_request(host, guest, boot, error) < 0)
		return -1;
	return boot_assign(host, guest, prepared, boot, error);
}

/* The end of PID 1 is the end of its pid namespace: the kernel kills the rest and waits for it.
 * Only then may a frozen one be let go, so that it dies without having run on. */
static int namespace_kill(const struct host *host, struct guest *guest, struct error *error)
{
	int result = process_signal(&guest->init, SIGKILL);
	if (result < 0 && result != -ESRCH)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "killing process %d", (int)guest->init.pid);
	if (guest->init.pidfd < 0)
		cgroup_kill(host, &guest->place);
	else if (!cgroup_thawed(host, &guest->place))
		cgroup_kill_frozen(host, &guest->place);
	guest->frozen = false;
	return 0;
}

static int namespace_release(const struct host *host, struct guest *guest, struct error *error)
{
	int result = cgroup_remove(host, &guest->place, 0);
	process_done(&guest->init);
	if (result == -EBUSY) {
		/* On their way out, or never PID 1's: born into a cgroup as it died. */
		if (!cgroup_empty(host, &guest->place))
			cgroup_kill(host, &guest->place);
		return 1;
	}
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "removing its cgroups");
	/* One of the pool that could not be assigned may still be where it was made. */
	if (!id_equal(&guest->place, &guest->id) && record_remove(host, &guest->place, error) < 0)
		return -1;
	return record_remove(host, &guest->id, error);
}

static int namespace_erase(const struct host *host, struct guest *guest, struct error *error)
{
	return disk_erase(host, &guest->id, error);
}

/* The record names a process; it is ours if it is the very one that was started then, and in the
 * cgroup that only root can put it in. */
static int find_process(const struct host *host, struct guest *guest, struct error *error)
{
	struct process process = PROCESS_NONE;
	int found = record_read(host, guest, error);
	if (found <= 0)
		return found;
	int result = process_open(guest->init.pid, guest->init.start_time, &process);
	if (result == -ESRCH || result == -EINVAL)
		return 0;
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "process %d",
				       (int)guest->init.pid);
	if (!process_alive(&process) || !cgroup_holds(host, &guest->place, process.pid)) {
		process_done(&process);
		return 0;
	}
	guest->init = process;
	return 1;
}

static int namespace_adopt(const struct host *host, struct guest *guest, struct error *error)
{
	guest->tier = TIER_NAMESPACE;
	guest->place = guest->id;
	guest->init = PROCESS_NONE;
	guest->frozen = false;
	guest->phase_count = 0;
	memset(guest->limit_reasons, 0, sizeof(guest->limit_reasons));
	int found = find_process(host, guest, error);
	if (found < 0)
		return -1;
	if (found == 0) {
		/* Whatever a crash has left of it goes; its files stay. */
		guest->init = PROCESS_NONE;
		return namespace_kill(host, guest, error);
	}
	guest->frozen = cgroup_frozen(host, &guest->place);
	/* A pause that a crash cut short, and that nobody was told of. */
	if (!guest->frozen && !cgroup_thawed(host, &guest->place) &&
	    cgroup_freeze(host, &guest->place, false, error) < 0)
		return -1;
	cgroup_reasons(host, &guest->place, guest->limit_reasons);
	disk_reasons(host, &guest->id, guest->limit_reasons);
	return 1;
}

static int namespace_set_limits(const struct host *host, struct guest *guest,
				const struct limits *limits, struct error *error)
{
	struct error ignored;
	struct limits before = guest->limits;
	if (limits->disk != before.disk || limits->inodes != before.inodes ||
	    limits->files != before.files)
		return error_set(error, ERROR_UNSUPPORTED,
				 "disk, inodes and open files of a sandbox cannot be changed");
	if (cgroup_set_limits(host, &guest->place, limits, error) < 0) {
		if (cgroup_set_limits(host, &guest->place, &before, &ignored) < 0)
			error_prepend(error, "(and the old limits could not all be put back)");
		return -1;
	}
	guest->limits = *limits;
	if (record_write(host, guest, error) < 0) {
		guest->limits = before;
		if (cgroup_set_limits(host, &guest->place, &before, &ignored) < 0)
			error_prepend(error, "(and the old limits could not all be put back)");
		return -1;
	}
	if (limits->cpu_millis != before.cpu_millis)
		cpus_change(host, guest, limits->cpu_millis);
	return 0;
}

static int namespace_freeze(const struct host *host, struct guest *guest, bool frozen,
			    struct error *error)
{
	int result = cgroup_freeze(host, &guest->place, frozen, error);
	if (result == 0)
		guest->frozen = frozen;
	return result;
}

/* Its root directory's file system, by way of its process: no name of the sandbox's is looked up.
 */
static void count_disk(const struct guest *guest, struct spawn_counters *counters)
{
	char path[64];
	if (text_format(path, sizeof(path), "/proc/%d/root", (int)guest->init.pid) < 0)
		return;
	CLOSE_FD int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	disk_count(guest, root, counters);
}

static int namespace_counters(const struct host *host, struct guest *guest,
			      struct spawn_counters *ret_counters, struct error *error)
{
	(void)error;
	memset(ret_counters, 0, sizeof(*ret_counters));
	cgroup_counters(host, guest, ret_counters);
	count_disk(guest, ret_counters);
	return 0;
}

static int namespace_reclaim(const struct host *host, struct guest *guest,
			     struct spawn_reclaimed *ret_reclaimed, struct error *error)
{
	return cgroup_reclaim(host, &guest->place, ret_reclaimed, error);
}

static int namespace_over_open(const struct host *host, const struct guest *guest)
{
	return cgroup_over_open(host, &guest->place);
}

static int namespace_over_read(const struct host *host, const struct guest *guest, int events)
{
	return cgroup_over_read(host, &guest->place, events);
}

static int namespace_over_end(const struct host *host, struct guest *guest, struct error *error)
{
	return cgroup_over_end(host, &guest->place, error);
}

static int namespace_sweep(const struct host *host, bool (*known)(void *data, const struct id *id),
			   void *data, struct error *error)
{
	int result = cgroup_sweep(host, known, data, REMOVE_TIMEOUT_MS);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "cgroups of sandboxes that are gone");
	return 0;
}

static void namespace_probe(const struct host *host, struct spawn_probe *ret_probe)
{
	struct guest guest;
	struct error error;
	memset(ret_probe, 0, sizeof(*ret_probe));
	ret_probe->tier = TIER_NAMESPACE;
	const struct needed_call *missing = sys_needed_missing();
	if (missing) {
		snprintf(ret_probe->missing, sizeof(ret_probe->missing),
			 "the system call %s (%s; Linux %s has it): an old kernel, or a "
			 "container's filter",
			 missing->name, missing->for_what, missing->since);
		return;
	}
	int result = trial_run(&namespace_driver, host, SANDBOX_MEMORY_MIN, &guest, &error);
	ret_probe->available = result >= 0;
	if (result < 0)
		snprintf(ret_probe->missing, sizeof(ret_probe->missing), "%s", error.message);
	else
		memcpy(ret_probe->limit_reasons, guest.limit_reasons,
		       sizeof(ret_probe->limit_reasons));
}

const struct driver namespace_driver = {
    .tier = TIER_NAMESPACE,
    .name = "namespace",
    .probe = namespace_probe,
    .prepare = namespace_prepare,
    .boot = namespace_boot,
    .boot_ahead = namespace_boot_ahead,
    .assign = namespace_assign,
    .assigned = boot_assigned,
    .adopt = namespace_adopt,
    .set_limits = namespace_set_limits,
    .freeze = namespace_freeze,
    .counters = namespace_counters,
    .reclaim = namespace_reclaim,
    .over_open = namespace_over_open,
    .over_read = namespace_over_read,
    .over_end = namespace_over_end,
    .kill = namespace_kill,
    .release = namespace_release,
    .erase = namespace_erase,
    .sweep = namespace_sweep,
};
