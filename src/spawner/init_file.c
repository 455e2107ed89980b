/* Root's own copy of caisson-init. Its mode 0711 makes it unreadable inside, and the kernel
 * therefore protects PID 1 from ptrace and /proc access, whatever capabilities a process inside
 * has. It is named by its content: an upgrade adds a file, and running sandboxes keep theirs. */
#include "spawner/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"

#define INIT_BYTES_MAX (64 * 1024 * 1024)
#define NAME_PREFIX "caisson-init-"

/* Beside the running program in a build tree, or where `make install` puts it. */
static const char *const source_paths[] = {
    "caisson-init",
    "src/init/caisson-init",
    "../libexec/caisson/caisson-init",
};

static int source_open(char path[SPAWNER_PATH_MAX], struct error *error)
{
	char program[SPAWNER_PATH_MAX - 64];
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
	if (length <= 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "/proc/self/exe");
	program[length] = '\0';
	char *slash = strrchr(program, '/');
	if (!slash)
		return error_set(error, ERROR_INTERNAL, "%s is not an absolute path", program);
	*slash = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(source_paths); i++) {
		CLOSE_FD int fd = -1;
		if (text_format(path, SPAWNER_PATH_MAX, "%s/%s", program, source_paths[i]) == 0)
			fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0)
			return TAKE_FD(fd);
	}
	return error_set(error, ERROR_INTERNAL,
			 "caisson-init is neither beside %s/caisson nor in %s/../libexec/caisson: "
			 "install it with `make install`",
			 program, program);
}

static int file_hash(int fd, uint64_t *ret_hash)
{
	char block[16384];
	uint64_t hash = INSTANCE_HASH_START;
	off_t offset = 0;
	for (;;) {
		ssize_t got = pread(fd, block, sizeof(block), offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		hash = instance_hash(hash, block, (size_t)got);
		offset += got;
		if (offset > INIT_BYTES_MAX)
			return -EFBIG;
	}
	*ret_hash = hash;
	return 0;
}

/* What makes it unreadable inside. As root: its owner is an id that no sandbox has. Without root
 * the owner is the user, who may be root in a sandbox. So its mode denies reading even to the
 * owner, and its group is one that no sandbox has, which makes CAP_DAC_OVERRIDE of a sandbox
 * ineffective for it. With a single id there is no such group: PR_SET_DUMPABLE protects PID 1
 * then, and CAP_SYS_PTRACE is not available inside. */
struct guard {
	gid_t group;
	mode_t mode;
};

static struct guard guard_for_host(const struct host *host)
{
	if (host->rights == RIGHTS_ROOT)
		return (struct guard){.group = getegid(), .mode = 0711};
	return (struct guard){.group = host->daemon_gid, .mode = 0111};
}

/* Whether the existing copy is valid. A crash may have left an incomplete one. */
static bool copy_is_valid(int directory, const char *name, uint64_t wanted,
			  const struct guard *guard)
{
	struct stat info;
	uint64_t hash;
	CLOSE_FD int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	return fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == 0 &&
	       info.st_gid == guard->group && (info.st_mode & 07777) == guard->mode &&
	       file_hash(fd, &hash) == 0 && hash == wanted;
}

static int copy_install(int directory, const char *name, int source, const struct guard *guard)
{
	unlinkat(directory, "new", 0);
	CLOSE_FD int fd =
	    openat(directory, "new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0700);
	if (fd < 0)
		return -errno;
	int result = fd_copy(source, fd, INIT_BYTES_MAX);
	if (result == 0 && (fchown(fd, (uid_t)-1, guard->group) < 0 ||
			    fchmod(fd, guard->mode) < 0 || fsync(fd) < 0))
		result = -errno;
	/* Close before it is executed: a file that is open for writing cannot be (ETXTBSY). */
	fd_close(&fd);
	if (result == 0 && renameat(directory, "new", directory, name) < 0)
		result = -errno;
	return result;
}

/* Sandboxes that run an older copy have it open and do not need its name. */
static void copies_remove_other(int directory, const char *name)
{
	int copy = fcntl(directory, F_DUPFD_CLOEXEC, 3);
	DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
	if (!entries) {
		fd_close(&copy);
		return;
	}
	for (struct dirent *entry; (entry = readdir(entries));)
		if (text_starts(entry->d_name, NAME_PREFIX) && strcmp(entry->d_name, name) != 0)
			unlinkat(directory, entry->d_name, 0);
	closedir(entries);
}

static int build_id_add(struct dl_phdr_info *program, size_t size, void *hash)
{
	(void)size;
	for (size_t i = 0; i < program->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &program->dlpi_phdr[i];
		if (header->p_type == PT_NOTE)
			*(uint64_t *)hash = instance_hash(
			    *(uint64_t *)hash, (const void *)(program->dlpi_addr + header->p_vaddr),
			    header->p_memsz);
	}
	return 1; /* the first is the program itself; the others are its libraries */
}

/* `hash` with this program's build id, which the linker makes of its content. The file may have
 * been replaced since the program was started, so it is not read. */
static uint64_t program_hash(uint64_t hash)
{
	dl_iterate_phdr(build_id_add, &hash);
	return hash;
}

int init_file_install(struct spawner *spawner, struct error *error)
{
	const struct guard guard = guard_for_host(&spawner->host);
	char source_path[SPAWNER_PATH_MAX], directory_path[SPAWNER_PATH_MAX], name[64];
	uint64_t hash;
	CLOSE_FD int source = source_open(source_path, error);
	if (source < 0)
		return -1;
	int result = file_hash(source, &hash);
	if (result < 0)
		return error_set_errno(error, ERROR_INTERNAL, result, "%s", source_path);
	if (text_format(directory_path, sizeof(directory_path), "%s/init", spawner->host.state) < 0)
		return error_set(error, ERROR_CONFIG, "the state directory's path is too long");
	CLOSE_FD int directory = open(directory_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "%s", directory_path);
	snprintf(name, sizeof(name), NAME_PREFIX "%016llx", (unsigned long long)hash);
	result = copy_is_valid(directory, name, hash, &guard)
		     ? 0
		     : copy_install(directory, name, source, &guard);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "copying %s to %s", source_path, directory_path);
	copies_remove_other(directory, name);
	spawner->programs_hash = program_hash(hash);
	spawner->host.init_fd = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (spawner->host.init_fd < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "%s/%s", directory_path, name);
	return 0;
}
