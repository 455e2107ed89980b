/* System calls that the filter refuses with any arguments, and namespaces. Their arguments are
 * invalid, so a call that reaches the kernel fails. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "probe.h"

/* Calls that some kernel headers lack; their numbers are the same on all architectures. */
#define NR_MEMFD_SECRET 447
#define NR_CACHESTAT 451
#define NR_STATMOUNT 457
#define NR_LISTMOUNT 458
#define NR_LSM_GET_SELF_ATTR 459
#define NR_LSM_SET_SELF_ATTR 460
#define NR_LSM_LIST_MODULES 461
#define NR_OPEN_TREE_ATTR 467
#define NR_FILE_GETATTR 468
#define NR_FILE_SETATTR 469
#define NR_LISTNS 470

static long clone_with(unsigned long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(0);
	return pid;
}

#define CLONE_ATTEMPT(name, flags)                                                                 \
	static long try_##name(void)                                                               \
	{                                                                                          \
		return clone_with(flags);                                                          \
	}
CLONE_ATTEMPT(clone_user, CLONE_NEWUSER)
CLONE_ATTEMPT(clone_net, CLONE_NEWNET)
CLONE_ATTEMPT(clone_mount, CLONE_NEWNS)
CLONE_ATTEMPT(clone_pid, CLONE_NEWPID)
CLONE_ATTEMPT(clone_ipc, CLONE_NEWIPC)
CLONE_ATTEMPT(clone_uts, CLONE_NEWUTS)
CLONE_ATTEMPT(clone_cgroup, CLONE_NEWCGROUP)
/* The kernel ignores the upper half of the flags, so a filter that compares all 64 bits can be
 * evaded. */
CLONE_ATTEMPT(clone_user_high_bits, CLONE_NEWUSER | (unsigned long)HIGH_BITS)

struct clone3_arguments {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
	    set_tid_size, cgroup;
};

static long clone3_with(struct clone3_arguments arguments)
{
	arguments.exit_signal = SIGCHLD;
	long pid = syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (pid == 0)
		_exit(0);
	return pid;
}

static long try_clone3_user(void)
{
	return clone3_with((struct clone3_arguments){.flags = CLONE_NEWUSER});
}

static long try_clone3_into_cgroup(void)
{
	return clone3_with((struct clone3_arguments){.flags = 0x200000000ULL, .cgroup = 0});
}

static long try_user_namespace_limit(void)
{
	char text[16] = "";
	int fd = open("/proc/sys/user/max_user_namespaces", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return -1;
	return strcmp(text, "0\n") == 0 ? absent() : 0;
}

/* Attempts to undo masks and read-only mounts, with valid arguments. */
static long try_umount_mask(void)
{
	return umount2("/proc/kallsyms", MNT_DETACH);
}

static long try_remount_proc_sys(void)
{
	return mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL);
}

static long try_remount_usr(void)
{
	return mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL);
}

static long try_mount_propagation(void)
{
	return mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL);
}

static long try_mount_proc_again(void)
{
	return mount("proc", "/mnt", "proc", 0, NULL);
}

static long try_setns_own(void)
{
	static const char *const names[] = {"user", "mnt",    "pid", "net",
					    "ipc",  "cgroup", "uts", "time"};
	char path[32];
	for (size_t i = 0; i < COUNT(names); i++) {
		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		int fd = (int)open_path(path, O_RDONLY);
		if (fd >= 0 && syscall(SYS_setns, fd, 0) == 0)
			return 0;
	}
	return -1;
}

static long try_setns_init(void)
{
	long pidfd = syscall(SYS_pidfd_open, 1, 0);
	return pidfd < 0 ? -1 : syscall(SYS_setns, pidfd, CLONE_NEWNS | CLONE_NEWNET);
}

/* From a namespace's file one can get its owner, its parent and, since Linux 6.12, other mount
 * namespaces. */
static long try_namespace_relatives(void)
{
	static const char *const paths[] = {"/proc/self/ns/user", "/proc/self/ns/pid",
					    "/proc/self/ns/mnt"};
	/* NS_GET_PARENT, NS_MNT_GET_NEXT, NS_MNT_GET_PREV */
	static const unsigned long requests[] = {0xb702, 0x8010b70b, 0x8010b70c};
	uint64_t room[4];
	for (size_t i = 0; i < COUNT(paths); i++) {
		int fd = (int)open_path(paths[i], O_RDONLY);
		for (size_t r = 0; r < COUNT(requests); r++) {
			if (fd >= 0 && syscall(SYS_ioctl, fd, requests[r], room) >= 0)
				return 0;
		}
	}
	return absent();
}

/* Asks where a file's blocks are on the host's disk (FIEMAP). */
static long try_blocks_of_file(void)
{
	uint64_t room[32] = {0, UINT64_MAX}; /* from, how much; flags and counts 0 */
	return syscall(SYS_ioctl, open_path("/etc/passwd", O_RDONLY), 0xc020660bUL, room);
}

/* An ioctl of ext4, the sandbox's file system, that changes nothing (EXT4_IOC_GETSTATE). */
static long try_ioctl_of_filesystem(void)
{
	uint32_t state = 0;
	return syscall(SYS_ioctl, open_path("/etc/passwd", O_RDONLY), 0x40046629UL, &state);
}

#ifdef __x86_64__
/* A kernel that uses the 64-bit table for this number, as gVisor's does, executes writev(-1). */
static long try_foreign_abi(void)
{
	long result = 20; /* getpid of the 32-bit table */
	__asm__ volatile("int $0x80"
			 : "+a"(result)
			 : "D"(-1L)
			 : "memory", "r8", "r9", "r10", "r11");
	errno = result < 0 ? (int)-result : 0;
	return result < 0 ? -1 : result;
}
#endif

static const struct attempt calls_list[] = {
    /* mounts and namespaces */
    CALL(mount, NOWHERE, NOWHERE, NOWHERE),
    CALL(umount2, NOWHERE),
    CALL(pivot_root, NOWHERE, NOWHERE),
    CALL(fsopen, NOWHERE),
    CALL(fsconfig, -1),
    CALL(fsmount, -1),
    CALL(fspick, -1, NOWHERE),
    CALL(move_mount, -1, NOWHERE, -1, NOWHERE),
    CALL(open_tree, -1, NOWHERE),
    CALL(mount_setattr, -1, NOWHERE),
    NUMBERED("open_tree_attr", NR_OPEN_TREE_ATTR, -1, NOWHERE),
    NUMBERED("statmount", NR_STATMOUNT, 0),
    NUMBERED("listmount", NR_LISTMOUNT, 0),
    NUMBERED("listns", NR_LISTNS, 0),
    TRY(umount_mask),
    TRY(remount_proc_sys),
    TRY(remount_usr),
    TRY(mount_propagation),
    TRY(mount_proc_again),
    CALL(setns, -1),
    TRY(setns_own),
    TRY(setns_init),
    TRY(namespace_relatives),
    NUMBERED("unshare_user", SYS_unshare, CLONE_NEWUSER),
    NUMBERED("unshare_user_high_bits", SYS_unshare, CLONE_NEWUSER | HIGH_BITS),
    NUMBERED("unshare_mount", SYS_unshare, CLONE_NEWNS),
    NUMBERED("unshare_net", SYS_unshare, CLONE_NEWNET),
    NUMBERED("unshare_pid", SYS_unshare, CLONE_NEWPID),
    NUMBERED("unshare_ipc", SYS_unshare, CLONE_NEWIPC),
    NUMBERED("unshare_uts", SYS_unshare, CLONE_NEWUTS),
    NUMBERED("unshare_cgroup", SYS_unshare, CLONE_NEWCGROUP),
    NUMBERED("unshare_time", SYS_unshare, 0x80),
    TRY(clone_user),
    TRY(clone_user_high_bits),
    TRY(clone_net),
    TRY(clone_mount),
    TRY(clone_pid),
    TRY(clone_ipc),
    TRY(clone_uts),
    TRY(clone_cgroup),
    TRY(clone3_user),
    TRY(clone3_into_cgroup),
    TRY(user_namespace_limit),
    CALL(sethostname, 0, -1),
    CALL(setdomainname, 0, -1),
    /* code and data of the kernel */
    CALL(bpf, 0),
    CALL(perf_event_open, 0),
    CALL(io_uring_setup, 1, 0),
    CALL(io_uring_enter, -1),
    CALL(io_uring_register, -1),
    CALL(userfaultfd, 1),
    CALL(init_module, 0),
    CALL(finit_module, -1),
    CALL(delete_module, NOWHERE),
    CALL(kexec_load, 0, -1),
    CALL(kexec_file_load, -1, -1),
    CALL(io_setup, 1, 0),
    CALL(io_submit, 0),
    CALL(kcmp, 0),
    CALL(lookup_dcookie, 0),
    CALL(process_madvise, -1),
    NUMBERED("process_mrelease", 448, -1),
    NUMBERED("memfd_secret", NR_MEMFD_SECRET, 0),
    NUMBERED("mbind", SYS_mbind, 0, 0, 0, 0, 0, 0),
    NUMBERED("get_mempolicy", SYS_get_mempolicy, 0, 0, 0, 0, 0),
    NUMBERED("set_mempolicy", SYS_set_mempolicy, 0, 0, 0),
    NUMBERED("migrate_pages", SYS_migrate_pages, 0, 0, 0, 0),
    NUMBERED("remap_file_pages", SYS_remap_file_pages, 0, 0, 0, 0, 0),
    NUMBERED("prctl_core_scheduling", SYS_prctl, 62, 1, 0, 0, 0),
    NUMBERED("prctl_memory_merge", SYS_prctl, 67, 1, 0, 0, 0),
    NUMBERED("prctl_memory_map", SYS_prctl, 35, 15, 0, 0, 0),
    NUMBERED("prctl_call_dispatch", SYS_prctl, 59, 0, 0, 0, 0),
    NUMBERED("prctl_core_scheduling_high_bits", SYS_prctl, 62 | HIGH_BITS, 1, 0, 0, 0),
    TRY(blocks_of_file),
    TRY(ioctl_of_filesystem),
    NUMBERED("cachestat", NR_CACHESTAT, -1),
    NUMBERED("lsm_get_self_attr", NR_LSM_GET_SELF_ATTR, 0),
    NUMBERED("lsm_set_self_attr", NR_LSM_SET_SELF_ATTR, 0),
    NUMBERED("lsm_list_modules", NR_LSM_LIST_MODULES, 0),
    NUMBERED("file_getattr", NR_FILE_GETATTR, -1, NOWHERE),
    NUMBERED("file_setattr", NR_FILE_SETATTR, -1, NOWHERE),
    NUMBERED("unheard_of", 1000, 0),
    /* resources that no namespace isolates */
    CALL(add_key, NOWHERE),
    CALL(request_key, NOWHERE),
    CALL(keyctl, 0, -3),
    CALL(syslog, 10),
    CALL(acct, NOWHERE),
    CALL(quotactl, -1, NOWHERE),
    NUMBERED("quotactl_fd", 443, -1),
    CALL(swapon, NOWHERE),
    CALL(swapoff, NOWHERE),
    CALL(reboot, 0),
    CALL(settimeofday, 0, 0),
    CALL(clock_settime, -1),
    CALL(clock_adjtime, -1),
    CALL(adjtimex, 0),
    CALL(vhangup, 0),
    CALL(fanotify_init, 0),
    CALL(fanotify_mark, -1),
    CALL(name_to_handle_at, -1, NOWHERE),
    CALL(open_by_handle_at, -1),
    CALL(pidfd_getfd, -1),
#ifdef __x86_64__
    CALL(iopl, 0),
    CALL(ioperm, 0),
    CALL(modify_ldt, 0),
    CALL(sysfs, 3),
    CALL(ustat, 0, 0),
    CALL(uselib, NOWHERE),
    CALL(_sysctl, 0),
    NUMBERED("uretprobe", 335, 0),
    NUMBERED("uprobe", 336, 0),
    NUMBERED("x32_getpid", 0x40000000 | SYS_getpid, 0),
    NUMBERED("x32_mount", 0x40000000 | SYS_mount, NOWHERE, NOWHERE, NOWHERE),
    TRY(foreign_abi),
#endif
    NUMBERED("personality_exec", SYS_personality, 0x400000),
    NUMBERED("personality_page_zero", SYS_personality, 0x100000),
    NUMBERED("personality_compat_layout", SYS_personality, 0x200000),
    NUMBERED("map_page_zero", SYS_mmap, 0, 4096, 3, 0x32, -1, 0),
    NUMBERED("huge_pages", SYS_mmap, 0, 1 << 21, 3, 0x40022, -1, 0),
    NUMBERED("huge_memfd", SYS_memfd_create, (long)"probe", 4),
    NUMBERED("huge_segment", SYS_shmget, 0, 1 << 21, 04600 | 01000),
};
ATTEMPTS(calls);
