/* The half of a floor sandbox that is made from outside, by root: cgroups, namespaces, id maps, the
 * disk on a loop device, the layers. The same list as src/tier/jail makes (boot.c, cgroup.c,
 * disk.c, loop.c, idmap.c) and in the same order, written out straight: no table of limits, no
 * fallback, no record, no error that is not the end. Called by floor.c; blocks. */
#include "floor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/syscalls.h"
#include "base/text.h"

#define PATH_ROOM 512
#define LOOP_ATTEMPTS 5000 /* a hundred at once take each other's */
/* From the top of the range that sandboxes' ids are taken from, downwards. */
#define LAST_RANGE 0x7fff0000u

static struct {
	int root;
	bool unified;
	uint32_t controllers; /* enum controller */
} hierarchies[FLOOR_HIERARCHIES_MAX];
static uint32_t hierarchy_count;

enum controller { CPU = 1, CPUACCT = 2, MEMORY = 4, PIDS = 8, FREEZER = 16, DEVICES = 32 };

static const struct {
	const char *name;
	uint32_t controller;
} controllers[] = {{"cpu", CPU},   {"cpuacct", CPUACCT}, {"memory", MEMORY},
		   {"pids", PIDS}, {"freezer", FREEZER}, {"devices", DEVICES}};

static void check(long result, const char *what)
{
	if (result >= 0)
		return;
	if (result != -1)
		errno = (int)-result;
	floor_fail(what);
}

static void phase(struct floor_sandbox *sandbox, const char *name)
{
	int64_t now = clock_monotonic();
	sandbox->phases[sandbox->phase_count++] =
	    (struct floor_phase){.name = name, .nanoseconds = now - sandbox->phase_began};
	sandbox->phase_began = now;
}

static void name_of(const struct floor_sandbox *sandbox, const char *leaf, char path[PATH_ROOM])
{
	check(text_format(path, PATH_ROOM, "caisson-floor-%d-%u%s%s", (int)getpid(), sandbox->slot,
			  *leaf ? "/" : "", leaf),
	      "a name");
}

static void image_of(const struct floor_sandbox *sandbox, char path[PATH_ROOM])
{
	check(text_format(path, PATH_ROOM, "%s/floor-%d-%u.img", sandbox->options->directory,
			  (int)getpid(), sandbox->slot),
	      "a name");
}

static uint32_t owner_of(const struct floor_sandbox *sandbox)
{
	return LAST_RANGE - sandbox->slot % 256 * UID_RANGE_SIZE;
}

/* Version 1 hierarchies by their usual place; version 2 for what these do not have. */
void floor_find_cgroups(void)
{
	uint32_t taken = 0;
	char path[PATH_ROOM], text[512];
	for (size_t i = 0; i < ARRAY_SIZE(controllers); i++) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", controllers[i].name);
		CLOSE_FD int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (root < 0 || faccessat(root, "tasks", F_OK, 0) < 0)
			continue;
		taken |= controllers[i].controller;
		hierarchies[hierarchy_count].controllers = controllers[i].controller;
		hierarchies[hierarchy_count++].root = TAKE_FD(root);
	}
	int root = open("/sys/fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd_read_small(root, "cgroup.controllers", text, sizeof(text)) < 0) {
		close(root);
		root = open("/sys/fs/cgroup/unified", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	uint32_t left = (CPU | CPUACCT | MEMORY | PIDS | FREEZER) & ~taken;
	if (root < 0 || left == 0)
		return;
	hierarchies[hierarchy_count].controllers = left;
	hierarchies[hierarchy_count].unified = true;
	hierarchies[hierarchy_count++].root = root;
}

static void limit_work(uint32_t at, int work)
{
	uint32_t has = hierarchies[at].controllers;
	if (hierarchies[at].unified) {
		if (has & CPU)
			check(fd_write_small(work, "cpu.max", FLOOR_CPU_QUOTA " 100000"),
			      "cpu.max");
		if (has & MEMORY) {
			check(fd_write_small(work, "memory.max", FLOOR_MEMORY), "memory.max");
			/* Not where the kernel does not account for swap. */
			(void)!fd_write_small(work, "memory.swap.max", "0");
		}
	} else {
		if (has & CPU) {
			check(fd_write_small(work, "cpu.cfs_period_us", "100000"), "cpu period");
			check(fd_write_small(work, "cpu.cfs_quota_us", FLOOR_CPU_QUOTA),
			      "cpu quota");
		}
		if (has & MEMORY) {
			check(fd_write_small(work, "memory.limit_in_bytes", FLOOR_MEMORY),
			      "memory limit");
			if (fd_write_small(work, "memory.memsw.limit_in_bytes", FLOOR_MEMORY) < 0)
				check(fd_write_small(work, "memory.swappiness", "0"), "swappiness");
		}
	}
	if (has & PIDS)
		check(fd_write_small(work, "pids.max", FLOOR_PIDS), "pids.max");
}

static void limit_devices(int directory)
{
	static const char *const allowed[] = {"c 1:3 rw", "c 1:5 rw", "c 1:7 rw", "c 1:8 rw",
					      "c 1:9 rw", "c 5:0 rw", "c 5:2 rw", "c 136:* rw"};
	check(fd_write_small(directory, "devices.deny", "a"), "devices.deny");
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		check(fd_write_small(directory, "devices.allow", allowed[i]), "devices.allow");
}

static int open_procs(int directory, const char *leaf)
{
	char path[32];
	snprintf(path, sizeof(path), "%s/cgroup.procs", leaf);
	int fd = openat(directory, path, O_WRONLY | O_CLOEXEC);
	check(fd, "cgroup.procs");
	return fd;
}

static void make_cgroups(struct floor_sandbox *sandbox)
{
	char name[PATH_ROOM];
	name_of(sandbox, "", name);
	for (uint32_t i = 0; i < hierarchy_count; i++) {
		check(mkdirat(hierarchies[i].root, name, 0755), "a cgroup");
		CLOSE_FD int directory =
		    openat(hierarchies[i].root, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		check(directory, "a cgroup");
		if (hierarchies[i].unified) {
			/* What is not delegated here is left out, as the tier does. */
			(void)!fd_write_small(directory, "cgroup.subtree_control", "+cpu");
			(void)!fd_write_small(directory, "cgroup.subtree_control", "+memory");
			(void)!fd_write_small(directory, "cgroup.subtree_control", "+pids");
		}
		if (hierarchies[i].controllers & DEVICES)
			limit_devices(directory);
		check(mkdirat(directory, "init", 0755), "a cgroup");
		check(mkdirat(directory, "work", 0755), "a cgroup");
		CLOSE_FD int work = openat(directory, "work", O_PATH | O_DIRECTORY | O_CLOEXEC);
		check(work, "a cgroup");
		limit_work(i, work);
		sandbox->init_procs[i] = open_procs(directory, "init");
		sandbox->work_procs[i] = open_procs(directory, "work");
	}
	sandbox->hierarchy_count = hierarchy_count;
}

static void remove_cgroups(struct floor_sandbox *sandbox)
{
	static const char *const leaves[] = {"work", "init", ""};
	char path[PATH_ROOM];
	for (uint32_t i = 0; i < sandbox->hierarchy_count; i++) {
		for (size_t leaf = 0; leaf < ARRAY_SIZE(leaves); leaf++) {
			name_of(sandbox, leaves[leaf], path);
			int64_t deadline = clock_monotonic() + 5 * NSEC_PER_SEC;
			while (unlinkat(hierarchies[i].root, path, AT_REMOVEDIR) < 0) {
				if (errno != EBUSY || clock_monotonic() > deadline)
					floor_fail("removing a cgroup");
				nanosleep(&(struct timespec){.tv_nsec = 300 * NSEC_PER_USEC}, NULL);
			}
		}
	}
}

/* Charged to the sandbox's own uid, as the tier does. */
static pid_t clone_charged(struct floor_sandbox *sandbox, struct clone_args *args)
{
	int bits = prctl(PR_GET_SECUREBITS);
	check(prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP), "securebits");
	check(syscall(SYS_setresuid, -1, owner_of(sandbox), -1), "its uid");
	pid_t pid = sys_clone3(args);
	if (pid == 0)
		return 0;
	check(pid, "new namespaces");
	check(syscall(SYS_setresuid, -1, 0, -1), "root again");
	check(prctl(PR_SET_SECUREBITS, bits), "securebits");
	return pid;
}

static void start(struct floor_sandbox *sandbox)
{
	int pair[2], output[2];
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "a socket pair");
	check(pipe2(output, O_CLOEXEC), "a pipe");
	struct clone_args args = {
	    .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
		     CLONE_NEWNET | CLONE_PIDFD,
	    .pidfd = (uint64_t)(uintptr_t)&sandbox->pidfd,
	    .exit_signal = SIGCHLD,
	};
	sandbox->pid = clone_charged(sandbox, &args);
	if (sandbox->pid == 0) {
		close(pair[0]);
		close(output[0]);
		floor_inside(sandbox, pair[1], output[1]);
	}
	close(pair[1]);
	close(output[1]);
	sandbox->socket = pair[0];
	sandbox->output = output[0];
}

static void write_process(const struct floor_sandbox *sandbox, const char *file, const char *text)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)sandbox->pid, file);
	check(fd_write_small(AT_FDCWD, path, text), file);
}

static void equip(struct floor_sandbox *sandbox)
{
	char text[64];
	cpu_set_t ours, set;
	snprintf(text, sizeof(text), "0 %u %u", owner_of(sandbox), UID_RANGE_SIZE);
	write_process(sandbox, "uid_map", text);
	write_process(sandbox, "gid_map", text);
	write_process(sandbox, "oom_score_adj", "500");
	snprintf(text, sizeof(text), "/proc/%d/ns/user", (int)sandbox->pid);
	sandbox->userns = open(text, O_RDONLY | O_CLOEXEC);
	check(sandbox->userns, "its user namespace");
	/* One cpu: the default. */
	check(sched_getaffinity(0, sizeof(ours), &ours), "cpus");
	int wanted = (int)(sandbox->slot % (uint32_t)CPU_COUNT(&ours));
	CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &ours) && wanted-- == 0)
			CPU_SET(cpu, &set);
	}
	check(sched_setaffinity(sandbox->pid, sizeof(set), &set), "its cpu");
	check(fd_send(sandbox->socket, "g", 1, sandbox->work_procs, sandbox->hierarchy_count),
	      "go");
}

/* A copy of what is data in it. */
static int copy_image(const struct floor_sandbox *sandbox)
{
	char path[PATH_ROOM];
	struct stat status;
	CLOSE_FD int from = open(sandbox->options->image, O_RDONLY | O_CLOEXEC);
	check(from, sandbox->options->image);
	check(fstat(from, &status), "the image");
	image_of(sandbox, path);
	int to = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	check(to, path);
	if (ioctl(to, FICLONE, from) == 0)
		return to;
	check(ftruncate(to, status.st_size), "the image's size");
	for (off_t at = 0; at < status.st_size;) {
		off_t data = lseek(from, at, SEEK_DATA);
		if (data < 0)
			break;
		off_t hole = lseek(from, data, SEEK_HOLE);
		for (off_t in = data, out = data; in < hole;)
			check(copy_file_range(from, &in, to, &out, (size_t)(hole - in), 0),
			      "copying the image");
		at = hole;
	}
	return to;
}

static int bind_loop(int image, char device[32])
{
	CLOSE_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	check(control, "/dev/loop-control");
	for (int attempt = 0; attempt < LOOP_ATTEMPTS; attempt++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		check(number, "a free loop device");
		snprintf(device, 32, "/dev/loop%d", number);
		int loop = open(device, O_RDWR | O_CLOEXEC);
		check(loop, device);
		struct loop_config config = {
		    .fd = (uint32_t)image,
		    .block_size = 4096,
		    .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
		};
		if (ioctl(loop, LOOP_CONFIGURE, &config) == 0)
			return loop;
		if (errno != EBUSY)
			floor_fail("LOOP_CONFIGURE");
		close(loop);
	}
	errno = EBUSY;
	floor_fail("a free loop device");
}

static int mount_image(struct floor_sandbox *sandbox)
{
	char device[32];
	CLOSE_FD int image = copy_image(sandbox);
	phase(sandbox, "disk: copy");
	CLOSE_FD int loop UNUSED = bind_loop(image, device);
	phase(sandbox, "disk: loop");
	CLOSE_FD int fs = sys_fsopen("ext4", FSOPEN_CLOEXEC);
	check(fs, "ext4");
	check(sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0), "source");
	check(sys_fsconfig(fs, FSCONFIG_SET_FLAG, "noinit_itable", NULL, 0), "noinit_itable");
	check(sys_fsconfig(fs, FSCONFIG_SET_STRING, "errors", "remount-ro", 0), "errors");
	check(sys_fsconfig(fs, FSCONFIG_SET_FLAG, "nobarrier", NULL, 0), "nobarrier");
	check(sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "mounting the disk");
	int mount = sys_fsmount(fs, FSMOUNT_CLOEXEC,
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
	check(mount, "mounting the disk");
	return mount;
}

static int mount_directory(const struct floor_sandbox *sandbox)
{
	char path[PATH_ROOM];
	image_of(sandbox, path);
	check(mkdir(path, 0711), path);
	int tree = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	check(tree, "its directory");
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
				  .propagation = 1 << 18 /* MS_PRIVATE */};
	check(sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr), "its directory");
	return tree;
}

static int open_disk(struct floor_sandbox *sandbox)
{
	static const char *const names[] = {"upper", "work"};
	static const mode_t modes[] = {0755, 0700};
	int mount = sandbox->options->disk ? mount_image(sandbox) : mount_directory(sandbox);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		check(mkdirat(mount, names[i], 0700), "its layers");
		CLOSE_FD int fd = openat(mount, names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		check(fd, "its layers");
		check(fchown(fd, owner_of(sandbox), owner_of(sandbox)), "its layers");
		check(fchmod(fd, modes[i]), "its layers");
	}
	return mount;
}

static int clone_tree(const char *path, int userns)
{
	int tree = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	check(tree, path);
	struct mount_attr attr = {.attr_set =
				      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
				  .propagation = 1 << 18 /* MS_PRIVATE */};
	if (userns >= 0) {
		attr.attr_set |= MOUNT_ATTR_IDMAP;
		attr.userns_fd = (uint64_t)userns;
	}
	check(sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr), path);
	return tree;
}

void floor_make(struct floor_sandbox *sandbox, const struct floor_options *options, uint32_t slot)
{
	char byte;
	*sandbox =
	    (struct floor_sandbox){.options = options, .slot = slot, .pidfd = -1, .userns = -1};
	sandbox->began = sandbox->phase_began = clock_monotonic();
	if (options->cgroups)
		make_cgroups(sandbox);
	phase(sandbox, "cgroups");
	start(sandbox);
	phase(sandbox, "namespaces");
	equip(sandbox);
	phase(sandbox, "maps");
	int mounts[3];
	mounts[0] = open_disk(sandbox);
	phase(sandbox, "disk: mount");
	mounts[1] = clone_tree(options->layer, sandbox->userns);
	mounts[2] = clone_tree("/usr", -1);
	check(fd_send(sandbox->socket, "a", 1, mounts, ARRAY_SIZE(mounts)), "the layers");
	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++)
		close(mounts[i]);
	phase(sandbox, "layers");
	if (read(sandbox->output, &byte, 1) != 1)
		floor_fail("the command said nothing");
	sandbox->first_output = clock_monotonic();
	phase(sandbox, "inside, to the first output");
	/* Its PID 1 says when the command has ended. */
	if (recv(sandbox->socket, &byte, 1, 0) != 1 || byte != 0)
		floor_fail("the command failed");
	phase(sandbox, "the command's end");
}

void floor_remove(struct floor_sandbox *sandbox)
{
	char path[PATH_ROOM];
	int status;
	sandbox->phase_began = clock_monotonic();
	check(kill(sandbox->pid, SIGKILL), "killing it");
	check(waitpid(sandbox->pid, &status, 0), "its end");
	phase(sandbox, "kill");
	for (uint32_t i = 0; i < sandbox->hierarchy_count; i++) {
		close(sandbox->init_procs[i]);
		close(sandbox->work_procs[i]);
	}
	close(sandbox->pidfd);
	close(sandbox->socket);
	close(sandbox->output);
	close(sandbox->userns);
	remove_cgroups(sandbox);
	phase(sandbox, "remove cgroups");
	image_of(sandbox, path);
	if (sandbox->options->disk) {
		check(unlink(path), path);
	} else {
		char *const arguments[] = {"rm", "-rf", path, NULL};
		pid_t pid = fork();
		if (pid == 0) {
			execv("/bin/rm", arguments);
			_exit(1);
		}
		check(waitpid(pid, &status, 0), "rm");
	}
	phase(sandbox, "remove files");
	sandbox->ended = clock_monotonic();
}
