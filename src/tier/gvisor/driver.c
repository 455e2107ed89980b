/* The gvisor tier: a kernel in user space (runsc) in a jail, with a shim (shim.h) as its
 * process. The shim is in the cgroup `init`; runsc and all that it starts are in `work`. Called
 * by the spawner; see tier/driver.h for what may block. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "tier/driver.h"
#include "tier/gvisor/runsc.h"
#include "tier/gvisor/root.h"
#include "tier/jail/boot.h"
#include "tier/jail/jail.h"
#include "tier/probe_boot.h"

/* runsc itself is in the sandbox's cgroup. Measured: 42 MiB at the first command. The daemon
 * checks it, too, because the probe reports it. */
#define MEMORY_MIN (128 * MIB)

static int gvisor_check_boot(const struct host *host, const struct guest *guest,
			     const struct boot *boot, struct error *error)
{
	const struct spawn_create *create = boot->create;
	if (create->mount_count > 0)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the gvisor tier cannot show folders of the host yet: copy them "
				 "with `caisson cp`, or use isolation `namespace`");
	if (create->flags & CREATE_NESTED_USERNS)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the gvisor tier has no user namespaces inside");
	if (create->limits.memory < MEMORY_MIN)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "memory of %llu MiB is too little: the gvisor tier needs %llu MiB "
				 "or more, its kernel counts too",
				 (unsigned long long)create->limits.memory / MIB, MEMORY_MIN / MIB);
	return jail_check_slot(host, guest, error);
}

/* The host counts threads: those of runsc, and several for each address space inside. Measured
 * with ptrace: 73 after the first command, 16 more for each process. So the limit on the host
 * protects only the host and is not the requested number. A guest that reaches it ends runsc. */
#define HOST_PIDS_FIRST 512u
#define HOST_PIDS_EACH 24u
static struct limits gvisor_limits_on_host(const struct limits *asked)
{
	struct limits limits = *asked;
	limits.pids = MIN(asked->pids, SANDBOX_PIDS_MAX) * HOST_PIDS_EACH + HOST_PIDS_FIRST;
	return limits;
}

static void gvisor_correct_reasons(uint32_t reasons[LIMIT_COUNT])
{
	if (reasons[LIMIT_PIDS] == LIMIT_ENFORCED)
		reasons[LIMIT_PIDS] = LIMIT_OTHER_KERNEL;
}

static int gvisor_boot_with(const struct host *host, struct guest *guest, const struct boot *boot,
			    struct runsc *runsc, struct error *error)
{
	char *const arguments[] = {"caisson", "_shim", runsc->platform, guest->id.text, NULL};
	CLOSE_FD int self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	if (self < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "/proc/self/exe");
	const struct boot_program program = {.fd = self, .arguments = arguments};
	guest->limits = gvisor_limits_on_host(&boot->create->limits);
	if (boot_guest(host, guest, boot, &program, error) < 0)
		return -1;
	gvisor_correct_reasons(guest->limit_reasons);
	return 0;
}

static int gvisor_boot(const struct host *host, struct guest *guest, const struct boot *boot,
		       struct error *error)
{
	struct runsc runsc;
	if (gvisor_check_boot(host, guest, boot, error) < 0 || runsc_find(host, &runsc, error) < 0)
		return -1;
	return gvisor_boot_with(host, guest, boot, &runsc, error);
}

static int gvisor_adopt(const struct host *host, struct guest *guest, struct error *error)
{
	int result = jail_adopt(host, guest, error);
	gvisor_correct_reasons(guest->limit_reasons);
	return result;
}

static int gvisor_set_limits(const struct host *host, struct guest *guest,
			     const struct limits *limits, struct error *error)
{
	if (limits->memory < MEMORY_MIN)
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "the gvisor tier needs at least %llu MiB of memory",
				 MEMORY_MIN / MIB);
	const struct limits on_host = gvisor_limits_on_host(limits);
	return jail_set_limits(host, guest, &on_host, error);
}

static int gvisor_counters(const struct host *host, struct guest *guest,
			   struct spawn_counters *ret_counters, struct error *error)
{
	(void)error;
	jail_counters(host, guest, &ROOT_GUEST[1], ret_counters);
	/* The host counts runsc's threads, not the guest's processes. */
	ret_counters->processes = 0;
	ret_counters->known[KNOWN_PROCESSES] = 0;
	return 0;
}

/* Every start of a daemon waits for this. A release that `auto` would choose is tested with a
 * sandbox. One that must be requested by name is tested when it is used, or by `caisson doctor`.
 * Here only its jail is tested, without runsc, to learn which limits are enforced. */
static void gvisor_probe(const struct host *host, struct spawn_probe *ret_probe)
{
	struct guest guest = {.init = PROCESS_NONE};
	struct runsc runsc;
	struct error error;
	memset(ret_probe, 0, sizeof(*ret_probe));
	ret_probe->tier = TIER_GVISOR;
	ret_probe->memory_min = MEMORY_MIN;
	ret_probe->memory_idle = 64 * MIB;
	int result = runsc_find(host, &runsc, &error);
	if (result == 0)
		runsc_auto_objection(&runsc, clock_wall(), ret_probe->missing,
				     sizeof(ret_probe->missing));
	ret_probe->by_name = ret_probe->missing[0] != '\0';
	if (result == 0 && ret_probe->by_name)
		result = probe_boot(&namespace_driver, host, MEMORY_MIN, &guest, &error);
	else if (result == 0)
		result = probe_boot(&gvisor_driver, host, MEMORY_MIN, &guest, &error) < 0
			     ? error_prepend(&error, "runsc %s (%s)", runsc.version, runsc.platform)
			     : 0;
	if (result < 0) {
		snprintf(ret_probe->missing, sizeof(ret_probe->missing), "%.255s", error.message);
		return;
	}
	ret_probe->available = 1;
	memcpy(ret_probe->limit_reasons, guest.limit_reasons, sizeof(ret_probe->limit_reasons));
	gvisor_correct_reasons(ret_probe->limit_reasons);
}

const struct driver gvisor_driver = {
    .tier = TIER_GVISOR,
    .name = "gvisor",
    .probe = gvisor_probe,
    .boot = gvisor_boot,
    .adopt = gvisor_adopt,
    .set_limits = gvisor_set_limits,
    /* The guest's init is frozen too, because it is one of the sentry's tasks. The shim is not. */
    .freeze = jail_freeze,
    .counters = gvisor_counters,
    .kill = jail_kill,
};
