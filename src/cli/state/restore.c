/* `caisson state restore`: unpacks a backup beside the existing state, checks all of it, and only
 * then puts it in place. It is unpacked into <state>/restore. The mark `restore/ready` says that it
 * is complete and is being put in place; if this restore is killed then, a later one finishes it,
 * and the daemon does not start while the mark exists. Holds the spawner's lock; blocks for as long
 * as it takes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/state/state.h"
#include "cli/state/libarchive.h"
#include "tier/live_guests.h"
#include "tier/remove_tree.h"

#define STAGING "restore"
#define READY STAGING "/ready"
/* In `restore`. As root it belongs to nobody while it is unpacked; other processes of nobody cannot
 * reach it, since only we may enter the directory above. */
#define UNPACKED "unpacked"

/* The parts of a backup; each replaces the existing one as a whole. */
static const char *const state_parts[] = {"db", "logs", "sandboxes"};

static int state_lock_take(int state, const char *name, bool root, struct error *error)
{
	CLOSE_FD int lock = openat(state, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s/lock", name);
	if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
		char pid[16] = "";
		ssize_t got = pread(lock, pid, sizeof(pid) - 1, 0);
		pid[got > 0 ? strspn(pid, "0123456789") : 0] = '\0';
		return error_set(error, ERROR_DAEMON_CONFLICT,
				 "a daemon serves %s: end it first (%s`kill %s`)", name,
				 root ? "`systemctl stop caisson`, or " : "", *pid ? pid : "PID");
	}
	return TAKE_FD(lock);
}

static bool directory_is_empty(int state, const char *name)
{
	CLOSE_FD int fd = openat(state, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	DIR *entries = fdopendir(fd);
	if (!entries)
		return false;
	fd = -1;
	bool empty = true;
	for (struct dirent *entry; empty && (entry = readdir(entries));)
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	closedir(entries);
	return empty;
}

static bool id_is_wanted(const void *wanted, const char *id)
{
	return strcmp(id, wanted) == 0;
}

/* The daemon is down, but sandboxes outlive it. A sandbox runs if the record of its boot says so,
 * or if its image is locked, as it is while mounted. */
static bool sandbox_still_runs(int sandboxes, const char *runtime, const char *id)
{
	char path[64];
	if (live_guests_any(runtime, id_is_wanted, id))
		return true;
	if (text_format(path, sizeof(path), "%s/disk.img", id) < 0)
		return false;
	CLOSE_FD int image = openat(sandboxes, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return image >= 0 && flock(image, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* Running sandboxes would go on writing to files that have been replaced. */
static int sandboxes_check_stopped(int state, const char *name, const char *runtime,
				   struct error *error)
{
	DONE_BUFFER struct buffer running = BUFFER(8192);
	int fd = openat(state, "sandboxes", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	if (!entries) {
		fd_close(&fd);
		return 0;
	}
	struct id id;
	for (struct dirent *entry; (entry = readdir(entries));)
		if (id_parse(entry->d_name, &id) == 0 && sandbox_still_runs(fd, runtime, id.text) &&
		    buffer_printf(&running, "%s%s", running.size ? ", " : "", id.text) < 0)
			break;
	closedir(entries);
	if (running.size == 0)
		return 0;
	return error_set(error, ERROR_SANDBOX_STATE,
			 "these sandboxes of %s still run: %.300s. Start the daemon (`caisson "
			 "serve`), stop or remove them, and end it again",
			 name, running.data);
}

static int state_directory_sync(int state)
{
	return syncfs(state) < 0 ? -errno : 0;
}

/* Exchanges each part with the existing one in one step. A part that is done is no longer in
 * `restore`, so this can be repeated. */
static int parts_put_in_place(int state)
{
	char from[32], old[32];
	int result = 0;
	for (size_t i = 0; result == 0 && i < ARRAY_SIZE(state_parts); i++) {
		snprintf(from, sizeof(from), STAGING "/%s", state_parts[i]);
		snprintf(old, sizeof(old), STAGING "/old-%s", state_parts[i]);
		if (faccessat(state, from, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (renameat(state, state_parts[i], state, old) < 0 && errno != ENOENT)
			result = -errno;
		else if (renameat(state, from, state, state_parts[i]) < 0)
			result = -errno;
	}
	if (result == 0)
		result = state_directory_sync(state);
	if (result == 0 && unlinkat(state, READY, 0) < 0)
		result = -errno;
	return result;
}

/* Handles the leftovers of an earlier restore: finishes it if it was ready, else removes it. 1: it
 * was finished. */
static int earlier_restore_settle(int state, struct error *error)
{
	int result = 0;
	bool ready = faccessat(state, READY, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	if (ready)
		result = parts_put_in_place(state);
	if (result == 0)
		result = remove_tree(state, STAGING);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "leftovers of an earlier restore in " STAGING "/");
	return ready ? 1 : 0;
}

static int text_file_write(int directory, const char *path, const char *text)
{
	CLOSE_FD int fd =
	    openat(directory, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd_write_full(fd, text, strlen(text));
}

/* Everything that nobody unpacked becomes ours; the spawner later gives the daemon its part. */
static int tree_take_ownership(int parent, const char *name, int depth)
{
	struct stat info;
	CLOSE_FD int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info) < 0 || fchown(fd, geteuid(), getegid()) < 0)
		return -errno;
	if (S_ISREG(info.st_mode))
		return info.st_nlink == 1 && fchmod(fd, 0600) == 0 ? 0 : -EINVAL;
	if (!S_ISDIR(info.st_mode) || depth == 0 || fchmod(fd, 0700) < 0)
		return -EINVAL;
	DIR *entries = fdopendir(dup(fd));
	if (!entries)
		return -errno;
	int result = 0;
	for (struct dirent *entry; result == 0 && (entry = readdir(entries));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			result = tree_take_ownership(fd, entry->d_name, depth - 1);
	closedir(entries);
	return result;
}

/* Writes the slot by which the spawner finds a sandbox, and the owner of the ids in its image. */
static int sandbox_records_write(int staging, const struct state_manifest *manifest)
{
	int result = 0;
	for (size_t i = 0; result == 0 && i < manifest->sandbox_count; i++) {
		const struct state_sandbox *sandbox = &manifest->sandboxes[i];
		char path[64], text[64];
		snprintf(path, sizeof(path), "sandboxes/%s/slot", sandbox->id.text);
		snprintf(text, sizeof(text), "%u %s\n", sandbox->slot, sandbox->tier);
		result = text_file_write(staging, path, text);
		snprintf(path, sizeof(path), "sandboxes/%s/owner", sandbox->id.text);
		snprintf(text, sizeof(text), "%u\n", sandbox->owner);
		if (result == 0)
			result = text_file_write(staging, path, text);
	}
	return result;
}

static int sandbox_tree_unpack(int directory, const struct state_sandbox *sandbox,
			       enum rights rights, struct error *error)
{
	const char *id = sandbox->id.text;
	CLOSE_FD int archive = openat(directory, "files.tar", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (archive < 0)
		return 0;
	if (mkdirat(directory, "files", 0711) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "sandbox %s", id);
	CLOSE_FD int tree =
	    openat(directory, "files", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	uint32_t owner = rights == RIGHTS_ROOT ? MAX(sandbox->owner, 1u) : 0;
	if (tree < 0 || state_tree_unpack(archive, tree, owner, error) < 0)
		return tree < 0 ? error_set_errno(error, ERROR_INTERNAL, errno, "sandbox %s", id)
				: error_prepend(error, "sandbox %s", id);
	if (unlinkat(directory, "files.tar", 0) < 0)
		return error_set_errno(error, ERROR_INTERNAL, errno, "sandbox %s", id);
	return 0;
}

static int sandbox_trees_unpack(int staging, const struct state_manifest *manifest,
				enum rights rights, struct error *error)
{
	for (size_t i = 0; i < manifest->sandbox_count; i++) {
		char path[64];
		snprintf(path, sizeof(path), "sandboxes/%s", manifest->sandboxes[i].id.text);
		CLOSE_FD int directory =
		    openat(staging, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (directory < 0)
			return error_set_errno(error, ERROR_BACKUP_INVALID, errno, "%s", path);
		if (sandbox_tree_unpack(directory, &manifest->sandboxes[i], rights, error) < 0)
			return -1;
	}
	return 0;
}

/* Images need root; files belong to ids that this user must have. */
static int restore_check_rights(const struct state_manifest *manifest, enum rights rights,
				struct error *error)
{
	enum rights made = manifest->rights;
	if (manifest->sandbox_count == 0 || made == rights ||
	    (made == RIGHTS_ONE_ID && rights == RIGHTS_SUBUIDS))
		return 0;
	return error_set(error, ERROR_BACKUP_INVALID,
			 "it was made of %s, whose sandboxes' files this user cannot have: restore "
			 "it as such a user",
			 made == RIGHTS_ROOT      ? "a daemon of root's"
			 : made == RIGHTS_SUBUIDS ? "a daemon of a user with a range in /etc/subuid"
						  : "a daemon of a user without a range of ids");
}

/* Turns what was unpacked into a state: sets owners, adds the spawner's own files and missing
 * parts. */
static int restore_complete_state(int state, const struct state_manifest *manifest,
				  enum rights rights, struct error *error)
{
	CLOSE_FD int staging =
	    openat(state, STAGING, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int result = staging < 0 ? -errno : 0;
	if (result == 0)
		result = tree_take_ownership(staging, UNPACKED, 3);
	for (size_t i = 0; result == 0 && i < ARRAY_SIZE(state_parts); i++) {
		char from[32];
		snprintf(from, sizeof(from), UNPACKED "/%s", state_parts[i]);
		if ((renameat(staging, from, staging, state_parts[i]) < 0 && errno != ENOENT) ||
		    (mkdirat(staging, state_parts[i], 0700) < 0 && errno != EEXIST))
			result = -errno;
	}
	if (result == 0 && sandbox_trees_unpack(staging, manifest, rights, error) < 0)
		return -1;
	if (result == 0)
		result = sandbox_records_write(staging, manifest);
	/* Written to disk before anything that it replaces is touched. */
	if (result == 0)
		result = state_directory_sync(state);
	if (result == 0)
		result = text_file_write(state, READY, "");
	if (result == 0)
		result = state_directory_sync(state);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "preparing the unpacked files");
	return 0;
}

static int restore_run_locked(int state, int archive, const struct state_options *options,
			      struct state_manifest *manifest, struct error *error)
{
	const char *name = options->state;
	bool force = options->force;
	enum rights rights = options->rights;
	char staging[300], unpacked[320];
	int earlier = earlier_restore_settle(state, error);
	if (earlier < 0)
		return -1;
	if (earlier > 0)
		fprintf(stderr,
			"caisson state restore: an earlier, interrupted restore is complete now\n");
	bool empty = directory_is_empty(state, "db") && directory_is_empty(state, "sandboxes");
	if (!empty && !force)
		return error_set(error, ERROR_CONFLICT,
				 "%s is not empty%s: --force replaces its contents, sandboxes and "
				 "their files included",
				 name, earlier > 0 ? " (it holds that restore now)" : "");
	if (text_format(staging, sizeof(staging), "%s/" STAGING, name) < 0 ||
	    text_format(unpacked, sizeof(unpacked), "%s/" UNPACKED, staging) < 0)
		return error_set(error, ERROR_CONFIG, "the state directory's path is too long");
	if (mkdir(staging, 0700) < 0 || mkdir(unpacked, 0700) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s", staging);
	int result = state_extract(archive, unpacked, manifest, error);
	if (result == 0)
		result = restore_check_rights(manifest, rights, error);
	if (result == 0)
		result = restore_complete_state(state, manifest, rights, error);
	if (result < 0) {
		int removed = remove_tree(state, STAGING);
		(void)removed;
		return -1;
	}
	result = parts_put_in_place(state);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "putting the backup in place; repeat it");
	result = remove_tree(state, STAGING);
	if (result < 0)
		fprintf(stderr, "caisson state restore: %s is left over: %s\n", staging,
			strerror(-result));
	return 0;
}

/* Makes the directory and its parents, as the spawner does. 1: it is new. */
static int directories_make(const char *name)
{
	char part[256];
	for (const char *slash = strchr(name + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int result = text_format(part, sizeof(part), "%.*s", (int)(slash - name), name);
		if (result < 0)
			return result;
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	if (mkdir(name, 0711) == 0)
		return 1;
	return errno == EEXIST ? 0 : -errno;
}

static int state_directory_open(const char *name, bool *ret_made, struct error *error)
{
	int made = directories_make(name);
	if (made < 0)
		return error_set_errno(error, state_error_kind(made), made, "state directory %s",
				       name);
	*ret_made = made > 0;
	int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat info;
	if (fd < 0 || fstat(fd, &info) < 0) {
		int saved = errno;
		fd_close(&fd);
		return error_set_errno(error, error_kind_of_errno(saved), saved,
				       "state directory %s", name);
	}
	if (info.st_uid != geteuid()) {
		fd_close(&fd);
		return error_set(error, ERROR_NO_PERMISSION,
				 "state directory %s belongs to uid %u: restore as that user", name,
				 (unsigned)info.st_uid);
	}
	return fd;
}

int state_restore(struct client *client, const struct state_options *options, const char *file,
		  struct error *error)
{
	CLOSE_FD int archive = strcmp(file, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
						      : open(file, O_RDONLY | O_CLOEXEC);
	if (archive < 0)
		return error_set_errno(error, state_error_kind(errno), errno, "%s", file);
	bool made;
	CLOSE_FD int state = state_directory_open(options->state, &made, error);
	if (state < 0)
		return -1;
	CLOSE_FD int lock =
	    state_lock_take(state, options->state, options->rights == RIGHTS_ROOT, error);
	if (lock < 0 ||
	    sandboxes_check_stopped(state, options->state, client->config.runtime, error) < 0)
		return -1;
	if (libarchive_load(error) < 0)
		return -1;
	struct state_manifest *manifest = calloc(1, sizeof(*manifest));
	if (!manifest)
		return error_set(error, ERROR_NO_MEMORY, "no memory");
	int result = restore_run_locked(state, archive, options, manifest, error);
	/* A refused restore leaves nothing behind. */
	if (result < 0 && made && unlinkat(state, "lock", 0) == 0)
		rmdir(options->state);
	if (result == 0)
		fprintf(stderr,
			"caisson state restore: %zu sandbox%s, stopped; `caisson start` starts "
			"one\n",
			manifest->sandbox_count, manifest->sandbox_count == 1 ? "" : "es");
	free(manifest);
	return result;
}

int state_remove(struct client *client, const struct state_options *options, struct error *error)
{
	const char *name = options->state;
	CLOSE_FD int state = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (state < 0)
		return error_set_errno(error, state_error_kind(errno), errno, "state directory %s",
				       name);
	if (faccessat(state, "lock", F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
	    faccessat(state, "db", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return error_set(error, ERROR_USAGE, "%s is not a state directory of caisson's",
				 name);
	CLOSE_FD int lock = state_lock_take(state, name, options->rights == RIGHTS_ROOT, error);
	if (lock < 0 || sandboxes_check_stopped(state, name, client->config.runtime, error) < 0)
		return -1;
	if (!options->force && !directory_is_empty(state, "sandboxes"))
		return error_set(error, ERROR_CONFLICT,
				 "there are sandboxes in %s: --force removes them and their files "
				 "too",
				 name);
	int result = remove_tree(AT_FDCWD, name);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "removing %s",
				       name);
	return 0;
}
