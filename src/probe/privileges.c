/* Rights: those of a process, those that it could gain by programs with a setuid bit or
 * capabilities, and ways around the filter. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "probe.h"

#define SETUID_PROGRAM "/tmp/probe-of-root"
#define CAPABLE_PROGRAM "/tmp/probe-with-capabilities"
#define NEW_USER_NAMESPACE 0x10000000

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

static long try_no_new_privileges_off(void)
{
	return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0);
}

static long try_no_filter(void)
{
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? absent() : 0;
}

/* Done if the bounding set has a capability that isolation.md does not list. */
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

static long try_ambient_capability(void)
{
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21 /* CAP_SYS_ADMIN */, 0, 0);
}

static long try_every_capability(void)
{
	struct {
		uint32_t version;
		int pid;
	} header = {0x20080522, 0};
	struct {
		uint32_t effective, permitted, inheritable;
	} data[2] = {{~0U, ~0U, ~0U}, {0x1ff, 0x1ff, 0x1ff}};
	return syscall(SYS_capset, &header, data);
}

/* Any descriptor above standard error. (The probe's own pipe is far above.) */
static long try_inherited_descriptors(void)
{
	for (int fd = 3; fd < 1024; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			return 0;
	}
	return absent();
}

/* Standard descriptors must be pipes, terminals or /dev/null, no file or directory of the host. */
static long try_standard_descriptors(void)
{
	struct stat status;
	for (int fd = 0; fd <= 2; fd++) {
		if (fstat(fd, &status) < 0)
			continue;
		if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode) &&
		    !S_ISSOCK(status.st_mode))
			return 0;
	}
	return absent();
}

/* The rights of such a program: exit code 1 if it is root or has a capability. */
int privileges_report(void)
{
	char text[4096];
	int fd = (int)open_path("/proc/self/status", O_RDONLY);
	ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (size < 0)
		return 2;
	text[size] = '\0';
	const char *line = strstr(text, "CapEff:");
	unsigned long long effective = line ? strtoull(line + 7, NULL, 16) : ~0ULL;
	printf("euid %d effective %llx\n", (int)geteuid(), effective);
	return geteuid() == 0 || effective != 0;
}

static int copy_program(const char *from, const char *to)
{
	char block[65536];
	ssize_t got = -1;
	unlink(to);
	int source = open(from, O_RDONLY | O_CLOEXEC);
	int target = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0755);
	if (source >= 0 && target >= 0) {
		while ((got = read(source, block, sizeof(block))) > 0) {
			if (write(target, block, (size_t)got) != got)
				break;
		}
	}
	close(source);
	close(target);
	return got == 0 ? 0 : -1;
}

int privileges_prepare(const char *program)
{
	/* Version 2, effective; permitted: CAP_SETUID */
	static const unsigned char value[20] = {1, 0, 0, 2, 0x80};
	if (copy_program(program, SETUID_PROGRAM) < 0 ||
	    copy_program(program, CAPABLE_PROGRAM) < 0 || chmod(SETUID_PROGRAM, 06755) < 0 ||
	    setxattr(CAPABLE_PROGRAM, "security.capability", value, sizeof(value), 0) < 0) {
		perror("caisson-probe --prepare");
		return 1;
	}
	return 0;
}

/* Done if the program has rights that its caller lacks. */
static long gain_by(const char *program)
{
	struct stat status;
	int result;
	if (geteuid() == 0 || stat(program, &status) < 0)
		return UNTRIED;
	pid_t pid = fork();
	if (pid == 0) {
		close(STDOUT_FILENO);
		execl(program, program, "--rights", (char *)NULL);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &result, 0) < 0)
		return -1;
	return WIFEXITED(result) && WEXITSTATUS(result) == 0 ? absent() : 0;
}

static long try_setuid_program(void)
{
	return gain_by(SETUID_PROGRAM);
}

static long try_capable_program(void)
{
	return gain_by(CAPABLE_PROGRAM);
}

static long try_become_root(void)
{
	return setuid(0);
}

static pid_t traced_child(unsigned long options)
{
	pid_t pid = fork();
	if (pid == 0) {
		for (;;)
			pause();
	}
	if (pid > 0 && ptrace(PTRACE_SEIZE, pid, 0, options) < 0) {
		int saved = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		errno = saved;
		return -1;
	}
	return pid;
}

static long end_child(pid_t pid, long result)
{
	int saved = errno;
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	errno = saved;
	return result;
}

static long try_suspend_filter(void)
{
	pid_t pid = traced_child(1 << 21); /* PTRACE_O_SUSPEND_SECCOMP */
	return pid < 0 ? -1 : end_child(pid, 0);
}

static long try_read_filter(void)
{
	pid_t pid = traced_child(0);
	if (pid < 0)
		return -1;
	return end_child(pid, ptrace(0x420c, pid, 0, 0)); /* PTRACE_SECCOMP_GET_FILTER */
}

/* Changes the number and first argument of the call that a stopped child is about to make. */
static int change_call(pid_t pid, long number, long argument)
{
	unsigned long registers[64];
	struct iovec vector = {registers, sizeof(registers)};
	if (ptrace(PTRACE_GETREGSET, pid, (void *)1 /* NT_PRSTATUS */, &vector) < 0)
		return -1;
#ifdef __x86_64__
	registers[15] = (unsigned long)number;   /* orig_rax */
	registers[14] = (unsigned long)argument; /* rdi */
#else
	int wanted = (int)number;
	struct iovec call = {&wanted, sizeof(wanted)};
	if (ptrace(PTRACE_SETREGSET, pid, (void *)0x404 /* NT_ARM_SYSTEM_CALL */, &call) < 0)
		return -1;
	registers[0] = (unsigned long)argument;
#endif
	return (int)ptrace(PTRACE_SETREGSET, pid, (void *)1, &vector);
}

/* A tracer changes an allowed call into a forbidden one after the filter may have checked it.
 * The child's exit code is the result. */
static long try_tracer_changes_call(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		long result = syscall(SYS_getppid);
		_exit(result == -1 ? errno : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
		return end_child(pid, -1);
	ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD);
	/* Continues to the next getppid(); entries and exits alternate. */
	for (int i = 0; i < 20; i++) {
		if (ptrace(PTRACE_SYSCALL, pid, 0, 0) < 0 || waitpid(pid, &status, 0) < 0 ||
		    !WIFSTOPPED(status))
			return end_child(pid, -1);
		unsigned long registers[64];
		struct iovec vector = {registers, sizeof(registers)};
		ptrace(PTRACE_GETREGSET, pid, (void *)1, &vector);
#ifdef __x86_64__
		bool there = registers[15] == SYS_getppid;
#else
		bool there = registers[8] == SYS_getppid;
#endif
		if (!there)
			continue;
		if (change_call(pid, SYS_unshare, NEW_USER_NAMESPACE) < 0)
			return end_child(pid, -1);
		break;
	}
	if (ptrace(PTRACE_DETACH, pid, 0, 0) < 0 || waitpid(pid, &status, 0) < 0)
		return end_child(pid, -1);
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
	return errno ? -1 : 0;
}

/* Installs a filter that asks a supervisor instead: if it is asked, this hangs. */
static long try_supervisor_allows_call(void)
{
	static const struct {
		uint16_t code;
		uint8_t yes, no;
		uint32_t value;
	} steps[] = {
	    {0x20, 0, 0, 0},           /* the number */
	    {0x15, 0, 1, SYS_unshare}, /* is it unshare? */
	    {0x06, 0, 0, 0x7fc00000},  /* SECCOMP_RET_USER_NOTIF */
	    {0x06, 0, 0, 0x7fff0000},  /* SECCOMP_RET_ALLOW */
	};
	struct {
		uint16_t count;
		const void *steps;
	} program = {COUNT(steps), steps};
	if (syscall(SYS_seccomp, 1, 1 << 3 /* NEW_LISTENER */, &program) < 0)
		return -1;
	alarm(1);
	return syscall(SYS_unshare, NEW_USER_NAMESPACE);
}

static const struct attempt privileges_list[] = {
    TRY(no_new_privileges),
    TRY(no_new_privileges_off),
    TRY(no_filter),
    TRY(bounding_set),
    TRY(ambient_capability),
    TRY(every_capability),
    TRY(core_limit),
    TRY(inherited_descriptors),
    TRY(standard_descriptors),
    TRY(setuid_program),
    TRY(capable_program),
    TRY(become_root),
    TRY(suspend_filter),
    TRY(read_filter),
    TRY(tracer_changes_call),
    TRY(supervisor_allows_call),
};
ATTEMPTS(privileges);
