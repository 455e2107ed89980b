/* The system call filter as the build made it: interpreted for chosen calls and arguments, and
 * loaded into a kernel once per policy. What a real sandbox answers: src/probe. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "seccomp_filter.h"
#include "seccomp_interpret.h"
#include "test.h"

#ifdef __x86_64__
#define NATIVE AUDIT_ARCH_X86_64
#define FOREIGN AUDIT_ARCH_I386
#else
#define NATIVE AUDIT_ARCH_AARCH64
#define FOREIGN AUDIT_ARCH_ARM
#endif
#define HIGH_BITS (1ULL << 40)
#define ERRNO(number) (SECCOMP_RET_ERRNO | (number))

static int64_t by_default(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	struct seccomp_data data = {.nr = (int)number, .arch = NATIVE, .args = {a, b, c, d}};
	return interpret(seccomp_filter_default, ARRAY_SIZE(seccomp_filter_default), &data);
}

/* What CREATE_NESTED_USERNS makes of it. */
static const struct sock_filter *nested(void)
{
	static struct sock_filter code[ARRAY_SIZE(seccomp_filter_default)];
	memcpy(code, seccomp_filter_default, sizeof(code));
	seccomp_filter_nest(code);
	return code;
}

static int64_t when_nested(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	struct seccomp_data data = {.nr = (int)number, .arch = NATIVE, .args = {a, b, c, d}};
	return interpret(nested(), ARRAY_SIZE(seccomp_filter_default), &data);
}

static int64_t when_shared(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	struct seccomp_data data = {.nr = (int)number, .arch = NATIVE, .args = {a, b, c, d}};
	return interpret(seccomp_filter_shared, ARRAY_SIZE(seccomp_filter_shared), &data);
}

TEST(foreign_abi_is_killed)
{
	struct seccomp_data data = {.nr = 1, .arch = FOREIGN};
	CHECK_INT(interpret(seccomp_filter_default, ARRAY_SIZE(seccomp_filter_default), &data),
		  SECCOMP_RET_KILL_PROCESS);
	CHECK_INT(interpret(nested(), ARRAY_SIZE(seccomp_filter_default), &data),
		  SECCOMP_RET_KILL_PROCESS);
}

TEST(unknown_numbers)
{
	CHECK_INT(by_default(1000, 0, 0, 0, 0), ERRNO(ENOSYS));
	CHECK_INT(by_default(0x40000000 + SYS_getpid, 0, 0, 0, 0), ERRNO(ENOSYS));
	CHECK_INT(by_default(-1, 0, 0, 0, 0), ERRNO(ENOSYS));
}

TEST(plain_answers)
{
	CHECK_INT(by_default(SYS_read, 0, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_openat2, 0, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_ptrace, 0, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_bpf, 0, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_io_uring_setup, 0, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_mount, 0, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_clone3, 0, 0, 0, 0), ERRNO(ENOSYS));
	CHECK_INT(by_default(SYS_io_setup, 0, 0, 0, 0), ERRNO(ENOSYS));
	CHECK_INT(by_default(SYS_sync, 0, 0, 0, 0), ERRNO(0));
}

TEST(namespaces)
{
	static const uint64_t kinds[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
					 CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		CHECK_INT(by_default(SYS_clone, kinds[i] | SIGCHLD, 0, 0, 0), ERRNO(EPERM));
		CHECK_INT(by_default(SYS_clone, kinds[i] | HIGH_BITS, 0, 0, 0), ERRNO(EPERM));
		CHECK_INT(by_default(SYS_unshare, kinds[i], 0, 0, 0), ERRNO(EPERM));
		CHECK_INT(when_nested(SYS_clone, kinds[i], 0, 0, 0), SECCOMP_RET_ALLOW);
		CHECK_INT(when_nested(SYS_unshare, kinds[i], 0, 0, 0), SECCOMP_RET_ALLOW);
	}
	CHECK_INT(by_default(SYS_unshare, 0x80, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_unshare, CLONE_FILES, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, 0, 0, 0),
		  SECCOMP_RET_ALLOW);
	CHECK_INT(when_nested(SYS_clone3, 0, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(when_nested(SYS_mount, 0, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(when_nested(SYS_fsopen, 0, 0, 0, 0), ERRNO(ENOSYS));
	CHECK_INT(when_nested(SYS_bpf, 0, 0, 0, 0), ERRNO(EPERM));
}

/* Every family that there is or will be, with every type: only four are let through. */
TEST(sockets)
{
	for (uint64_t family = 0; family < 64; family++) {
		for (uint64_t type = 0; type < 16; type++) {
			int64_t expected = ERRNO(EAFNOSUPPORT);
			if (family == AF_UNIX || family == AF_NETLINK)
				expected = SECCOMP_RET_ALLOW;
			if (family == AF_INET || family == AF_INET6)
				expected = type == SOCK_STREAM || type == SOCK_DGRAM
					       ? SECCOMP_RET_ALLOW
					   : type == SOCK_RAW ? ERRNO(EPERM)
							      : ERRNO(ESOCKTNOSUPPORT);
			uint64_t flags = type | SOCK_CLOEXEC | SOCK_NONBLOCK;
			CHECK_INT(by_default(SYS_socket, family, flags, 0, 0), expected);
			CHECK_INT(by_default(SYS_socket, family | HIGH_BITS, flags | HIGH_BITS,
					     HIGH_BITS, 0),
				  expected);
			CHECK_INT(when_nested(SYS_socket, family, flags, 0, 0), expected);
		}
		CHECK_INT(by_default(SYS_socketpair, family, SOCK_STREAM, 0, 0),
			  family == AF_UNIX ? SECCOMP_RET_ALLOW : ERRNO(EAFNOSUPPORT));
	}
	for (uint64_t protocol = 1; protocol < 300; protocol++) {
		bool tcp = protocol == 6;
		bool datagram = protocol == 17 || protocol == 1 || protocol == 58;
		CHECK_INT(by_default(SYS_socket, AF_INET, SOCK_STREAM, protocol, 0),
			  tcp ? SECCOMP_RET_ALLOW : ERRNO(EPROTONOSUPPORT));
		CHECK_INT(by_default(SYS_socket, AF_INET6, SOCK_DGRAM, protocol, 0),
			  datagram ? SECCOMP_RET_ALLOW : ERRNO(EPROTONOSUPPORT));
		CHECK_INT(by_default(SYS_socket, AF_NETLINK, SOCK_RAW, protocol, 0),
			  ERRNO(EPROTONOSUPPORT));
	}
}

TEST(arguments)
{
	CHECK_INT(by_default(SYS_setsockopt, 0, SOL_SOCKET, 26, 0), ERRNO(ENOPROTOOPT));
	CHECK_INT(by_default(SYS_setsockopt, 0, SOL_SOCKET | HIGH_BITS, 51 | HIGH_BITS, 0),
		  ERRNO(ENOPROTOOPT));
	CHECK_INT(by_default(SYS_setsockopt, 0, SOL_SOCKET, SO_REUSEADDR, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_setsockopt, 0, 0, 26, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_ioctl, 0, 0x5412, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_ioctl, 0, 0x5412 | HIGH_BITS, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_ioctl, 0, 0x5413, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_ioctl, 0, TCGETS | HIGH_BITS, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_ioctl, 0, 0x8970, 0, 0), SECCOMP_RET_ALLOW); /* the last listed */
	CHECK_INT(by_default(SYS_ioctl, 0, 0x8946, 0, 0), ERRNO(EOPNOTSUPP)); /* SIOCETHTOOL */
	CHECK_INT(by_default(SYS_ioctl, 0, 0xc020660b, 0, 0), ERRNO(ENOTTY)); /* FIEMAP */
	CHECK_INT(by_default(SYS_ioctl, 0, 0, 0, 0), ERRNO(ENOTTY));
	CHECK_INT(when_nested(SYS_ioctl, 0, 0x8914, 0, 0), ERRNO(ENOTTY)); /* SIOCSIFFLAGS */
	CHECK_INT(by_default(SYS_prctl, PR_SET_NAME, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_prctl, PR_SET_NO_NEW_PRIVS | HIGH_BITS, 1, 0, 0),
		  SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_prctl, 0x59616d61, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_prctl, PR_SET_MM, 0, 0, 0), ERRNO(EINVAL));
	CHECK_INT(by_default(SYS_prctl, 62 | HIGH_BITS, 1, 0, 0), ERRNO(EINVAL)); /* SCHED_CORE */
	CHECK_INT(when_nested(SYS_prctl, 67, 1, 0, 0), ERRNO(EINVAL)); /* SET_MEMORY_MERGE */
	CHECK_INT(by_default(SYS_mbind, 0, 0, 0, 0), ERRNO(ENOSYS));
	CHECK_INT(by_default(SYS_remap_file_pages, 0, 0, 0, 0), ERRNO(ENOSYS));
	CHECK_INT(by_default(SYS_personality, 0xffffffff, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_personality, 0x400000, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_setsockopt, 3, 6, 31, 0), ERRNO(ENOPROTOOPT));
	CHECK_INT(by_default(SYS_setsockopt, 3, 6, 1, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_setsockopt, 3, 17, 100, 0), ERRNO(ENOPROTOOPT));
	CHECK_INT(by_default(SYS_setsockopt, 3, 17, 103, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_setsockopt, 3, 1, 31, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_mmap, 0, 4096, 3, 0x22), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_mmap, 0, 4096, 3, 0x40022), ERRNO(ENOMEM));
}

TEST(limits_and_priorities)
{
	const uint64_t pointer = 0x700000000000; /* its lower half is 0 */
	CHECK_INT(by_default(SYS_prlimit64, 0, 7, pointer, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_prlimit64, 1, 7, pointer, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_prlimit64, 1 | HIGH_BITS, 7, pointer, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_prlimit64, 0, 4, 0, pointer), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_prlimit64, 0, 4, pointer, 0), ERRNO(0));
	CHECK_INT(by_default(SYS_prlimit64, 0, 4, pointer, pointer), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_setrlimit, 4, pointer, 0, 0), ERRNO(0));
	CHECK_INT(by_default(SYS_setrlimit, 7, pointer, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_sched_setscheduler, 1, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_sched_setscheduler, 0, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_setpriority, 0, 1, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_setpriority, 0, 0, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_setpriority, 1, 7, 0, 0), SECCOMP_RET_ALLOW);
	CHECK_INT(by_default(SYS_setpriority, 2, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_ioprio_set, 3, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(by_default(SYS_ioprio_set, 1, 0, 0, 0), SECCOMP_RET_ALLOW);
}

/* A mode in the given argument of a call: refused with either bit, whatever else is set. */
static void check_mode_at(long number, unsigned argument, uint64_t flags)
{
	static const uint64_t bad[] = {04000, 02000, 06777, 04755 | HIGH_BITS, 0104755};
	static const uint64_t good[] = {0, 0777, 01777, 0100644, HIGH_BITS | 0755};
	uint64_t values[4] = {(uint64_t)-1, (uint64_t)-1, (uint64_t)-1, (uint64_t)-1};
	for (size_t i = 0; i < ARRAY_SIZE(bad) + ARRAY_SIZE(good); i++) {
		bool refused = i < ARRAY_SIZE(bad);
		values[argument - 1] = flags;
		values[argument] = refused ? bad[i] : good[i - ARRAY_SIZE(bad)];
		CHECK_INT(when_shared(number, values[0], values[1], values[2], values[3]),
			  refused ? ERRNO(EPERM) : SECCOMP_RET_ALLOW);
	}
}

TEST(no_set_id_bits_where_a_folder_is_shared)
{
	const uint64_t tmpfile = 020200000;
	const uint64_t any = (uint64_t)-1;
#ifdef SYS_open
	check_mode_at(SYS_chmod, 1, 0);
	check_mode_at(SYS_creat, 1, 0);
	check_mode_at(SYS_mknod, 1, 0);
	check_mode_at(SYS_open, 2, O_CREAT);
	check_mode_at(SYS_open, 2, tmpfile | HIGH_BITS);
	CHECK_INT(when_shared(SYS_open, 0, O_RDWR | O_TRUNC, 04755, any), SECCOMP_RET_ALLOW);
#endif
	check_mode_at(SYS_fchmod, 1, 0);
	check_mode_at(SYS_fchmodat, 2, 0);
	check_mode_at(452, 2, 0); /* fchmodat2 */
	check_mode_at(SYS_mknodat, 2, 0);
	check_mode_at(SYS_mq_open, 2, O_CREAT);
	check_mode_at(SYS_openat, 3, O_CREAT | O_CLOEXEC);
	check_mode_at(SYS_openat, 3, tmpfile);
	CHECK_INT(when_shared(SYS_openat, 0, 0, O_DIRECTORY, any), SECCOMP_RET_ALLOW);
	CHECK_INT(when_shared(SYS_openat2, 0, 0, 0, 0), ERRNO(ENOSYS));
	CHECK_INT(when_shared(SYS_mkdirat, 0, 0, 02755, 0), SECCOMP_RET_ALLOW);
}

TEST(no_new_mounts_where_a_folder_is_shared)
{
	static const uint64_t old[] = {0x1000, 0x5000, 0x20, 0x1020, 0x2000, 0x40000, 0x84000};
	static const uint64_t magic = 0xc0ed0000; /* MS_MGC_VAL: its bits mean nothing */
	for (size_t i = 0; i < ARRAY_SIZE(old); i++)
		CHECK_INT(when_shared(SYS_mount, 0, 0, 0, old[i]), SECCOMP_RET_ALLOW);
	CHECK_INT(when_shared(SYS_mount, 0, 0, 0, magic | 0x1000), SECCOMP_RET_ALLOW);
	CHECK_INT(when_shared(SYS_mount, 0, 0, 0, 0), ERRNO(EPERM));
	CHECK_INT(when_shared(SYS_mount, 0, 0, 0, 0xe), ERRNO(EPERM));
	CHECK_INT(when_shared(SYS_mount, 0, 0, 0, magic), ERRNO(EPERM));
	CHECK_INT(when_shared(SYS_mount, 0, 0, 0, magic | 0xe | HIGH_BITS), ERRNO(EPERM));
}

/* What the second filter does not mention is the first one's to decide. */
TEST(the_second_filter_only_takes_away)
{
	for (long number = 0; number < 1024; number++) {
		int64_t result = when_shared(number, 0, 0, 0, 0);
		if (number != SYS_openat2 && number != SYS_mount)
			CHECK_INT(result, SECCOMP_RET_ALLOW);
	}
	CHECK_INT(when_shared(-1, 0, 0, 0, 0), SECCOMP_RET_ALLOW);
}

/* Both, as in a sandbox: each answers for its own calls. */
static int load_both_in_child(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct sock_fprog first = {.len = ARRAY_SIZE(seccomp_filter_shared),
					   .filter = (struct sock_filter *)seccomp_filter_shared};
		struct sock_fprog second = {.len = ARRAY_SIZE(seccomp_filter_default),
					    .filter = (struct sock_filter *)seccomp_filter_default};
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &first) < 0 ||
		    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &second) < 0)
			_exit(1);
		if (syscall(SYS_fchmod, -1, 04755) != -1 || errno != EPERM)
			_exit(2);
		if (syscall(SYS_fchmod, -1, 0755) != -1 || errno != EBADF)
			_exit(3);
		_exit(syscall(SYS_bpf, 0, 0, 0) == -1 && errno == EPERM ? 0 : 4);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int load_in_child(const struct sock_filter *code, size_t count)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct sock_fprog program = {.len = (unsigned short)count,
					     .filter = (struct sock_filter *)code};
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
			_exit(1);
		_exit(syscall(SYS_bpf, 0, 0, 0) == -1 && errno == EPERM ? 0 : 2);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(the_kernel_takes_them)
{
	SKIP_WITHOUT_FILTERS;
	CHECK_INT(load_in_child(seccomp_filter_default, ARRAY_SIZE(seccomp_filter_default)), 0);
	CHECK_INT(load_in_child(nested(), ARRAY_SIZE(seccomp_filter_default)), 0);
	CHECK_INT(load_both_in_child(), 0);
}

TEST_MAIN
