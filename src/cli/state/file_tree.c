/* Sandboxes whose files are in a plain directory (without root there are no images). Packs such a
 * tree into a tar file, which a backup holds like an image, and unpacks it. Both are done in a
 * child whose root directory is that tree and that has only the rights it needs on files. Called by
 * backup.c and restore.c; blocks for as long as it takes. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"
#include "cli/state/state.h"
#include "cli/state/libarchive.h"

#define CHUNK (64 * 1024)
#define TREE_TIMEOUT_MS (24 * 3600 * 1000)

struct tree_job {
	int directory;  /* the tree */
	int archive;    /* the tar file */
	uint32_t owner; /* for unpacking, see state_tree_unpack() */
};

#define BIT(capability) (1u << (capability))
#define CAPABILITIES                                                                               \
	(BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_FOWNER) |     \
	 BIT(CAP_FSETID) | BIT(CAP_SETFCAP))

/* Confines the child: it may set owners and modes and enter any directory within this tree. A
 * descriptor of a directory outside would lead out of it. */
static int worker_confine(const struct tree_job *job)
{
	int directory = job->directory;
	doctor_close_all_but((const int[]){directory, job->archive}, 2);
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2] = {
	    {.effective = CAPABILITIES, .permitted = CAPABILITIES}};
	if (fchdir(directory) < 0 || chroot(".") < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, sets) < 0)
		return -errno;
	umask(0);
	return 0;
}

static int archive_problem_report(char *text, size_t room, const char *what,
				  struct archive *archive)
{
	const char *why = library.archive_error_string(archive);
	snprintf(text, room, "%s: %s", what, why ? why : strerror(errno));
	return 1;
}

/* The work directory of an overlay, which is made anew at each start. */
static bool path_is_scratch(const char *path)
{
	if (text_starts(path, "./"))
		path += 2;
	if (text_starts(path, "cow/")) {
		path = strchr(path + 4, '/');
		path = path ? path + 1 : "";
	}
	return strcmp(path, "work") == 0 || text_starts(path, "work/");
}

static int entry_copy_data(struct archive *from, struct archive *to, int64_t size)
{
	static const char zeros[CHUNK];
	la_int64_t at = 0, offset;
	const void *data;
	size_t count;
	for (;;) {
		int code = library.archive_read_data_block(from, &data, &count, &offset);
		bool last = code == ARCHIVE_EOF;
		if (code != ARCHIVE_OK && !last)
			return -1;
		la_int64_t until = last ? size : MIN(offset, size);
		while (at < until) {
			size_t part = (size_t)MIN(until - at, (la_int64_t)sizeof(zeros));
			if (library.archive_write_data(to, zeros, part) < 0)
				return -1;
			at += (la_int64_t)part;
		}
		if (last)
			return 0;
		if (library.archive_write_data(to, data, count) < 0)
			return -1;
		at += (la_int64_t)count;
	}
}

static int tree_pack_entry(struct archive *disk, struct archive *archive,
			   struct archive_entry_linkresolver *links, struct archive_entry *entry)
{
	struct archive_entry *spare = NULL;
	/* A socket's file is useless without the process that listens. */
	if (library.archive_entry_filetype(entry) == AE_IFSOCK)
		return 0;
	library.archive_entry_linkify(links, &entry, &spare);
	if (!entry)
		return 0;
	int code = library.archive_write_header(archive, entry);
	if (code != ARCHIVE_OK && code != ARCHIVE_WARN)
		return -1;
	int64_t size = library.archive_entry_size(entry);
	if (library.archive_entry_filetype(entry) != AE_IFREG || size <= 0)
		return 0;
	return entry_copy_data(disk, archive, size);
}

static int tree_pack_entries(struct archive *disk, struct archive *archive, char *text, size_t room)
{
	struct archive_entry_linkresolver *links = library.archive_entry_linkresolver_new();
	struct archive_entry *entry = library.archive_entry_new();
	int result = 0;
	library.archive_entry_linkresolver_set_strategy(links, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE);
	for (;;) {
		int code = library.archive_read_next_header2(disk, entry);
		if (code == ARCHIVE_EOF)
			break;
		if (code != ARCHIVE_OK && code != ARCHIVE_WARN) {
			result = archive_problem_report(text, room, "reading", disk);
			break;
		}
		if (path_is_scratch(library.archive_entry_pathname(entry)))
			continue;
		library.archive_read_disk_descend(disk);
		if (tree_pack_entry(disk, archive, links, entry) < 0) {
			result = archive_problem_report(
			    text, room, library.archive_entry_pathname(entry), archive);
			break;
		}
		library.archive_entry_clear(entry);
	}
	library.archive_entry_free(entry);
	library.archive_entry_linkresolver_free(links);
	return result;
}

static int tree_pack(void *data, char *text, size_t room)
{
	const struct tree_job *job = data;
	struct archive *disk = library.archive_read_disk_new();
	struct archive *archive = library.archive_write_new();
	if (!disk || !archive || worker_confine(job) < 0)
		return snprintf(text, room, "giving up rights: %s", strerror(errno)) > 0;
	library.archive_read_disk_set_symlink_physical(disk);
	library.archive_read_disk_set_behavior(disk, ARCHIVE_READDISK_NO_TRAVERSE_MOUNTS |
							 ARCHIVE_READDISK_NO_FFLAGS);
	int result;
	if (library.archive_write_set_format_pax(archive) != ARCHIVE_OK ||
	    library.archive_write_open_fd(archive, job->archive) != ARCHIVE_OK)
		result = archive_problem_report(text, room, "beginning", archive);
	else if (library.archive_read_disk_open(disk, ".") != ARCHIVE_OK)
		result = archive_problem_report(text, room, "opening", disk);
	else
		result = tree_pack_entries(disk, archive, text, room);
	if (result == 0 && library.archive_write_close(archive) != ARCHIVE_OK)
		result = archive_problem_report(text, room, "finishing", archive);
	return result;
}

/* The only device allowed is the mark that an overlay leaves for a deleted name. */
static bool entry_may_unpack(struct archive_entry *entry)
{
	switch (library.archive_entry_filetype(entry)) {
	case AE_IFREG:
	case AE_IFDIR:
	case AE_IFLNK:
	case AE_IFIFO:
		return true;
	case AE_IFCHR:
		return library.archive_entry_rdevmajor(entry) == 0 &&
		       library.archive_entry_rdevminor(entry) == 0;
	default:
		/* A hard link has no file type. */
		return library.archive_entry_hardlink(entry) != NULL;
	}
}

static bool id_is_in_range(int64_t id, uint32_t owner)
{
	return id >= owner && id - owner < UID_RANGE_SIZE;
}

/* The directories around the layers belong to root. */
static bool entry_is_frame(struct archive_entry *entry, const char *path)
{
	if (text_starts(path, "./"))
		path += 2;
	if (text_starts(path, "cow/"))
		path += strspn(path + 4, "0123456789") + 4;
	else if (strcmp(path, "cow") == 0 || strcmp(path, ".") == 0)
		path = "";
	return (!*path || strcmp(path, "/") == 0) &&
	       library.archive_entry_filetype(entry) == AE_IFDIR &&
	       library.archive_entry_uid(entry) == 0 && library.archive_entry_gid(entry) == 0;
}

/* File capabilities are valid on the host unless they name the root user of a user namespace. */
static bool entry_capabilities_are_inner(struct archive_entry *entry, uint32_t owner)
{
	const char *name;
	const void *value;
	size_t size;
	library.archive_entry_xattr_reset(entry);
	while (library.archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
		struct vfs_ns_cap_data data;
		if (!name || strcmp(name, "security.capability") != 0)
			continue;
		if (size != sizeof(data))
			return false;
		memcpy(&data, value, sizeof(data));
		if ((le32toh(data.magic_etc) & VFS_CAP_REVISION_MASK) != VFS_CAP_REVISION_3 ||
		    !id_is_in_range(le32toh(data.rootid), owner))
			return false;
	}
	return true;
}

/* Root can give a file any owner, so check that all of a sandbox's files belong to its ids. A
 * set-uid file of theirs gives no rights on the host. An overlay's mark is a device without any
 * use. */
static bool entry_belongs_to_sandbox(struct archive_entry *entry, const char *path, uint32_t owner)
{
	if (owner == 0 || library.archive_entry_filetype(entry) == AE_IFCHR ||
	    entry_is_frame(entry, path))
		return true;
	return id_is_in_range(library.archive_entry_uid(entry), owner) &&
	       id_is_in_range(library.archive_entry_gid(entry), owner) &&
	       entry_capabilities_are_inner(entry, owner);
}

static int tree_unpack_entries(struct archive *archive, struct archive *disk, uint32_t owner,
			       char *text, size_t room)
{
	struct archive_entry *entry;
	for (;;) {
		int code = library.archive_read_next_header(archive, &entry);
		if (code == ARCHIVE_EOF)
			return 0;
		if (code != ARCHIVE_OK && code != ARCHIVE_WARN)
			return archive_problem_report(text, room, "reading", archive);
		const char *path = library.archive_entry_pathname(entry);
		if (!path || !entry_may_unpack(entry))
			return snprintf(text, room, "it holds a device") > 0;
		if (!entry_belongs_to_sandbox(entry, path, owner))
			return snprintf(text, room, "%.100s does not belong to the sandbox", path) >
			       0;
		/* A warning means that an attribute was not set. */
		if (library.archive_read_extract2(archive, entry, disk) != ARCHIVE_OK)
			return archive_problem_report(text, room, path, archive);
	}
}

static int tree_unpack(void *data, char *text, size_t room)
{
	const struct tree_job *job = data;
	struct archive *archive = library.archive_read_new();
	struct archive *disk = library.archive_write_disk_new();
	if (!disk || !archive || worker_confine(job) < 0)
		return snprintf(text, room, "giving up rights: %s", strerror(errno)) > 0;
	library.archive_write_disk_set_options(
	    disk, ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME |
		      ARCHIVE_EXTRACT_XATTR | ARCHIVE_EXTRACT_ACL | ARCHIVE_EXTRACT_SPARSE |
		      ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
		      ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
	int result;
	if (library.archive_read_support_format_tar(archive) != ARCHIVE_OK ||
	    library.archive_read_open_fd(archive, job->archive, CHUNK) != ARCHIVE_OK)
		result = archive_problem_report(text, room, "opening", archive);
	else
		result = tree_unpack_entries(archive, disk, job->owner, text, room);
	if (result == 0 && library.archive_write_close(disk) != ARCHIVE_OK)
		result = archive_problem_report(text, room, "finishing", disk);
	return result;
}

static int tree_job_run(int (*work)(void *data, char *text, size_t room), struct tree_job job,
			struct error *error)
{
	char text[ERROR_MESSAGE_MAX - 64];
	int result = doctor_run_child(work, &job, TREE_TIMEOUT_MS, text, sizeof(text));
	if (result == 0)
		return 0;
	return error_set(error, work == tree_unpack ? ERROR_BACKUP_INVALID : ERROR_INTERNAL,
			 "its files: %s", *text ? text : "the process was ended");
}

int state_tree_pack(int directory, int archive, struct error *error)
{
	return tree_job_run(tree_pack,
			    (struct tree_job){.directory = directory, .archive = archive}, error);
}

int state_tree_unpack(int archive, int directory, uint32_t owner, struct error *error)
{
	/* The host's own ids belong to no sandbox. */
	if (owner != 0 && (owner < UID_RANGE_BASE || owner > UINT32_MAX - UID_RANGE_SIZE))
		return error_set(error, ERROR_BACKUP_INVALID,
				 "its files: the backup claims that they belong to uid %u", owner);
	return tree_job_run(
	    tree_unpack,
	    (struct tree_job){.directory = directory, .archive = archive, .owner = owner}, error);
}
