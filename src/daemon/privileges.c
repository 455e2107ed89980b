/* The daemon drops its privileges in two steps. Called once by the daemon's main. Everything here
 * is a few system calls, and none can be undone.
 *
 * (1) By the spawner, before the exec: the daemon's own user and group, no supplementary groups, no
 *     capability in any set, only descriptors 0-2 and those it is given.
 *
 * (2) Here, when database, listeners and spawner socket are open. What is kept, and why:
 *     files      db/ and logs/ of the state directory (SQLite's journal files and the logs of new
 *                execs are made later); the configuration's directory, read only (for reload; not
 *                only the file, because editors replace it); /dev/urandom (SQLite).
 *                The TLS certificate and key are copies in memory, open for reading.
 *                The guests' sockets need no right: Landlock does not restrict connect() to a path.
 *     network    accept() on open listeners; new sockets of AF_UNIX only. No TCP of its own.
 *     processes  threads (the loop's, SQLite); no fork, no exec, no signal except to itself, no
 *                ptrace, no other process's memory.
 *     memory     none becomes executable after the start.
 *     Everything else (mounts, namespaces, keys, bpf, modules, clocks, io_uring, ...) is not on the
 *     list below and fails with EPERM. Calls that only an intruder would make end the process.
 *
 * A sanitizer's run-time library inspects its own process. So such a build may read /proc, stays
 * dumpable and has no system call filter. */
#include "daemon/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

/* --- Landlock --- */

/* Defined here because the kernel headers may be older than the kernel. */
#define ACCESS_TRUNCATE (1ULL << 14)  /* ABI 3 */
#define ACCESS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#define NET_ALL 3ULL                  /* ABI 4: bind and connect of TCP */
#define SCOPE_ALL 3ULL                /* ABI 6: abstract Unix sockets and signals */

struct ruleset {
	uint64_t files, net, scoped;
};

#define RIGHTS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RIGHTS_OWN                                                                                 \
	(RIGHTS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |             \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |                            \
	 LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REFER | ACCESS_TRUNCATE)

static uint64_t landlock_handled_files(int abi)
{
	uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1; /* all of ABI 1 */
	if (abi >= 2)
		rights |= LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		rights |= ACCESS_TRUNCATE;
	if (abi >= 5)
		rights |= ACCESS_IOCTL_DEV;
	return rights;
}

/* A path that does not exist needs no rule. */
static int landlock_allow(int ruleset, const char *path, uint64_t rights, uint64_t handled,
			  struct error *error)
{
	CLOSE_FD int fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "Landlock: %s", path);
	struct landlock_path_beneath_attr rule = {.allowed_access = rights & handled,
						  .parent_fd = fd};
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "Landlock: %s", path);
	return 0;
}

static int files_restrict(const struct config *config, const char *config_path, struct error *error)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	if (abi < 1) {
		log_warning("this kernel has no Landlock (%s): the daemon's files are protected by "
			    "their owner and mode alone",
			    strerror(errno));
		return 0;
	}
	struct ruleset rules = {.files = landlock_handled_files((int)abi),
				.net = abi >= 4 ? NET_ALL : 0,
				.scoped = abi >= 6 ? SCOPE_ALL : 0};
	size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
	CLOSE_FD int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0);
	if (ruleset < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "Landlock");

	char path[512], directory[512] = "";
	const char *slash = strrchr(config_path, '/');
	if (slash && text_format(directory, sizeof(directory), "%.*s",
				 (int)(slash - config_path) + 1, config_path) < 0)
		directory[0] = '\0';
	snprintf(path, sizeof(path), "%s/db", config->state);
	if (landlock_allow(ruleset, path, RIGHTS_OWN, rules.files, error) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/logs", config->state);
	if (landlock_allow(ruleset, path, RIGHTS_OWN, rules.files, error) < 0 ||
	    (directory[0] &&
	     landlock_allow(ruleset, directory, RIGHTS_READ, rules.files, error) < 0) ||
	    landlock_allow(ruleset, "/dev/urandom", LANDLOCK_ACCESS_FS_READ_FILE, rules.files,
			   error) < 0)
		return -1;
#ifdef SANITIZED
	if (landlock_allow(ruleset, "/proc", RIGHTS_READ, rules.files, error) < 0)
		return -1;
#endif
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "Landlock");
	log_debug("Landlock ABI %ld restricts this process", abi);
	return 0;
}

/* --- system calls --- */

static const char *const allowed_calls[] = {
    /* open descriptors */
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "close",
    "close_range", "lseek", "dup", "dup2", "dup3", "fcntl", "ioctl", "poll", "ppoll", "select",
    "pselect6", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2",
    "eventfd2", "timerfd_create", "timerfd_settime", "timerfd_gettime", "signalfd4", "pipe2",
    /* files, as far as Landlock allows */
    "open", "openat", "openat2", "stat", "fstat", "lstat", "newfstatat", "statx", "statfs",
    "fstatfs", "access", "faccessat", "faccessat2", "getdents64", "readlink", "readlinkat",
    "getcwd", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2",
    "fsync", "fdatasync", "sync_file_range", "ftruncate", "truncate", "fallocate", "fadvise64",
    "flock", "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utimensat",
    "umask", "copy_file_range", "sendfile", "splice",
    /* sockets; the rules for socket() are below */
    "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg",
    "recvmmsg", "shutdown", "getsockname", "getpeername", "setsockopt", "getsockopt",
    /* memory */
    "brk", "munmap", "mremap", "madvise", "mincore", "msync", "membarrier", "mlock", "munlock",
    /* threads and time */
    "futex", "futex_waitv", "set_robust_list", "get_robust_list", "rseq", "sched_yield",
    "sched_getaffinity", "sched_getparam", "sched_getscheduler", "getcpu", "gettid",
    "set_tid_address", "nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres",
    "gettimeofday", "time", "setitimer", "getitimer", "alarm", "restart_syscall", "exit",
    "exit_group",
    /* signals, to itself */
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait",
    "rt_sigsuspend", "sigaltstack", "arch_prctl",
    /* ids and resources */
    "getpid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid",
    "getgroups", "getpgrp", "getpgid", "getsid", "uname", "sysinfo", "times", "getrusage",
    "getrlimit", "capget", "getrandom"};

/* Nothing that the daemon links calls these: only an intruder does. */
static const char *const deadly_calls[] = {
    /* programs and processes */
    "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev",
    /* mounts and namespaces */
    "mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsmount", "unshare",
    "setns", "chroot",
    /* the kernel */
    "bpf", "init_module", "finit_module", "delete_module", "kexec_load", "reboot",
    "perf_event_open", "userfaultfd", "io_uring_setup", "keyctl", "add_key", "request_key",
    "pidfd_getfd", "kcmp", "personality",
    /* ids and capabilities */
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "capset"};

static int filter_add_list(scmp_filter_ctx filter, uint32_t action, const char *const *names,
			   size_t count)
{
	int result = 0;
	for (size_t i = 0; i < count && result == 0; i++) {
		int number = seccomp_syscall_resolve_name(names[i]);
		/* A name that this libseccomp or architecture does not know needs no rule. */
		if (number >= 0)
			result = seccomp_rule_add(filter, action, number, 0);
	}
	return result;
}

/* Calls that are allowed with some arguments only. */
static int filter_add_conditional(scmp_filter_ctx filter)
{
	const scmp_datum_t self = (scmp_datum_t)getpid(), thread = CLONE_THREAD | CLONE_VM;
	const struct {
		int call;
		uint32_t action;
		unsigned count;
		struct scmp_arg_cmp arguments[2];
	} rules[] = {
	    {SCMP_SYS(socket), SCMP_ACT_ALLOW, 1, {SCMP_A0(SCMP_CMP_EQ, AF_UNIX)}},
	    {SCMP_SYS(socketpair), SCMP_ACT_ALLOW, 1, {SCMP_A0(SCMP_CMP_EQ, AF_UNIX)}},
	    /* A thread, not a process. clone3() hides its flags: ENOSYS sends libc to clone(). */
	    {SCMP_SYS(clone), SCMP_ACT_ALLOW, 1, {SCMP_A0(SCMP_CMP_MASKED_EQ, thread, thread)}},
	    {SCMP_SYS(clone3), SCMP_ACT_ERRNO(ENOSYS), 0, {{0}}},
	    {SCMP_SYS(mmap), SCMP_ACT_ALLOW, 1, {SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)}},
	    {SCMP_SYS(mprotect), SCMP_ACT_ALLOW, 1, {SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)}},
	    {SCMP_SYS(tgkill), SCMP_ACT_ALLOW, 1, {SCMP_A0(SCMP_CMP_EQ, self)}},
	    {SCMP_SYS(kill), SCMP_ACT_ALLOW, 1, {SCMP_A0(SCMP_CMP_EQ, self)}},
	    /* Only reads of its own limits. */
	    {SCMP_SYS(prlimit64),
	     SCMP_ACT_ALLOW,
	     2,
	     {SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0)}},
	    /* The priority of the calling thread. */
	    {SCMP_SYS(setpriority),
	     SCMP_ACT_ALLOW,
	     2,
	     {SCMP_A0(SCMP_CMP_EQ, PRIO_PROCESS), SCMP_A1(SCMP_CMP_EQ, 0)}},
	    /* Thread names. */
	    {SCMP_SYS(prctl), SCMP_ACT_ALLOW, 1, {SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME)}},
	};
	int result = 0;
	for (size_t i = 0; result == 0 && i < ARRAY_SIZE(rules); i++)
		result = seccomp_rule_add_array(filter, rules[i].action, rules[i].call,
						rules[i].count, rules[i].arguments);
	return result;
}

static int calls_restrict(struct error *error)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!filter)
		return error_set(error, ERROR_INTERNAL, "seccomp: no memory");
	int result =
	    filter_add_list(filter, SCMP_ACT_ALLOW, allowed_calls, ARRAY_SIZE(allowed_calls));
	if (result == 0)
		result = filter_add_list(filter, SCMP_ACT_KILL_PROCESS, deadly_calls,
					 ARRAY_SIZE(deadly_calls));
	if (result == 0)
		result = filter_add_conditional(filter);
	/* A tree instead of a list: some 150 comparisons per call would be noticeable. */
	if (result == 0)
		result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (result == 0)
		result = seccomp_load(filter);
	seccomp_release(filter);
	if (result < 0)
		return error_set_errno(error, ERROR_INTERNAL, result, "seccomp");
	return 0;
}

/* --- limits --- */

static int resources_restrict(struct error *error)
{
	struct rlimit core = {0, 0}, files;
	if (setrlimit(RLIMIT_CORE, &core) < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "resource limits");
	/* Each connection, guest and open log is a descriptor. */
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "open files");
#ifndef SANITIZED
	/* Other processes of the same user must not read its memory, which holds tokens. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "prctl");
#endif
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "prctl");
	return 0;
}

int privileges_drop(const struct config *config, const char *config_path, struct error *error)
{
	if (resources_restrict(error) < 0 || files_restrict(config, config_path, error) < 0)
		return -1;
#ifdef SANITIZED
	(void)calls_restrict;
	log_warning("a sanitizer is built in: no system call filter");
	return 0;
#else
	return calls_restrict(error);
#endif
}
