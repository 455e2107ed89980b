/* PID 1, the runner of this exec, terminals, scheduling: processes of the sandbox that are not
 * the user's, and effects of one's own process beyond the sandbox. */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "probe.h"

static long try_ptrace_init(void)
{
	return ptrace(PTRACE_SEIZE, 1, 0, 0);
}

static long read_memory(int pid)
{
	char here[8];
	struct iovec local = {here, sizeof(here)}, remote = {(void *)0x400000, sizeof(here)};
	return syscall(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0);
}

static long try_read_memory_of_init(void)
{
	return read_memory(1);
}

static long try_write_memory_of_init(void)
{
	char here[8] = "";
	/* Nothing is mapped at this address: the call only checks the permission. */
	struct iovec local = {here, sizeof(here)}, remote = {(void *)8, sizeof(here)};
	long result = syscall(SYS_process_vm_writev, 1, &local, 1, &remote, 1, 0);
	return result < 0 && errno == EFAULT ? 0 : result;
}

static long list_directory(const char *path)
{
	DIR *directory = opendir(path);
	return directory && readdir(directory) ? 0 : -1;
}

static long try_list_descriptors_of_init(void)
{
	return list_directory("/proc/1/fd");
}

static long try_list_mappings_of_init(void)
{
	return list_directory("/proc/1/map_files");
}

/* The targets of the descriptors, if they can be listed at all. */
static long follow_descriptors(int pid)
{
	char path[64], target[256];
	for (int fd = 0; fd < 128; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
		if (readlink(path, target, sizeof(target)) >= 0 || open_path(path, O_RDONLY) >= 0 ||
		    open_path(path, O_PATH) >= 0)
			return 0;
	}
	return absent();
}

static long try_follow_descriptors_of_init(void)
{
	return follow_descriptors(1);
}

static long try_follow_descriptors_of_runner(void)
{
	return probe_runner < 2 ? absent() : follow_descriptors(probe_runner);
}

static long try_descriptor_of_init(void)
{
	long pidfd = syscall(SYS_pidfd_open, 1, 0);
	return pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, 0, 0);
}

/* PIDFD_GET_CGROUP_NAMESPACE and the nine after it (Linux 6.11). */
static long try_namespaces_of_init(void)
{
	long pidfd = syscall(SYS_pidfd_open, 1, 0);
	for (unsigned long number = 1; pidfd >= 0 && number <= 10; number++) {
		if (syscall(SYS_ioctl, pidfd, 0xff00 | number, 0) >= 0)
			return 0;
	}
	return absent();
}

#define OPEN_ATTEMPT(name, path, flags)                                                            \
	static long try_##name(void)                                                               \
	{                                                                                          \
		return open_path(path, flags);                                                     \
	}
OPEN_ATTEMPT(memory_file_of_init, "/proc/1/mem", O_RDONLY)
OPEN_ATTEMPT(executable_of_init, "/proc/1/exe", O_RDONLY)
OPEN_ATTEMPT(root_of_init, "/proc/1/root/", O_RDONLY | O_DIRECTORY)
OPEN_ATTEMPT(directory_of_init, "/proc/1/cwd/", O_RDONLY | O_DIRECTORY)
OPEN_ATTEMPT(namespace_file_of_init, "/proc/1/ns/mnt", O_RDONLY)
OPEN_ATTEMPT(oom_score_of_init, "/proc/1/oom_score_adj", O_WRONLY)
OPEN_ATTEMPT(dump_filter_of_init, "/proc/1/coredump_filter", O_WRONLY)
OPEN_ATTEMPT(references_of_init, "/proc/1/clear_refs", O_WRONLY)
OPEN_ATTEMPT(name_of_init, "/proc/1/comm", O_WRONLY)

static long read_byte(const char *path)
{
	char byte;
	int fd = (int)open_path(path, O_RDONLY);
	if (fd < 0)
		return -1;
	ssize_t got = read(fd, &byte, 1);
	return got == 0 ? absent() : got;
}

/* Files of a process that the kernel shows only to processes that may trace it. */
static long try_secrets_of_init(void)
{
	static const char *const names[] = {"environ", "auxv",  "maps",        "smaps",
					    "pagemap", "stack", "personality", "io"};
	char path[32];
	for (size_t i = 0; i < COUNT(names); i++) {
		snprintf(path, sizeof(path), "/proc/1/%s", names[i]);
		if (read_byte(path) >= 0)
			return 0;
	}
	return -1;
}

static long try_environment_of_init(void)
{
	return read_byte("/proc/1/environ");
}

/* The runner is a fork of PID 1 and has a socket to it. */
static long runner_path(const char *name, int flags)
{
	char path[64];
	if (probe_runner < 2)
		return absent();
	snprintf(path, sizeof(path), "/proc/%d/%s", probe_runner, name);
	return open_path(path, flags);
}

static long try_ptrace_runner(void)
{
	return probe_runner < 2 ? absent() : ptrace(PTRACE_SEIZE, probe_runner, 0, 0);
}

static long try_read_memory_of_runner(void)
{
	return probe_runner < 2 ? absent() : read_memory(probe_runner);
}

static long try_descriptors_of_runner(void)
{
	return runner_path("fd", O_RDONLY | O_DIRECTORY);
}

static long try_memory_file_of_runner(void)
{
	return runner_path("mem", O_RDWR);
}

static long try_executable_of_runner(void)
{
	return runner_path("exe", O_RDONLY);
}

static long try_root_of_runner(void)
{
	return runner_path("root/", O_RDONLY | O_DIRECTORY);
}

/* The socket that the daemon connects to must have no name in here. */
static long try_socket_of_init(void)
{
	char text[65536];
	int fd = (int)open_path("/proc/net/unix", O_RDONLY);
	ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (size < 0)
		return -1;
	text[size] = '\0';
	return strstr(text, "init.sock") || strstr(text, "caisson") ? 0 : absent();
}

/* After each of these PID 1 must still exist to reap this process. */
static long try_stop_init(void)
{
	return kill(1, SIGKILL) < 0 ? -1 : kill(1, SIGSTOP);
}

static long try_signals_to_init(void)
{
	for (int number = 1; number <= 64; number++)
		kill(1, number);
	return 0;
}

/* A descriptor that is shared with PID 1 can send any signal to its "owner". */
static long try_owner_of_descriptor(void)
{
	fcntl(STDOUT_FILENO, F_SETSIG, SIGKILL);
	if (fcntl(STDOUT_FILENO, F_SETOWN, 1) < 0)
		return -1;
	fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_ASYNC);
	fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) & ~O_ASYNC);
	fcntl(STDOUT_FILENO, F_SETOWN, 0);
	return 0;
}

static long try_scheduling_of_init(void)
{
	struct sched_param parameters = {0};
	return syscall(SYS_sched_setscheduler, 1, SCHED_BATCH, &parameters);
}

static long try_affinity_of_init(void)
{
	unsigned long mask = 1;
	return syscall(SYS_sched_setaffinity, 1 | HIGH_BITS, sizeof(mask), &mask);
}

static long try_limits_of_init(void)
{
	struct rlimit limit;
	if (syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &limit) < 0)
		return -1;
	return syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &limit, NULL);
}

static long try_group_of_init(void)
{
	return setpgid(0, 1);
}

/* A scheduling class that takes more than a fair share of the host's cpus. */
static long try_realtime_scheduling(void)
{
	struct sched_param parameters = {.sched_priority = 1};
	return syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &parameters);
}

static long try_deadline_scheduling(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attributes = {
	    .size = 48, .policy = 6, .runtime = 1000000, .deadline = 10000000, .period = 10000000};
	return syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static long try_higher_priority(void)
{
	return setpriority(PRIO_PROCESS, 0, -20);
}

static long try_more_files(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return -1;
	limit.rlim_cur = limit.rlim_max = limit.rlim_max + 1;
	return setrlimit(RLIMIT_NOFILE, &limit);
}

/* If the kernel could not choose this process when memory is out, the sandbox would hang at its
 * limit. */
static long try_oom_immunity(void)
{
	int fd = (int)open_path("/proc/self/oom_score_adj", O_WRONLY);
	return fd < 0 ? -1 : write(fd, "-1000", 5);
}

static long try_oom_preference(void)
{
	int fd = (int)open_path("/proc/self/oom_score_adj", O_WRONLY);
	return fd < 0 ? -1 : write(fd, "-1", 2);
}

/* Terminals: the exec's, or one that is opened here. */
static int open_terminal(void)
{
	if (isatty(STDIN_FILENO))
		return STDIN_FILENO;
	int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : fd;
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

/* The console's output to our terminal. */
static long try_tioccons(void)
{
	return syscall(SYS_ioctl, open_terminal(), 0x541dL, 0);
}

static long try_tiocvhangup(void)
{
	return syscall(SYS_ioctl, open_terminal(), 0x5437L, 0);
}

static const struct attempt processes_list[] = {
    TRY(ptrace_init),
    TRY(read_memory_of_init),
    TRY(write_memory_of_init),
    TRY(memory_file_of_init),
    TRY(executable_of_init),
    TRY(root_of_init),
    TRY(directory_of_init),
    TRY(environment_of_init),
    TRY(secrets_of_init),
    TRY(list_descriptors_of_init),
    TRY(follow_descriptors_of_init),
    TRY(follow_descriptors_of_runner),
    TRY(list_mappings_of_init),
    TRY(descriptor_of_init),
    TRY(namespaces_of_init),
    TRY(namespace_file_of_init),
    TRY(oom_score_of_init),
    TRY(dump_filter_of_init),
    TRY(references_of_init),
    TRY(name_of_init),
    TRY(socket_of_init),
    TRY(scheduling_of_init),
    TRY(affinity_of_init),
    TRY(limits_of_init),
    TRY(group_of_init),
    NUMBERED("priority_of_init", SYS_setpriority, PRIO_PROCESS, 1, 0),
    NUMBERED("priority_of_user", SYS_setpriority, PRIO_USER, 0, 0),
    NUMBERED("io_priority_of_init", SYS_ioprio_set, 1, 1, 0),
    NUMBERED("pages_of_init", SYS_move_pages, 1, 0, 0, 0, 0, 0),
    TRY(stop_init),
    TRY(signals_to_init),
    TRY(owner_of_descriptor),
    TRY(ptrace_runner),
    TRY(read_memory_of_runner),
    TRY(descriptors_of_runner),
    TRY(memory_file_of_runner),
    TRY(executable_of_runner),
    TRY(root_of_runner),
    TRY(realtime_scheduling),
    TRY(deadline_scheduling),
    TRY(higher_priority),
    NUMBERED("realtime_io", SYS_ioprio_set, 1, 0, 1 << 13),
    TRY(more_files),
    TRY(oom_immunity),
    TRY(oom_preference),
    TRY(tiocsti),
    TRY(tiocsti_high_bits),
    TRY(tioclinux),
    TRY(tiocsetd),
    TRY(tioccons),
    TRY(tiocvhangup),
};
ATTEMPTS(processes);
