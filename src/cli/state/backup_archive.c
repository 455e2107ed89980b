/* Writes the archive of a backup: tar (pax, sparse entries) compressed with zstd. Called by
 * backup.c; blocks for as long as the copying takes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "cli/state/backup.h"
#include "cli/state/libarchive.h"

#define CHUNK (256 * 1024)

static int archive_error_set(struct archive *archive, const char *what, struct error *error)
{
	int errnum = library.archive_errno(archive);
	const char *text = library.archive_error_string(archive);
	if (errnum > 0)
		return error_set_errno(error, error_kind_of_errno(errnum), errnum, "%s: %s", what,
				       text ? text : "libarchive");
	return error_set(error, ERROR_INTERNAL, "%s: %s", what, text ? text : "libarchive");
}

/* Holes take no space in the archive, but must be passed to libarchive as zeros. */
static int backup_write_zeros(struct archive *archive, uint64_t count)
{
	static const char zeros[4 * 1024 * 1024];
	while (count > 0) {
		la_ssize_t wrote =
		    library.archive_write_data(archive, zeros, (size_t)MIN(count, sizeof(zeros)));
		if (wrote <= 0)
			return -1;
		count -= (uint64_t)wrote;
	}
	return 0;
}

int file_next_data(int fd, uint64_t at, uint64_t size, uint64_t *ret_start, uint64_t *ret_end)
{
	off_t start = lseek(fd, (off_t)at, SEEK_DATA);
	*ret_start = *ret_end = size;
	if (start < 0)
		return errno == ENXIO ? 0 : -errno;
	off_t end = lseek(fd, start, SEEK_HOLE);
	if (end < 0)
		return -errno;
	*ret_start = MIN((uint64_t)start, size);
	*ret_end = MIN((uint64_t)end, size);
	return 0;
}

static int entry_add_sparse(struct archive_entry *entry, int fd, uint64_t size)
{
	uint64_t start, end;
	for (uint64_t at = 0; at < size; at = end) {
		int result = file_next_data(fd, at, size, &start, &end);
		if (result < 0)
			return result;
		if (start < end)
			library.archive_entry_sparse_add_entry(entry, (la_int64_t)start,
							       (la_int64_t)(end - start));
	}
	return 0;
}

/* Writes the range into the archive and the digest. If the file has become shorter meanwhile,
 * zeros. */
static int backup_write_stretch(struct backup *backup, int fd, uint64_t start, uint64_t end,
				struct block_digest *digest, struct error *error)
{
	static char chunk[CHUNK];
	while (start < end) {
		size_t wanted = (size_t)MIN(end - start, sizeof(chunk));
		ssize_t got = pread(fd, chunk, wanted, (off_t)start);
		if (got < 0)
			return error_set_errno(error, error_kind_of_errno(errno), errno, "reading");
		memset(chunk + got, 0, wanted - (size_t)got);
		if (library.archive_write_data(backup->archive, chunk, wanted) !=
		    (la_ssize_t)wanted)
			return archive_error_set(backup->archive, "writing the backup", error);
		if (block_digest_add(digest, start, chunk, wanted) < 0)
			return error_set(error, ERROR_INTERNAL, "SHA-256");
		start += wanted;
		progress_add(&backup->progress, wanted);
	}
	return 0;
}

static int backup_write_contents(struct backup *backup, int fd, struct state_file *file,
				 struct error *error)
{
	struct block_digest digest = {0};
	int result = block_digest_begin(&digest);
	if (result < 0)
		error_set_errno(error, ERROR_INTERNAL, result, "SHA-256");
	uint64_t start, end;
	for (uint64_t at = 0; result == 0 && at < file->size; at = end) {
		result = file_next_data(fd, at, file->size, &start, &end);
		if (result < 0)
			error_set_errno(error, ERROR_INTERNAL, result, "reading");
		else if (backup_write_zeros(backup->archive, start - at) < 0)
			result = archive_error_set(backup->archive, "writing the backup", error);
		else
			result = backup_write_stretch(backup, fd, start, end, &digest, error);
	}
	if (result == 0 && block_digest_end(&digest, file->size, file->digest) < 0)
		result = error_set(error, ERROR_INTERNAL, "SHA-256");
	block_digest_done(&digest);
	return result;
}

static int backup_write_file(struct backup *backup, int fd, struct state_file *file,
			     struct error *error)
{
	struct archive_entry *entry = library.archive_entry_new();
	library.archive_entry_set_pathname(entry, file->path);
	library.archive_entry_set_filetype(entry, AE_IFREG);
	library.archive_entry_set_perm(entry, 0600);
	library.archive_entry_set_size(entry, (la_int64_t)file->size);
	library.archive_entry_set_mtime(entry, clock_wall() / NSEC_PER_SEC, 0);
	int result = entry_add_sparse(entry, fd, file->size);
	if (result < 0)
		error_set_errno(error, ERROR_INTERNAL, result, "%s", file->path);
	else if (library.archive_write_header(backup->archive, entry) != ARCHIVE_OK)
		result = archive_error_set(backup->archive, "writing the backup", error);
	library.archive_entry_free(entry);
	if (result == 0)
		result = backup_write_contents(backup, fd, file, error);
	return result < 0 ? error_prepend(error, "%s", file->path) : 0;
}

static int backup_write_json(struct backup *backup, const char *name, json_t *json,
			     struct error *error)
{
	char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
	json_decref(json);
	if (!text)
		return error_set(error, ERROR_NO_MEMORY, "no memory for %s", name);
	size_t size = strlen(text);
	struct archive_entry *entry = library.archive_entry_new();
	library.archive_entry_set_pathname(entry, name);
	library.archive_entry_set_filetype(entry, AE_IFREG);
	library.archive_entry_set_perm(entry, 0600);
	library.archive_entry_set_size(entry, (la_int64_t)size);
	int result = 0;
	if (library.archive_write_header(backup->archive, entry) != ARCHIVE_OK ||
	    library.archive_write_data(backup->archive, text, size) != (la_ssize_t)size)
		result = archive_error_set(backup->archive, "writing the backup", error);
	library.archive_entry_free(entry);
	free(text);
	return result;
}

/* Opens a file of the manifest; images are open and locked already. */
static int backup_open_listed(struct backup *backup, const struct state_file *file)
{
	const struct open_how how = {.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
				     .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
	if (strcmp(file->path, STATE_DATABASE) == 0)
		return fcntl(backup->database, F_DUPFD_CLOEXEC, 3);
	for (size_t i = 0; i < backup->manifest.sandbox_count; i++)
		if (text_starts(file->path, "sandboxes/") &&
		    memcmp(file->path + 10, backup->manifest.sandboxes[i].id.text, ID_LENGTH) == 0)
			return fcntl(backup->images[i], F_DUPFD_CLOEXEC, 3);
	struct stat info;
	/* The daemon's user controls what is below `logs` and must not choose which file root
	 * reads. */
	CLOSE_FD int state = open(backup->state, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLOSE_FD int fd = state < 0 ? -1 : sys_openat2(state, file->path, &how);
	return fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? TAKE_FD(fd) : -1;
}

static int backup_write_files(struct backup *backup, struct error *error)
{
	if (backup_write_json(backup, STATE_MANIFEST, state_manifest_json(&backup->manifest),
			      error) < 0)
		return -1;
	progress_begin(&backup->progress, "backup", backup->manifest.data);
	for (size_t i = 0; i < backup->manifest.file_count; i++) {
		struct state_file *file = &backup->manifest.files[i];
		CLOSE_FD int fd = backup_open_listed(backup, file);
		/* A log that was deleted meanwhile is stored as zeros. */
		if (fd < 0)
			fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (backup_write_file(backup, fd, file, error) < 0)
			return -1;
	}
	progress_clear(&backup->progress);
	return backup_write_json(backup, STATE_DIGESTS, state_digests_json(&backup->manifest),
				 error);
}

int backup_write_archive(struct backup *backup, int fd, struct error *error)
{
	backup->archive = library.archive_write_new();
	if (!backup->archive)
		return error_set(error, ERROR_NO_MEMORY, "no memory for the archive");
	int result = 0;
	if (library.archive_write_set_format_pax(backup->archive) != ARCHIVE_OK ||
	    library.archive_write_add_filter_zstd(backup->archive) != ARCHIVE_OK ||
	    library.archive_write_set_bytes_in_last_block(backup->archive, 1) != ARCHIVE_OK ||
	    library.archive_write_open_fd(backup->archive, fd) != ARCHIVE_OK)
		result = archive_error_set(backup->archive, "beginning the backup", error);
	if (result == 0)
		result = backup_write_files(backup, error);
	if (result == 0 && library.archive_write_close(backup->archive) != ARCHIVE_OK)
		result = archive_error_set(backup->archive, "finishing the backup", error);
	library.archive_write_free(backup->archive);
	backup->archive = NULL;
	return result;
}
