/* Makes the system call filter of the sandboxes at build time: seccomp-generate ARCH OUTPUT writes
 * a header with two BPF programs for the target architecture:
 *   seccomp_filter_default   no namespace can be made inside; seccomp_filter_nest() changes a copy
 *                            of it to one that allows user namespaces (CREATE_NESTED_USERNS)
 *   seccomp_filter_shared    beside it where the sandbox has a folder of the host's to write to: no
 *                            setuid or setgid file can be made inside
 * Of two filters the stricter answer counts. Changes and a second, short one rather than four of
 * the first kind: they would add 10 KB to every init.
 *
 * libseccomp gives the numbers of the calls per architecture. The program itself is laid out here,
 * as a binary tree over ranges of numbers, because what libseccomp lays out is ten times as long
 * and takes four to nine times as long to install, on the way of every create.
 *
 * The rule for what is in no list is ENOSYS: a C library that tries a call of a newer kernel falls
 * back. What would work and must not is EPERM. The reasons for each decision: docs/isolation.md,
 * which src/probe checks inside a sandbox. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seccomp-program.h"

#define NUMBERS 1024 /* no architecture of ours has a call at or above it; x32 starts far above */

/* Values of the kernel's interface that not every libc's headers have. */
#define ANY_NAMESPACE 0x7e020000u /* CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} */
#define NEW_TIME 0x80u            /* CLONE_NEWTIME: in clone() this bit is part of the signal */

/* What is done with a call: a plain answer, or a check of its arguments. */
struct rule {
	uint32_t answer;
	void (*check)(struct program *program);
};

struct policy {
	const char *name;
	bool nested;
	struct rule rules[NUMBERS];
};

struct architecture {
	const char *name; /* as meson's cpu_family() */
	uint32_t seccomp, audit;
};

static const struct architecture architectures[] = {
    {"x86_64", SCMP_ARCH_X86_64, AUDIT_ARCH_X86_64},
    {"aarch64", SCMP_ARCH_AARCH64, AUDIT_ARCH_AARCH64},
};

/* Allowed whatever the arguments. A name that the architecture does not have is skipped; a name
 * that libseccomp does not know ends the build. */
static const char *const allowed[] = {
    /* files and directories; ids and modes are checked by the kernel against the user namespace */
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
    "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod",
    "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr",
    "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat",
    "getcwd", "getdents", "getdents64", "getxattr", "getxattrat", "lchown", "lgetxattr", "link",
    "linkat", "listxattr", "listxattrat", "llistxattr", "lremovexattr", "lseek", "lsetxattr",
    "lstat", "mkdir", "mkdirat", "mknod", "mknodat", "newfstatat", "open", "openat", "openat2",
    "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead",
    "readlink", "readlinkat", "readv", "removexattr", "removexattrat", "rename", "renameat",
    "renameat2", "rmdir", "sendfile", "setxattr", "setxattrat", "stat", "statfs", "statx",
    "symlink", "symlinkat", "sync_file_range", "syncfs", "truncate", "umask", "unlink", "unlinkat",
    "utime", "utimensat", "utimes", "write", "writev", "chroot",
    /* waiting, pipes, events, watching files */
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
    "eventfd", "eventfd2", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch",
    "pipe", "pipe2", "poll", "ppoll", "pselect6", "select", "signalfd", "signalfd4", "splice",
    "tee", "vmsplice", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    /* memory */
    "brk", "madvise", "map_shadow_stack", "membarrier", "mincore", "mlock", "mlock2", "mlockall",
    "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc",
    "pkey_free", "pkey_mprotect",
    /* System V and POSIX IPC: of the sandbox's own ipc namespace */
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink",
    "msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat",
    "shmctl", "shmdt",
    /* processes, threads, ids. ptrace and process_vm_* are for debuggers: the kernel looks at
     * seccomp after a tracer, and PID 1 is out of reach of any capability inside */
    "arch_prctl", "execve", "execveat", "exit", "exit_group", "fork", "vfork", "futex",
    "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "getegid",
    "geteuid", "getgid", "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getresgid",
    "getresuid", "getsid", "gettid", "getuid", "capget", "capset", "kill", "pidfd_open",
    "pidfd_send_signal", "pause", "process_vm_readv", "process_vm_writev", "ptrace",
    "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo",
    "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "set_robust_list",
    "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setpgid", "setregid",
    "setresgid", "setresuid", "setreuid", "setsid", "setuid", "sigaltstack", "tgkill", "tkill",
    "wait4", "waitid",
    /* They can only take away from whoever calls them. */
    "seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
    /* scheduling and limits, as far as they are read or mean the caller */
    "getcpu", "getpriority", "getrlimit", "getrusage", "ioprio_get", "sched_get_priority_max",
    "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_rr_get_interval", "sched_yield", "sysinfo", "times", "uname",
    /* time */
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday",
    "nanosleep", "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime",
    /* sockets that were made under socket()'s rule */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "shutdown", "getrandom"};

/* Refused with EPERM: calls that exist and reach what a sandbox must not reach, or whose kernel
 * code is too often the way out of a container. Most need a capability that nobody inside has; the
 * filter holds where one such check is forgotten. */
static const char *const refused[] = {
    /* the mount tree, old interface and new */
    "mount", "umount2", "pivot_root", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount",
    "open_tree", "open_tree_attr", "mount_setattr", "setns", "sethostname", "setdomainname",
    /* code of the user's choice in the kernel, or asynchronous calls past this filter */
    "bpf", "perf_event_open", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "userfaultfd", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load",
    /* not in any namespace: keys, the log, accounting, quotas, swap, power, clocks, ports */
    "add_key", "request_key", "keyctl", "syslog", "acct", "quotactl", "quotactl_fd", "swapon",
    "swapoff", "reboot", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "iopl",
    "ioperm", "vhangup", "fanotify_init", "fanotify_mark",
    /* files by handle: past the mount tree */
    "name_to_handle_at", "open_by_handle_at",
    /* somebody else's descriptors; debuggers do without */
    "pidfd_getfd",
    /* segments for 16-bit code: no 32-bit program runs here */
    "modify_ldt"};

/* With nested user namespaces the kernel's own checks against those namespaces stand here instead.
 * The newer mount interface answers ENOSYS then, so that tools fall back to mount(). */
static const char *const allowed_nested[] = {"mount", "umount2",     "pivot_root",
					     "setns", "sethostname", "setdomainname",
					     "clone", "clone3",      "unshare"};
static const char *const unknown_nested[] = {"fsopen",         "fsconfig",     "fsmount",
					     "fspick",         "move_mount",   "open_tree",
					     "open_tree_attr", "mount_setattr"};

/* Said to be done. sync() writes all of the host's file systems: it makes others wait, and how long
 * it takes tells what they write. The sandbox's own disk needs none (its overlay is volatile). */
static const char *const pretended[] = {"sync"};

/* Calls younger than the oldest libseccomp we build with. From 424 on, every architecture has the
 * same number for a call. */
static const struct {
	const char *name;
	int number;
} newer[] = {{"quotactl_fd", 443},
	     {"landlock_create_ruleset", 444},
	     {"landlock_add_rule", 445},
	     {"landlock_restrict_self", 446},
	     {"futex_waitv", 449},
	     {"fchmodat2", 452},
	     {"map_shadow_stack", 453},
	     {"futex_wake", 454},
	     {"futex_wait", 455},
	     {"futex_requeue", 456},
	     {"mseal", 462},
	     {"setxattrat", 463},
	     {"getxattrat", 464},
	     {"listxattrat", 465},
	     {"removexattrat", 466},
	     {"open_tree_attr", 467}};

/* clone(flags, ...): the kernel takes the lower half. */
static void check_clone(struct program *program)
{
	load(program, 0);
	answer_if_any(program, ANY_NAMESPACE, ERRNO(EPERM));
	answer(program, ALLOW);
}

static void check_unshare(struct program *program)
{
	load(program, 0);
	answer_if_any(program, ANY_NAMESPACE | NEW_TIME, ERRNO(EPERM));
	answer(program, ALLOW);
}

/* TCP and UDP, and the datagram kind of ICMP that ping uses. Everything else under AF_INET loads a
 * module that nobody here needs (SCTP, L2TP, SMC, MPTCP); callers fall back on this errno. */
static void check_internet(struct program *program)
{
	load(program, 1);
	emit(program, BPF_ALU | BPF_AND | BPF_K, 0xf, 0, 0); /* without NONBLOCK and CLOEXEC */
	size_t stream = if_equal(program, 1);                /* SOCK_STREAM */
	load(program, 2);
	answer_if_equal(program, 0, ALLOW);
	answer_if_equal(program, 6, ALLOW); /* IPPROTO_TCP */
	answer(program, ERRNO(EPROTONOSUPPORT));
	end(program, stream);
	size_t datagram = if_equal(program, 2); /* SOCK_DGRAM */
	load(program, 2);
	answer_if_equal(program, 0, ALLOW);
	answer_if_equal(program, 17, ALLOW); /* IPPROTO_UDP */
	answer_if_equal(program, 1, ALLOW);  /* IPPROTO_ICMP */
	answer_if_equal(program, 58, ALLOW); /* IPPROTO_ICMPV6 */
	answer(program, ERRNO(EPROTONOSUPPORT));
	end(program, datagram);
	answer_if_equal(program, 3, ERRNO(EPERM)); /* SOCK_RAW */
	answer(program, ERRNO(ESOCKTNOSUPPORT));
}

static void check_socket(struct program *program)
{
	load(program, 0);
	answer_if_equal(program, 1, ALLOW); /* AF_UNIX */
	size_t inet = if_equal(program, 2); /* AF_INET */
	check_internet(program);
	end(program, inet);
	size_t inet6 = if_equal(program, 10); /* AF_INET6 */
	check_internet(program);
	end(program, inet6);
	size_t netlink = if_equal(program, 16); /* AF_NETLINK */
	load(program, 2);
	answer_if_equal(program, 0, ALLOW); /* NETLINK_ROUTE: getifaddrs(), `ip` */
	answer(program, ERRNO(EPROTONOSUPPORT));
	end(program, netlink);
	answer(program, ERRNO(EAFNOSUPPORT));
}

static void check_socketpair(struct program *program)
{
	load(program, 0);
	answer_if_equal(program, 1, ALLOW); /* AF_UNIX */
	answer(program, ERRNO(EAFNOSUPPORT));
}

/* TCP_ULP loads kernel TLS and its kin, UDP_ENCAP IPsec's; a kernel without them says the same.
 * A BPF program on a socket takes room of net.core.bpf_jit_limit, which is one for the host and
 * charged to no cgroup. Where it is used up no filter like this one can be installed any more: one
 * sandbox could keep all others from starting. */
static void check_setsockopt(struct program *program)
{
	static const uint32_t attach[] = {26, 50, 51, 52}; /* SO_ATTACH_{,REUSEPORT_}[CE]BPF */
	load(program, 1);
	size_t socket = if_equal(program, 1); /* SOL_SOCKET */
	load(program, 2);
	answer_if_one_of(program, attach, COUNT(attach), ERRNO(ENOPROTOOPT));
	answer(program, ALLOW);
	end(program, socket);
	size_t tcp = if_equal(program, 6); /* SOL_TCP */
	load(program, 2);
	answer_if_equal(program, 31, ERRNO(ENOPROTOOPT)); /* TCP_ULP */
	answer(program, ALLOW);
	end(program, tcp);
	size_t udp = if_equal(program, 17); /* SOL_UDP */
	load(program, 2);
	answer_if_equal(program, 100, ERRNO(ENOPROTOOPT)); /* UDP_ENCAP */
	end(program, udp);
	answer(program, ALLOW);
}

/* Terminals, files, sockets: what programs ask of them every day, the commonest first. Everything
 * else is a driver's, a file system's or a module's own: code that is seldom looked at. It answers
 * as a file that does not know the request. Not here though programs ask for it: where a file's
 * blocks are (FIEMAP: the host's disk; copying tools use SEEK_HOLE), namespaces' relatives, and
 * whatever changes a network interface. */
static const uint32_t ioctls[] = {
    0x5401,     /* TCGETS: isatty() */
    0x5413,     /* TIOCGWINSZ */
    0x541b,     /* FIONREAD */
    0x5421,     /* FIONBIO */
    0x5451,     /* FIOCLEX */
    0x5402,     /* TCSETS */
    0x5403,     /* TCSETSW */
    0x5404,     /* TCSETSF */
    0x5405,     /* TCGETA */
    0x5406,     /* TCSETA */
    0x5407,     /* TCSETAW */
    0x5408,     /* TCSETAF */
    0x5409,     /* TCSBRK: tcdrain() */
    0x540a,     /* TCXONC */
    0x540b,     /* TCFLSH */
    0x540c,     /* TIOCEXCL */
    0x540d,     /* TIOCNXCL */
    0x540e,     /* TIOCSCTTY */
    0x540f,     /* TIOCGPGRP */
    0x5410,     /* TIOCSPGRP */
    0x5411,     /* TIOCOUTQ, of sockets SIOCOUTQ */
    0x5414,     /* TIOCSWINSZ */
    0x5420,     /* TIOCPKT */
    0x5422,     /* TIOCNOTTY */
    0x5424,     /* TIOCGETD */
    0x5425,     /* TCSBRKP */
    0x5429,     /* TIOCGSID */
    0x802c542a, /* TCGETS2 */
    0x402c542b, /* TCSETS2 */
    0x402c542c, /* TCSETSW2 */
    0x402c542d, /* TCSETSF2 */
    0x80045430, /* TIOCGPTN */
    0x40045431, /* TIOCSPTLCK */
    0x80045432, /* TIOCGDEV */
    0x40045436, /* TIOCSIG */
    0x80045438, /* TIOCGPKT */
    0x80045439, /* TIOCGPTLCK */
    0x80045440, /* TIOCGEXCL */
    0x5441,     /* TIOCGPTPEER */
    0x5450,     /* FIONCLEX */
    0x5452,     /* FIOASYNC */
    0x5460,     /* FIOQSIZE */
    0x80086601, /* FS_IOC_GETFLAGS: lsattr; archivers */
    0x40086602, /* FS_IOC_SETFLAGS: chattr; what matters needs CAP_LINUX_IMMUTABLE */
    0x40049409, /* FICLONE: cp */
    0x4020940d, /* FICLONERANGE */
    0x8901,     /* FIOSETOWN */
    0x8902,     /* SIOCSPGRP */
    0x8903,     /* FIOGETOWN */
    0x8904,     /* SIOCGPGRP */
    0x8905,     /* SIOCATMARK */
    0x8910,     /* SIOCGIFNAME */
    0x8912,     /* SIOCGIFCONF */
    0x8913,     /* SIOCGIFFLAGS */
    0x8915,     /* SIOCGIFADDR */
    0x8917,     /* SIOCGIFDSTADDR */
    0x8919,     /* SIOCGIFBRDADDR */
    0x891b,     /* SIOCGIFNETMASK */
    0x891d,     /* SIOCGIFMETRIC */
    0x8921,     /* SIOCGIFMTU */
    0x8927,     /* SIOCGIFHWADDR */
    0x8933,     /* SIOCGIFINDEX */
    0x8942,     /* SIOCGIFTXQLEN */
    0x8970,     /* SIOCGIFMAP */
};

/* Keystrokes for whoever reads the terminal next, console functions, and line disciplines (which
 * are modules, loaded on request): a program that tries is to be told that it may not. */
static void check_ioctl(struct program *program)
{
	static const uint32_t terminal[] = {0x5412, 0x541c, 0x5423}; /* TIOC{STI,LINUX,SETD} */
	load(program, 1);
	answer_if_one_of(program, ioctls, COUNT(ioctls), ALLOW);
	answer_if_one_of(program, terminal, COUNT(terminal), ERRNO(EPERM));
	/* SIOCETHTOOL, of a card without a driver that knows it; psutil fails on any other. */
	answer_if_equal(program, 0x8946, ERRNO(EOPNOTSUPP));
	answer(program, ERRNO(ENOTTY));
}

/* What programs ask for, and a kernel that does not know the option answers EINVAL, which they
 * bear. Not here: what others would feel or could be read off by (SCHED_CORE idles a neighbour's
 * processor, SET_MEMORY_MERGE lets one measure whose pages are the same, SET_VMA takes memory that
 * is charged to nobody), what only checkpointing needs (SET_MM, GET_TID_ADDRESS,
 * TIMER_CREATE_RESTORE_IDS), and calls past a filter (SET_SYSCALL_USER_DISPATCH). */
static void check_prctl(struct program *program)
{
	static const uint32_t options[] = {
	    15,         /* SET_NAME */
	    16,         /* GET_NAME */
	    1,          /* SET_PDEATHSIG */
	    2,          /* GET_PDEATHSIG */
	    3,          /* GET_DUMPABLE */
	    4,          /* SET_DUMPABLE */
	    7,          /* GET_KEEPCAPS */
	    8,          /* SET_KEEPCAPS */
	    21,         /* GET_SECCOMP */
	    22,         /* SET_SECCOMP */
	    23,         /* CAPBSET_READ */
	    24,         /* CAPBSET_DROP */
	    27,         /* GET_SECUREBITS */
	    28,         /* SET_SECUREBITS */
	    29,         /* SET_TIMERSLACK */
	    30,         /* GET_TIMERSLACK */
	    36,         /* SET_CHILD_SUBREAPER */
	    37,         /* GET_CHILD_SUBREAPER */
	    38,         /* SET_NO_NEW_PRIVS */
	    39,         /* GET_NO_NEW_PRIVS */
	    41,         /* SET_THP_DISABLE: allocators, Go, Java */
	    42,         /* GET_THP_DISABLE */
	    47,         /* CAP_AMBIENT */
	    50,         /* SVE_SET_VL, and others of 64-bit ARM */
	    51,         /* SVE_GET_VL */
	    52,         /* GET_SPECULATION_CTRL: browsers */
	    53,         /* SET_SPECULATION_CTRL: of the caller's own threads */
	    54,         /* PAC_RESET_KEYS */
	    55,         /* SET_TAGGED_ADDR_CTRL */
	    56,         /* GET_TAGGED_ADDR_CTRL */
	    60,         /* PAC_SET_ENABLED_KEYS */
	    61,         /* PAC_GET_ENABLED_KEYS */
	    63,         /* SME_SET_VL */
	    64,         /* SME_GET_VL */
	    65,         /* SET_MDWE */
	    66,         /* GET_MDWE */
	    74,         /* GET_SHADOW_STACK_STATUS */
	    75,         /* SET_SHADOW_STACK_STATUS */
	    76,         /* LOCK_SHADOW_STACK_STATUS */
	    0x59616d61, /* SET_PTRACER: crash handlers, debuggers */
	};
	load(program, 0);
	answer_if_one_of(program, options, COUNT(options), ALLOW);
	answer(program, ERRNO(EINVAL));
}

/* The native one, what setarch asks for, and no address randomisation, for debuggers. Not:
 * READ_IMPLIES_EXEC, MMAP_PAGE_ZERO, ADDR_COMPAT_LAYOUT, which make an exploit easier. */
static void check_personality(struct program *program)
{
	static const uint32_t fine[] = {0,       0x8,     0x20000, 0x20008,
					0x40000, 0x60000, 0x40008, 0xffffffff};
	load(program, 0);
	answer_if_one_of(program, fine, COUNT(fine), ALLOW);
	answer(program, ERRNO(EPERM));
}

/* The first argument is a process, and PID 1 has the uid of the sandbox's root: without this, root
 * inside could slow it down or take its limits. */
static void check_not_init(struct program *program)
{
	load(program, 0);
	answer_if_equal(program, 1, ERRNO(EPERM));
	answer(program, ALLOW);
}

/* which, who: a process or a group that is not PID 1's, but never all processes of a user. */
static void check_priority(struct program *program, uint32_t process, uint32_t group)
{
	const uint32_t kinds[] = {process, group};
	load(program, 0);
	for (size_t i = 0; i < COUNT(kinds); i++) {
		size_t kind = if_equal(program, kinds[i]);
		load(program, 1);
		answer_if_equal(program, 1, ERRNO(EPERM));
		answer(program, ALLOW);
		end(program, kind);
	}
	answer(program, ERRNO(EPERM));
}

static void check_setpriority(struct program *program)
{
	check_priority(program, 0, 1);
}

static void check_ioprio_set(struct program *program)
{
	check_priority(program, 1, 2);
}

/* RLIMIT_CORE stays at the 1 that harden.c sets: it is the one value at which the kernel does not
 * start the host's core_pattern helper, as the host's root, on a process of the sandbox's choice.
 * (0 does: a pipe ignores the limit.) Programs that set it to 0 to be safe, as gpg does, are told
 * that they are. */
static void check_setrlimit(struct program *program)
{
	load(program, 0);
	answer_if_equal(program, 4, PRETEND); /* RLIMIT_CORE */
	answer(program, ALLOW);
}

static void end_if_null(struct program *program, unsigned argument, uint32_t result)
{
	load(program, argument);
	size_t lower = if_equal(program, 0);
	load_upper(program, argument);
	answer_if_equal(program, 0, result);
	end(program, lower);
}

/* prlimit64(pid, resource, new, old) */
static void check_prlimit(struct program *program)
{
	load(program, 0);
	answer_if_equal(program, 1, ERRNO(EPERM));
	load(program, 1);
	size_t core = if_equal(program, 4); /* RLIMIT_CORE */
	end_if_null(program, 2, ALLOW);
	end_if_null(program, 3, PRETEND);
	answer(program, ERRNO(EPERM)); /* the old value could not be given */
	end(program, core);
	answer(program, ALLOW);
}

/* Huge pages that the host's administrator set aside are not counted as a sandbox's memory: they
 * are for no sandbox. The answer is that of a host which has none. */
static void check_mmap(struct program *program)
{
	load(program, 3);
	answer_if_any(program, 0x40000, ERRNO(ENOMEM)); /* MAP_HUGETLB */
	answer(program, ALLOW);
}

static void check_memfd_create(struct program *program)
{
	load(program, 1);
	answer_if_any(program, 0x4, ERRNO(ENOMEM)); /* MFD_HUGETLB */
	answer(program, ALLOW);
}

static void check_shmget(struct program *program)
{
	load(program, 2);
	answer_if_any(program, 04000, ERRNO(ENOMEM)); /* SHM_HUGETLB */
	answer(program, ALLOW);
}

static const struct {
	const char *name;
	void (*check)(struct program *program);
} checked[] = {{"clone", check_clone},
	       {"unshare", check_unshare},
	       {"socket", check_socket},
	       {"socketpair", check_socketpair},
	       {"setsockopt", check_setsockopt},
	       {"ioctl", check_ioctl},
	       {"prctl", check_prctl},
	       {"personality", check_personality},
	       {"sched_setaffinity", check_not_init},
	       {"sched_setattr", check_not_init},
	       {"sched_setparam", check_not_init},
	       {"sched_setscheduler", check_not_init},
	       {"setpriority", check_setpriority},
	       {"ioprio_set", check_ioprio_set},
	       {"setrlimit", check_setrlimit},
	       {"prlimit64", check_prlimit},
	       {"mmap", check_mmap},
	       {"memfd_create", check_memfd_create},
	       {"shmget", check_shmget}};

/* -1: this architecture has no such call. */
static int number_of(const struct architecture *architecture, const char *name)
{
	for (size_t i = 0; i < COUNT(newer); i++) {
		if (strcmp(newer[i].name, name) == 0)
			return newer[i].number;
	}
	int number = seccomp_syscall_resolve_name_arch(architecture->seccomp, name);
	if (number == __NR_SCMP_ERROR || number >= NUMBERS) {
		fprintf(stderr, "seccomp-generate: unknown system call %s\n", name);
		exit(1);
	}
	return number < 0 ? -1 : number;
}

static void set_rule(struct policy *policy, const struct architecture *architecture,
		     const char *name, struct rule rule)
{
	int number = number_of(architecture, name);
	if (number >= 0)
		policy->rules[number] = rule;
}

static void set_rules(struct policy *policy, const struct architecture *architecture,
		      const char *const *names, size_t count, uint32_t value)
{
	for (size_t i = 0; i < count; i++)
		set_rule(policy, architecture, names[i], (struct rule){value, NULL});
}

static void fill(struct policy *policy, const struct architecture *architecture)
{
	for (size_t i = 0; i < NUMBERS; i++)
		policy->rules[i] = (struct rule){ERRNO(ENOSYS), NULL};
	set_rules(policy, architecture, allowed, COUNT(allowed), ALLOW);
	set_rules(policy, architecture, refused, COUNT(refused), ERRNO(EPERM));
	set_rules(policy, architecture, pretended, COUNT(pretended), PRETEND);
	for (size_t i = 0; i < COUNT(checked); i++)
		set_rule(policy, architecture, checked[i].name, (struct rule){0, checked[i].check});
	if (policy->nested) {
		set_rules(policy, architecture, allowed_nested, COUNT(allowed_nested), ALLOW);
		set_rules(policy, architecture, unknown_nested, COUNT(unknown_nested),
			  ERRNO(ENOSYS));
	}
}

/* Neighbouring numbers with the same rules. */
struct range {
	uint32_t first;
	struct rule rule, nested;
	size_t at; /* the first instruction of `rule` */
};

static bool is_same(const struct rule *one, const struct rule *other)
{
	return one->answer == other->answer && one->check == other->check;
}

static size_t merge(const struct policy *policy, const struct policy *nested, struct range *ranges)
{
	size_t count = 0;
	for (uint32_t number = 0; number < NUMBERS; number++) {
		const struct range range = {number, policy->rules[number], nested->rules[number],
					    0};
		if (count == 0 || !is_same(&ranges[count - 1].rule, &range.rule) ||
		    !is_same(&ranges[count - 1].nested, &range.nested))
			ranges[count++] = range;
	}
	return count; /* the last one, ENOSYS, goes on to the end of all numbers */
}

/* The number is loaded; falls to the left half when it is below the middle. */
static void emit_tree(struct program *program, struct range *ranges, size_t count)
{
	if (count == 1) {
		ranges[0].at = program->count;
		if (ranges[0].rule.check)
			ranges[0].rule.check(program);
		else
			answer(program, ranges[0].rule.answer);
		return;
	}
	size_t middle = count / 2;
	/* A conditional jump reaches 255 instructions, an unconditional one all. */
	emit(program, BPF_JMP | BPF_JGE | BPF_K, ranges[middle].first, 0, 1);
	emit(program, BPF_JMP | BPF_JA, 0, 0, 0);
	size_t jump = program->count - 1;
	emit_tree(program, ranges, middle);
	size_t distance = program->count - jump - 1;
	if (distance + 1 <= UINT8_MAX) {
		/* It reaches: the unconditional one goes. */
		memmove(&program->code[jump], &program->code[jump + 1],
			distance * sizeof(program->code[0]));
		for (size_t i = 0; i < middle; i++)
			ranges[i].at--;
		program->count--;
		program->code[jump - 1].jt = (uint8_t)distance;
		program->code[jump - 1].jf = 0;
	} else {
		program->code[jump].k = (uint32_t)distance;
	}
	emit_tree(program, ranges + middle, count - middle);
}

static void build(struct program *program, struct range *ranges, size_t count,
		  const struct architecture *architecture)
{
	program->count = 0;
	emit(program, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
	emit(program, BPF_JMP | BPF_JEQ | BPF_K, architecture->audit, 1, 0);
	answer(program, SECCOMP_RET_KILL_PROCESS);
	emit(program, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
	emit_tree(program, ranges, count);
}

/* Where the rules differ, the first instruction answers. Returns how many those are. */
static size_t change(struct program *program, const struct range *ranges, size_t count,
		     size_t *changes)
{
	size_t change_count = 0;
	for (size_t i = 0; i < count; i++) {
		if (is_same(&ranges[i].rule, &ranges[i].nested))
			continue;
		if (ranges[i].nested.check) {
			fprintf(stderr, "seccomp-generate: a nested rule must be plain\n");
			exit(1);
		}
		program->code[ranges[i].at] =
		    (struct sock_filter){BPF_RET | BPF_K, 0, 0, ranges[i].nested.answer};
		changes[change_count++] = ranges[i].at;
	}
	return change_count;
}

/* Where the program ends for a number, without its arguments: the answer, or the first load of an
 * argument (reported as 0, which no plain answer is). */
static uint32_t walk(const struct program *program, uint32_t number)
{
	for (size_t at = 4; at < program->count; at++) {
		const struct sock_filter *step = &program->code[at];
		switch (step->code) {
		case BPF_JMP | BPF_JGE | BPF_K:
			at += number >= step->k ? step->jt : step->jf;
			break;
		case BPF_JMP | BPF_JA:
			at += step->k;
			break;
		case BPF_RET | BPF_K:
			return step->k;
		case BPF_LD | BPF_W | BPF_ABS:
			return 0;
		default:
			fprintf(stderr, "seccomp-generate: lost at instruction %zu\n", at);
			exit(1);
		}
	}
	fprintf(stderr, "seccomp-generate: number %u leaves the program\n", number);
	exit(1);
}

/* Every number must come out as the tables say: a wrong jump ends the build. */
static void verify(const struct program *program, const struct policy *policy)
{
	for (uint32_t number = 0; number < NUMBERS; number++) {
		const struct rule *rule = &policy->rules[number];
		uint32_t found = walk(program, number);
		if (found != (rule->check ? 0 : rule->answer)) {
			fprintf(stderr, "seccomp-generate: %s: number %u comes out as %#x\n",
				policy->name, number, found);
			exit(1);
		}
	}
	static const uint32_t beyond[] = {NUMBERS, 0x40000000u, 0x40000001u, 0xffffffffu};
	for (size_t i = 0; i < COUNT(beyond); i++) {
		if (walk(program, beyond[i]) != ERRNO(ENOSYS)) {
			fprintf(stderr, "seccomp-generate: number %#x is known\n", beyond[i]);
			exit(1);
		}
	}
}

static void print(FILE *file, const struct program *program, const char *name)
{
	fprintf(file, "\nstatic const struct sock_filter seccomp_filter_%s[] = {\n", name);
	for (size_t i = 0; i < program->count; i++) {
		const struct sock_filter *step = &program->code[i];
		fprintf(file, "\t{0x%04x, %u, %u, 0x%08x},\n", step->code, step->jt, step->jf,
			step->k);
	}
	fprintf(file, "};\n");
}

static void print_changes(FILE *file, const struct program *program, const size_t *changes,
			  size_t count)
{
	fprintf(file, "\n__attribute__((unused)) static void seccomp_filter_nest(struct "
		      "sock_filter *code)\n{\n\tstatic const struct {\n\t\tunsigned short "
		      "at;\n\t\tunsigned answer;\n\t} changes[] = {\n");
	for (size_t i = 0; i < count; i++)
		fprintf(file, "\t\t{%zu, 0x%08x},\n", changes[i], program->code[changes[i]].k);
	fprintf(file,
		"\t};\n\tfor (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)\n"
		"\t\tcode[changes[i].at] = (struct sock_filter){0x%04x, 0, 0, "
		"changes[i].answer};\n}\n",
		BPF_RET | BPF_K);
}

/* The second filter. A read-write folder is mounted nosuid inside, but on the host its files are
 * the folder's owner's: a setuid program that the sandbox leaves there would lend that user's
 * rights to whoever runs it. Every call that can give a file a mode is therefore checked. (File
 * capabilities, the same trick, are behind a pointer here; harden.c drops CAP_SETFCAP instead.)
 *
 * A linear program with labels: it is for a few calls only, and the kernel remembers of all others
 * that they are allowed without running it. Foreign ABIs are the first filter's to kill. */
enum label {
	NEXT,
	UNKNOWN,
	MOUNT,
	OPENAT,
	MODE_FIRST,
	OPEN,
	MODE_SECOND,
	MODE,
	REFUSE,
	PERMIT,
	LABELS
};

static const struct {
	const char *name;
	enum label label;
} shared_calls[] = {
    {"chmod", MODE_FIRST},
    {"fchmod", MODE_FIRST},
    {"creat", MODE_FIRST},
    {"mknod", MODE_FIRST},
    {"fchmodat", MODE_SECOND},
    {"fchmodat2", MODE_SECOND},
    {"mknodat", MODE_SECOND},
    {"open", OPEN},
    {"openat", OPENAT},
    /* A message queue is a file as well, which an overlay could copy into the folder. */
    {"mq_open", OPEN},
    /* Its mode is behind a pointer; whoever uses it falls back to openat(). */
    {"openat2", UNKNOWN},
    {"mount", MOUNT},
};

#define ARGUMENT(index) (offsetof(struct seccomp_data, args) + (index)*8)
#define LOAD (BPF_LD | BPF_W | BPF_ABS)
#define IF_ANY (BPF_JMP | BPF_JSET | BPF_K)
#define RETURN (BPF_RET | BPF_K)
#define SET_ID_BITS 06000           /* S_ISUID, S_ISGID */
#define CREATES (0100 | 020000000)  /* O_CREAT, __O_TMPFILE: only with them the mode counts */
#define NO_NEW_MOUNT 0x3020         /* MS_BIND, MS_MOVE, MS_REMOUNT */
#define PROPAGATION 0x1e0000        /* MS_UNBINDABLE, MS_PRIVATE, MS_SLAVE, MS_SHARED */
#define MOUNT_MAGIC_MASK 0xffff0000 /* with MS_MGC_VAL there, the kernel ignores these bits */
#define MOUNT_MAGIC 0xc0ed0000

/* A conditional step goes to `yes` or `no`, any other to `yes`; NEXT is the step below. */
static const struct {
	enum label here;
	uint16_t code;
	uint32_t k;
	enum label yes, no;
} shared_steps[] = {
    {NEXT, RETURN, ALLOW, NEXT, NEXT},
    {UNKNOWN, RETURN, ERRNO(ENOSYS), NEXT, NEXT},
    /* In a nested namespace, only what is mounted already: the kernel copies files with their mode
     * up into an overlay's upper directory, which could be the folder. */
    {MOUNT, LOAD, ARGUMENT(3), NEXT, NEXT},
    {NEXT, IF_ANY, NO_NEW_MOUNT, PERMIT, NEXT},
    {NEXT, BPF_ALU | BPF_AND | BPF_K, MOUNT_MAGIC_MASK, NEXT, NEXT},
    {NEXT, BPF_JMP | BPF_JEQ | BPF_K, MOUNT_MAGIC, REFUSE, NEXT},
    {NEXT, IF_ANY, PROPAGATION, PERMIT, REFUSE},
    {OPENAT, LOAD, ARGUMENT(2), NEXT, NEXT},
    {NEXT, IF_ANY, CREATES, NEXT, PERMIT},
    {NEXT, LOAD, ARGUMENT(3), NEXT, NEXT},
    {NEXT, BPF_JMP | BPF_JA, 0, MODE, NEXT},
    {MODE_FIRST, LOAD, ARGUMENT(1), NEXT, NEXT},
    {NEXT, BPF_JMP | BPF_JA, 0, MODE, NEXT},
    {OPEN, LOAD, ARGUMENT(1), NEXT, NEXT},
    {NEXT, IF_ANY, CREATES, NEXT, PERMIT},
    {MODE_SECOND, LOAD, ARGUMENT(2), NEXT, NEXT},
    {MODE, IF_ANY, SET_ID_BITS, REFUSE, PERMIT},
    {REFUSE, RETURN, ERRNO(EPERM), NEXT, NEXT},
    {PERMIT, RETURN, ALLOW, NEXT, NEXT},
};

/* How far a jump at `from` has to go; labels are always further down. */
static uint8_t distance_to(const size_t *labels, enum label label, size_t from)
{
	if (label == NEXT)
		return 0;
	if (labels[label] <= from || labels[label] - from - 1 > UINT8_MAX) {
		fprintf(stderr, "seccomp-generate: label %d is out of reach\n", label);
		exit(1);
	}
	return (uint8_t)(labels[label] - from - 1);
}

static void build_shared(struct program *program, const struct architecture *architecture)
{
	size_t labels[LABELS] = {0};
	enum label goals[COUNT(shared_calls)];
	program->count = 0;
	emit(program, LOAD, offsetof(struct seccomp_data, nr), 0, 0);
	for (size_t i = 0; i < COUNT(shared_calls); i++) {
		int number = number_of(architecture, shared_calls[i].name);
		if (number < 0)
			continue;
		goals[program->count - 1] = shared_calls[i].label;
		emit(program, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 0);
	}
	size_t first = program->count;
	for (size_t i = 0; i < COUNT(shared_steps); i++) {
		if (shared_steps[i].here != NEXT)
			labels[shared_steps[i].here] = first + i;
		emit(program, shared_steps[i].code, shared_steps[i].k, 0, 0);
	}
	for (size_t at = 1; at < first; at++)
		program->code[at].jt = distance_to(labels, goals[at - 1], at);
	for (size_t i = 0; i < COUNT(shared_steps); i++) {
		struct sock_filter *step = &program->code[first + i];
		if (step->code == (BPF_JMP | BPF_JA)) {
			step->k = distance_to(labels, shared_steps[i].yes, first + i);
		} else {
			step->jt = distance_to(labels, shared_steps[i].yes, first + i);
			step->jf = distance_to(labels, shared_steps[i].no, first + i);
		}
	}
}

int main(int argc, char **argv)
{
	const struct architecture *architecture = NULL;
	for (size_t i = 0; argc == 3 && i < COUNT(architectures); i++) {
		if (strcmp(argv[1], architectures[i].name) == 0)
			architecture = &architectures[i];
	}
	if (!architecture) {
		fprintf(stderr, "usage: seccomp-generate x86_64|aarch64 OUTPUT\n");
		return 2;
	}
	FILE *file = fopen(argv[2], "we");
	if (!file) {
		fprintf(stderr, "seccomp-generate: %s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	fprintf(file,
		"/* Made by tools/seccomp-generate.c for %s: do not edit. */\n"
		"#pragma once\n\n#include <linux/filter.h>\n",
		architecture->name);
	static struct policy plain = {.name = "default"},
			     nested = {.name = "nested", .nested = true};
	static struct program program;
	static struct range ranges[NUMBERS];
	static size_t changes[NUMBERS];
	fill(&plain, architecture);
	fill(&nested, architecture);
	size_t count = merge(&plain, &nested, ranges);
	build(&program, ranges, count, architecture);
	verify(&program, &plain);
	print(file, &program, "default");
	size_t change_count = change(&program, ranges, count, changes);
	verify(&program, &nested);
	print_changes(file, &program, changes, change_count);
	build_shared(&program, architecture);
	print(file, &program, "shared");
	if (ferror(file) || fclose(file) != 0) {
		fprintf(stderr, "seccomp-generate: %s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	return 0;
}
