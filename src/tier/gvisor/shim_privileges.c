/* Drops the shim's privileges. It keeps its descriptors (two sockets, the logs that come with
 * EXEC) and the system calls that move bytes between them. So an intruder who takes it over
 * through a frame can only write to those logs and talk to that daemon. Called by shim.c, once;
 * does not block. */
#include "tier/gvisor/shim_privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/syscalls.h"

/* An unused id of the sandbox's range: runsc's own processes are root and nobody. */
#define SHIM_ID 65533

static int shim_drop_identity(void)
{
	int result = sys_setgroups(0, NULL);
	if (result == 0)
		result = sys_setresgid(SHIM_ID, SHIM_ID, SHIM_ID);
	if (result == 0)
		result = sys_setresuid(SHIM_ID, SHIM_ID, SHIM_ID);
	/* A sandbox with a single id has no other. */
	return result == -EINVAL || result == -EPERM ? 0 : result;
}

static int shim_drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};
	for (unsigned capability = 0; capability < 64; capability++)
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 && errno != EINVAL)
			return -errno;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -errno;
	return shim_drop_identity() == 0 && syscall(SYS_capset, &header, none) == 0 ? 0 : -EPERM;
}

/* A sanitizer needs more calls than can be listed. */
#ifdef __SANITIZE_ADDRESS__
static int shim_filter_calls(void)
{
	return 0;
}
#else
static int shim_filter_calls(void)
{
	static const int allowed[] = {
	    SCMP_SYS(read),       SCMP_SYS(write),           SCMP_SYS(close),
	    SCMP_SYS(poll),       SCMP_SYS(ppoll),           SCMP_SYS(recvmsg),
	    SCMP_SYS(recvfrom),   SCMP_SYS(sendmsg),         SCMP_SYS(sendto),
	    SCMP_SYS(accept4),    SCMP_SYS(getsockopt),      SCMP_SYS(fcntl),
	    SCMP_SYS(pread64),    SCMP_SYS(pwrite64),        SCMP_SYS(fallocate),
	    SCMP_SYS(wait4),      SCMP_SYS(waitid),          SCMP_SYS(clock_gettime),
	    SCMP_SYS(signalfd4),  SCMP_SYS(rt_sigreturn),    SCMP_SYS(restart_syscall),
	    SCMP_SYS(exit_group), SCMP_SYS(clock_gettime64),
	};
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int result = filter ? 0 : -ENOMEM;
	for (size_t i = 0; result == 0 && i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		result = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
		/* Not every architecture has both calls of a pair. */
		if (result == -EDOM)
			result = 0;
	}
	if (result == 0)
		result = seccomp_load(filter);
	seccomp_release(filter);
	return result;
}
#endif

int shim_drop_privileges(void)
{
	const struct rlimit no_core = {0, 0};
	int result = shim_drop_capabilities();
	if (result == 0 &&
	    (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	     setrlimit(RLIMIT_CORE, &no_core) < 0))
		result = -errno;
	return result == 0 ? shim_filter_calls() : result;
}
