/* Limits what a process in a sandbox may do: capabilities, no_new_privs, limits, keyring, the
 * system call filter. PID 1 applies this to itself before anything else runs. Every process that
 * it forks inherits it, and no process inside can undo it. The policy and its reasons:
 * docs/isolation.md.
 *
 * Called by setup.c (harden_before_readonly) and main (setup_harden), once each. Does not block. */
#include "init/setup/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/macros.h"
#include "proto/spawner_messages.h"
#include "seccomp_filter.h"

#define USER_NAMESPACES "/proc/sys/user/max_user_namespaces"
#define JOIN_SESSION_KEYRING 1 /* KEYCTL_JOIN_SESSION_KEYRING; linux/keyctl.h is not musl's */

/* What root inside keeps, within the sandbox's user namespace only. With no_new_privs an exec
 * adds no capability that the caller lacks, so PID 1 and the launcher keep the same ones. They
 * need KILL (for execs of other users) and SETUID, SETGID (to become the requested user);
 * runners of file operations need what root needs for files.
 *
 * Not kept, among others: SYS_ADMIN (the mounts), SYS_PTRACE (PID 1), NET_ADMIN and NET_RAW (the
 * network namespace is the policy's), MKNOD, SYS_RESOURCE (user.max_user_namespaces, quotas),
 * SYS_NICE, DAC_READ_SEARCH (handles; DAC_OVERRIDE is enough for root's file work). */
static const unsigned kept_capabilities[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,     CAP_KILL,    CAP_SETGID,
    CAP_SETUID, CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_SETFCAP,
};

/* Those that root does not keep if it can write to a folder of the host. SETFCAP: a file with
 * capabilities in that folder would give them to anybody who runs it on the host. FSETID: a file
 * would keep its setgid bit when it is changed. */
static const unsigned host_file_capabilities[] = {CAP_SETFCAP, CAP_FSETID};

static int user_namespaces_fd = -1;

static int harden_failed(struct failure *failure, int errnum, const char *what)
{
	failure->kind = ERROR_INTERNAL;
	failure->errnum = (uint32_t)errnum;
	snprintf(failure->message, sizeof(failure->message), "hardening the sandbox: %s: %s", what,
		 strerror(errnum));
	return -1;
}

int harden_before_readonly(struct failure *ret_failure)
{
	fd_close(&user_namespaces_fd);
	user_namespaces_fd = open(USER_NAMESPACES, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	/* On a kernel without user namespaces there is nothing to forbid. */
	if (user_namespaces_fd < 0 && errno != ENOENT)
		return harden_failed(ret_failure, errno, USER_NAMESPACES);
	return 0;
}

/* The filter cannot read the struct behind clone3()'s pointer, so it refuses every clone3().
 * This limit is a second protection, which also covers calls that later kernels add. The kernel
 * sets the limit of the user namespace in which the file was opened: the sandbox's. */
static int forbid_user_namespaces(const struct setup *setup, struct failure *ret_failure)
{
	if (setup->flags & CREATE_NESTED_USERNS) {
		fd_close(&user_namespaces_fd);
		return 0;
	}
	if (user_namespaces_fd < 0 && harden_before_readonly(ret_failure) < 0)
		return -1;
	if (user_namespaces_fd < 0)
		return 0;
	int failed = fd_write_full(user_namespaces_fd, "0", 1);
	fd_close(&user_namespaces_fd);
	return failed < 0 ? harden_failed(ret_failure, -failed, USER_NAMESPACES) : 0;
}

/* The spawner's session keyring, and access to its keys, was inherited through fork and exec. */
static int keyring_leave(const struct setup *setup, struct failure *ret_failure)
{
	if (setup->channel)
		return 0;
	if (syscall(__NR_keyctl, JOIN_SESSION_KEYRING, NULL, 0, 0, 0) < 0 && errno != ENOSYS &&
	    errno != EOPNOTSUPP)
		return harden_failed(ret_failure, errno, "a session keyring of its own");
	return 0;
}

/* If the host's core_pattern is a pipe, the kernel starts the helper outside, as root, for the
 * dump of any process. It does so even with a limit of 0, since a pipe has no size, but not with
 * a limit of 1. The filter keeps the limit at 1. */
static int forbid_core_dumps(struct failure *ret_failure)
{
	const struct rlimit limit = {.rlim_cur = 1, .rlim_max = 1};
	if (prlimit(0, RLIMIT_CORE, &limit, NULL) < 0)
		return harden_failed(ret_failure, errno, "RLIMIT_CORE");
	/* The mode of our executable has the same effect, but an init that was built for tests
	 * is readable. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return harden_failed(ret_failure, errno, "PR_SET_DUMPABLE");
	return 0;
}

/* Whether a process inside can make files in a folder of the host. */
static bool writes_to_host(const struct setup *setup)
{
	for (uint32_t i = 0; i < setup->tree_count; i++) {
		if (setup->tree_modes[i] == MOUNT_READ_WRITE)
			return true;
	}
	return false;
}

static int reduce_capabilities(const struct setup *setup, struct failure *ret_failure)
{
	uint64_t kept = 0;
	for (size_t i = 0; i < ARRAY_SIZE(kept_capabilities); i++)
		kept |= 1ULL << kept_capabilities[i];
	for (size_t i = 0; writes_to_host(setup) && i < ARRAY_SIZE(host_file_capabilities); i++)
		kept &= ~(1ULL << host_file_capabilities[i]);

	/* The kernel may know more capabilities than our headers. EINVAL marks the end of its
	 * list. */
	for (unsigned capability = 0; capability < 64; capability++) {
		if (kept & (1ULL << capability))
			continue;
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL && capability > CAP_LAST_CAP)
			break;
		if (errno != EINVAL)
			return harden_failed(ret_failure, errno, "capability bounding set");
	}
	/* EINVAL: a kernel without ambient capabilities (gVisor's). */
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
		return harden_failed(ret_failure, errno, "ambient capabilities");

	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
	    {.effective = (uint32_t)kept, .permitted = (uint32_t)kept},
	    {.effective = (uint32_t)(kept >> 32), .permitted = (uint32_t)(kept >> 32)},
	};
	if (syscall(__NR_capset, &header, data) < 0)
		return harden_failed(ret_failure, errno, "capabilities");
	return 0;
}

static int install_filter(const struct sock_filter *code, size_t count, struct failure *ret_failure)
{
	struct sock_fprog program = {.len = (unsigned short)count,
				     .filter = (struct sock_filter *)code};
	if (syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		return harden_failed(ret_failure, errno, "seccomp filter");
	return 0;
}

/* If there are two filters, the kernel takes the stricter result. */
static int install_filters(const struct setup *setup, struct failure *ret_failure)
{
	/* The filter protects the host's kernel. This kernel is the sandbox's own, so `dmesg`
	 * and user namespaces need no filter. */
	if (setup->channel)
		return 0;
	if (writes_to_host(setup) &&
	    install_filter(seccomp_filter_shared, ARRAY_SIZE(seccomp_filter_shared), ret_failure) <
		0)
		return -1;
	struct sock_filter code[ARRAY_SIZE(seccomp_filter_default)];
	memcpy(code, seccomp_filter_default, sizeof(code));
	if (setup->flags & CREATE_NESTED_USERNS)
		seccomp_filter_nest(code);
	return install_filter(code, ARRAY_SIZE(code), ret_failure);
}

int setup_harden(const struct setup *setup, struct failure *ret_failure)
{
	return forbid_user_namespaces(setup, ret_failure) < 0
		   ? -1
		   : setup_harden_process(setup, ret_failure);
}

int setup_harden_process(const struct setup *setup, struct failure *ret_failure)
{
	if (keyring_leave(setup, ret_failure) < 0 || forbid_core_dumps(ret_failure) < 0 ||
	    reduce_capabilities(setup, ret_failure) < 0)
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return harden_failed(ret_failure, errno, "no_new_privs");
	/* Last, since it refuses half of the calls above. */
	return install_filters(setup, ret_failure);
}
