/* A sandbox's /dev and /proc. Called only by setup.c, before there is another process; may
 * block. */
#include "init/setup/devices.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "boot/filesystem.h"

static int file_make_empty(const char *path)
{
	CLOSE_FD int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
	return fd < 0 ? -errno : 0;
}

static const char *const device_nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};

static const struct {
	const char *target, *name;
} device_links[] = {
    {"pts/ptmx", "ptmx"},          {"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"},
    {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
};

static int devpts_mount(const char *path)
{
	/* Group 5 is `tty`; a sandbox with a single id has no group 5. */
	/* `max`: the host has some thousands of terminals for all sandboxes together. */
	static const char *const with_group[] = {"ptmxmode", "0666", "mode", "0620", "max",
						 "256",      "gid",  "5",    NULL};
	static const char *const without_group[] = {"ptmxmode", "0666", "mode", "0620",
						    "max",      "256",  NULL};
	unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
	int result = fs_mount("devpts", with_group, attributes, path);
	if (result == -EINVAL)
		result = fs_mount("devpts", without_group, attributes, path);
	return result;
}

int setup_devices(const char *path, const char **ret_step)
{
	/* Small, because no disk limit applies to it. A bind mount of a device node has flags of
	 * its own, so the directory itself can be mounted with NODEV. */
	static const char *const options[] = {"mode",      "0755", "size", "64k",
					      "nr_inodes", "64",   NULL};
	char place[64], source[64];
	*ret_step = "/dev";
	int result = fs_mount("tmpfs", options,
			      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, path);
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(device_nodes); i++) {
		*ret_step = device_nodes[i];
		result = text_format(place, sizeof(place), "%s/%s", path, device_nodes[i]);
		if (result >= 0)
			result = text_format(source, sizeof(source), "/dev/%s", device_nodes[i]);
		if (result >= 0)
			result = file_make_empty(place);
		if (result >= 0)
			result = fs_bind(source, place, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	}
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(device_links); i++) {
		*ret_step = device_links[i].name;
		result = text_format(place, sizeof(place), "%s/%s", path, device_links[i].name);
		if (result >= 0 && symlink(device_links[i].target, place) < 0)
			result = -errno;
	}
	static const char *const directories[] = {"shm", "pts"};
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(directories); i++) {
		*ret_step = directories[i];
		result = text_format(place, sizeof(place), "%s/%s", path, directories[i]);
		if (result >= 0)
			result = fs_directory(place, 0755);
	}
	if (result >= 0)
		result = devpts_mount(place);
	return result < 0 ? result : 0;
}

/* Files that everybody can read and that describe the host: its devices, file systems, keys,
 * kernel command line and configuration, file locks, and the load of its disks and memory. Files
 * that only the host's root can read (kcore, kmsg, timer_list, sysrq-trigger...) need no mask,
 * because that root has no id inside. Everybody may write to /proc/pressure, and each trigger
 * there is work for the kernel. */
static const char *const masked[] = {
    "acpi",          "asound",     "bootconfig",    "buddyinfo",   "bus",        "cgroups",
    "cmdline",       "config.gz",  "diskstats",     "fs",          "interrupts", "irq",
    "kallsyms",      "kcore",      "key-users",     "keys",        "locks",      "modules",
    "latency_stats", "partitions", "pressure",      "sched_debug", "schedstat",  "scsi",
    "softirqs",      "swaps",      "sysrq-trigger", "timer_list",  "vmstat",     "zoneinfo"};
static const char *const read_only[] = {"sys"};

static int proc_mask(const char *path, const char *empty_file, const char *empty_directory)
{
	struct stat status;
	if (lstat(path, &status) < 0)
		return errno == ENOENT ? 0 : -errno;
	if ((status.st_mode & 0007) == 0)
		return 0;
	return fs_bind(S_ISDIR(status.st_mode) ? empty_directory : empty_file, path,
		       MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
			   MOUNT_ATTR_NOEXEC);
}

int setup_proc(const char *path, const char *empty_file, const char *empty_directory,
	       const char *meminfo, const char **ret_step)
{
	char place[64];
	*ret_step = "/proc";
	int result =
	    fs_mount("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, path);
	/* The kernel refuses a full /proc in a user namespace if parts of /proc are masked
	 * outside. */
	if (result == -EPERM)
		*ret_step = "/proc is masked here, as in a container (start it with "
			    "--security-opt systempaths=unconfined)";
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(masked); i++) {
		*ret_step = masked[i];
		result = text_format(place, sizeof(place), "%s/%s", path, masked[i]);
		if (result >= 0)
			result = proc_mask(place, empty_file, empty_directory);
	}
	if (result >= 0) {
		*ret_step = "/proc/meminfo";
		result = text_format(place, sizeof(place), "%s/meminfo", path);
	}
	if (result >= 0)
		result = fs_bind(meminfo, place,
				 MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
				     MOUNT_ATTR_NOEXEC);
	return result < 0 ? result : 0;
}

int setup_proc_readonly(const char *path, const char **ret_step)
{
	char place[64];
	int result = 0;
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(read_only); i++) {
		*ret_step = read_only[i];
		result = text_format(place, sizeof(place), "%s/%s", path, read_only[i]);
		if (result >= 0 && access(place, F_OK) == 0)
			result = fs_bind(place, place, MOUNT_ATTR_RDONLY);
	}
	return result < 0 ? result : 0;
}
