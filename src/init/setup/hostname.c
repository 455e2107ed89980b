/* The sandbox's name as seen inside: the kernel's host name, /etc/hostname, and a line of
 * /etc/hosts so that the name resolves (sudo, Java, MPI and many daemons look it up). Called for
 * CONFIGURE, before users' folders are placed, so nothing here can write into one. May block on
 * the disk.
 *
 * A sandbox that starts again has the /etc that its users left. So no link is followed, and only
 * regular files are written. */
#include "init/setup/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"

/* A longer /etc/hosts was made by the user and is not changed. */
#define HOSTS_MAX (64 * 1024)

static int plain_file_open(const char *path)
{
	struct open_how how = {
	    .flags = O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
	    .mode = 0644,
	    .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	struct stat status;
	CLOSE_FD int fd = sys_openat2(AT_FDCWD, path, &how);
	return fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? TAKE_FD(fd) : -1;
}

static bool character_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\0';
}

/* `text` has a blank before it and behind it. */
static bool hosts_mention(const char *text, size_t size, const char *name)
{
	size_t length = strlen(name);
	const char *end = text + size;
	for (const char *at = text; (at = memmem(at, (size_t)(end - at), name, length)); at++)
		if (character_is_blank(at[-1]) && character_is_blank(at[length]))
			return true;
	return false;
}

static void hosts_add(const char *hostname)
{
	/* All zeros; this runs once per process, so the byte before and the one after the text
	 * stay zero. */
	static char room[1 + HOSTS_MAX + 1];
	char *text = room + 1;
	CLOSE_FD int fd = plain_file_open("etc/hosts");
	ssize_t size = fd < 0 ? -1 : pread(fd, text, HOSTS_MAX, 0);
	if (size < 0 || size == HOSTS_MAX || hosts_mention(text, (size_t)size, hostname))
		return;
	bool open_line = size > 0 && text[size - 1] != '\n';
	char line[NAME_MAX_LENGTH + 32];
	int length =
	    snprintf(line, sizeof(line), "%s127.0.1.1\t%s\n", open_line ? "\n" : "", hostname);
	ssize_t put = pwrite(fd, line, (size_t)length, size);
	(void)put;
}

static void hostname_write(const char *hostname)
{
	char line[NAME_MAX_LENGTH + 2];
	CLOSE_FD int fd = plain_file_open("etc/hostname");
	int length = snprintf(line, sizeof(line), "%s\n", hostname);
	if (fd >= 0 && pwrite(fd, line, (size_t)length, 0) == length) {
		int result = ftruncate(fd, length);
		(void)result;
	}
}

int setup_hostname(const char *hostname, struct failure *ret_failure)
{
	/* EPERM: the process of a container may lack the right; it keeps the name it was given. */
	if (sethostname(hostname, strlen(hostname)) < 0 && errno != EPERM) {
		*ret_failure = (struct failure){.kind = ERROR_INTERNAL, .errnum = (uint32_t)errno};
		snprintf(ret_failure->message, sizeof(ret_failure->message),
			 "setting the host name: %s", strerror(errno));
		return -1;
	}
	/* Errors are ignored: a full disk or a missing /etc must not keep a sandbox from
	 * starting. */
	hostname_write(hostname);
	hosts_add(hostname);
	return 0;
}
