/* Replacements for missing system calls: an older kernel, or a container runtime whose filter
 * answers ENOSYS to calls it does not know. Called through base/syscalls.h by the spawner and
 * the init, also in children of clone(): no memory is allocated here. Nothing blocks. */
#include "base/syscalls.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/text.h"

#define PROC_MAGIC 0x9fa0
/* As many links as the kernel follows. */
#define LINKS_MAX 40
/* More descriptors than any of our processes may have. */
#define DESCRIPTORS_MAX (1u << 20)

static void descriptor_close_or_mark(unsigned fd, unsigned flags)
{
	if (flags & CLOSE_RANGE_CLOEXEC)
		fcntl((int)fd, F_SETFD, FD_CLOEXEC);
	else
		close((int)fd);
}

struct kernel_entry {
	uint64_t inode;
	int64_t offset;
	unsigned short length;
	unsigned char type;
	char name[];
};

/* Uses the kernel's list of open descriptors. It is ordered by number and continues behind the
 * last one read, so that closing while reading is safe. False without /proc. */
static bool descriptors_close_listed(unsigned first, unsigned last, unsigned flags)
{
	_Alignas(struct kernel_entry) char entries[1024];
	struct statfs filesystem;
	CLOSE_FD int list = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (list < 0 || fstatfs(list, &filesystem) < 0 || filesystem.f_type != PROC_MAGIC)
		return false;
	for (;;) {
		long got = syscall(__NR_getdents64, list, entries, sizeof(entries));
		if (got <= 0)
			return got == 0;
		for (long at = 0; at < got;) {
			const struct kernel_entry *entry = (const void *)(entries + at);
			uint64_t fd;
			at += entry->length;
			if (text_to_u64(entry->name, first, last, &fd) == 0 && (int)fd != list)
				descriptor_close_or_mark((unsigned)fd, flags);
		}
	}
}

int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
	int result = (int)sys_result(syscall(__NR_close_range, first, last, flags));
	/* EINVAL: the flag is missing (Linux before 5.11), or the last number is taken as
	 * negative (gVisor). */
	if (result != -ENOSYS && result != -EINVAL)
		return result;
	if (first > last || (flags & ~CLOSE_RANGE_CLOEXEC))
		return -EINVAL;
	if (descriptors_close_listed(first, last, flags))
		return 0;
	/* After the soft limit was lowered, descriptors above it may be open. So use the hard
	 * one, with a bound. */
	struct rlimit limit;
	unsigned end = DESCRIPTORS_MAX;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < end)
		end = (unsigned)limit.rlim_max;
	for (unsigned fd = first; fd <= last && fd < end; fd++)
		descriptor_close_or_mark(fd, flags);
	return 0;
}

/* Replaces clone3() by clone(), except for the cgroup. */
static int clone_without_clone3(const struct clone_args *args)
{
	uint64_t flags = args->flags & ~(uint64_t)CLONE_INTO_CGROUP;
	if (flags >> 32 || (flags & CSIGNAL) || args->exit_signal > CSIGNAL || args->stack ||
	    args->set_tid || args->tls || args->parent_tid || args->child_tid)
		return -ENOSYS;
	/* The order of arguments after the third differs between machines, but all of them are
	 * 0. The third is the place of the pidfd. */
	return (int)sys_result(
	    syscall(__NR_clone, flags | args->exit_signal, 0, args->pidfd, 0, 0));
}

int sys_clone3(struct clone_args *args)
{
	int pid = (int)sys_result(syscall(__NR_clone3, args, sizeof(*args)));
	if (pid != -ENOSYS)
		return pid;
	pid = clone_without_clone3(args);
	if (pid <= 0 || !(args->flags & CLONE_INTO_CGROUP))
		return pid;
	/* The parent moves it: a child in a user namespace of its own may not move itself. */
	char number[16];
	int result = text_format(number, sizeof(number), "%d", pid);
	if (result >= 0)
		result = fd_write_small((int)args->cgroup, "cgroup.procs", number);
	if (result >= 0)
		return pid;
	kill(pid, SIGKILL);
	/* With CLONE_PARENT another process reaps it. */
	if (!(args->flags & CLONE_PARENT))
		waitpid(pid, NULL, __WALL);
	if (args->flags & CLONE_PIDFD)
		fd_close((int *)(uintptr_t)args->pidfd);
	return result;
}

int sys_execveat(int fd, const char *path, char *const argv[], char *const env[], int flags)
{
	int result = (int)sys_result(syscall(__NR_execveat, fd, path, argv, env, flags));
	if (result != -ENOSYS || *path || flags != AT_EMPTY_PATH)
		return result;
	char name[32];
	result = text_format(name, sizeof(name), "/proc/self/fd/%d", fd);
	return result < 0 ? result : (int)sys_result(syscall(__NR_execve, name, argv, env));
}

int sys_mount_id(int fd, uint64_t *ret_id)
{
	char path[40], text[512];
	int result = text_format(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (result < 0)
		return result;
	ssize_t size = fd_read_small(AT_FDCWD, path, text, sizeof(text));
	if (size < 0)
		return (int)size;
	/* Not strstr(): the init already has memmem(), and strstr() would add a kilobyte. */
	char *at = memmem(text, (size_t)size, "\nmnt_id:\t", sizeof("\nmnt_id:\t") - 1);
	if (!at)
		return -ENOTSUP;
	at += sizeof("\nmnt_id:\t") - 1;
	at[strcspn(at, "\n")] = '\0';
	return text_to_u64(at, 0, UINT64_MAX, ret_id);
}

/* A walk down a path, beginning at a directory. `done` holds the components already passed; none of
 * them is a link, "." or "..". `left` holds the components still to walk. Every step is one
 * openat() of one name with O_NOFOLLOW. The kernel never gets a "..", so that renaming directories
 * during the walk cannot lead outside. */
struct descent {
	int root, at; /* root is not owned; at is, unless it equals root */
	int links;
	const struct open_how *how;
	uint64_t mount;
	char done[GUEST_PATH_MAX], left[GUEST_PATH_MAX];
};

static void descent_move(struct descent *descent, int fd)
{
	if (descent->at != descent->root)
		close(descent->at);
	descent->at = fd;
}

static int descent_step_down(struct descent *descent, const char *name)
{
	int fd = openat(descent->at, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	descent_move(descent, fd);
	return 0;
}

/* Starts again at the root and walks down to the parent of the current directory. */
static int descent_step_up(struct descent *descent)
{
	char *last = strrchr(descent->done, '/');
	if (last)
		*last = '\0';
	descent_move(descent, descent->root);
	for (char *at = descent->done; *at;) {
		char *slash = at + 1 + strcspn(at + 1, "/");
		char kept = *slash;
		*slash = '\0';
		int result = descent_step_down(descent, at + 1);
		*slash = kept;
		if (result < 0)
			return result;
		at = slash;
	}
	return 0;
}

/* Puts the link's target before what is left, which is empty or starts with a slash. */
static int descent_follow_link(struct descent *descent, int link)
{
	struct statfs filesystem;
	char text[GUEST_PATH_MAX];
	if (descent->how->resolve & RESOLVE_NO_SYMLINKS || ++descent->links > LINKS_MAX)
		return -ELOOP;
	/* A magic link, or another link of /proc: refused. */
	if (fstatfs(link, &filesystem) < 0)
		return -errno;
	if (filesystem.f_type == PROC_MAGIC)
		return -ELOOP;
	ssize_t size = readlinkat(link, "", text, sizeof(text));
	if (size <= 0)
		return size < 0 ? -errno : -ENOENT;
	size_t left = strlen(descent->left);
	if ((size_t)size + left >= sizeof(text))
		return -ENAMETOOLONG;
	if (text[0] == '/') {
		descent_move(descent, descent->root);
		descent->done[0] = '\0';
	}
	memcpy(text + size, descent->left, left + 1);
	memcpy(descent->left, text, (size_t)size + left + 1);
	return 0;
}

/* Takes the next component off `left`. *ret_last: nothing follows it, not even a slash. */
static int descent_next_name(struct descent *descent, char name[256], bool *ret_last)
{
	char *from = descent->left + strspn(descent->left, "/");
	size_t size = strcspn(from, "/");
	if (size > 255)
		return -ENAMETOOLONG;
	memcpy(name, from, size);
	name[size] = '\0';
	*ret_last = from[size] == '\0';
	memmove(descent->left, from + size, strlen(from + size) + 1);
	return 0;
}

static int descent_check_mount(const struct descent *descent, int fd)
{
	uint64_t mount;
	if (!(descent->how->resolve & RESOLVE_NO_XDEV))
		return 0;
	int result = sys_mount_id(fd, &mount);
	return result < 0 ? result : mount == descent->mount ? 0 : -EXDEV;
}

/* Opens the last component with the caller's flags. If it has become a link meanwhile,
 * O_NOFOLLOW refuses it. */
static int descent_open_last(const struct descent *descent, const char *name)
{
	int flags = (int)descent->how->flags | O_NOFOLLOW;
	CLOSE_FD int fd =
	    openat(descent->at, *name ? name : ".", flags, (mode_t)descent->how->mode);
	if (fd < 0)
		return -errno;
	int result = descent_check_mount(descent, fd);
	return result < 0 ? result : TAKE_FD(fd);
}

/* Walks one component. 0: continue; 1: it was the last, for descent_open_last(). */
static int descent_step(struct descent *descent, char name[256])
{
	bool last;
	struct stat status;
	int result = descent_next_name(descent, name, &last);
	if (result < 0)
		return result;
	if (name[0] == '\0' || strcmp(name, ".") == 0) {
		name[0] = '\0';
		return last;
	}
	if (strcmp(name, "..") == 0) {
		name[0] = '\0';
		result = descent_step_up(descent);
		return result < 0 ? result : last;
	}
	CLOSE_FD int look = openat(descent->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (look < 0)
		return last && errno == ENOENT && (descent->how->flags & O_CREAT) ? 1 : -errno;
	if (fstat(look, &status) < 0)
		return -errno;
	if (S_ISLNK(status.st_mode))
		return last && (descent->how->flags & O_NOFOLLOW)
			   ? 1
			   : descent_follow_link(descent, look);
	if (last)
		return 1;
	result = descent_check_mount(descent, look);
	if (result < 0)
		return result;
	if (!S_ISDIR(status.st_mode))
		return -ENOTDIR;
	if (strlen(descent->done) + 1 + strlen(name) >= sizeof(descent->done))
		return -ENAMETOOLONG;
	size_t used = strlen(descent->done);
	descent->done[used] = '/';
	memcpy(descent->done + used + 1, name, strlen(name) + 1);
	descent_move(descent, TAKE_FD(look));
	return 0;
}

static int path_open_by_steps(int root, const char *path, const struct open_how *how)
{
	struct descent descent = {.root = root, .at = root, .how = how};
	char name[256];
	int result = text_copy(descent.left, sizeof(descent.left), path);
	if (result >= 0 && (how->resolve & RESOLVE_NO_XDEV))
		result = sys_mount_id(root, &descent.mount);
	while (result == 0)
		result = descent_step(&descent, name);
	if (result > 0)
		result = descent_open_last(&descent, name);
	descent_move(&descent, root);
	return result;
}

int sys_openat2(int dirfd, const char *path, const struct open_how *how)
{
	const uint64_t known =
	    RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
	int result, tries = 100;
	/* A rename or mount somewhere on the host while a path contained `..`: retry. */
	do {
		result = (int)sys_result(syscall(__NR_openat2, dirfd, path, how, sizeof(*how)));
	} while (result == -EAGAIN && --tries > 0);
	if (result != -ENOSYS || !(how->resolve & RESOLVE_IN_ROOT) || (how->resolve & ~known))
		return result;
	if (!*path)
		return -ENOENT;
	CLOSE_FD int root = openat(dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root < 0 ? -errno : path_open_by_steps(root, path, how);
}

const struct needed_call *sys_find_missing_call(void)
{
	static const char mounts[] = "detached mounts";
	static const struct {
		struct needed_call call;
		long number;
	} needed[] = {
	    {{"pidfd_send_signal", "signals to exactly one process", "5.1"},
	     __NR_pidfd_send_signal},
	    {{"open_tree", mounts, "5.2"}, __NR_open_tree},
	    {{"move_mount", mounts, "5.2"}, __NR_move_mount},
	    {{"fsopen", mounts, "5.2"}, __NR_fsopen},
	    {{"fsconfig", mounts, "5.2"}, __NR_fsconfig},
	    {{"fsmount", mounts, "5.2"}, __NR_fsmount},
	    {{"pidfd_open", "watching processes of an earlier start", "5.3"}, __NR_pidfd_open},
	    {{"mount_setattr", "mounts with mapped owners", "5.12"}, __NR_mount_setattr},
	};
	/* The arguments are invalid for every call, so that an existing one fails with another
	 * errno. */
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (syscall(needed[i].number, -1L, -1L, -1L, -1L, -1L, -1L) < 0 && errno == ENOSYS)
			return &needed[i].call;
	return NULL;
}
