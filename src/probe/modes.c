/* Files that would give their owner's rights to anybody who runs them on the host. Refused in
 * sandboxes with a read-write folder; elsewhere package managers need them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "probe.h"

#define NR_FCHMODAT2 452

static const char *set_id_path(const char *name)
{
	static char path[256];
	const char *directory = getenv("PROBE_DIRECTORY");
	snprintf(path, sizeof(path), "%s/probe-%s-%d", directory ? directory : "/tmp", name,
		 getpid());
	return path;
}

static const char *set_id_file(const char *name)
{
	const char *path = set_id_path(name);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
	return path;
}

/* A call that succeeds and does nothing counts as refused. */
static long set_id_came(const char *path, long result)
{
	struct stat status;
	if (result < 0 || lstat(path, &status) < 0)
		return -1;
	return status.st_mode & (S_ISUID | S_ISGID) ? 0 : absent();
}

static long chmod_with(long mode)
{
	const char *path = set_id_file("chmod");
#ifdef SYS_chmod
	return set_id_came(path, syscall(SYS_chmod, path, mode));
#else
	return set_id_came(path, syscall(SYS_fchmodat, AT_FDCWD, path, mode));
#endif
}

static long try_setuid_chmod(void)
{
	return chmod_with(04755);
}

static long try_setgid_chmod(void)
{
	return chmod_with(02755);
}

/* The kernel uses sixteen bits of a mode. */
static long try_setuid_chmod_high_bits(void)
{
	return chmod_with(04755 | 0x10000 | HIGH_BITS);
}

static long try_setuid_fchmod(void)
{
	const char *path = set_id_file("fchmod");
	return set_id_came(path, fchmod(open(path, O_RDONLY | O_CLOEXEC), 04755));
}

static long try_setuid_fchmodat(void)
{
	const char *path = set_id_file("fchmodat");
	return set_id_came(path, syscall(SYS_fchmodat, AT_FDCWD, path, 06755));
}

static long try_setuid_fchmodat2(void)
{
	const char *path = set_id_file("fchmodat2");
	return set_id_came(path, syscall(NR_FCHMODAT2, AT_FDCWD, path, 04755, 0));
}

static long try_setuid_open(void)
{
	const char *path = set_id_path("open");
	return set_id_came(path, open(path, O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC, 04755));
}

static long try_setuid_creat(void)
{
	const char *path = set_id_path("creat");
#ifdef SYS_creat
	return set_id_came(path, syscall(SYS_creat, path, 04755));
#else
	return set_id_came(path, creat(path, 04755));
#endif
}

static long try_setuid_tmpfile(void)
{
	char descriptor[64];
	const char *path = set_id_path("tmpfile");
	char *slash = strrchr(path, '/');
	*slash = '\0';
	int fd = open(path, O_TMPFILE | O_WRONLY | O_CLOEXEC, 04755);
	*slash = '/';
	if (fd < 0)
		return -1;
	snprintf(descriptor, sizeof(descriptor), "/proc/self/fd/%d", fd);
	return set_id_came(path, linkat(AT_FDCWD, descriptor, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
}

static long try_setuid_openat2(void)
{
	const struct {
		uint64_t flags, mode, resolve;
	} how = {O_CREAT | O_WRONLY | O_CLOEXEC, 04755, 0};
	const char *path = set_id_path("openat2");
	return set_id_came(path, syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how)));
}

static long try_setuid_mknod(void)
{
	const char *path = set_id_path("mknod");
	return set_id_came(path, mknod(path, S_IFREG | 04755, 0));
}

static long try_setuid_queue(void)
{
	return syscall(SYS_mq_open, "probe", O_CREAT | O_RDWR, 04700, NULL);
}

static long try_file_capability(void)
{
	/* Version 2, effective; permitted: CAP_SETUID */
	static const unsigned char value[20] = {1, 0, 0, 2, 0x80};
	return setxattr(set_id_file("capability"), "security.capability", value, sizeof(value), 0);
}

/* Done if CAP_FSETID or CAP_SETFCAP is available. */
static long try_host_file_capabilities(void)
{
	bool any =
	    prctl(PR_CAPBSET_READ, 4, 0, 0, 0) == 1 || prctl(PR_CAPBSET_READ, 31, 0, 0, 0) == 1;
	return any ? 0 : absent();
}

static const struct attempt modes_list[] = {
    TRY(setuid_chmod),    TRY(setgid_chmod),           TRY(setuid_chmod_high_bits),
    TRY(setuid_fchmod),   TRY(setuid_fchmodat),        TRY(setuid_fchmodat2),
    TRY(setuid_open),     TRY(setuid_creat),           TRY(setuid_tmpfile),
    TRY(setuid_openat2),  TRY(setuid_mknod),           TRY(setuid_queue),
    TRY(file_capability), TRY(host_file_capabilities),
};
ATTEMPTS(modes);
