/* Runs inside a sandbox and tries what must not work there, and what must. One line per attempt:
 *     NAME RESULT [ERRNO or signal]       RESULT: done, refused, killed, hung
 *
 *     probe            tries everything
 *     probe NAME...    tries these
 *     probe --check [--nested] [--shared]  prints "ok NAME" or "not ok NAME: ..." by what
 *                      docs/isolation.md promises (with nested user namespaces, with a read-write
 *                      folder); exit status 1 when any is not so
 *
 * Files are made in $PROBE_DIRECTORY, or /tmp, and left there for the host to look at.
 *
 * Static, so that it runs in any root. Each attempt is a process of its own with ten seconds to
 * live. The arguments are such that nothing happens to a machine where an attempt succeeds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NOWHERE ((long)"/nonexistent/probe")
#define HIGH_BITS (1L << 40)

/* Calls that not every kernel's headers name; their numbers are the same everywhere. */
#define NR_MEMFD_SECRET 447
#define NR_FCHMODAT2 452
#define NR_STATMOUNT 457
#define NR_OPEN_TREE_ATTR 467

struct attempt {
	const char *name;
	/* What must come of it: "done", "refused" (whatever the errno), "refused EPERM", ... */
	const char *expected;
	const char *nested; /* the same where user namespaces are allowed; NULL: no difference */
	long (*try)(void);  /* -1 with errno, or success; NULL: the call below */
	long call, arguments[6];
	const char *shared; /* the same where there is a read-write folder; NULL: no difference */
};

static const struct {
	int number;
	const char *name;
} errno_names[] = {
    {EPERM, "EPERM"},
    {ENOENT, "ENOENT"},
    {EBADF, "EBADF"},
    {EACCES, "EACCES"},
    {EFAULT, "EFAULT"},
    {EINVAL, "EINVAL"},
    {ENOMEM, "ENOMEM"},
    {EROFS, "EROFS"},
    {ENOSYS, "ENOSYS"},
    {ENOSPC, "ENOSPC"},
    {ENXIO, "ENXIO"},
    {EIO, "EIO"},
    {ENODEV, "ENODEV"},
    {ENOTTY, "ENOTTY"},
    {EBUSY, "EBUSY"},
    {EAGAIN, "EAGAIN"},
    {ENOPROTOOPT, "ENOPROTOOPT"},
    {EAFNOSUPPORT, "EAFNOSUPPORT"},
    {EPROTONOSUPPORT, "EPROTONOSUPPORT"},
    {ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"},
};

/* An attempt that found nothing to take: refused by absence. */
static long absent(void)
{
	errno = ENOENT;
	return -1;
}

static long clone_with(unsigned long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(0);
	return pid;
}

static long try_clone_user(void)
{
	return clone_with(CLONE_NEWUSER);
}

static long try_clone_net(void)
{
	return clone_with(CLONE_NEWNET);
}

/* The kernel ignores the upper half of the flags; a filter that compares all of it is evaded. */
static long try_clone_user_high_bits(void)
{
	return clone_with(CLONE_NEWUSER | (unsigned long)HIGH_BITS);
}

static long try_clone3_user(void)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	long pid = syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (pid == 0)
		_exit(0);
	return pid;
}

static long try_user_namespace_limit(void)
{
	char text[16] = "";
	int fd = open("/proc/sys/user/max_user_namespaces", O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return -1;
	return strcmp(text, "0\n") == 0 ? absent() : 0;
}

/* A terminal of our own to send the requests to. */
static int open_terminal(void)
{
	int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY);
	return fd < 0 ? open("/dev/null", O_RDWR) : fd;
}

static long try_tiocsti(void)
{
	return syscall(SYS_ioctl, open_terminal(), 0x5412L, "x");
}

static long try_tiocsti_high_bits(void)
{
	return syscall(SYS_ioctl, open_terminal(), 0x5412L | HIGH_BITS, "x");
}

static long try_tioclinux(void)
{
	return syscall(SYS_ioctl, open_terminal(), 0x541cL, "\x06");
}

static long try_tiocsetd(void)
{
	int discipline = 21; /* N_GSM0710 */
	return syscall(SYS_ioctl, open_terminal(), 0x5423L, &discipline);
}

static long try_tcp_ulp(void)
{
	return setsockopt(socket(AF_INET, SOCK_STREAM, 0), 6, 31, "tls", 3);
}

static long try_udp_encap(void)
{
	int kind = 2; /* UDP_ENCAP_ESPINUDP */
	return setsockopt(socket(AF_INET, SOCK_DGRAM, 0), 17, 100, &kind, sizeof(kind));
}

static long try_ptrace_init(void)
{
	return ptrace(PTRACE_SEIZE, 1, 0, 0);
}

static long try_read_memory_of_init(void)
{
	char here[8];
	struct iovec local = {here, sizeof(here)}, remote = {(void *)0x400000, sizeof(here)};
	return syscall(SYS_process_vm_readv, 1, &local, 1, &remote, 1, 0);
}

static long try_list_descriptors_of_init(void)
{
	DIR *directory = opendir("/proc/1/fd");
	return directory && readdir(directory) ? 0 : -1;
}

static long try_descriptor_of_init(void)
{
	long pidfd = syscall(SYS_pidfd_open, 1, 0);
	return pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, 0, 0);
}

static long open_path(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static long try_memory_file_of_init(void)
{
	return open_path("/proc/1/mem", O_RDONLY);
}

static long try_executable_of_init(void)
{
	return open_path("/proc/1/exe", O_RDONLY);
}

static long try_root_of_init(void)
{
	return open_path("/proc/1/root/", O_RDONLY | O_DIRECTORY);
}

static long try_environment_of_init(void)
{
	char byte;
	int fd = (int)open_path("/proc/1/environ", O_RDONLY);
	return fd < 0 ? -1 : read(fd, &byte, 1);
}

/* PID 1 must still be there to reap us after each of these. */
static long try_stop_init(void)
{
	return kill(1, SIGKILL) < 0 ? -1 : kill(1, SIGSTOP);
}

static long try_scheduling_of_init(void)
{
	struct sched_param parameters = {0};
	return syscall(SYS_sched_setscheduler, 1, SCHED_BATCH, &parameters);
}

static long try_limits_of_init(void)
{
	struct rlimit limit;
	if (syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &limit) < 0)
		return -1;
	return syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &limit, NULL);
}

static long try_core_limit(void)
{
	struct rlimit limit = {0, 0};
	if (setrlimit(RLIMIT_CORE, &limit) < 0 || getrlimit(RLIMIT_CORE, &limit) < 0)
		return -1;
	return limit.rlim_cur == 1 ? absent() : 0;
}

static long try_no_new_privileges(void)
{
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? absent() : 0;
}

/* Done when the bounding set holds a capability beyond those that isolation.md lists. */
static long try_bounding_set(void)
{
	static const unsigned char listed[] = {0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 31};
	for (unsigned long capability = 0; capability < 64; capability++) {
		if (!memchr(listed, (int)capability, sizeof(listed)) &&
		    prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1)
			return 0;
	}
	return absent();
}

/* Anything above standard error. (Our own way to answer is far above.) */
static long try_inherited_descriptors(void)
{
	for (int fd = 3; fd < 1024; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			return 0;
	}
	return absent();
}

static long try_mknod_character(void)
{
	return mknod("/tmp/probe-device", S_IFCHR | 0600, makedev(1, 1));
}

static long try_mknod_block(void)
{
	return mknod("/tmp/probe-device", S_IFBLK | 0600, makedev(254, 0));
}

/* Files through which a container reaches its host. */
#define OPEN_ATTEMPT(name, path, flags)                                                            \
	static long try_##name(void)                                                               \
	{                                                                                          \
		return open_path(path, flags);                                                     \
	}
OPEN_ATTEMPT(core_pattern, "/proc/sys/kernel/core_pattern", O_WRONLY)
OPEN_ATTEMPT(modprobe, "/proc/sys/kernel/modprobe", O_WRONLY)
OPEN_ATTEMPT(sysctl_user_namespaces, "/proc/sys/user/max_user_namespaces", O_WRONLY)
OPEN_ATTEMPT(sysrq, "/proc/sysrq-trigger", O_WRONLY)
OPEN_ATTEMPT(binfmt, "/proc/sys/fs/binfmt_misc/register", O_WRONLY)
OPEN_ATTEMPT(kcore, "/proc/kcore", O_RDONLY)
OPEN_ATTEMPT(uevent_helper, "/sys/kernel/uevent_helper", O_WRONLY)
OPEN_ATTEMPT(release_agent, "/sys/fs/cgroup/release_agent", O_WRONLY)
OPEN_ATTEMPT(cgroup_procs, "/sys/fs/cgroup/cgroup.procs", O_WRONLY)
OPEN_ATTEMPT(debugfs, "/sys/kernel/debug/tracing", O_RDONLY)
OPEN_ATTEMPT(device_memory, "/dev/mem", O_RDONLY)
OPEN_ATTEMPT(device_log, "/dev/kmsg", O_RDONLY)
OPEN_ATTEMPT(device_disk, "/dev/vda", O_RDONLY)
OPEN_ATTEMPT(device_loop, "/dev/loop-control", O_RDWR)
OPEN_ATTEMPT(device_kvm, "/dev/kvm", O_RDWR)
OPEN_ATTEMPT(device_fuse, "/dev/fuse", O_RDWR)
OPEN_ATTEMPT(device_tun, "/dev/net/tun", O_RDWR)
OPEN_ATTEMPT(shadow, "/etc/shadow", O_RDONLY)

/* Files that would lend their owner's rights to whoever runs them on the host. Refused where there
 * is a read-write folder; elsewhere package managers need them. */

static const char *set_id_path(const char *name)
{
	static char path[256];
	const char *directory = getenv("PROBE_DIRECTORY");
	snprintf(path, sizeof(path), "%s/probe-%s-%d", directory ? directory : "/tmp", name,
		 getpid());
	return path;
}

static const char *set_id_file(const char *name)
{
	const char *path = set_id_path(name);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
	return path;
}

/* A call that says yes and does nothing has been refused. */
static long set_id_came(const char *path, long result)
{
	struct stat status;
	if (result < 0 || lstat(path, &status) < 0)
		return -1;
	return status.st_mode & (S_ISUID | S_ISGID) ? 0 : absent();
}

static long chmod_with(long mode)
{
	const char *path = set_id_file("chmod");
#ifdef SYS_chmod
	return set_id_came(path, syscall(SYS_chmod, path, mode));
#else
	return set_id_came(path, syscall(SYS_fchmodat, AT_FDCWD, path, mode));
#endif
}

static long try_setuid_chmod(void)
{
	return chmod_with(04755);
}

static long try_setgid_chmod(void)
{
	return chmod_with(02755);
}

/* The kernel takes sixteen bits of a mode. */
static long try_setuid_chmod_high_bits(void)
{
	return chmod_with(04755 | 0x10000 | HIGH_BITS);
}

static long try_setuid_fchmod(void)
{
	const char *path = set_id_file("fchmod");
	return set_id_came(path, fchmod(open(path, O_RDONLY | O_CLOEXEC), 04755));
}

static long try_setuid_fchmodat(void)
{
	const char *path = set_id_file("fchmodat");
	return set_id_came(path, syscall(SYS_fchmodat, AT_FDCWD, path, 06755));
}

static long try_setuid_fchmodat2(void)
{
	const char *path = set_id_file("fchmodat2");
	return set_id_came(path, syscall(NR_FCHMODAT2, AT_FDCWD, path, 04755, 0));
}

static long try_setuid_open(void)
{
	const char *path = set_id_path("open");
	return set_id_came(path, open(path, O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC, 04755));
}

static long try_setuid_creat(void)
{
	const char *path = set_id_path("creat");
#ifdef SYS_creat
	return set_id_came(path, syscall(SYS_creat, path, 04755));
#else
	return set_id_came(path, creat(path, 04755));
#endif
}

static long try_setuid_tmpfile(void)
{
	char descriptor[64];
	const char *path = set_id_path("tmpfile");
	char *slash = strrchr(path, '/');
	*slash = '\0';
	int fd = open(path, O_TMPFILE | O_WRONLY | O_CLOEXEC, 04755);
	*slash = '/';
	if (fd < 0)
		return -1;
	snprintf(descriptor, sizeof(descriptor), "/proc/self/fd/%d", fd);
	return set_id_came(path, linkat(AT_FDCWD, descriptor, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
}

static long try_setuid_openat2(void)
{
	const struct {
		uint64_t flags, mode, resolve;
	} how = {O_CREAT | O_WRONLY | O_CLOEXEC, 04755, 0};
	const char *path = set_id_path("openat2");
	return set_id_came(path, syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how)));
}

static long try_setuid_mknod(void)
{
	const char *path = set_id_path("mknod");
	return set_id_came(path, mknod(path, S_IFREG | 04755, 0));
}

static long try_setuid_queue(void)
{
	return syscall(SYS_mq_open, "probe", O_CREAT | O_RDWR, 04700, NULL);
}

static long try_file_capability(void)
{
	/* Version 2, effective; permitted: CAP_SETUID */
	static const unsigned char value[20] = {1, 0, 0, 2, 0x80};
	return setxattr(set_id_file("capability"), "security.capability", value, sizeof(value), 0);
}

/* Done where CAP_FSETID or CAP_SETFCAP can be had. */
static long try_host_file_capabilities(void)
{
	bool any =
	    prctl(PR_CAPBSET_READ, 4, 0, 0, 0) == 1 || prctl(PR_CAPBSET_READ, 31, 0, 0, 0) == 1;
	return any ? 0 : absent();
}

static long nested_mount(const char *source, const char *type, unsigned long flags)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	return mount(source, "/tmp", type, flags, NULL);
}

static long try_nested_bind(void)
{
	return nested_mount("/tmp", NULL, MS_BIND);
}

static long try_nested_mount(void)
{
	return nested_mount("probe", "tmpfs", MS_NOSUID);
}

/* The kernel ignores the upper half of the flags where it is this, and with it MS_PRIVATE. */
static long try_nested_mount_magic(void)
{
	return nested_mount("probe", "tmpfs", MS_MGC_VAL);
}

/* From here on: what must work. */

static long try_ptrace_child(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	long result = ptrace(PTRACE_SEIZE, pid, 0, 0);
	int saved = errno;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	errno = saved;
	return result;
}

static long try_fifo(void)
{
	char path[64];
	snprintf(path, sizeof(path), "/tmp/probe-fifo-%d", getpid());
	long result = mkfifo(path, 0600);
	if (result == 0)
		unlink(path);
	return result;
}

static long try_pidfd(void)
{
	return syscall(SYS_pidfd_open, getpid(), 0);
}

static long try_events(void)
{
	sigset_t signals;
	sigemptyset(&signals);
	int pipes[2];
	if (eventfd(0, 0) < 0 || timerfd_create(CLOCK_MONOTONIC, 0) < 0 ||
	    signalfd(-1, &signals, 0) < 0 || inotify_init1(0) < 0 || pipe(pipes) < 0)
		return -1;
	return inotify_add_watch(inotify_init1(0), "/tmp", IN_CREATE);
}

static long try_shared_memory(void)
{
	long id = syscall(SYS_shmget, 0, 4096, 0600 | 01000);
	return id < 0 ? -1 : syscall(SYS_shmctl, id, 0, NULL);
}

static long try_signals_of_own(void)
{
	return kill(getpid(), 0);
}

static long try_own_priority(void)
{
	return setpriority(PRIO_PROCESS, 0, 5);
}

#ifdef __x86_64__
static long try_foreign_abi(void)
{
	long result = 20; /* getpid of the 32-bit table */
	__asm__ volatile("int $0x80" : "+a"(result)::"memory", "r8", "r9", "r10", "r11");
	return result;
}
#endif

#define REFUSED "refused EPERM"
#define UNKNOWN "refused ENOSYS"
#define NO_FAMILY "refused EAFNOSUPPORT"
#define NO_PROTOCOL "refused EPROTONOSUPPORT"
#define CALL(name, expected, nested, ...)                                                          \
	{                                                                                          \
#name, expected, nested, NULL, SYS_##name,                                         \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define NUMBERED(name, expected, nested, number, ...)                                              \
	{                                                                                          \
		name, expected, nested, NULL, number,                                              \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define TRY(name, expected, nested)                                                                \
	{                                                                                          \
#name, expected, nested, try_##name, 0,                                            \
		{                                                                                  \
			0                                                                          \
		}                                                                                  \
	}
#define SHARED(name, expected, nested, shared)                                                     \
	{                                                                                          \
#name, expected, nested, try_##name, 0, {0 }, shared                               \
	}
#define SOCKET(name, expected, ...)                                                                \
	{                                                                                          \
		"socket_" #name, expected, NULL, NULL, SYS_socket,                                 \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct attempt attempts[] = {
    /* mounts and namespaces; what is let through to the kernel fails for want of an argument */
    CALL(mount, REFUSED, "refused", NOWHERE, NOWHERE, NOWHERE),
    CALL(umount2, REFUSED, "refused", NOWHERE),
    CALL(pivot_root, REFUSED, "refused", NOWHERE, NOWHERE),
    CALL(fsopen, REFUSED, UNKNOWN, NOWHERE),
    CALL(fsconfig, REFUSED, UNKNOWN, -1),
    CALL(fsmount, REFUSED, UNKNOWN, -1),
    CALL(fspick, REFUSED, UNKNOWN, -1, NOWHERE),
    CALL(move_mount, REFUSED, UNKNOWN, -1, NOWHERE, -1, NOWHERE),
    CALL(open_tree, REFUSED, UNKNOWN, -1, NOWHERE),
    CALL(mount_setattr, REFUSED, UNKNOWN, -1, NOWHERE),
    NUMBERED("open_tree_attr", REFUSED, UNKNOWN, NR_OPEN_TREE_ATTR, -1, NOWHERE),
    NUMBERED("statmount", UNKNOWN, NULL, NR_STATMOUNT, 0),
    CALL(setns, REFUSED, "refused", -1),
    NUMBERED("unshare_user", REFUSED, "done", SYS_unshare, CLONE_NEWUSER),
    NUMBERED("unshare_mount", REFUSED, "refused", SYS_unshare, CLONE_NEWNS),
    NUMBERED("unshare_net", REFUSED, "refused", SYS_unshare, CLONE_NEWNET),
    NUMBERED("unshare_time", REFUSED, "refused", SYS_unshare, 0x80),
    NUMBERED("unshare_files", "done", NULL, SYS_unshare, CLONE_FILES),
    TRY(clone_user, REFUSED, "done"),
    TRY(clone_user_high_bits, REFUSED, "done"),
    TRY(clone_net, REFUSED, "refused"),
    TRY(clone3_user, UNKNOWN, "done"),
    TRY(user_namespace_limit, "refused", "done"),
    CALL(sethostname, REFUSED, "refused", 0, -1),
    CALL(setdomainname, REFUSED, "refused", 0, -1),
    /* the kernel's inside */
    CALL(bpf, REFUSED, NULL, 0),
    CALL(perf_event_open, REFUSED, NULL, 0),
    CALL(io_uring_setup, REFUSED, NULL, 1, 0),
    CALL(io_uring_enter, REFUSED, NULL, -1),
    CALL(io_uring_register, REFUSED, NULL, -1),
    CALL(userfaultfd, REFUSED, NULL, 1),
    CALL(init_module, REFUSED, NULL, 0),
    CALL(finit_module, REFUSED, NULL, -1),
    CALL(delete_module, REFUSED, NULL, NOWHERE),
    CALL(kexec_load, REFUSED, NULL, 0, -1),
    CALL(kexec_file_load, REFUSED, NULL, -1, -1),
    CALL(io_setup, UNKNOWN, NULL, 1, 0),
    CALL(kcmp, UNKNOWN, NULL, 0),
    NUMBERED("memfd_secret", UNKNOWN, NULL, NR_MEMFD_SECRET, 0),
    NUMBERED("unheard_of", UNKNOWN, NULL, 1000, 0),
    /* what no namespace divides */
    CALL(add_key, REFUSED, NULL, NOWHERE),
    CALL(request_key, REFUSED, NULL, NOWHERE),
    CALL(keyctl, REFUSED, NULL, 0, -3),
    CALL(syslog, REFUSED, NULL, 10),
    CALL(acct, REFUSED, NULL, NOWHERE),
    CALL(quotactl, REFUSED, NULL, -1, NOWHERE),
    CALL(swapon, REFUSED, NULL, NOWHERE),
    CALL(swapoff, REFUSED, NULL, NOWHERE),
    CALL(reboot, REFUSED, NULL, 0),
    CALL(settimeofday, REFUSED, NULL, 0, 0),
    CALL(clock_settime, REFUSED, NULL, -1),
    CALL(clock_adjtime, REFUSED, NULL, -1),
    CALL(adjtimex, REFUSED, NULL, 0),
    CALL(vhangup, REFUSED, NULL, 0),
    CALL(fanotify_init, REFUSED, NULL, 0),
    CALL(fanotify_mark, REFUSED, NULL, -1),
    CALL(name_to_handle_at, REFUSED, NULL, -1, NOWHERE),
    CALL(open_by_handle_at, REFUSED, NULL, -1),
    CALL(pidfd_getfd, REFUSED, NULL, -1),
#ifdef __x86_64__
    CALL(iopl, REFUSED, NULL, 0),
    CALL(ioperm, REFUSED, NULL, 0),
    CALL(modify_ldt, REFUSED, NULL, 0),
    NUMBERED("x32_getpid", UNKNOWN, NULL, 0x40000000 | SYS_getpid, 0),
    TRY(foreign_abi, "killed SIGSYS", NULL),
#endif
    NUMBERED("personality_exec", REFUSED, NULL, SYS_personality, 0x400000),
    NUMBERED("huge_pages", "refused ENOMEM", NULL, SYS_mmap, 0, 1 << 21, 3, 0x40022, -1, 0),
    NUMBERED("huge_memfd", "refused ENOMEM", NULL, SYS_memfd_create, (long)"probe", 4),
    NUMBERED("huge_segment", "refused ENOMEM", NULL, SYS_shmget, 0, 1 << 21, 04600 | 01000),
    /* sockets */
    SOCKET(unix, "done", AF_UNIX, SOCK_STREAM),
    SOCKET(tcp, "done", AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 6),
    SOCKET(udp, "done", AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 17),
    SOCKET(tcp6, "done", AF_INET6, SOCK_STREAM, 0),
    SOCKET(route, "done", AF_NETLINK, SOCK_RAW, 0),
    SOCKET(raw, REFUSED, AF_INET, SOCK_RAW, 1),
    SOCKET(raw6, REFUSED, AF_INET6, SOCK_RAW, 58),
    SOCKET(sctp, NO_PROTOCOL, AF_INET, SOCK_STREAM, 132),
    SOCKET(mptcp, NO_PROTOCOL, AF_INET, SOCK_STREAM, 262),
    SOCKET(dccp, "refused ESOCKTNOSUPPORT", AF_INET, 6, 33),
    SOCKET(sock_diag, NO_PROTOCOL, AF_NETLINK, SOCK_RAW, 4),
    SOCKET(xfrm, NO_PROTOCOL, AF_NETLINK, SOCK_RAW, 6),
    SOCKET(audit, NO_PROTOCOL, AF_NETLINK, SOCK_RAW, 9),
    SOCKET(netfilter, NO_PROTOCOL, AF_NETLINK, SOCK_RAW, 12),
    SOCKET(netfilter_high_bits, NO_PROTOCOL, AF_NETLINK, SOCK_RAW, 12 | HIGH_BITS),
    SOCKET(uevent, NO_PROTOCOL, AF_NETLINK, SOCK_RAW, 15),
    SOCKET(generic_netlink, NO_PROTOCOL, AF_NETLINK, SOCK_RAW, 16),
    SOCKET(packet, NO_FAMILY, AF_PACKET, SOCK_RAW, 0x0300),
    SOCKET(packet_high_bits, NO_FAMILY, AF_PACKET | HIGH_BITS, SOCK_RAW, 0x0300),
    SOCKET(key, NO_FAMILY, 15, SOCK_RAW, 2),
    SOCKET(bluetooth, NO_FAMILY, 31, SOCK_RAW, 1),
    SOCKET(rxrpc, NO_FAMILY, 33, SOCK_DGRAM, 0),
    SOCKET(alg, NO_FAMILY, 38, SOCK_SEQPACKET, 0),
    SOCKET(vsock, NO_FAMILY, 40, SOCK_STREAM, 0),
    SOCKET(xdp, NO_FAMILY, 44, SOCK_RAW, 0),
    NUMBERED("socketpair_tipc", NO_FAMILY, NULL, SYS_socketpair, 30, SOCK_SEQPACKET, 0, 0),
    TRY(tcp_ulp, "refused ENOPROTOOPT", NULL),
    TRY(udp_encap, "refused ENOPROTOOPT", NULL),
    /* terminals */
    TRY(tiocsti, REFUSED, NULL),
    TRY(tiocsti_high_bits, REFUSED, NULL),
    TRY(tioclinux, REFUSED, NULL),
    TRY(tiocsetd, REFUSED, NULL),
    /* PID 1 */
    TRY(ptrace_init, "refused", NULL),
    TRY(read_memory_of_init, "refused", NULL),
    TRY(memory_file_of_init, "refused", NULL),
    TRY(executable_of_init, "refused", NULL),
    TRY(root_of_init, "refused", NULL),
    TRY(environment_of_init, "refused", NULL),
    TRY(list_descriptors_of_init, "refused", NULL),
    TRY(descriptor_of_init, REFUSED, NULL),
    TRY(scheduling_of_init, REFUSED, NULL),
    TRY(limits_of_init, REFUSED, NULL),
    NUMBERED("priority_of_init", REFUSED, NULL, SYS_setpriority, PRIO_PROCESS, 1, 0),
    NUMBERED("priority_of_user", REFUSED, NULL, SYS_setpriority, PRIO_USER, 0, 0),
    NUMBERED("io_priority_of_init", REFUSED, NULL, SYS_ioprio_set, 1, 1, 0),
    TRY(stop_init, "*", NULL), /* says done, and does nothing */
    /* privileges */
    TRY(no_new_privileges, "refused", NULL),
    TRY(bounding_set, "refused", NULL),
    TRY(core_limit, "refused", NULL),
    TRY(inherited_descriptors, "refused", NULL),
    TRY(mknod_character, "refused EPERM", NULL),
    TRY(mknod_block, "refused EPERM", NULL),
    /* programs left for the host to run */
    SHARED(setuid_chmod, "done", NULL, REFUSED),
    SHARED(setgid_chmod, "done", NULL, REFUSED),
    SHARED(setuid_chmod_high_bits, "done", NULL, REFUSED),
    SHARED(setuid_fchmod, "done", NULL, REFUSED),
    SHARED(setuid_fchmodat, "done", NULL, REFUSED),
    SHARED(setuid_fchmodat2, "*", NULL, REFUSED), /* of Linux 6.6 */
    SHARED(setuid_open, "done", NULL, REFUSED),
    SHARED(setuid_creat, "done", NULL, REFUSED),
    SHARED(setuid_tmpfile, "done", NULL, REFUSED),
    SHARED(setuid_openat2, "done", NULL, UNKNOWN),
    SHARED(setuid_mknod, "done", NULL, REFUSED),
    SHARED(setuid_queue, "*", NULL, REFUSED),
    SHARED(file_capability, "*", NULL, REFUSED), /* root can, others cannot */
    SHARED(host_file_capabilities, "done", NULL, "refused"),
    SHARED(nested_bind, REFUSED, "done", NULL),
    SHARED(nested_mount, REFUSED, "done", REFUSED),
    SHARED(nested_mount_magic, REFUSED, "done", REFUSED),
    /* the host through files */
    TRY(core_pattern, "refused", NULL),
    TRY(modprobe, "refused", NULL),
    TRY(sysctl_user_namespaces, "refused", NULL),
    TRY(sysrq, "refused", NULL),
    TRY(binfmt, "refused", NULL),
    TRY(kcore, "refused", NULL),
    TRY(uevent_helper, "refused", NULL),
    TRY(release_agent, "refused", NULL),
    TRY(cgroup_procs, "refused", NULL),
    TRY(debugfs, "refused", NULL),
    TRY(device_memory, "refused", NULL),
    TRY(device_log, "refused", NULL),
    TRY(device_disk, "refused", NULL),
    TRY(device_loop, "refused", NULL),
    TRY(device_kvm, "refused", NULL),
    TRY(device_fuse, "refused", NULL),
    TRY(device_tun, "refused", NULL),
    TRY(shadow, "refused", NULL),
    /* what must work */
    TRY(ptrace_child, "done", NULL),
    TRY(fifo, "done", NULL),
    TRY(pidfd, "done", NULL),
    TRY(events, "done", NULL),
    TRY(shared_memory, "done", NULL),
    TRY(signals_of_own, "done", NULL),
    TRY(own_priority, "done", NULL),
    CALL(memfd_create, "done", NULL, (long)"probe", 0),
    CALL(membarrier, "done", NULL, 0),
    CALL(close_range, "done", NULL, 900, 1000, 0),
    NUMBERED("personality_debugger", "done", NULL, SYS_personality, 0x40000),
};

static void print_errno(char *text, size_t room, int number)
{
	for (size_t i = 0; i < COUNT(errno_names); i++) {
		if (errno_names[i].number == number) {
			snprintf(text, room, "refused %s", errno_names[i].name);
			return;
		}
	}
	snprintf(text, room, "refused %d", number);
}

/* In the attempt's own process. */
static void run(const struct attempt *attempt, int answer)
{
	alarm(10);
	const long *a = attempt->arguments;
	errno = 0;
	long result = attempt->try ? attempt->try()
				   : syscall(attempt->call, a[0], a[1], a[2], a[3], a[4], a[5]);
	char text[64] = "done";
	if (result == -1)
		print_errno(text, sizeof(text), errno);
	(void)!write(answer, text, strlen(text));
	_exit(0);
}

static void outcome(const struct attempt *attempt, char *text, size_t room)
{
	int pipes[2];
	/* High, so that an attempt which looks for inherited descriptors does not find this one. */
	if (pipe(pipes) < 0 || dup2(pipes[1], 2000) < 0)
		exit(2);
	close(pipes[1]);
	fflush(stdout);
	pid_t pid = fork();
	if (pid < 0)
		exit(2);
	if (pid == 0) {
		close(pipes[0]);
		run(attempt, 2000);
	}
	close(2000);
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	ssize_t length = read(pipes[0], text, room - 1);
	close(pipes[0]);
	text[length > 0 ? length : 0] = '\0';
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(text, room, "hung");
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		snprintf(text, room, "killed SIGSYS");
	else if (WIFSIGNALED(status))
		snprintf(text, room, "killed %d", WTERMSIG(status));
}

/* "refused" stands for every errno, "*" for everything. */
static bool is_expected(const char *result, const char *expected)
{
	if (strcmp(expected, "*") == 0 || strcmp(expected, result) == 0)
		return true;
	return strcmp(expected, "refused") == 0 && strncmp(result, "refused ", 8) == 0;
}

static bool asked_for(const char *name, int argc, char **argv)
{
	bool any = false;
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] == '-')
			continue;
		any = true;
		if (strcmp(argv[i], name) == 0)
			return true;
	}
	return !any;
}

int main(int argc, char **argv)
{
	bool check = false, nested = false, shared = false;
	int failed = 0;
	for (int i = 1; i < argc; i++) {
		check = check || strcmp(argv[i], "--check") == 0;
		nested = nested || strcmp(argv[i], "--nested") == 0;
		shared = shared || strcmp(argv[i], "--shared") == 0;
	}
	for (size_t i = 0; i < COUNT(attempts); i++) {
		const struct attempt *attempt = &attempts[i];
		char text[64];
		if (!asked_for(attempt->name, argc, argv))
			continue;
		outcome(attempt, text, sizeof(text));
		const char *expected =
		    nested && attempt->nested ? attempt->nested : attempt->expected;
		if (shared && attempt->shared)
			expected = attempt->shared;
		if (!check) {
			printf("%s %s\n", attempt->name, text);
		} else if (is_expected(text, expected)) {
			printf("ok %s\n", attempt->name);
		} else {
			printf("not ok %s: %s, expected %s\n", attempt->name, text, expected);
			failed++;
		}
	}
	return failed > 0 ? 1 : 0;
}
