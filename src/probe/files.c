/* Attempts to reach the host through files: /proc, /sys, /dev, and targets of links. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "probe.h"

#define DEPTH_MAX 8

/* Files through which a container reaches its host. */
#define OPEN_ATTEMPT(name, path, flags)                                                            \
	static long try_##name(void)                                                               \
	{                                                                                          \
		return open_path(path, flags);                                                     \
	}
OPEN_ATTEMPT(core_pattern, "/proc/sys/kernel/core_pattern", O_WRONLY)
OPEN_ATTEMPT(modprobe, "/proc/sys/kernel/modprobe", O_WRONLY)
OPEN_ATTEMPT(sysctl_user_namespaces, "/proc/sys/user/max_user_namespaces", O_WRONLY)
OPEN_ATTEMPT(sysctl_last_pid, "/proc/sys/kernel/ns_last_pid", O_WRONLY)
OPEN_ATTEMPT(sysrq, "/proc/sysrq-trigger", O_WRONLY)
OPEN_ATTEMPT(binfmt, "/proc/sys/fs/binfmt_misc/register", O_WRONLY)
OPEN_ATTEMPT(kcore, "/proc/kcore", O_RDONLY)
OPEN_ATTEMPT(kernel_log, "/proc/kmsg", O_RDONLY)
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

/* Calls `look` for every file below a directory; stops at the first for which it returns true. */
static long tree_walk(const char *path, int depth, bool (*skip)(const char *path),
		      bool (*look)(const char *path, const struct stat *status))
{
	DIR *directory = opendir(path);
	if (!directory || depth == 0) {
		if (directory)
			closedir(directory);
		return -1;
	}
	long result = -1;
	for (struct dirent *entry; result < 0 && (entry = readdir(directory));) {
		char below[512];
		struct stat status;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		if ((skip && skip(below)) || lstat(below, &status) < 0)
			continue;
		if (S_ISDIR(status.st_mode))
			result = tree_walk(below, depth - 1, skip, look);
		else if (look(below, &status))
			result = 0;
	}
	closedir(directory);
	return result;
}

static bool opens_for_writing(const char *path, const struct stat *status)
{
	if (!S_ISREG(status->st_mode))
		return false;
	int fd = (int)open_path(path, O_WRONLY);
	if (fd < 0)
		return false;
	close(fd);
	fprintf(stderr, "%s can be opened for writing\n", path);
	return true;
}

static bool is_process(const char *path)
{
	const char *name = path + strlen("/proc/");
	return (*name >= '0' && *name <= '9') || strcmp(name, "self") == 0 ||
	       strcmp(name, "thread-self") == 0;
}

static long found_or_absent(long result)
{
	return result < 0 ? absent() : result;
}

static long try_every_sysctl(void)
{
	return found_or_absent(tree_walk("/proc/sys", DEPTH_MAX, NULL, opens_for_writing));
}

static long try_every_file_of_proc(void)
{
	return found_or_absent(tree_walk("/proc", DEPTH_MAX, is_process, opens_for_writing));
}

static bool is_anything(const char *path, const struct stat *status)
{
	(void)path;
	(void)status;
	return true;
}

static long try_anything_in_sys(void)
{
	return found_or_absent(tree_walk("/sys", DEPTH_MAX, NULL, is_anything));
}

/* null, zero, full, random, urandom, tty, ptmx and the terminals of a devpts of its own. */
static bool is_foreign_device(const char *path, const struct stat *status)
{
	static const struct {
		unsigned major, minor;
	} known[] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}};
	(void)path;
	if (S_ISBLK(status->st_mode))
		return true;
	if (!S_ISCHR(status->st_mode) ||
	    (major(status->st_rdev) >= 136 && major(status->st_rdev) <= 143))
		return false;
	for (size_t i = 0; i < COUNT(known); i++) {
		if (major(status->st_rdev) == known[i].major &&
		    minor(status->st_rdev) == known[i].minor)
			return false;
	}
	return true;
}

static long try_other_devices(void)
{
	return found_or_absent(tree_walk("/dev", DEPTH_MAX, NULL, is_foreign_device));
}

static long try_mknod_character(void)
{
	return mknod("/tmp/probe-device", S_IFCHR | 0600, makedev(1, 1));
}

static long try_mknod_block(void)
{
	return mknod("/tmp/probe-device", S_IFBLK | 0600, makedev(254, 0));
}

/* The device nodes are the host's: their modes and times must not be changeable from here. */
static long try_mode_of_device(void)
{
	return chmod("/dev/null", 0600);
}

static long try_owner_of_device(void)
{
	return chown("/dev/null", 0, 0);
}

/* Whether a file that describes the host or other sandboxes has a readable byte. */
static bool file_tells_of_host(const char *path)
{
	char byte;
	int fd = (int)open_path(path, O_RDONLY);
	ssize_t got = fd < 0 ? -1 : read(fd, &byte, 1);
	if (fd >= 0)
		close(fd);
	if (got > 0)
		fprintf(stderr, "%s can be read\n", path);
	return got > 0;
}

static long try_what_tells_of_the_host(void)
{
	static const char *const names[] = {
	    "interrupts",   "keys",        "key-users",       "latency_stats",
	    "sched_debug",  "kallsyms",    "timer_list",      "kcore",
	    "vmallocinfo",  "slabinfo",    "cmdline",         "modules",
	    "diskstats",    "partitions",  "swaps",           "schedstat",
	    "pagetypeinfo", "kpagecount",  "kpageflags",      "bootconfig",
	    "pressure/cpu", "pressure/io", "pressure/memory", "zoneinfo",
	    "buddyinfo",    "softirqs",    "vmstat",          "tty/driver/serial",
	    "config.gz",    "cgroups",     "locks",
	};
	char path[64];
	for (size_t i = 0; i < COUNT(names); i++) {
		snprintf(path, sizeof(path), "/proc/%s", names[i]);
		if (file_tells_of_host(path))
			return 0;
	}
	return absent();
}

/* File systems of the host, by name: /proc/fs/ext4/vda, /proc/fs/nfsd, ... */
static bool is_readable(const char *path, const struct stat *status)
{
	return S_ISREG(status->st_mode) && file_tells_of_host(path);
}

static long try_file_systems_of_host(void)
{
	return found_or_absent(tree_walk("/proc/fs", DEPTH_MAX, NULL, is_readable));
}

static bool file_mentions(const char *path, const char *word)
{
	static char text[1 << 18];
	size_t size = 0;
	int fd = (int)open_path(path, O_RDONLY);
	for (ssize_t got; fd >= 0 && size < sizeof(text) - 1 &&
			  (got = read(fd, text + size, sizeof(text) - 1 - size)) > 0;)
		size += (size_t)got;
	text[size] = '\0';
	return strstr(text, word) != NULL;
}

/* The path of the state directory, or the name of a sandbox outside. */
static long try_paths_of_host(void)
{
	static const char *const words[] = {"/sandboxes/", "disk.img", "/guests/", "caisson-init-",
					    "/templates/"};
	static const char *const files[] = {"/proc/self/mountinfo", "/proc/self/cgroup",
					    "/proc/1/cgroup", "/proc/swaps", "/proc/locks"};
	for (size_t f = 0; f < COUNT(files); f++) {
		for (size_t w = 0; w < COUNT(words); w++) {
			if (file_mentions(files[f], words[w]))
				return 0;
		}
	}
	return absent();
}

/* All known ways to a file of the host. */
static long try_marker_of_host(void)
{
	static const char *const ways[] = {
	    "",
	    "/proc/self/root",
	    "/proc/1/root",
	    "/proc/self/cwd/../../../../..",
	    "/proc/self/fd/0/../../../../..",
	    "/../../../../../../..",
	    "/proc/thread-self/root/../..",
	    "/dev/fd/../../../../..",
	};
	const char *marker = getenv("PROBE_MARKER");
	char path[1024];
	if (!marker)
		return UNTRIED;
	for (size_t i = 0; i < COUNT(ways); i++) {
		snprintf(path, sizeof(path), "%s%s", ways[i], marker);
		if (access(path, F_OK) == 0)
			return 0;
	}
	for (int pid = 1; pid < 400; pid++) {
		snprintf(path, sizeof(path), "/proc/%d/root%s", pid, marker);
		if (access(path, F_OK) == 0)
			return 0;
		snprintf(path, sizeof(path), "/proc/%d/cwd/../../..%s", pid, marker);
		if (access(path, F_OK) == 0)
			return 0;
	}
	return absent();
}

/* chroot() below an open directory, then up from there: must end at the sandbox's own root. */
static long try_chroot_breakout(void)
{
	struct stat before, after;
	const char *marker = getenv("PROBE_MARKER");
	if (geteuid() != 0 || !marker)
		return UNTRIED;
	mkdir("/tmp/probe-jail", 0700);
	int outside = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (stat("/", &before) < 0 || outside < 0 || chroot("/tmp/probe-jail") < 0 ||
	    fchdir(outside) < 0)
		return -1;
	for (int i = 0; i < 64; i++) {
		if (chdir("..") < 0)
			return -1;
	}
	if (chroot(".") < 0 || stat("/", &after) < 0)
		return -1;
	bool same = before.st_dev == after.st_dev && before.st_ino == after.st_ino;
	return same && access(marker, F_OK) < 0 ? absent() : 0;
}

/* The layers below the root are shared with other sandboxes. */
static long try_write_to_usr(void)
{
	return open_path("/usr/bin/env", O_WRONLY);
}

static long try_create_in_usr(void)
{
	return open("/usr/probe", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
}

static const struct attempt files_list[] = {
    TRY(core_pattern),
    TRY(modprobe),
    TRY(sysctl_user_namespaces),
    TRY(sysctl_last_pid),
    TRY(sysrq),
    TRY(binfmt),
    TRY(kcore),
    TRY(kernel_log),
    TRY(uevent_helper),
    TRY(release_agent),
    TRY(cgroup_procs),
    TRY(debugfs),
    TRY(device_memory),
    TRY(device_log),
    TRY(device_disk),
    TRY(device_loop),
    TRY(device_kvm),
    TRY(device_fuse),
    TRY(device_tun),
    TRY(shadow),
    TRY(every_sysctl),
    TRY(every_file_of_proc),
    TRY(anything_in_sys),
    TRY(other_devices),
    TRY(mknod_character),
    TRY(mknod_block),
    TRY(mode_of_device),
    TRY(owner_of_device),
    TRY(what_tells_of_the_host),
    TRY(file_systems_of_host),
    TRY(paths_of_host),
    TRY(marker_of_host),
    TRY(chroot_breakout),
    TRY(write_to_usr),
    TRY(create_in_usr),
};
ATTEMPTS(files);
