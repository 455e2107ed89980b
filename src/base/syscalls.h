/* System calls that the C libraries in use (glibc 2.36, musl 1.2) do not wrap alike. Each returns
 * its value or -errno. */
#pragma once

#include <errno.h>
#include <fcntl.h>
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

static inline int sys_clone3(struct clone_args *args)
{
	return (int)sys_result(syscall(__NR_clone3, args, sizeof(*args)));
}

static inline int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
	return (int)sys_result(syscall(__NR_close_range, first, last, flags));
}

static inline int sys_execveat(int fd, const char *path, char *const argv[], char *const env[],
			       int flags)
{
	return (int)sys_result(syscall(__NR_execveat, fd, path, argv, env, flags));
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)sys_result(syscall(__NR_pivot_root, new_root, put_old));
}

/* Not from sys/mount.h: it and linux/mount.h cannot be included together. */
static inline int sys_umount(const char *path, int flags)
{
	return (int)sys_result(syscall(__NR_umount2, path, flags));
}

static inline int sys_openat2(int dirfd, const char *path, const struct open_how *how)
{
	return (int)sys_result(syscall(__NR_openat2, dirfd, path, how, sizeof(*how)));
}
