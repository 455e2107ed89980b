/* What a process in a sandbox may do: capabilities, no_new_privs, limits, keyring, the system call
 * filter. Done by PID 1 to itself before anything else runs; everything it forks inherits it, and
 * nothing inside can undo any of it. The policy and its reasons: docs/isolation.md.
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

/* What root inside keeps, within the sandbox's user namespace only. no_new_privs makes exec drop
 * what the caller does not have, so that this is also what PID 1 and the launcher keep: they need
 * KILL (execs of other users), SETUID, SETGID (to become the asked user), and the runners of file
 * operations what root needs for files.
 *
 * Not kept, among others: SYS_ADMIN (the mounts), SYS_PTRACE (PID 1), NET_ADMIN and NET_RAW (the
 * network namespace is the policy's), MKNOD, SYS_RESOURCE (user.max_user_namespaces, quotas),
 * SYS_NICE, DAC_READ_SEARCH (handles; DAC_OVERRIDE is enough for root's file work). */
static const unsigned kept_capabilities[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,     CAP_KILL,    CAP_SETGID,
    CAP_SETUID, CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_SETFCAP,
};

/* Those of them that root does not keep where it can write to a folder of the host's. SETFCAP: a
 * file with capabilities, left there, gives them to whoever runs it on the host. FSETID: the
 * setgid bit of a file would outlive a change of its mode. */
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
	/* A kernel that has no user namespaces has nothing to forbid. */
	if (user_namespaces_fd < 0 && errno != ENOENT)
		return harden_failed(ret_failure, errno, USER_NAMESPACES);
	return 0;
}

/* The filter cannot look behind clone3()'s pointer and therefore refuses all of it; this is the
 * second lock on the same door, and holds for whatever call a later kernel adds. It is the limit of
 * the user namespace of whoever opened the file: the sandbox's. */
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

/* The spawner's session keyring came along through fork and exec, and with it what it can read. */
static int leave_keyring(const struct setup *setup, struct failure *ret_failure)
{
	if (setup->channel)
		return 0;
	if (syscall(__NR_keyctl, JOIN_SESSION_KEYRING, NULL, 0, 0, 0) < 0 && errno != ENOSYS &&
	    errno != EOPNOTSUPP)
		return harden_failed(ret_failure, errno, "a session keyring of its own");
	return 0;
}

/* Core dumps. Where the host's core_pattern is a pipe, the kernel starts its helper, outside and as
 * root, on the dump of any process: also at a limit of 0, for a pipe has no size. At a limit of 1,
 * and only there, it does not. The filter keeps it at 1. */
static int forbid_core_dumps(struct failure *ret_failure)
{
	const struct rlimit limit = {.rlim_cur = 1, .rlim_max = 1};
	if (prlimit(0, RLIMIT_CORE, &limit, NULL) < 0)
		return harden_failed(ret_failure, errno, "RLIMIT_CORE");
	/* As does the mode of our own executable; an init that was built for tests is readable. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return harden_failed(ret_failure, errno, "PR_SET_DUMPABLE");
	return 0;
}

/* Whether files that are made inside can be files of the host's. */
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

	/* The kernel may know more capabilities than our headers: EINVAL is the end of its list. */
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
	/* EINVAL: a kernel that has none (gVisor's). */
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

/* Of two filters the stricter answer counts. */
static int install_filters(const struct setup *setup, struct failure *ret_failure)
{
	/* It keeps users away from the host's kernel, and this one is the sandbox's own: `dmesg`
	 * and namespaces of a user's are a matter between the two. */
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
	if (leave_keyring(setup, ret_failure) < 0 || forbid_core_dumps(ret_failure) < 0 ||
	    reduce_capabilities(setup, ret_failure) < 0)
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return harden_failed(ret_failure, errno, "no_new_privs");
	/* Last: it refuses half of the above. */
	return install_filters(setup, ret_failure);
}
