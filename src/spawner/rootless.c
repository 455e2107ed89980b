/* A user and a mount namespace for a spawner without root. See rootless.h. */
#include "spawner/rootless.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "base/text.h"

#define RANGE_SIZE 65536u
#define HELPER_SECONDS 10
#define ID_TEXT 16

/* What the host grants to the user, and the tools that write it into a map. */
struct grant {
	char name[64]; /* the user's name, as in /etc/subuid */
	uid_t uid;
	gid_t gid;
	uint32_t first_uid, first_gid;
	char uid_tool[64], gid_tool[64];
};

static bool map_tool_find(const char *name, char path[64])
{
	static const char *const directories[] = {"/usr/bin", "/bin", "/usr/local/bin",
						  "/run/wrappers/bin"};
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		if (text_format(path, 64, "%s/%s", directories[i], name) == 0 &&
		    access(path, X_OK) == 0)
			return true;
	return false;
}

/* The first range of at least RANGE_SIZE: "NAME-OR-UID:FIRST:COUNT" per line. */
static bool subid_range_find(const char *path, const struct grant *grant, uint32_t *ret_first)
{
	char line[512], number[ID_TEXT];
	bool found = false;
	snprintf(number, sizeof(number), "%u", (unsigned)grant->uid);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		uint64_t first, count;
		line[strcspn(line, "\n")] = '\0';
		char *middle = strchr(line, ':');
		char *end = middle ? strchr(middle + 1, ':') : NULL;
		if (!end)
			continue;
		*middle++ = *end++ = '\0';
		if (strcmp(line, number) != 0 && (!grant->name[0] || strcmp(line, grant->name)))
			continue;
		found = text_to_u64(middle, 1, UINT32_MAX - RANGE_SIZE, &first) == 0 &&
			text_to_u64(end, RANGE_SIZE, UINT32_MAX, &count) == 0;
		if (found)
			*ret_first = (uint32_t)first;
	}
	fclose(file);
	return found;
}

/* Whether the user has a range. If not, logs the reason for users who expect one. */
static bool grant_find(struct grant *grant)
{
	*grant = (struct grant){.uid = geteuid(), .gid = getegid()};
	const struct passwd *user = getpwuid(grant->uid);
	if (user && text_copy(grant->name, sizeof(grant->name), user->pw_name) < 0)
		grant->name[0] = '\0';
	const char *missing = NULL;
	if (!subid_range_find("/etc/subuid", grant, &grant->first_uid))
		missing = "/etc/subuid grants this user no 65536 ids";
	else if (!subid_range_find("/etc/subgid", grant, &grant->first_gid))
		missing = "/etc/subgid grants this user no 65536 ids";
	else if (!map_tool_find("newuidmap", grant->uid_tool) ||
		 !map_tool_find("newgidmap", grant->gid_tool))
		missing = "newuidmap and newgidmap are not installed (package uidmap)";
	if (!missing)
		return true;
	log_info("sandboxes have one id, the user's own: %s", missing);
	return false;
}

/* newuidmap PID 0 OURS 1 1 FIRST COUNT. Its exit status, or -errno. */
static int map_tool_run(const char *tool, pid_t pid, uint32_t ours, uint32_t first)
{
	static char *const environment[] = {NULL};
	char texts[4][ID_TEXT];
	snprintf(texts[0], ID_TEXT, "%d", (int)pid);
	snprintf(texts[1], ID_TEXT, "%u", ours);
	snprintf(texts[2], ID_TEXT, "%u", first);
	snprintf(texts[3], ID_TEXT, "%u", RANGE_SIZE);
	const char *const arguments[] = {tool, texts[0], "0",      texts[1], "1",
					 "1",  texts[2], texts[3], NULL};
	pid_t child;
	int status;
	int result = posix_spawn(&child, tool, NULL, NULL, (char *const *)arguments, environment);
	if (result != 0)
		return -result;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

/* What the helper has done, in this order. */
enum { MAPPED_NOTHING, MAPPED_UIDS, MAPPED_ALL };

/* The two programs must be started from outside the new namespace: inside, setuid programs
 * cannot become the host's root. */
static _Noreturn void map_helper_run(int socket, pid_t pid, const struct grant *grant)
{
	char done = MAPPED_NOTHING, go;
	/* A tool that hangs ends this process, and the parent reads the end of the socket. */
	alarm(HELPER_SECONDS);
	if (recv(socket, &go, 1, 0) != 1)
		_exit(1);
	if (map_tool_run(grant->uid_tool, pid, grant->uid, grant->first_uid) == 0) {
		done = MAPPED_UIDS;
		if (map_tool_run(grant->gid_tool, pid, grant->gid, grant->first_gid) == 0)
			done = MAPPED_ALL;
	}
	_exit(send(socket, &done, 1, MSG_NOSIGNAL) != 1);
}

static bool sysctl_has_value(const char *path, char value)
{
	char text[32];
	return fd_read_small(AT_FDCWD, path, text, sizeof(text)) > 0 && text[0] == value &&
	       (text[1] == '\n' || text[1] == '\0');
}

#define SYSCTL_CLONE "/proc/sys/kernel/unprivileged_userns_clone"
#define SYSCTL_APPARMOR "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
#define SYSCTL_COUNT "/proc/sys/user/max_user_namespaces"

/* Finds the setting that forbids namespaces, and the command that changes it. */
static int namespace_set_error(int result, struct error *error)
{
	const char *command = NULL;
	if (sysctl_has_value(SYSCTL_CLONE, '0'))
		command = "sysctl -w kernel.unprivileged_userns_clone=1";
	else if (sysctl_has_value(SYSCTL_COUNT, '0'))
		command = "sysctl -w user.max_user_namespaces=15000";
	else if (sysctl_has_value(SYSCTL_APPARMOR, '1'))
		command = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
	if (command)
		return error_set(error, ERROR_NO_PERMISSION,
				 "this host forbids user namespaces to ordinary users: run `sudo "
				 "%s`, or start `caisson serve` as root",
				 command);
	if (result == -ENOSPC || result == -EUSERS)
		return error_set(error, ERROR_NO_PERMISSION,
				 "the limit on user namespaces (user.max_user_namespaces) is "
				 "reached: raise it with sysctl");
	return error_set_errno(error, ERROR_NO_PERMISSION, result,
			       "this host does not let ordinary users make namespaces (inside "
			       "a container its seccomp profile may forbid it): start `caisson "
			       "serve` as root");
}

/* Maps only the user's own id, which needs no privilege. */
static int own_id_map(const struct grant *grant)
{
	char text[64];
	int result = fd_write_small(AT_FDCWD, "/proc/self/setgroups", "deny");
	if (result == -ENOENT)
		result = 0;
	snprintf(text, sizeof(text), "0 %u 1", (unsigned)grant->uid);
	if (result >= 0)
		result = fd_write_small(AT_FDCWD, "/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "0 %u 1", (unsigned)grant->gid);
	return result < 0 ? result : fd_write_small(AT_FDCWD, "/proc/self/gid_map", text);
}

/* Sends "go" and receives the result; the helper has ended afterwards. */
static int map_helper_ask(int socket, pid_t pid)
{
	char done = MAPPED_NOTHING;
	if (send(socket, "g", 1, MSG_NOSIGNAL) != 1 || recv(socket, &done, 1, 0) != 1)
		done = MAPPED_NOTHING;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return done;
}

static pid_t map_helper_start(const struct grant *grant, int *ret_socket)
{
	int pair[2];
	pid_t parent = getpid();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	CLOSE_FD int ours = pair[0], theirs = pair[1];
	pid_t pid = fork();
	if (pid == 0) {
		close(ours);
		map_helper_run(theirs, parent, grant);
	}
	if (pid < 0)
		return -errno;
	*ret_socket = TAKE_FD(ours);
	return pid;
}

/* Sets the ids that our namespace gives us. */
static void host_set_ids(struct host *host, uint32_t beside)
{
	host->uid_base = 1;
	host->uid_slots = UID_BLOCK_SLOTS;
	host->rights = beside == 0 ? RIGHTS_ONE_ID : RIGHTS_SUBUIDS;
	host->shared_ids = beside;
	host->daemon_uid = host->daemon_gid = beside;
}

/* The namespace exists and is mapped. Check that mounts work in it: AppArmor may allow a
 * namespace and forbid everything inside. */
static int mounts_try(struct error *error)
{
	struct mount_attr slave = {.propagation = 1 << 19 /* MS_SLAVE */};
	int result = sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &slave);
	return result < 0 ? namespace_set_error(result, error) : 0;
}

static int namespace_make(struct spawner *spawner, struct error *error)
{
	struct grant grant;
	CLOSE_FD int socket = -1;
	pid_t pid = grant_find(&grant) ? map_helper_start(&grant, &socket) : 0;
	if (pid < 0)
		return error_set_errno(error, error_kind_of_errno(pid), pid, "a process");
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return namespace_set_error(-errno, error);
	int done = pid > 0 ? map_helper_ask(socket, pid) : MAPPED_NOTHING;
	if (done == MAPPED_UIDS)
		return error_set(error, ERROR_NO_PERMISSION,
				 "newuidmap works and newgidmap does not: check /etc/subgid, and "
				 "whether %s is setuid",
				 grant.gid_tool);
	if (pid > 0 && done == MAPPED_NOTHING)
		log_warning("newuidmap failed (is %s setuid?): sandboxes have one id, the user's",
			    grant.uid_tool);
	int result = done == MAPPED_ALL ? 0 : own_id_map(&grant);
	if (result < 0)
		return namespace_set_error(result, error);
	host_set_ids(&spawner->host, done == MAPPED_ALL ? RANGE_SIZE : 0);
	return 0;
}

/* As root of an existing namespace: how many ids follow 0? */
static uint32_t map_count_further_ids(const char *path)
{
	char text[4096];
	unsigned inside, outside, count;
	uint32_t next = 0;
	if (fd_read_small(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (sscanf(line, "%u %u %u", &inside, &outside, &count) != 3 || inside != next)
			break;
		next += count;
	}
	return next > 0 ? next - 1 : 0;
}

static uint32_t own_maps_count_further_ids(void)
{
	return MIN(map_count_further_ids("/proc/self/uid_map"),
		   map_count_further_ids("/proc/self/gid_map"));
}

/* The kernel counts some resources per user (inotify instances and watches), also for the user
 * who made the namespace and everything else that this user runs. So that no sandbox uses up all
 * of them, each user in our namespace gets a part. Impossible where /proc/sys is read-only. */
static void kernel_count_share(uint64_t before, const char *path, uint32_t part)
{
	char text[32];
	snprintf(text, sizeof(text), "%llu", (unsigned long long)MAX(before / part, 16));
	int result = before > 0 ? fd_write_small(AT_FDCWD, path, text) : 0;
	(void)result;
}

static uint64_t kernel_count_read(const char *path)
{
	char text[32];
	uint64_t value;
	if (fd_read_small(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	text[strcspn(text, "\n")] = '\0';
	return text_to_u64(text, 1, INT32_MAX, &value) < 0 ? 0 : value;
}

/* Joins the namespace of an earlier spawner: 1; 0: there is none. */
static int namespace_join_earlier(struct spawner *spawner, struct error *error)
{
	CLOSE_FD int earlier = earlier_namespace_find(spawner->config.runtime);
	if (earlier < 0)
		return 0;
	if (setns(earlier, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNS) < 0)
		return error_set_errno(error, ERROR_NO_PERMISSION, errno,
				       "sandboxes of an earlier daemon run, and their namespace "
				       "cannot be entered");
	uint32_t beside = own_maps_count_further_ids();
	host_set_ids(&spawner->host, beside >= RANGE_SIZE ? RANGE_SIZE : 0);
	return 1;
}

static int namespace_enter(struct spawner *spawner, struct error *error)
{
	static const char *const counts[] = {"/proc/sys/user/max_inotify_instances",
					     "/proc/sys/user/max_inotify_watches"};
	const uint64_t before[] = {kernel_count_read(counts[0]), kernel_count_read(counts[1])};
	int joined = namespace_join_earlier(spawner, error);
	if (joined == 0 && namespace_make(spawner, error) < 0)
		return -1;
	if (joined < 0 || mounts_try(error) < 0)
		return -1;
	uint32_t part = spawner->host.rights == RIGHTS_SUBUIDS ? 4 : 2;
	for (size_t i = 0; joined == 0 && i < ARRAY_SIZE(counts); i++)
		kernel_count_share(before[i], counts[i], part);
	return 0;
}

int rootless_enter(struct spawner *spawner, struct error *error)
{
	if (geteuid() != 0)
		return namespace_enter(spawner, error);
	uint32_t beside = own_maps_count_further_ids();
	/* All ids are mapped: we are the host's root, or equivalent. */
	if (beside >= UID_RANGE_BASE)
		return 0;
	/* A container's root usually has 65536 ids including its own. */
	host_set_ids(&spawner->host, beside >= RANGE_SIZE - 1 ? MIN(beside, RANGE_SIZE) : 0);
	/* Our mounts may still be shared with the host; copies need a namespace of our own. */
	if (unshare(CLONE_NEWNS) < 0)
		return namespace_set_error(-errno, error);
	return mounts_try(error);
}

/* ---- The daemon's access to its directories. */

/* Length of the shortest prefix of the path that is a directory which the daemon's user may not
 * search; 0: none. Only the user's own directories and mode bits are considered. */
static size_t path_closed_length(const struct host *host, const char *path)
{
	char part[PATH_MAX];
	struct stat info;
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		size_t length = (size_t)(slash - path);
		if (text_format(part, sizeof(part), "%.*s", (int)length, path) < 0 ||
		    stat(part, &info) < 0)
			return 0;
		mode_t bit = info.st_uid == host->daemon_uid   ? S_IXUSR
			     : info.st_gid == host->daemon_gid ? S_IXGRP
							       : S_IXOTH;
		if (!(info.st_mode & bit))
			return length;
	}
	return 0;
}

/* Mounts an empty directory over one that the daemon may not search. */
static int directory_cover(const char *path)
{
	CLOSE_FD int fs = sys_fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	int result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0);
	if (result >= 0)
		result = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	CLOSE_FD int mount =
	    result < 0 ? result
		       : sys_fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return mount < 0 ? mount
			 : sys_move_mount(mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

/* mkdir -p, below a covered directory. */
static int directories_make(const char *path)
{
	char part[PATH_MAX];
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int result = text_format(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (result < 0)
			return result;
		if (mkdir(part, 0755) < 0 && errno != EEXIST && errno != EACCES && errno != EROFS)
			return -errno;
	}
	return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

static int directory_open_mount(const char *path)
{
	unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
	int mount = sys_open_tree(AT_FDCWD, path, flags);
	/* A directory with mounts below it can only be cloned recursively. */
	return mount == -EINVAL ? sys_open_tree(AT_FDCWD, path, flags | AT_RECURSIVE) : mount;
}

/* Opens all directories before it covers the first one: one may be below a directory that has to
 * be covered. */
int rootless_open_paths(const struct spawner *spawner)
{
	const struct host *host = &spawner->host;
	char configuration[PATH_MAX] = "";
	if (host->rights != RIGHTS_SUBUIDS)
		return 0;
	if (spawner->config_path &&
	    text_copy(configuration, sizeof(configuration), spawner->config_path) == 0)
		*strrchr(configuration, '/') = '\0';
	const char *const paths[] = {host->state, host->runtime, configuration};
	int mounts[ARRAY_SIZE(paths)];
	struct mount_attr private = {.propagation = 1 << 18 /* MS_PRIVATE */};
	mode_t mask = umask(022);
	int result = unshare(CLONE_NEWNS) < 0 ? -errno : 0;
	if (result >= 0)
		result = sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		mounts[i] = -1;
		if (result >= 0 && *paths[i] && path_closed_length(host, paths[i]) > 0)
			result = mounts[i] = directory_open_mount(paths[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		char part[PATH_MAX];
		size_t closed = 0;
		while (result >= 0 && mounts[i] >= 0 &&
		       (closed = path_closed_length(host, paths[i])) > 0) {
			result = text_format(part, sizeof(part), "%.*s", (int)closed, paths[i]);
			if (result >= 0)
				result = directory_cover(part);
			if (result >= 0)
				result = directories_make(paths[i]);
		}
		if (result >= 0 && mounts[i] >= 0)
			result = directories_make(paths[i]);
		if (result >= 0 && mounts[i] >= 0)
			result = sys_move_mount(mounts[i], "", AT_FDCWD, paths[i],
						MOVE_MOUNT_F_EMPTY_PATH);
	}
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		fd_close(&mounts[i]);
	umask(mask);
	return MIN(result, 0);
}

int rootless_reopen_folder(int directory)
{
	char name[64], path[PATH_MAX];
	struct stat given, here;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", directory);
	ssize_t length = readlink(name, path, sizeof(path) - 1);
	if (length <= 0 || (size_t)length >= sizeof(path) - 1)
		return -ESTALE;
	path[length] = '\0';
	CLOSE_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &here) < 0 || fstat(directory, &given) < 0 ||
	    here.st_dev != given.st_dev || here.st_ino != given.st_ino)
		return -ESTALE;
	return TAKE_FD(fd);
}
