/* Boots a sandbox for a probe. See probe_boot.h. */
#include "tier/probe_boot.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "tier/jail/jail.h"
#include "tier/remove_tree.h"

#define END_TIMEOUT_MS 5000
#define LOOK_EVERY (300 * NSEC_PER_USEC)

static int process_wait_and_reap(struct process *process)
{
	siginfo_t info;
	int result = process->pidfd < 0 ? 0 : process_wait_end(process, END_TIMEOUT_MS);
	/* It is usually our child. */
	if (result >= 0 && process->pidfd >= 0)
		waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG);
	return result;
}

static int guest_take_down(const struct driver *driver, const struct host *host,
			   struct guest *guest, struct error *error)
{
	int64_t deadline = clock_boot() + END_TIMEOUT_MS * NSEC_PER_MSEC;
	if (driver->kill(host, guest, error) < 0)
		return -1;
	int result = process_wait_and_reap(&guest->init);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "waiting for its end");
	while ((result = host_jail.release(host, guest, error)) > 0) {
		if (clock_boot() > deadline)
			return error_set(error, ERROR_TIMED_OUT, "its cgroups are still in use");
		nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY}, NULL);
	}
	return result;
}

int probe_boot(const struct driver *driver, const struct host *host, uint64_t memory,
	       struct guest *guest, struct error *error)
{
	const struct spawn_create create = {.tier = (uint32_t)driver->tier,
					    .rootfs.kind = ROOTFS_HOST,
					    .limits = {.memory = memory,
						       .disk = SANDBOX_DISK_MIN,
						       .inodes = 1024,
						       .cpu_millis = SANDBOX_CPU_MILLIS_DEFAULT,
						       .pids = SANDBOX_PIDS_MIN,
						       .files = SANDBOX_FILES_DEFAULT}};
	const struct boot boot = {.create = &create};
	struct error second;
	char directory[512];
	*guest = (struct guest){.id = id_new(), .slot = host->uid_slots - 1, .init = PROCESS_NONE};
	int result = text_format(directory, sizeof(directory), "%s/sandboxes/%s", host->state,
				 guest->id.text);
	if (result >= 0 && mkdir(directory, 0700) < 0)
		result = -errno;
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "%s/sandboxes",
				       host->state);
	int booted = driver->boot(host, guest, &boot, error);
	int ended = guest_take_down(driver, host, guest, booted < 0 ? &second : error);
	result = remove_tree(AT_FDCWD, directory);
	if (booted < 0 || ended < 0)
		return -1;
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "deleting its files");
	return 0;
}
