/* What an instance has on the host: its directories and their owners, its name, the user of the
 * daemon. Called by main.c at the start, in the order of internal.h; blocks only for local file
 * system calls. */
#include "spawner/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "spawner/rootless.h"

/* The daemon's uid where the host has no user for it. Debian's policy assigns this id to nobody:
 * it is above the static range and below systemd's dynamic users. */
#define FALLBACK_ID 64743

uint64_t instance_hash(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *bytes = data;
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
	return hash;
}

int instance_find_user(struct spawner *spawner, struct error *error)
{
	const char *name = spawner->config.user;
	bool named = *name != '\0';
	if (spawner->host.rights != RIGHTS_ROOT) {
		/* rootless_enter() has set the ids. */
		if (!named)
			return 0;
		return error_set(error, ERROR_CONFIG,
				 "user = %s: only root can run the daemon as another user", name);
	}
	if (!named)
		name = CONFIG_USER_DEFAULT;
	const struct passwd *user = getpwnam(name);
	if (user) {
		if (user->pw_uid == 0 || user->pw_gid == 0)
			return error_set(error, ERROR_CONFIG,
					 "user = %s: the daemon must run as a user other than root",
					 name);
		spawner->host.daemon_uid = user->pw_uid;
		spawner->host.daemon_gid = user->pw_gid;
		return 0;
	}
	if (named)
		return error_set(error, ERROR_CONFIG,
				 "there is no user %s: make one with `useradd --system %s`, or "
				 "name another with --user",
				 name, name);
	if (getpwuid(FALLBACK_ID) || getgrgid(FALLBACK_ID))
		return error_set(error, ERROR_CONFIG,
				 "there is no user %s, and uid %d is in use: make one with "
				 "`useradd --system %s`, or name another with `user =` in the "
				 "configuration",
				 name, FALLBACK_ID, name);
	log_info("there is no user %s: the daemon runs as uid %d", name, FALLBACK_ID);
	spawner->host.daemon_uid = FALLBACK_ID;
	spawner->host.daemon_gid = FALLBACK_ID;
	return 0;
}

/* Makes the directory and its parents. 1: the directory is new. */
static int directories_make(const char *path, mode_t mode, mode_t mode_above)
{
	char part[SPAWNER_PATH_MAX];
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int result = text_format(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (result < 0)
			return result;
		if (mkdir(part, mode_above) < 0 && errno != EEXIST)
			return -errno;
	}
	if (mkdir(path, mode) == 0)
		return 1;
	return errno == EEXIST ? 0 : -errno;
}

/* Makes the state or the runtime directory. It must belong to us. */
static int root_directory_make(const struct host *host, const char *what, const char *path,
			       mode_t mode, bool *ret_new, struct error *error)
{
	struct stat info;
	bool root = host->rights == RIGHTS_ROOT;
	/* Root's directories may be traversed by everybody, a user's only by the daemon. With a
	 * single id the daemon is the user, and the group is the user's own: it may have other
	 * members. */
	if (!root)
		mode = host->rights == RIGHTS_ONE_ID ? 0700 : 0710;
	int result = directories_make(path, mode, root ? 0755 : 0700);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "%s directory %s", what, path);
	*ret_new = result > 0;
	/* An administrator may have made it a link. Without root it may be in a shared
	 * directory, where another user could plant a link. */
	CLOSE_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (root ? 0 : O_NOFOLLOW));
	if (fd < 0 || fstat(fd, &info) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s directory %s",
				       what, path);
	if (info.st_uid != geteuid() && !root)
		return error_set(error, ERROR_NO_PERMISSION,
				 "%s directory %s belongs to somebody else: choose another with "
				 "--%s",
				 what, path, what);
	if (info.st_uid != geteuid())
		return error_set(error, ERROR_NO_PERMISSION,
				 "%s directory %s belongs to uid %u, not to root: choose another "
				 "with --%s, or `chown root %s`",
				 what, path, (unsigned)info.st_uid, what, path);
	if ((!root && fchown(fd, (uid_t)-1, host->daemon_gid) < 0) || fchmod(fd, mode) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s directory %s",
				       what, path);
	return 0;
}

int instance_make_roots(struct spawner *spawner, struct error *error)
{
	struct host *host = &spawner->host;
	if (root_directory_make(host, "state", spawner->config.state, 0711, &spawner->state_is_new,
				error) < 0 ||
	    root_directory_make(host, "runtime", spawner->config.runtime, 0755,
				&spawner->runtime_is_new, error) < 0)
		return -1;
	/* Resolved, so that two names of one directory are one instance. */
	char *state = realpath(spawner->config.state, NULL);
	if (!state)
		return error_set_errno(error, ERROR_INTERNAL, errno, "state directory %s",
				       spawner->config.state);
	int result = text_copy(host->state, sizeof(host->state) - 80, state);
	free(state);
	if (result < 0 ||
	    text_copy(host->runtime, sizeof(host->runtime), spawner->config.runtime) < 0)
		return error_set(error, ERROR_CONFIG, "the state directory's path is too long");
	uint64_t hash = instance_hash(INSTANCE_HASH_START, host->state, strlen(host->state));
	(void)!text_format(host->instance, sizeof(host->instance), "caisson-%08x",
			   (unsigned)(hash ^ hash >> 32));
	return 0;
}

/* Gives the files of the daemon's previous user to the new one. The previous user may have
 * planted anything, so links are not followed and hard-linked files are skipped. */
static int tree_change_owner(int fd, uid_t uid, gid_t gid, int depth)
{
	struct stat info;
	DIR *entries = fdopendir(fd);
	if (!entries) {
		int saved = errno;
		close(fd);
		return -saved;
	}
	int result = 0;
	for (struct dirent *entry; result == 0 && (entry = readdir(entries));) {
		const char *name = entry->d_name;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		    fstatat(dirfd(entries), name, &info, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!S_ISDIR(info.st_mode) && (!S_ISREG(info.st_mode) || info.st_nlink != 1))
			continue;
		if (fchownat(dirfd(entries), name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
			result = -errno;
		int below = S_ISDIR(info.st_mode) && depth > 0
				? openat(dirfd(entries), name,
					 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
				: -1;
		if (below >= 0 && result == 0)
			result = tree_change_owner(below, uid, gid, depth - 1);
		else
			fd_close(&below);
	}
	closedir(entries);
	return result;
}

/* Makes a directory below the state or runtime directory, with this owner and mode. */
static int directory_make(int parent, const char *name, mode_t mode, uid_t uid, gid_t gid)
{
	struct stat info;
	if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	CLOSE_FD int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info) < 0)
		return -errno;
	if (info.st_uid != uid || info.st_gid != gid) {
		if (fchown(fd, uid, gid) < 0)
			return -errno;
		int result = uid != 0 ? tree_change_owner(dup(fd), uid, gid, 2) : 0;
		if (result < 0)
			return result;
	}
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

/* Refuses an interrupted restore: half of the files are the backup's. */
static int restore_check_finished(const struct host *host, struct error *error)
{
	char path[SPAWNER_PATH_MAX];
	if (text_format(path, sizeof(path), "%s/restore/ready", host->state) < 0 ||
	    access(path, F_OK) < 0)
		return 0;
	return error_set(error, ERROR_STORE,
			 "a restore of %s was cut short: `caisson state restore FILE` finishes it",
			 host->state);
}

int instance_make_directories(struct spawner *spawner, struct error *error)
{
	const struct host *host = &spawner->host;
	if (restore_check_finished(host, error) < 0)
		return -1;
	const struct {
		const char *root, *name;
		mode_t mode;
		bool of_daemon;
	} directories[] = {
	    {host->state, "db", 0700, true},         {host->state, "logs", 0700, true},
	    {host->state, "sandboxes", 0700, false}, {host->state, "trash", 0700, false},
	    {host->state, "templates", 0711, false}, {host->state, "init", 0711, false},
	    {host->runtime, "guests", 0711, false},
	};
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
		CLOSE_FD int root = open(directories[i].root, O_PATH | O_DIRECTORY | O_CLOEXEC);
		bool daemon = directories[i].of_daemon;
		int result = root < 0
				 ? -errno
				 : directory_make(root, directories[i].name, directories[i].mode,
						  daemon ? host->daemon_uid : geteuid(),
						  daemon ? host->daemon_gid : getegid());
		if (result == -EPERM && host->rights != RIGHTS_ROOT)
			return error_set(error, ERROR_NO_PERMISSION,
					 "directory %s/%s belongs to an id that this user no "
					 "longer has: it was made when /etc/subuid granted one",
					 directories[i].root, directories[i].name);
		if (result < 0)
			return error_set_errno(error, error_kind_of_errno(result), result,
					       "directory %s/%s", directories[i].root,
					       directories[i].name);
	}
	return 0;
}

/* Length of the shortest prefix of the path that this process cannot access; 0: it can use the
 * path. */
static int path_unreachable_length(const char *path, int mode)
{
	char part[SPAWNER_PATH_MAX];
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/'))
		if (text_format(part, sizeof(part), "%.*s", (int)(slash - path), path) < 0 ||
		    access(part, X_OK) < 0)
			return (int)(slash - path);
	return access(path, mode) < 0 ? (int)strlen(path) : 0;
}

int instance_become_daemon_user(const struct host *host)
{
	/* With a single id nothing changes. Groups cannot be dropped then: the kernel forbids
	 * it, because membership in a group may deny access. */
	if ((host->rights != RIGHTS_ONE_ID && setgroups(0, NULL) < 0) ||
	    setresgid(host->daemon_gid, host->daemon_gid, host->daemon_gid) < 0 ||
	    setresuid(host->daemon_uid, host->daemon_uid, host->daemon_uid) < 0)
		return -errno;
	return 0;
}

/* Checks as the daemon's user, in a child whose exit status is the length. */
static int path_unreachable_by_daemon(const struct spawner *spawner, const char *path, int mode)
{
	pid_t child = fork();
	if (child == 0) {
		if (rootless_open_paths(spawner) < 0 ||
		    instance_become_daemon_user(&spawner->host) < 0)
			_exit(255);
		_exit(MIN(path_unreachable_length(path, mode), 254));
	}
	int status;
	if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
		return 255;
	return WEXITSTATUS(status);
}

int instance_check_reach(struct spawner *spawner, struct error *error)
{
	char database[SPAWNER_PATH_MAX];
	if (text_format(database, sizeof(database), "%s/db", spawner->host.state) < 0)
		return error_set(error, ERROR_CONFIG, "the state directory's path is too long");
	const struct {
		const char *path;
		int mode;
		const char *remedy;
	} places[] = {
	    {database, R_OK | W_OK | X_OK, "chmod o+x"},
	    {spawner->host.runtime, X_OK, "chmod o+x"},
	    {spawner->config_path, R_OK, "chmod o+r"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (!places[i].path)
			continue;
		int length = path_unreachable_by_daemon(spawner, places[i].path, places[i].mode);
		if (length == 0)
			continue;
		bool whole = (size_t)length >= strlen(places[i].path);
		return error_set(error, ERROR_NO_PERMISSION,
				 "the daemon's user (uid %u) cannot use %s: `%s %.*s`, or choose "
				 "another place with --state, --runtime and --config",
				 (unsigned)spawner->host.daemon_uid, places[i].path,
				 whole ? places[i].remedy : "chmod o+x", length, places[i].path);
	}
	return 0;
}
