/* System calls that the C libraries in use (glibc 2.36, musl 1.2) do not wrap alike. Each returns
 * its value or -errno. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __NR_open_tree
#error "kernel headers older than 5.12"
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x00000004
#endif

static inline long sys_result(long result)
{
	return result < 0 ? -errno : result;
}

static inline int sys_pidfd_open(pid_t pid, unsigned flags)
{
	return (int)sys_result(syscall(__NR_pidfd_open, pid, flags));
}

static inline int sys_pidfd_send_signal(int pidfd, int signal)
{
	return (int)sys_result(syscall(__NR_pidfd_send_signal, pidfd, signal, NULL, 0));
}

static inline int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
	return (int)sys_result(syscall(__NR_open_tree, dirfd, path, flags));
}

static inline int sys_move_mount(int from_fd, const char *from, int to_fd, const char *to,
				 unsigned flags)
{
	return (int)sys_result(syscall(__NR_move_mount, from_fd, from, to_fd, to, flags));
}

static inline int sys_fsopen(const char *type, unsigned flags)
{
	return (int)sys_result(syscall(__NR_fsopen, type, flags));
}

static inline int sys_fsconfig(int fd, unsigned command, const char *key, const void *value,
			       int number)
{
	return (int)sys_result(syscall(__NR_fsconfig, fd, command, key, value, number));
}

static inline int sys_fsmount(int fd, unsigned flags, unsigned attributes)
{
	return (int)sys_result(syscall(__NR_fsmount, fd, flags, attributes));
}

static inline int sys_mount_setattr(int dirfd, const char *path, unsigned flags,
				    struct mount_attr *attributes)
{
	return (int)sys_result(
	    syscall(__NR_mount_setattr, dirfd, path, flags, attributes, sizeof(*attributes)));
}

/* The following are in syscalls.c: they have a replacement where the call answers ENOSYS. */

/* For CLONE_INTO_CGROUP, the replacement lets the parent move the child into its cgroup before this
 * returns. So the child must wait for its parent before it does anything important. */
int sys_clone3(struct clone_args *args);
int sys_close_range(unsigned first, unsigned last, unsigned flags);
int sys_execveat(int fd, const char *path, char *const argv[], char *const env[], int flags);
/* The replacement walks paths name by name, and needs RESOLVE_IN_ROOT. */
int sys_openat2(int dirfd, const char *path, const struct open_how *how);
/* Calls without a replacement. Returns the first one that answers ENOSYS, with its purpose and
 * the Linux version that introduced it; NULL: all exist. */
struct needed_call {
	const char *name, *for_what, *since;
};
const struct needed_call *sys_find_missing_call(void);
/* The id of the mount that a descriptor is on, unique in this mount namespace. */
int sys_mount_id(int fd, uint64_t *ret_id);

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)sys_result(syscall(__NR_pivot_root, new_root, put_old));
}

/* Not from sys/mount.h: it and linux/mount.h cannot be included together. */
static inline int sys_umount(const char *path, int flags)
{
	return (int)sys_result(syscall(__NR_umount2, path, flags));
}

/* For this thread only: the C libraries' functions change all threads, which costs some KB of
 * code. */
static inline int sys_setgroups(size_t count, const gid_t *groups)
{
	return (int)sys_result(syscall(__NR_setgroups, count, groups));
}

static inline int sys_setresuid(uid_t real, uid_t effective, uid_t saved)
{
	return (int)sys_result(syscall(__NR_setresuid, real, effective, saved));
}

static inline int sys_setresgid(gid_t real, gid_t effective, gid_t saved)
{
	return (int)sys_result(syscall(__NR_setresgid, real, effective, saved));
}
