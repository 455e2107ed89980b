/* The TLS files. The spawner reads them, because its caller may read them and the daemon's user
 * need not. The daemon gets read-only copies in memory. Read at the start, and on a reload into
 * the same copies; blocks for local disk. */
#include "spawner/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"

#define TLS_FILE_MAX (256 * KIB) /* a chain has a few kilobytes */

struct tls_text {
	char data[TLS_FILE_MAX];
	size_t size;
};

/* The user who reads, for errors. Asked at the start: without root the spawner changes its id
 * later. */
static const char *reader_name(void)
{
	static char name[64];
	const struct passwd *user = name[0] ? NULL : getpwuid(geteuid());
	if (!name[0] && user)
		snprintf(name, sizeof(name), "%s", user->pw_name);
	else if (!name[0])
		snprintf(name, sizeof(name), "%u", (unsigned)geteuid());
	return name;
}

static int tls_file_read(const char *kind, const char *path, struct tls_text *text,
			 struct error *error)
{
	const char *reader = reader_name();
	struct stat info;
	CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &info) < 0)
		return error_set_errno(error, ERROR_CONFIG, errno, "TLS: %s %s, as user %s", kind,
				       path, reader);
	if (!S_ISREG(info.st_mode) || info.st_size > (off_t)TLS_FILE_MAX)
		return error_set(error, ERROR_CONFIG,
				 "TLS: %s %s is not a regular file, or too large", kind, path);
	text->size = (size_t)info.st_size;
	int result = fd_read_full(fd, text->data, text->size);
	if (result < 0)
		return error_set_errno(error, ERROR_CONFIG, result, "TLS: %s %s", kind, path);
	return 0;
}

static int tls_file_keep(int *fd, const struct tls_text *text, struct error *error)
{
	if (*fd < 0)
		*fd = memfd_create("tls", MFD_CLOEXEC);
	/* Mode 0400: a descriptor opened for reading cannot be reopened for writing. */
	if (*fd < 0 || fchmod(*fd, 0400) < 0 || ftruncate(*fd, 0) < 0 ||
	    pwrite(*fd, text->data, text->size, 0) != (ssize_t)text->size)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "TLS");
	return 0;
}

int tls_files_load(struct spawner *spawner, struct error *error)
{
	const struct config *config = &spawner->config;
	if (!config->tls_certificate[0])
		return 0;
	/* Both are read before either is stored. The daemon checks whether they belong together. */
	struct tls_text *texts = calloc(2, sizeof(*texts));
	if (!texts)
		abort();
	int result = tls_file_read("certificate", config->tls_certificate, &texts[0], error);
	if (result == 0)
		result = tls_file_read("key", config->tls_key, &texts[1], error);
	for (int i = 0; i < 2 && result == 0; i++)
		result = tls_file_keep(&spawner->tls_files[i], &texts[i], error);
	explicit_bzero(texts, 2 * sizeof(*texts));
	free(texts);
	return result;
}

int tls_file_open(const struct spawner *spawner, int which)
{
	char path[32];
	if (spawner->tls_files[which] < 0)
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", spawner->tls_files[which]);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}
