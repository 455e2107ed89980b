/* A running guest's directory in the runtime directory. See record.h. */
#include "tier/jail/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "proto/tiers.h"

#define PATH_ROOM 320
#define TEXT_ROOM 1024
#define RECORD_NAME "caisson-boot "
#define RECORD_VERSION RECORD_NAME "1"
/* A bit more than the first two parts of a boot id: enough to tell boots apart. */
#define HOST_BOOT_TEXT 24

_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) == GUEST_SOCKET_PATH_MAX,
	       "a guest's socket path fits into a socket address");

static int record_directory_path(const struct host *host, const struct id *id, char path[PATH_ROOM])
{
	return text_format(path, PATH_ROOM, "%s/guests/%s", host->runtime, id->text);
}

static int record_directory_open(const struct host *host, const struct id *id)
{
	char path[PATH_ROOM];
	int result = record_directory_path(host, id, path);
	if (result < 0)
		return result;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int record_directory_make(const struct host *host, const struct id *id)
{
	char path[PATH_ROOM];
	int result = text_format(path, sizeof(path), "%s/guests", host->runtime);
	if (result >= 0 && mkdir(path, 0711) < 0 && errno != EEXIST)
		result = -errno;
	if (result >= 0)
		result = record_directory_path(host, id, path);
	if (result < 0)
		return result;
	if (mkdir(path, 0700) < 0)
		return -errno;
	/* With a single id the group is the user's own and may have other members. */
	mode_t mode = host->rights == RIGHTS_ONE_ID ? 0700 : 0750;
	if (chown(path, 0, host->daemon_gid) < 0 || chmod(path, mode) < 0)
		return -errno;
	return 0;
}

static int record_bind_socket(const struct host *host, const struct id *id)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int result = guest_socket_path(host->runtime, id, address.sun_path);
	if (result < 0)
		return result;
	CLOSE_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chown(address.sun_path, 0, host->daemon_gid) < 0 ||
	    chmod(address.sun_path, host->rights == RIGHTS_ONE_ID ? 0600 : 0660) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int record_make(const struct host *host, const struct id *id, int *ret_listener,
		struct error *error)
{
	struct error ignored;
	int result = record_directory_make(host, id);
	/* A leftover of an interrupted boot; the driver has checked that its process is gone. */
	if (result == -EEXIST && record_remove(host, id, &ignored) >= 0)
		result = record_directory_make(host, id);
	if (result >= 0)
		result = record_bind_socket(host, id);
	if (result >= 0) {
		*ret_listener = result;
		return 0;
	}
	if (result == -ENAMETOOLONG)
		return error_set(error, ERROR_CONFIG,
				 "the runtime directory's path is too long for a socket in it: %s",
				 host->runtime);
	return error_set_errno(error, error_kind_of_errno(result), result, "%s/guests/%s",
			       host->runtime, id->text);
}

/* Identifies the boot of the host: a runtime directory may outlive it. */
static const char *host_boot_id(void)
{
	static char text[HOST_BOOT_TEXT];
	char whole[64];
	if (!text[0] &&
	    fd_read_small(AT_FDCWD, "/proc/sys/kernel/random/boot_id", whole, sizeof(whole)) > 0)
		snprintf(text, sizeof(text), "%.*s", HOST_BOOT_TEXT - 1, whole);
	return text[0] ? text : "unknown";
}

int record_write(const struct host *host, const struct guest *guest, struct error *error)
{
	char text[TEXT_ROOM];
	const struct limits *limits = &guest->limits;
	int length = snprintf(
	    text, sizeof(text),
	    RECORD_VERSION "\npid %d\nstart_time %llu\nslot %u\ntier %s\nmemory %llu\ndisk %llu\n"
			   "inodes %llu\ncpu_millis %u\npids %u\nfiles %u\nhost %s\n",
	    (int)guest->init.pid, (unsigned long long)guest->init.start_time, guest->slot,
	    tier_name(guest->tier), (unsigned long long)limits->memory,
	    (unsigned long long)limits->disk, (unsigned long long)limits->inodes,
	    limits->cpu_millis, limits->pids, limits->files, host_boot_id());
	CLOSE_FD int directory = record_directory_open(host, &guest->id);
	int result = MIN(directory, 0);
	CLOSE_FD int file = -1;
	if (result >= 0) {
		file = openat(directory, "boot.new",
			      O_CREAT | O_TRUNC | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
		result = file < 0 ? -errno : fd_write_full(file, text, (size_t)length);
	}
	if (result >= 0 && renameat(directory, "boot.new", directory, "boot") < 0)
		result = -errno;
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "%s/guests/%s/boot", host->runtime, guest->id.text);
	return 0;
}

/* The value of a line "key value"; -1: missing. */
#define VALUE_ROOM 32
static int record_find_value(const char *text, const char *key, char value[VALUE_ROOM])
{
	char line[64];
	size_t length = strlen(key);
	for (const char *place = strchr(text, '\n'); place; place = strchr(place, '\n')) {
		place++;
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(place, "\n"), place);
		if (strncmp(line, key, length) != 0 || line[length] != ' ')
			continue;
		snprintf(value, VALUE_ROOM, "%.31s", line + length + 1);
		return 0;
	}
	return -1;
}

static int record_read_number(const char *text, const char *key, uint64_t max, uint64_t *ret_value)
{
	char value[VALUE_ROOM];
	if (record_find_value(text, key, value) < 0)
		return -1;
	return text_to_u64(value, 0, max, ret_value) < 0 ? -1 : 0;
}

int record_read(const struct host *host, struct guest *guest, struct error *error)
{
	char text[TEXT_ROOM], boot[VALUE_ROOM];
	uint64_t pid, start_time, slot, memory, disk, inodes, cpu, pids, files;
	CLOSE_FD int directory = record_directory_open(host, &guest->id);
	ssize_t length = MIN(directory, 0);
	if (directory >= 0)
		length = fd_read_small(directory, "boot", text, sizeof(text));
	if (length == -ENOENT || length == -EFBIG)
		return 0;
	if (length < 0)
		return error_set_errno(error, error_kind_of_errno((int)length), (int)length,
				       "%s/guests/%s/boot", host->runtime, guest->id.text);
	if (text_starts(text, RECORD_NAME) && !text_starts(text, RECORD_VERSION "\n"))
		return error_set(error, ERROR_UNSUPPORTED,
				 "its record is a `%.*s` of another version of Caisson; this "
				 "one reads `" RECORD_VERSION
				 "`; its files are kept: start it again",
				 (int)MIN(strcspn(text, "\n"), 31), text);
	if (!text_starts(text, RECORD_VERSION "\n") ||
	    record_read_number(text, "pid", INT32_MAX, &pid) < 0 ||
	    record_read_number(text, "start_time", UINT64_MAX, &start_time) < 0 ||
	    record_read_number(text, "slot", UINT32_MAX, &slot) < 0 ||
	    record_read_number(text, "memory", UINT64_MAX, &memory) < 0 ||
	    record_read_number(text, "disk", UINT64_MAX, &disk) < 0 ||
	    record_read_number(text, "inodes", UINT64_MAX, &inodes) < 0 ||
	    record_read_number(text, "cpu_millis", UINT32_MAX, &cpu) < 0 ||
	    record_read_number(text, "pids", UINT32_MAX, &pids) < 0 ||
	    record_read_number(text, "files", UINT32_MAX, &files) < 0)
		return 0;
	if (pid == 0 || start_time == 0 || slot != guest->slot)
		return 0;
	/* Start times count from the boot of the host: after a reboot they could match another
	 * process. */
	if (record_find_value(text, "host", boot) == 0 && strcmp(boot, host_boot_id()) != 0)
		return 0;
	guest->init.pid = (pid_t)pid;
	guest->init.start_time = start_time;
	guest->limits = (struct limits){.memory = memory,
					.disk = disk,
					.inodes = inodes,
					.cpu_millis = (uint32_t)cpu,
					.pids = (uint32_t)pids,
					.files = (uint32_t)files};
	return 1;
}

int record_remove(const struct host *host, const struct id *id, struct error *error)
{
	static const char *const files[] = {"init.sock", "boot", "boot.new"};
	char path[PATH_ROOM];
	int result = 0;
	CLOSE_FD int directory = record_directory_open(host, id);
	if (directory == -ENOENT)
		return 0;
	if (directory < 0)
		result = directory;
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(files); i++) {
		if (unlinkat(directory, files[i], 0) < 0 && errno != ENOENT)
			result = -errno;
	}
	if (result >= 0)
		result = record_directory_path(host, id, path);
	if (result >= 0 && rmdir(path) < 0 && errno != ENOENT)
		result = -errno;
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "%s/guests/%s",
				       host->runtime, id->text);
	return 0;
}
