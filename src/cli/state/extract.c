/* Reads a backup that may be damaged or hostile. A child unpacks it; if root started it, the child
 * is confined to the staging directory and runs as nobody, so that a flaw in the libraries can do
 * no harm outside. It creates only the files that the manifest names, each new, regular and of the
 * stated size; anything else is an error. Called by restore.c; blocks for as long as it takes. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/doctor/doctor.h"
#include "cli/state/state.h"
#include "cli/state/libarchive.h"
#include "store/copy.h"

#define NOBODY 65534
#define READ_BLOCK (64 * 1024)
#define SPACE_KEPT (64 * MIB) /* left free on the disk, whatever the backup says */

struct extraction {
	struct archive *archive;
	struct state_manifest *manifest;
	int directory; /* everything is created below it */
	struct progress progress;
};

static int extraction_damaged(struct extraction *extraction, struct error *error)
{
	const char *text = library.archive_error_string(extraction->archive);
	return error_set(error, ERROR_BACKUP_INVALID, "the backup is damaged or truncated: %s",
			 text ? text : "it ends too early");
}

/* Reads the next entry, which must be a regular file of that name. */
static int extraction_next_entry(struct extraction *extraction, const char *name,
				 uint64_t *ret_size, struct error *error)
{
	struct archive_entry *entry;
	int code = library.archive_read_next_header(extraction->archive, &entry);
	if (code == ARCHIVE_EOF || (code != ARCHIVE_OK && code != ARCHIVE_WARN))
		return extraction_damaged(extraction, error);
	const char *path = library.archive_entry_pathname(entry);
	if (!path || strcmp(path, name) != 0)
		return error_set(error, ERROR_BACKUP_INVALID,
				 "it holds \"%.100s\" where %s should be", path ? path : "?", name);
	if (library.archive_entry_filetype(entry) != AE_IFREG ||
	    library.archive_entry_hardlink(entry) || library.archive_entry_symlink(entry) ||
	    !library.archive_entry_size_is_set(entry) || library.archive_entry_size(entry) < 0)
		return error_set(error, ERROR_BACKUP_INVALID, "%s is not a regular file", name);
	*ret_size = (uint64_t)library.archive_entry_size(entry);
	return 0;
}

static int extraction_read_text(struct extraction *extraction, const char *name, char **ret_text,
				size_t *ret_size, struct error *error)
{
	uint64_t size;
	if (extraction_next_entry(extraction, name, &size, error) < 0)
		return -1;
	if (size > STATE_JSON_MAX)
		return error_set(error, ERROR_BACKUP_INVALID, "%s is too large", name);
	char *text = malloc((size_t)size + 1);
	if (!text)
		return error_set(error, ERROR_NO_MEMORY, "no memory for %s", name);
	la_ssize_t got = library.archive_read_data(extraction->archive, text, (size_t)size);
	if (got < 0 || (uint64_t)got != size) {
		free(text);
		return extraction_damaged(extraction, error);
	}
	*ret_text = text;
	*ret_size = (size_t)size;
	return 0;
}

static int extraction_read_manifest(struct extraction *extraction, struct error *error)
{
	char *text;
	size_t size;
	if (extraction_read_text(extraction, STATE_MANIFEST, &text, &size, error) < 0)
		return -1;
	int result = state_manifest_parse(extraction->manifest, text, size, error);
	free(text);
	struct statvfs space;
	if (result == 0 && fstatvfs(extraction->directory, &space) == 0 &&
	    (uint64_t)space.f_bavail * space.f_frsize < extraction->manifest->data + SPACE_KEPT) {
		char wanted[32];
		bytes_to_text(extraction->manifest->data, wanted);
		result = error_set(error, ERROR_NO_SPACE,
				   "the backup holds %s, more than is free here", wanted);
	}
	return result;
}

/* Makes the directories of a path; its grammar has at most two. */
static int path_make_parents(int directory, const char *path)
{
	char part[64];
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (mkdirat(directory, part, 0700) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int block_write(void *data, uint64_t offset, const uint8_t block[STATE_BLOCK])
{
	const int *file = data;
	ssize_t wrote = pwrite(*file, block, STATE_BLOCK, (off_t)offset);
	return wrote == STATE_BLOCK ? 0 : wrote < 0 ? -errno : -ENOSPC;
}

static int extraction_copy_blocks(struct extraction *extraction, struct state_file *file,
				  struct block_digest *digest, struct error *error)
{
	uint64_t used = 0;
	for (;;) {
		const void *data;
		size_t size;
		la_int64_t offset;
		int code =
		    library.archive_read_data_block(extraction->archive, &data, &size, &offset);
		if (code == ARCHIVE_EOF)
			return 0;
		if (code != ARCHIVE_OK)
			return extraction_damaged(extraction, error);
		used += size;
		if (offset < 0 || (uint64_t)offset > file->size ||
		    size > file->size - (uint64_t)offset || used > file->data)
			return error_set(error, ERROR_BACKUP_INVALID,
					 "%s is larger than its manifest says", file->path);
		int result = block_digest_add(digest, (uint64_t)offset, data, size);
		if (result < 0)
			return error_set_errno(error, error_kind_of_errno(result), result, "%s",
					       file->path);
		progress_add(&extraction->progress, size);
	}
}

static int extraction_write_file(struct extraction *extraction, struct state_file *file,
				 struct error *error)
{
	uint64_t size;
	if (extraction_next_entry(extraction, file->path, &size, error) < 0)
		return -1;
	if (size != file->size)
		return error_set(error, ERROR_BACKUP_INVALID,
				 "%s does not have the size that its manifest says", file->path);
	int result = path_make_parents(extraction->directory, file->path);
	CLOSE_FD int fd = result < 0
			      ? -1
			      : openat(extraction->directory, file->path,
				       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (result < 0 || fd < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s", file->path);
	struct block_digest digest = {.each = block_write, .data = &fd};
	result = block_digest_begin(&digest) < 0
		     ? error_set(error, ERROR_NO_MEMORY, "SHA-256")
		     : extraction_copy_blocks(extraction, file, &digest, error);
	/* The last block may extend beyond the file's size. */
	if (result == 0 && (block_digest_end(&digest, file->size, file->digest) < 0 ||
			    ftruncate(fd, (off_t)file->size) < 0))
		result =
		    error_set_errno(error, error_kind_of_errno(errno), errno, "%s", file->path);
	block_digest_done(&digest);
	return result;
}

static int extraction_check_end(struct extraction *extraction, struct error *error)
{
	char *text;
	size_t size;
	if (extraction_read_text(extraction, STATE_DIGESTS, &text, &size, error) < 0)
		return -1;
	int result = state_digests_check(extraction->manifest, text, size, error);
	free(text);
	struct archive_entry *entry;
	if (result == 0 &&
	    library.archive_read_next_header(extraction->archive, &entry) != ARCHIVE_EOF)
		result = error_set(error, ERROR_BACKUP_INVALID, "it has data after its end");
	return result;
}

static int extraction_run(struct extraction *extraction, int fd, struct error *error)
{
	struct archive *archive = extraction->archive = library.archive_read_new();
	if (!archive)
		return error_set(error, ERROR_NO_MEMORY, "no memory for the archive");
	int result = 0, version;
	if (library.archive_read_support_filter_zstd(archive) != ARCHIVE_OK ||
	    library.archive_read_support_format_tar(archive) != ARCHIVE_OK ||
	    library.archive_read_open_fd(archive, fd, READ_BLOCK) != ARCHIVE_OK)
		result = error_set(error, ERROR_BACKUP_INVALID, "it is not a caisson backup: %s",
				   library.archive_error_string(archive));
	if (result == 0)
		result = extraction_read_manifest(extraction, error);
	if (result == 0)
		progress_begin(&extraction->progress, "restore", extraction->manifest->data);
	for (size_t i = 0; result == 0 && i < extraction->manifest->file_count; i++)
		result = extraction_write_file(extraction, &extraction->manifest->files[i], error);
	progress_clear(&extraction->progress);
	if (result == 0)
		result = extraction_check_end(extraction, error);
	library.archive_read_free(archive);
	if (result == 0 && fchdir(extraction->directory) < 0)
		result = error_set_errno(error, ERROR_INTERNAL, errno, "the staging directory");
	if (result == 0)
		result = store_copy_examine(STATE_DATABASE, &version, error);
	int64_t age = clock_wall() - extraction->manifest->created;
	if (result == 0 && age > 0)
		result = store_copy_defer_deadlines(STATE_DATABASE, age, error);
	return result;
}

/* Becomes nobody, in a root directory that holds only what is unpacked. `channel` leads to the
 * process that waits. */
static int worker_give_up_rights(int directory, int channel, struct error *error)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "giving up rights");
	if (geteuid() == 0 && (fchdir(directory) < 0 || chroot(".") < 0))
		return error_set_errno(error, ERROR_INTERNAL, errno, "giving up rights");
	/* Root of a namespace with one id cannot become nobody: it keeps its id and no capability.
	 */
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};
	bool others = fchown(directory, NOBODY, NOBODY) == 0;
	if (others && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
		       setresuid(NOBODY, NOBODY, NOBODY) < 0))
		return error_set_errno(error, ERROR_INTERNAL, errno, "giving up rights");
	if (syscall(SYS_capset, &header, none) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "giving up rights");
	/* Ends with its parent; changing ids would clear this. If nobody reads the channel any
	 * more, the parent is gone: a parent outside the pid namespace has no pid here. */
	struct pollfd polled = {.fd = channel};
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
	    poll(&polled, 1, 0) != 0)
		return error_set(error, ERROR_CANCELLED, "the restore was ended");
	return 0;
}

/* What the child sends at the end: its error, and the manifest that it read. */
struct extraction_outcome {
	struct error error;
	size_t sandbox_count, file_count;
	struct state_sandbox sandboxes[STATE_SLOTS];
	bool database_only;
	enum rights rights;
};

static void worker_run(int archive, int directory, int channel)
{
	struct state_manifest manifest = {0};
	struct extraction extraction = {.manifest = &manifest, .directory = directory};
	struct extraction_outcome *outcome = calloc(1, sizeof(*outcome));
	if (!outcome)
		_exit(1);
	umask(077);
	doctor_close_all_but((const int[]){archive, directory, channel}, 3);
	if (worker_give_up_rights(directory, channel, &outcome->error) == 0 &&
	    extraction_run(&extraction, archive, &outcome->error) == 0)
		outcome->error.kind = ERROR_NONE;
	else if (outcome->error.kind == ERROR_NONE)
		error_set(&outcome->error, ERROR_INTERNAL, "unpacking");
	outcome->sandbox_count = manifest.sandbox_count;
	outcome->file_count = manifest.file_count;
	outcome->database_only = manifest.database_only;
	outcome->rights = manifest.rights;
	memcpy(outcome->sandboxes, manifest.sandboxes, sizeof(outcome->sandboxes));
	_exit(fd_write_full(channel, outcome, sizeof(*outcome)) < 0);
}

/* The child has read hostile bytes: its manifest is checked again. */
static bool outcome_is_sane(const struct extraction_outcome *outcome)
{
	if (outcome->sandbox_count > STATE_SLOTS || outcome->file_count > STATE_FILES_MAX ||
	    outcome->rights > RIGHTS_ONE_ID)
		return false;
	for (size_t i = 0; i < outcome->sandbox_count; i++) {
		const struct state_sandbox *sandbox = &outcome->sandboxes[i];
		if (sandbox->id.text[ID_LENGTH] != '\0' || !id_valid(sandbox->id.text) ||
		    sandbox->slot >= STATE_SLOTS || sandbox->tier[sizeof(sandbox->tier) - 1] ||
		    strspn(sandbox->tier, "abcdefghijklmnopqrstuvwxyz") != strlen(sandbox->tier))
			return false;
	}
	return true;
}

/* Starts the worker; as root in a pid and a network namespace of its own. When it has ended, so has
 * every process that it may have started, and none could pass a descriptor to another process (an
 * abstract socket belongs to the network namespace). So no other process has a restored file open.
 */
static pid_t worker_start(void)
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	if (geteuid() == 0)
		args.flags = CLONE_NEWPID | CLONE_NEWNET;
	pid_t child = sys_clone3(&args);
	/* Root in a container that may create no namespaces continues without them. */
	if (child == -EPERM && args.flags != 0) {
		args.flags = 0;
		child = sys_clone3(&args);
	}
	return child;
}

int state_extract(int archive, const char *directory, struct state_manifest *manifest,
		  struct error *error)
{
	int ends[2];
	CLOSE_FD int place = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (place < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s", directory);
	CLOSE_FD int reader = ends[0], writer = ends[1];
	struct extraction_outcome *outcome = calloc(1, sizeof(*outcome));
	if (!outcome)
		return error_set(error, ERROR_NO_MEMORY, "no memory");
	fflush(NULL);
	pid_t child = worker_start();
	if (child == 0)
		worker_run(archive, place, writer);
	fd_close(&writer);
	int result = child < 0 ? (int)child : fd_read_full(reader, outcome, sizeof(*outcome));
	if (child > 0)
		waitpid(child, NULL, 0);
	outcome->error.message[sizeof(outcome->error.message) - 1] = '\0';
	if (child < 0)
		result =
		    error_set_errno(error, error_kind_of_errno(result), result, "unpacking it");
	else if (result < 0 || !outcome_is_sane(outcome))
		result = error_set(error, ERROR_BACKUP_INVALID, "unpacking it failed");
	else if (outcome->error.kind != ERROR_NONE) {
		*error = outcome->error;
		result = -1;
	}
	manifest->sandbox_count = outcome->sandbox_count;
	manifest->file_count = outcome->file_count;
	manifest->database_only = outcome->database_only;
	manifest->rights = outcome->rights;
	memcpy(manifest->sandboxes, outcome->sandboxes, sizeof(outcome->sandboxes));
	free(outcome);
	return result;
}
