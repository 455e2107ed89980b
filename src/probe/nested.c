/* Attempts in a namespace of their own: refused at the first step or, in a sandbox that allows
 * user namespaces, at the step that would lead out of the sandbox. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "probe.h"

static int namespaces_enter(int more)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | more) < 0)
		return -1;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static long nested_mount(const char *source, const char *type, unsigned long flags)
{
	return namespaces_enter(0) < 0 ? -1 : mount(source, "/tmp", type, flags, NULL);
}

static long try_nested_bind(void)
{
	return nested_mount("/tmp", NULL, MS_BIND);
}

static long try_nested_mount(void)
{
	return nested_mount("probe", "tmpfs", MS_NOSUID);
}

/* The kernel ignores the upper half of the flags if it has this value, and with it MS_PRIVATE. */
static long try_nested_mount_magic(void)
{
	return nested_mount("probe", "tmpfs", MS_MGC_VAL);
}

static long try_nested_umount_mask(void)
{
	return namespaces_enter(0) < 0 ? -1 : umount2("/proc/kallsyms", MNT_DETACH);
}

static long try_nested_umount_proc(void)
{
	return namespaces_enter(0) < 0 ? -1 : umount2("/proc", MNT_DETACH);
}

static long try_nested_remount_proc_sys(void)
{
	return namespaces_enter(0) < 0 ? -1
				       : mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL);
}

static long try_nested_remount_usr(void)
{
	return namespaces_enter(0) < 0 ? -1 : mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL);
}

static long try_nested_proc(void)
{
	return namespaces_enter(CLONE_NEWPID) < 0 ? -1 : mount("proc", "/tmp", "proc", 0, NULL);
}

static long try_nested_sys(void)
{
	return namespaces_enter(CLONE_NEWNET) < 0 ? -1 : mount("sysfs", "/tmp", "sysfs", 0, NULL);
}

/* A bind mount without the mounts below it would show the masked files. */
static long try_nested_uncover(void)
{
	return namespaces_enter(0) < 0 ? -1 : mount("/proc", "/tmp", NULL, MS_BIND, NULL);
}

/* cgroups can be mounted in a new namespace; their files must still belong to another user. */
static long open_in_cgroups(const char *const *files, size_t count, bool make)
{
	static const struct {
		const char *type, *options;
	} kinds[] = {{"cgroup2", NULL},
		     {"cgroup", "memory"},
		     {"cgroup", "pids"},
		     {"cgroup", "cpu"},
		     {"cgroup", "none,name=systemd"}};
	if (namespaces_enter(CLONE_NEWCGROUP) < 0)
		return -1;
	for (size_t k = 0; k < COUNT(kinds); k++) {
		if (mount("probe", "/tmp", kinds[k].type, 0, kinds[k].options) < 0)
			continue;
		for (size_t f = 0; f < count; f++) {
			if (open_path(files[f], O_WRONLY) >= 0)
				return 0;
		}
		if (make && mkdir("/tmp/probe-group", 0700) == 0)
			return 0;
		umount2("/tmp", MNT_DETACH);
	}
	return absent();
}

static long try_nested_cgroup(void)
{
	static const char *const files[] = {"/tmp/release_agent",
					    "/tmp/notify_on_release",
					    "/tmp/memory.max",
					    "/tmp/memory.limit_in_bytes",
					    "/tmp/memory.memsw.limit_in_bytes",
					    "/tmp/pids.max",
					    "/tmp/cpu.max",
					    "/tmp/cpu.cfs_quota_us",
					    "/tmp/cgroup.subtree_control"};
	return open_in_cgroups(files, COUNT(files), true);
}

static long try_nested_cgroup_members(void)
{
	static const char *const files[] = {"/tmp/cgroup.procs", "/tmp/tasks"};
	return open_in_cgroups(files, COUNT(files), false);
}

static long try_nested_devices(void)
{
	if (namespaces_enter(0) < 0)
		return -1;
	if (mount("probe", "/tmp", "devtmpfs", 0, NULL) == 0)
		return 0;
	return mount("/dev/vda", "/tmp", "ext4", MS_RDONLY, NULL);
}

static long try_nested_raw_socket(void)
{
	if (namespaces_enter(CLONE_NEWNET) < 0)
		return -1;
	return syscall(SYS_socket, 17, 3, 0x0300);
}

static const struct attempt nested_list[] = {
    TRY(nested_bind),        TRY(nested_mount),       TRY(nested_mount_magic),
    TRY(nested_umount_mask), TRY(nested_umount_proc), TRY(nested_remount_proc_sys),
    TRY(nested_remount_usr), TRY(nested_proc),        TRY(nested_sys),
    TRY(nested_uncover),     TRY(nested_cgroup),      TRY(nested_cgroup_members),
    TRY(nested_devices),     TRY(nested_raw_socket),
};
ATTEMPTS(nested);
