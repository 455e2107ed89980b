/* The namespace tier: only the jail, on the host's own kernel, with the init as its process. */
#include <stdio.h>
#include <string.h>

#include "base/syscalls.h"
#include "tier/driver.h"
#include "tier/jail/boot.h"
#include "tier/jail/jail.h"
#include "tier/probe_boot.h"

static int namespace_boot(const struct host *host, struct guest *guest, const struct boot *boot,
			  struct error *error)
{
	guest->limits = boot->create->limits;
	if (jail_check_slot(host, guest, error) < 0)
		return -1;
	return boot_guest(host, guest, boot, NULL, error);
}

static int namespace_counters(const struct host *host, struct guest *guest,
			      struct spawn_counters *ret_counters, struct error *error)
{
	(void)error;
	jail_counters(host, guest, ".", ret_counters);
	return 0;
}

static void namespace_probe(const struct host *host, struct spawn_probe *ret_probe)
{
	struct guest guest;
	struct error error;
	memset(ret_probe, 0, sizeof(*ret_probe));
	ret_probe->tier = TIER_NAMESPACE;
	ret_probe->memory_min = SANDBOX_MEMORY_MIN;
	ret_probe->memory_idle = 4 * MIB;
	const struct needed_call *missing = sys_find_missing_call();
	if (missing) {
		snprintf(ret_probe->missing, sizeof(ret_probe->missing),
			 "the system call %s (%s; Linux %s has it): an old kernel, or a "
			 "container's filter",
			 missing->name, missing->for_what, missing->since);
		return;
	}
	int result = probe_boot(&namespace_driver, host, SANDBOX_MEMORY_MIN, &guest, &error);
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
    .boot = namespace_boot,
    .adopt = jail_adopt,
    .set_limits = jail_set_limits,
    .freeze = jail_freeze,
    .counters = namespace_counters,
    .kill = jail_kill,
};
