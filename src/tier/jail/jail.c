/* The life of a guest in its jail, except its boot (boot.c). See jail.h. */
#include "tier/jail/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "base/fd.h"
#include "base/text.h"
#include "tier/jail/cgroup/cgroup.h"
#include "tier/jail/cpus.h"
#include "tier/jail/disk/disk.h"
#include "tier/jail/record.h"

#define REMOVE_TIMEOUT_MS 2000

int jail_check_slot(const struct host *host, const struct guest *guest, struct error *error)
{
	if (guest->slot >= host->uid_slots)
		return error_set(error, ERROR_BUSY, "all %u uid ranges of this host are in use",
				 host->uid_slots);
	return 0;
}

/* The end of PID 1 ends its pid namespace: the kernel kills the other processes and waits for
 * them. Frozen ones are thawed only after that, so that they die without running on. */
int jail_kill(const struct host *host, struct guest *guest, struct error *error)
{
	int result = process_signal(&guest->init, SIGKILL);
	if (result < 0 && result != -ESRCH)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "killing process %d", (int)guest->init.pid);
	if (guest->init.pidfd < 0)
		cgroup_kill(host, &guest->id);
	else if (!cgroup_is_thawed(host, &guest->id))
		cgroup_kill_frozen(host, &guest->id);
	guest->frozen = false;
	return 0;
}

static int jail_release(const struct host *host, struct guest *guest, struct error *error)
{
	int result = cgroup_remove(host, &guest->id, 0);
	process_done(&guest->init);
	if (result == -EBUSY) {
		/* Processes that are still ending, or that were forked into a cgroup while the
		 * namespace ended and are not killed with PID 1. */
		if (!cgroup_is_empty(host, &guest->id))
			cgroup_kill(host, &guest->id);
		return 1;
	}
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "removing its cgroups");
	return record_remove(host, &guest->id, error);
}

/* The record names a process. It is ours if its start time matches and it is in the cgroup that
 * only root can put it in. */
static int guest_find_process(const struct host *host, struct guest *guest, struct error *error)
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
	if (!process_alive(&process) || !cgroup_holds_process(host, &guest->id, process.pid)) {
		process_done(&process);
		return 0;
	}
	guest->init = process;
	return 1;
}

int jail_adopt(const struct host *host, struct guest *guest, struct error *error)
{
	guest->init = PROCESS_NONE;
	guest->frozen = false;
	guest->phase_count = 0;
	memset(guest->limit_reasons, 0, sizeof(guest->limit_reasons));
	int found = guest_find_process(host, guest, error);
	if (found < 0)
		return -1;
	if (found == 0) {
		/* Kills the processes that a crash left; the files stay. */
		guest->init = PROCESS_NONE;
		return jail_kill(host, guest, error);
	}
	guest->frozen = cgroup_is_frozen(host, &guest->id);
	/* If a crash interrupted a pause before it was reported, undo the pause. */
	if (!guest->frozen && !cgroup_is_thawed(host, &guest->id) &&
	    cgroup_freeze(host, &guest->id, false, error) < 0)
		return -1;
	cgroup_reasons(host, &guest->id, guest->limit_reasons);
	disk_reasons(host, &guest->id, guest->limit_reasons);
	return 1;
}

int jail_set_limits(const struct host *host, struct guest *guest, const struct limits *limits,
		    struct error *error)
{
	struct error ignored;
	struct limits before = guest->limits;
	if (limits->disk != before.disk || limits->inodes != before.inodes ||
	    limits->files != before.files)
		return error_set(error, ERROR_UNSUPPORTED,
				 "disk, inodes and open files of a sandbox cannot be changed");
	if (cgroup_set_limits(host, &guest->id, limits, error) < 0) {
		if (cgroup_set_limits(host, &guest->id, &before, &ignored) < 0)
			error_prepend(error, "(and not all old limits could be restored)");
		return -1;
	}
	guest->limits = *limits;
	if (record_write(host, guest, error) < 0) {
		guest->limits = before;
		if (cgroup_set_limits(host, &guest->id, &before, &ignored) < 0)
			error_prepend(error, "(and not all old limits could be restored)");
		return -1;
	}
	if (limits->cpu_millis != before.cpu_millis)
		cpus_change(host, guest, limits->cpu_millis);
	return 0;
}

int jail_freeze(const struct host *host, struct guest *guest, bool frozen, struct error *error)
{
	int result = cgroup_freeze(host, &guest->id, frozen, error);
	if (result == 0)
		guest->frozen = frozen;
	return result;
}

/* The root is found through the process, so that no path inside the sandbox is followed. */
void jail_counters(const struct host *host, const struct guest *guest, const char *root,
		   struct spawn_counters *ret_counters)
{
	char path[64];
	memset(ret_counters, 0, sizeof(*ret_counters));
	cgroup_counters(host, guest, ret_counters);
	if (text_format(path, sizeof(path), "/proc/%d/root", (int)guest->init.pid) < 0)
		return;
	CLOSE_FD int outer = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLOSE_FD int inner =
	    outer < 0 ? -1 : openat(outer, root, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	disk_read_usage(guest, inner, ret_counters);
}

static int jail_sweep(const struct host *host, bool (*known)(void *data, const struct id *id),
		      void *data, struct error *error)
{
	int result = cgroup_sweep(host, known, data, REMOVE_TIMEOUT_MS);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "removing leftover cgroups");
	return 0;
}

const struct jail host_jail = {
    .reclaim = cgroup_reclaim,
    .memory_events_open = cgroup_memory_events_open,
    .memory_events_read = cgroup_memory_events_read,
    .memory_limit_enforce = cgroup_memory_limit_enforce,
    .release = jail_release,
    .sweep = jail_sweep,
};
