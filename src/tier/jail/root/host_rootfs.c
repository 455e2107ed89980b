/* Template `host` on disk, below <state>/templates/host (root's, 0700):
 *   <64 hex>/   a skeleton, named by the digest of what it was made of; never changed once it
 *               has that name
 *   current     a link to the one that boots use
 *   new-<hex>/  one that is being made, or a leftover of a spawner that died
 *
 * Without root, and with a range of ids, there is a second such directory, host-user. Owners cannot
 * be mapped then, and sandboxes with folders have another id as root than those without. See
 * host_rootfs.h. The only writer is the spawner, which holds the state directory's lock. */
#include "tier/jail/root/host_rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/random.h"
#include "base/text.h"
#include "tier/jail/root/skeleton.h"
#include "tier/remove_tree.h"

_Static_assert(ROOTFS_DIGEST_TEXT == SKELETON_DIGEST_TEXT, "one digest");

#define CURRENT "current"

/* Makes the directory when it does not exist; an existing one is not changed. */
static int directory_open_or_make(int parent, const char *name, mode_t mode)
{
	bool made = mkdirat(parent, name, mode) == 0;
	if (!made && errno != EEXIST)
		return -errno;
	CLOSE_FD int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || (made && fchmod(fd, mode) < 0)) /* independent of the umask */
		return -errno;
	return TAKE_FD(fd);
}

/* Opens <state>/templates/host, and makes it if needed. */
static int templates_open(const struct host *host, const struct sandbox_ids *ids,
			  struct error *error)
{
	bool of_user = host->rights == RIGHTS_SUBUIDS && ids->owner == 0;
	const char *name = of_user ? "host-user" : "host";
	CLOSE_FD int state = open(host->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLOSE_FD int templates =
	    state < 0 ? -errno : directory_open_or_make(state, "templates", 0711);
	int fd = templates < 0 ? templates : directory_open_or_make(templates, name, 0700);
	if (fd < 0)
		return error_set_errno(error, error_kind_of_errno(-fd), fd, "%s/templates/%s",
				       host->state, name);
	return fd;
}

static int host_root_open(struct error *error)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "opening the root directory");
	return fd;
}

static int current_read(int templates, char digest[ROOTFS_DIGEST_TEXT])
{
	char link[ROOTFS_DIGEST_TEXT + 1];
	ssize_t length = readlinkat(templates, CURRENT, link, sizeof(link) - 1);
	if (length < 0)
		return -errno;
	link[length] = '\0';
	return rootfs_digest_valid(link) ? text_copy(digest, ROOTFS_DIGEST_TEXT, link) : -EBADMSG;
}

static bool skeleton_is_complete(int templates, const char *digest)
{
	struct stat status;
	return fstatat(templates, digest, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISDIR(status.st_mode);
}

/* A running sandbox has a directory below <runtime>/guests. Without any, no overlay uses a
 * skeleton. Errors count as yes. */
static bool guests_may_run(const struct host *host)
{
	char path[sizeof(host->runtime) + 16];
	if (text_format(path, sizeof(path), "%s/guests", host->runtime) < 0)
		return true;
	DIR *stream = opendir(path);
	if (!stream)
		return errno != ENOENT;
	bool found = false;
	for (struct dirent *entry; !found && (entry = readdir(stream)) != NULL;)
		found = entry->d_name[0] != '.';
	closedir(stream);
	return found;
}

/* Always removes half-made skeletons, and old ones when none is in use. What cannot be removed
 * is tried again by the next spawner. */
static void skeletons_remove_unused(const struct host *host, int templates, const char *digest)
{
	bool keep_old = guests_may_run(host);
	int fd = openat(templates, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	if (!stream) {
		fd_close(&fd);
		return;
	}
	for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
		bool old = rootfs_digest_valid(entry->d_name) && strcmp(entry->d_name, digest) != 0;
		if (text_starts(entry->d_name, "new-") || text_starts(entry->d_name, "link-") ||
		    (old && !keep_old))
			(void)!remove_tree(templates, entry->d_name);
	}
	closedir(stream);
}

struct building {
	int host_root, directory;
};

static int skeleton_build_as_root(void *data, struct error *error)
{
	const struct building *building = data;
	umask(022);
	return skeleton_build(building->host_root, building->directory, error);
}

/* Where owners can be mapped, the files get the owners that they have inside. Otherwise the
 * skeleton is made with the ids of the sandbox's root. */
static int skeleton_build_owned(const struct host *host, const struct sandbox_ids *ids,
				struct building *building, struct error *error)
{
	if (host->rights != RIGHTS_SUBUIDS)
		return skeleton_build(building->host_root, building->directory, error);
	if (fchown(building->directory, ids->owner, ids->owner) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "skeleton");
	return ids_call_as_root(host, ids, skeleton_build_as_root, building, error);
}

static int skeleton_make(const struct host *host, const struct sandbox_ids *ids, int host_root,
			 int templates, const char *digest, struct error *error)
{
	char name[32];
	snprintf(name, sizeof(name), "new-%016llx", (unsigned long long)random_u64());
	CLOSE_FD int fd = directory_open_or_make(templates, name, 0755);
	if (fd < 0)
		return error_set_errno(error, error_kind_of_errno(-fd), fd, "skeleton");
	struct building building = {.host_root = host_root, .directory = fd};
	int failed = skeleton_build_owned(host, ids, &building, error);
	/* Synced before the rename: a skeleton with its final name counts as complete, also after
	 * a power cut. */
	if (failed == 0 && (syncfs(fd) < 0 || renameat(templates, name, templates, digest) < 0))
		failed = error_set_errno(error, error_kind_of_errno(errno), errno, "skeleton");
	if (failed < 0)
		(void)!remove_tree(templates, name);
	return failed;
}

static int current_set(int templates, const char *digest, struct error *error)
{
	char name[32];
	snprintf(name, sizeof(name), "link-%016llx", (unsigned long long)random_u64());
	if (symlinkat(digest, templates, name) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "skeleton");
	if (renameat(templates, name, templates, CURRENT) < 0) {
		error_set_errno(error, error_kind_of_errno(errno), errno, "skeleton");
		(void)!unlinkat(templates, name, 0);
		return -1;
	}
	return 0;
}

static int skeleton_prepare(const struct host *host, bool has_folders,
			    char ret_digest[ROOTFS_DIGEST_TEXT], struct error *error)
{
	struct sandbox_ids ids;
	char digest[ROOTFS_DIGEST_TEXT], current[ROOTFS_DIGEST_TEXT];
	ids_for_slot(host, 0, has_folders, &ids);
	CLOSE_FD int templates = templates_open(host, &ids, error);
	CLOSE_FD int host_root = templates < 0 ? -1 : host_root_open(error);
	if (host_root < 0 || skeleton_digest(host_root, digest, error) < 0)
		return -1;
	bool there = skeleton_is_complete(templates, digest);
	if (!there && skeleton_make(host, &ids, host_root, templates, digest, error) < 0)
		return -1;
	if (current_read(templates, current) < 0 || strcmp(current, digest) != 0) {
		if (current_set(templates, digest, error) < 0)
			return -1;
	}
	skeletons_remove_unused(host, templates, digest);
	memcpy(ret_digest, digest, sizeof(digest));
	return 0;
}

int host_rootfs_prepare(const struct host *host, char ret_digest[ROOTFS_DIGEST_TEXT],
			struct error *error)
{
	char with_folders[ROOTFS_DIGEST_TEXT];
	if (skeleton_prepare(host, false, ret_digest, error) < 0)
		return -1;
	return host->rights == RIGHTS_SUBUIDS ? skeleton_prepare(host, true, with_folders, error)
					      : 0;
}

static int rootfs_open_binds(int host_root, struct rootfs *rootfs, struct error *error)
{
	for (size_t i = 0; i < SKELETON_PLACES; i++) {
		const struct skeleton_place *place = &skeleton_places[i];
		int bound = skeleton_place_is_bound(host_root, place);
		int fd = bound > 0 ? openat(host_root, place->name,
					    O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
				   : -1;
		if (bound < 0 || (bound > 0 && fd < 0))
			return error_set_errno(error, ERROR_TEMPLATE_UNAVAILABLE,
					       bound < 0 ? bound : errno, "/%s", place->name);
		if (fd < 0)
			continue;
		rootfs->bind_places[rootfs->bind_count] = place->place;
		rootfs->binds[rootfs->bind_count++] = fd;
	}
	return 0;
}

int host_rootfs_open(const struct host *host, const char *digest, const struct sandbox_ids *ids,
		     struct rootfs *ret_rootfs, struct error *error)
{
	CLEANUP(rootfs_done) struct rootfs rootfs = {.lower_count = 0};
	struct sandbox_ids usual;
	ids_for_slot(host, 0, false, &usual);
	CLOSE_FD int templates = templates_open(host, ids ? ids : &usual, error);
	CLOSE_FD int host_root = templates < 0 ? -1 : host_root_open(error);
	if (host_root < 0)
		return -1;
	int failed = *digest ? text_copy(rootfs.digest, sizeof(rootfs.digest), digest)
			     : current_read(templates, rootfs.digest);
	int skeleton = failed < 0 ? failed
				  : openat(templates, rootfs.digest,
					   O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (skeleton < 0)
		return error_set_errno(error, ERROR_TEMPLATE_UNAVAILABLE,
				       failed < 0 ? failed : errno, "no skeleton");
	rootfs.lowers[rootfs.lower_count++] = skeleton;
	if (rootfs_open_binds(host_root, &rootfs, error) < 0)
		return -1;
	*ret_rootfs = rootfs;
	rootfs.lower_count = rootfs.bind_count = 0;
	return 0;
}
