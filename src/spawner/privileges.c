/* The spawner drops privileges twice: before it does anything, and when the start is done, before
 * it reads the first byte from the daemon.
 *
 * The daemon and every sandbox inherit the system call filter and no_new_privs. So the filter
 * denies only calls that none of them needs. ptrace and process_vm_* stay allowed, because
 * debuggers work in sandboxes; keyctl stays allowed, because the init gives each sandbox a
 * keyring of its own. */
#include "spawner/internal.h"

#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

/* Descriptors for the daemon's connections and a few for each sandbox. A shell's default is
 * 1024. */
#define FILES_WANTED 65536u
#define FILES_LEAST 256u

struct kept_capability {
	int capability;
	bool start_only; /* dropped the second time */
};

static const struct kept_capability kept_capabilities[] = {
    /* namespaces, mounts, loop devices, pivot_root, writing uid maps for others */
    {CAP_SYS_ADMIN, false},
    /* uid and gid maps of sandboxes; becoming the daemon's user */
    {CAP_SETUID, false},
    {CAP_SETGID, false},
    /* a map that holds uid 0 of the parent needs it (nested instances) */
    {CAP_SETFCAP, false},
    /* directories of the daemon and of sandboxes get their owners */
    {CAP_CHOWN, false},
    {CAP_FOWNER, false},
    /* files of uid ranges and of the daemon: moving, measuring, erasing */
    {CAP_DAC_OVERRIDE, false},
    /* signals to processes in uid ranges */
    {CAP_KILL, false},
    /* /proc/PID/ns and /proc/PID/fd of sandboxes, whose PID 1 cannot be read */
    {CAP_SYS_PTRACE, false},
    /* setns() into a mount namespace */
    {CAP_SYS_CHROOT, false},
    /* the loopback of a network namespace */
    {CAP_NET_ADMIN, false},
    /* cpu affinity of processes that are in another uid range already */
    {CAP_SYS_NICE, false},
    /* rlimits and oom_score_adj of sandboxes; often absent in containers */
    {CAP_SYS_RESOURCE, false},
    /* device nodes of a sandbox's /dev; absent in containers too */
    {CAP_MKNOD, false},
    /* the bounding set: the second drop reduces it, each daemon empties its own */
    {CAP_SETPCAP, false},
    /* --listen on a port below 1024 */
    {CAP_NET_BIND_SERVICE, true},
};

static const char *const denied_calls[] = {
    "kexec_load",    "kexec_file_load", "init_module",    "finit_module",      "delete_module",
    "bpf",           "perf_event_open", "io_uring_setup", "io_uring_enter",    "io_uring_register",
    "userfaultfd",   "swapon",          "swapoff",        "settimeofday",      "clock_settime",
    "clock_adjtime", "adjtimex",        "acct",           "open_by_handle_at", "syslog",
    "iopl",          "ioperm",          "add_key",        "request_key",       "lookup_dcookie",
    "vhangup",       "fanotify_init",
};

static bool capability_is_kept(int capability, bool second)
{
	for (size_t i = 0; i < ARRAY_SIZE(kept_capabilities); i++)
		if (kept_capabilities[i].capability == capability)
			return !(second && kept_capabilities[i].start_only);
	return false;
}

/* Reduces permitted and effective to the kept capabilities that we have, and empties
 * inheritable. */
static int capabilities_reduce(bool second)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	for (int word = 0; word < 2; word++) {
		uint32_t mask = 0;
		for (int bit = 0; bit < 32; bit++)
			if (capability_is_kept(word * 32 + bit, second))
				mask |= 1u << bit;
		data[word].permitted &= mask;
		data[word].effective = data[word].permitted;
		data[word].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int bounding_set_reduce(void)
{
	for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++)
		if (!capability_is_kept(capability, true) && prctl(PR_CAPBSET_DROP, capability) < 0)
			return -errno;
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ? -errno : 0;
}

static int filter_load(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	if (!filter)
		return -ENOMEM;
	/* Other ABIs of the machine must not bypass the filter. A sandbox's own filter is
	 * stricter. */
	int result = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	for (size_t i = 0; i < ARRAY_SIZE(denied_calls) && result == 0; i++) {
		int number = seccomp_syscall_resolve_name(denied_calls[i]);
		if (number >= 0)
			result = seccomp_rule_add_exact(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
	}
	if (result == 0)
		result = seccomp_load(filter);
	seccomp_release(filter);
	return result;
}

int privileges_narrow_first(struct spawner *spawner, struct error *error)
{
	(void)spawner;
	int result = capabilities_reduce(false);
	if (result < 0)
		return error_set_errno(error, ERROR_NO_PERMISSION, result,
				       "giving up capabilities");
	return 0;
}

int privileges_raise_file_limit(struct spawner *spawner, struct error *error)
{
	(void)spawner;
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "the limit of open files");
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	/* Root may raise its own hard limit. */
	const struct rlimit more = {FILES_WANTED, FILES_WANTED};
	if (files.rlim_max < FILES_WANTED && setrlimit(RLIMIT_NOFILE, &more) < 0 &&
	    files.rlim_max < FILES_LEAST)
		return error_set(error, ERROR_CONFIG,
				 "a process of this user may have %llu open files, and a daemon "
				 "needs at least %u: raise the limit (`ulimit -n`, LimitNOFILE= of "
				 "a unit, /etc/security/limits.conf)",
				 (unsigned long long)files.rlim_max, FILES_LEAST);
	return 0;
}

int privileges_narrow_second(struct spawner *spawner, struct error *error)
{
	(void)spawner;
	int result = bounding_set_reduce();
	if (result == 0)
		result = capabilities_reduce(true);
	if (result < 0)
		return error_set_errno(error, ERROR_NO_PERMISSION, result,
				       "giving up capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_set_errno(error, ERROR_NO_PERMISSION, errno, "no_new_privs");
	result = filter_load();
	if (result < 0)
		return error_set_errno(error, ERROR_NO_PERMISSION, result,
				       "loading the filter of system calls");
	return 0;
}
