/* The half of a floor sandbox that happens inside: it leaves the host's root, makes /dev, /proc and
 * the overlay, enters it, gives up what the tier gives up, and runs one command in the `work`
 * cgroups. The same list as src/init makes (in setup/).
 * There is no init: PID 1 is this very process. Called by floor_outside.c in the child; blocks. */
#include "floor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "seccomp_filter.h"

#define DETACH 2 /* MNT_DETACH; its header does not go with linux/mount.h */
#define QUIET (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

static void check(long result, const char *what)
{
	if (result >= 0)
		return;
	if (result != -1)
		errno = (int)-result;
	floor_fail(what);
}

static int make_fs(const char *type, const char *const *options, unsigned attributes)
{
	CLOSE_FD int fs = sys_fsopen(type, FSOPEN_CLOEXEC);
	check(fs, type);
	for (; options && options[0]; options += 2)
		check(sys_fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0), options[0]);
	check(sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), type);
	int mount = sys_fsmount(fs, FSMOUNT_CLOEXEC, attributes);
	check(mount, type);
	return mount;
}

static void attach(int mount, const char *path)
{
	check(sys_move_mount(mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH), path);
}

static void mount_at(const char *type, const char *const *options, unsigned attributes,
		     const char *path)
{
	CLOSE_FD int mount = make_fs(type, options, attributes);
	attach(mount, path);
}

static void bind_tree(const char *from, const char *to, unsigned attributes)
{
	CLOSE_FD int mount = sys_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	check(mount, from);
	struct mount_attr attr = {.attr_set = attributes};
	check(sys_mount_setattr(mount, "", AT_EMPTY_PATH, &attr), from);
	attach(mount, to);
}

static void enter(const char *path)
{
	check(chdir(path), path);
	check(sys_pivot_root(".", "."), "pivot_root");
	check(sys_umount(".", DETACH), "the old root");
	check(chdir("/"), "/");
}

static void make_devices(void)
{
	static const char *const small[] = {"mode", "0755", "size", "64k", "nr_inodes", "64", NULL};
	static const char *const terminals[] = {"ptmxmode", "0666", "mode", "0620", "max",
						"256",      "gid",  "5",    NULL};
	static const char *const nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};
	static const char *const links[][2] = {{"pts/ptmx", "dev/ptmx"},
					       {"/proc/self/fd", "dev/fd"},
					       {"/proc/self/fd/0", "dev/stdin"},
					       {"/proc/self/fd/1", "dev/stdout"},
					       {"/proc/self/fd/2", "dev/stderr"}};
	char place[64], source[64];
	mount_at("tmpfs", small, QUIET, "dev");
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		snprintf(place, sizeof(place), "dev/%s", nodes[i]);
		snprintf(source, sizeof(source), "/dev/%s", nodes[i]);
		CLOSE_FD int fd = open(place, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
		check(fd, place);
		bind_tree(source, place, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		check(symlink(links[i][0], links[i][1]), links[i][1]);
	check(mkdir("dev/shm", 0755), "dev/shm");
	check(mkdir("dev/pts", 0755), "dev/pts");
	mount_at("devpts", terminals, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, "dev/pts");
}

static void make_proc(void)
{
	static const char *const masked[] = {
	    "interrupts",    "kcore",      "keys", "latency_stats", "sched_debug", "kallsyms",
	    "sysrq-trigger", "timer_list", "acpi", "asound",        "scsi"};
	char place[64];
	struct stat status;
	mount_at("proc", NULL, QUIET, "proc");
	for (size_t i = 0; i < ARRAY_SIZE(masked); i++) {
		snprintf(place, sizeof(place), "proc/%s", masked[i]);
		if (lstat(place, &status) == 0 && (status.st_mode & 0007) != 0)
			bind_tree(S_ISDIR(status.st_mode) ? "empty" : "dev/null", place,
				  MOUNT_ATTR_RDONLY | QUIET);
	}
	bind_tree("meminfo", "proc/meminfo", MOUNT_ATTR_RDONLY | QUIET);
}

static void leave_host(int *ret_user_namespaces)
{
	static const char *const small[] = {"mode",      "0755", "size", "256k",
					    "nr_inodes", "128",  NULL};
	static const char *const directories[] = {"proc", "dev", "l", "k", "t", "r", "empty"};
	static const char *const read_only[] = {"proc/bus", "proc/fs", "proc/irq", "proc/sys"};
	struct mount_attr private = {.propagation = 1 << 18 /* MS_PRIVATE */};
	check(sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private), "private mounts");
	CLOSE_FD int root = make_fs("tmpfs", small, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	attach(root, "/");
	check(fchdir(root), "the small root");
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		check(mkdir(directories[i], 0555), directories[i]);
	CLOSE_FD int meminfo = open("meminfo", O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0444);
	check(meminfo, "meminfo");
	make_devices();
	make_proc();
	enter(".");
	*ret_user_namespaces = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_SIZE(read_only); i++) {
		if (access(read_only[i], F_OK) == 0)
			bind_tree(read_only[i], read_only[i], MOUNT_ATTR_RDONLY);
	}
	CLOSE_FD int network = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	check(ioctl(network, SIOCSIFFLAGS, &request), "the loopback");
}

static void make_root(const int mounts[3])
{
	static const char *const shm[] = {"mode", "1777", "size", "262144k", NULL};
	attach(mounts[0], "k");
	check(mkdir("l/0", 0555), "l/0");
	attach(mounts[1], "l/0");
	CLOSE_FD int fs = sys_fsopen("overlay", FSOPEN_CLOEXEC);
	check(fs, "overlay");
	check(sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", "caisson", 0), "source");
	check(sys_fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0), "userxattr");
	if (sys_fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, mounts[1]) < 0)
		check(sys_fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", "l/0", 0), "lowerdir");
	check(sys_fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", "k/upper", 0), "upperdir");
	check(sys_fsconfig(fs, FSCONFIG_SET_STRING, "workdir", "k/work", 0), "workdir");
	(void)!sys_fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0);
	check(sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "the overlay");
	CLOSE_FD int root = sys_fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	check(root, "the overlay");
	attach(root, "r");
	attach(mounts[2], "r/usr");
	umask(0);
	static const char *const directories[] = {"r/proc", "r/dev", "r/sys", "r/tmp",
						  "r/workspace"};
	static const mode_t modes[] = {0555, 0755, 0555, 01777, 0777};
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
		if (mkdir(directories[i], modes[i]) < 0 && errno != EEXIST)
			floor_fail(directories[i]);
	}
	umask(022);
	check(sys_move_mount(AT_FDCWD, "proc", AT_FDCWD, "r/proc", 0), "/proc");
	check(sys_move_mount(AT_FDCWD, "dev", AT_FDCWD, "r/dev", 0), "/dev");
	mount_at("tmpfs", shm, QUIET, "r/dev/shm");
	enter("r");
}

/* Two small files that are copied up or made: part of every create. */
static void set_hostname(void)
{
	static const char name[] = "floor", line[] = "floor\n", host[] = "127.0.1.1\tfloor\n";
	check(sethostname(name, sizeof(name) - 1), "the host name");
	CLOSE_FD int hostname = open("/etc/hostname", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	check(pwrite(hostname, line, sizeof(line) - 1, 0), "/etc/hostname");
	CLOSE_FD int hosts = open("/etc/hosts", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	check(write(hosts, host, sizeof(host) - 1), "/etc/hosts");
}

static void harden(int user_namespaces)
{
	static const unsigned kept_list[] = {
	    CAP_CHOWN,  CAP_DAC_OVERRIDE,     CAP_FOWNER,     CAP_FSETID,  CAP_KILL,    CAP_SETGID,
	    CAP_SETUID, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_SETPCAP, CAP_SETFCAP,
	};
	const struct rlimit core = {.rlim_cur = 1, .rlim_max = 1};
	uint32_t kept = 0;
	if (user_namespaces >= 0)
		check(write(user_namespaces, "0", 1), "max_user_namespaces");
	(void)!syscall(__NR_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL, 0, 0, 0);
	check(setrlimit(RLIMIT_CORE, &core), "RLIMIT_CORE");
	for (size_t i = 0; i < ARRAY_SIZE(kept_list); i++)
		kept |= 1U << kept_list[i];
	for (unsigned capability = 0; capability <= CAP_LAST_CAP; capability++) {
		if (capability >= 32 || !(kept & (1U << capability)))
			check(prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "bounding set");
	}
	check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "ambient set");
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{.effective = kept, .permitted = kept}};
	check(syscall(__NR_capset, &header, data), "capabilities");
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	struct sock_fprog program = {.len = ARRAY_SIZE(seccomp_filter_default),
				     .filter = (struct sock_filter *)seccomp_filter_default};
	check(syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "seccomp");
}

/* In `work`, then the command. */
static _Noreturn void run_command(const struct floor_sandbox *sandbox, const int *work,
				  size_t count, int output)
{
	static char *const environment[] = {
	    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
	for (size_t i = 0; i < count; i++)
		check(write(work[i], "0", 1), "joining work");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	check(dup2(null, 0), "stdin");
	check(dup2(output, 1), "stdout");
	execve(sandbox->options->command[0], sandbox->options->command, environment);
	floor_fail(sandbox->options->command[0]);
}

static void become_root(const struct floor_sandbox *sandbox)
{
	for (uint32_t i = 0; i < sandbox->hierarchy_count; i++)
		check(write(sandbox->init_procs[i], "0", 1), "joining init");
	check(unshare(CLONE_NEWCGROUP), "a cgroup namespace");
	check(syscall(SYS_setgroups, 0, NULL), "groups");
	check(syscall(SYS_setresgid, 0, 0, 0), "gid");
	check(syscall(SYS_setresuid, 0, 0, 0), "uid");
	check(setsid(), "a session");
	umask(022);
	check(chdir("/"), "/");
}

void floor_inside(const struct floor_sandbox *sandbox, int socket, int output)
{
	char byte;
	int work[FLOOR_HIERARCHIES_MAX], mounts[3], user_namespaces, status;
	size_t work_count = ARRAY_SIZE(work), mount_count = ARRAY_SIZE(mounts);
	if (fd_receive(socket, &byte, 1, work, &work_count) != 1)
		_exit(1);
	become_root(sandbox);
	/* After the change of ids, which clears it. Whatever ends floor ends this. */
	check(prctl(PR_SET_PDEATHSIG, SIGKILL), "PR_SET_PDEATHSIG");
	leave_host(&user_namespaces);
	if (fd_receive(socket, &byte, 1, mounts, &mount_count) != 1 || mount_count != 3)
		_exit(1);
	make_root(mounts);
	set_hostname();
	harden(user_namespaces);
	pid_t pid = fork();
	check(pid, "fork");
	if (pid == 0)
		run_command(sandbox, work, work_count, output);
	close(output);
	check(waitpid(pid, &status, 0), "the command");
	byte = status == 0 ? 0 : 1;
	check(send(socket, &byte, 1, 0), "its end");
	for (;;)
		pause();
}
