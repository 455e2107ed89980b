/* Makes, freezes, kills and removes the cgroups of a sandbox. See cgroup.h. */
#include "tier/jail/cgroup/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "tier/jail/cgroup/cgroup_hierarchy.h"
#include "tier/jail/ids.h"

#define PATH_ROOM 128

static int group_path(const struct host *host, const struct id *id, const char *leaf,
		      char path[PATH_ROOM])
{
	return text_format(path, PATH_ROOM, "%s/%s%s%s", host->instance, id->text, *leaf ? "/" : "",
			   leaf);
}

int cgroup_group_open(const struct hierarchy *hierarchy, const struct host *host,
		      const struct id *id, const char *leaf)
{
	char path[PATH_ROOM];
	int result = group_path(host, id, leaf, path);
	if (result < 0)
		return result;
	int fd = openat(hierarchy->root, path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static void removal_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 300 * NSEC_PER_USEC}, NULL);
}

void cgroup_boot_done(struct cgroup_boot *boot)
{
	for (uint32_t i = 0; i < boot->count; i++) {
		fd_close(&boot->init_procs[i]);
		fd_close(&boot->work_procs[i]);
	}
	boot->count = 0;
	fd_close(&boot->init_directory);
	fd_close(&boot->memory_usage);
	fd_close(&boot->memory_limit);
	fd_close(&boot->memory_stat);
	fd_close(&boot->process_events);
}

int64_t cgroup_read_number(int directory, const char *name, const char *key)
{
	char text[8192];
	if (fd_read_small(directory, name, text, sizeof(text)) < 0)
		return -1;
	const char *place = text;
	if (key) {
		size_t length = strlen(key);
		while (strncmp(place, key, length) != 0 || place[length] != ' ') {
			place = strchr(place, '\n');
			if (!place)
				return -1;
			place++;
		}
		place += length + 1;
	}
	if (*place < '0' || *place > '9')
		return -1;
	return (int64_t)strtoull(place, NULL, 10);
}

/* Character devices that may be opened; version 1 only. (Version 2 has to rely on this: /dev has
 * no others, no mount inside accepts device files, and mknod is refused.) */
static int devices_limit(int directory)
{
	static const char *const allowed[] = {"c 1:3 rw", "c 1:5 rw", "c 1:7 rw", "c 1:8 rw",
					      "c 1:9 rw", "c 5:0 rw", "c 5:2 rw", "c 136:* rw"};
	int result = fd_write_small(directory, "devices.deny", "a");
	for (size_t i = 0; result >= 0 && i < ARRAY_SIZE(allowed); i++)
		result = fd_write_small(directory, "devices.allow", allowed[i]);
	return result;
}

static int directory_make(int root, const char *path)
{
	if (mkdirat(root, path, 0755) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

/* Makes <instance>/<id>/{init,work} and passes the controllers down. */
static int groups_make(const struct hierarchy *hierarchy, const struct host *host,
		       const struct id *id)
{
	char path[PATH_ROOM];
	int result = directory_make(hierarchy->root, host->instance);
	if (result >= 0)
		result = group_path(host, id, "", path);
	if (result >= 0 && hierarchy->unified) {
		CLOSE_FD int instance =
		    openat(hierarchy->root, host->instance, O_PATH | O_DIRECTORY | O_CLOEXEC);
		hierarchy_enable(hierarchy, hierarchy->root);
		hierarchy_enable(hierarchy, instance);
	}
	if (result >= 0)
		result = directory_make(hierarchy->root, path);
	if (result < 0)
		return result;
	CLOSE_FD int directory = cgroup_group_open(hierarchy, host, id, "");
	if (directory < 0)
		return directory;
	if (hierarchy->unified)
		hierarchy_enable(hierarchy, directory);
	/* Before the children are made, because they inherit it. */
	if (hierarchy->controllers & CONTROLLER_DEVICES && host->rights == RIGHTS_ROOT)
		result = devices_limit(directory);
	if (result >= 0)
		result = directory_make(directory, "init");
	if (result >= 0)
		result = directory_make(directory, "work");
	return result;
}

static int file_open(int directory, const char *name, int flags)
{
	int fd = openat(directory, name, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int boot_open_memory_files(const struct hierarchy *hierarchy, int work,
				  struct cgroup_boot *boot)
{
	bool unified = hierarchy->unified;
	boot->memory_usage =
	    file_open(work, unified ? "memory.current" : "memory.usage_in_bytes", O_RDONLY);
	boot->memory_limit =
	    file_open(work, unified ? "memory.max" : "memory.limit_in_bytes", O_RDONLY);
	boot->memory_stat = file_open(work, "memory.stat", O_RDONLY);
	return MIN(MIN(boot->memory_usage, boot->memory_limit), MIN(boot->memory_stat, 0));
}

static int boot_open_files(const struct hierarchy *hierarchy, const struct host *host,
			   const struct id *id, int work, struct cgroup_boot *boot)
{
	CLOSE_FD int init = cgroup_group_open(hierarchy, host, id, "init");
	if (init < 0)
		return init;
	uint32_t at = boot->count++;
	boot->init_procs[at] = -1;
	boot->work_procs[at] = file_open(work, "cgroup.procs", O_WRONLY);
	if (boot->work_procs[at] < 0)
		return boot->work_procs[at];
	if (cgroup_group_has_limit(hierarchy, work, CONTROLLER_MEMORY)) {
		int result = boot_open_memory_files(hierarchy, work, boot);
		if (result < 0)
			return result;
	}
	if (cgroup_group_has_limit(hierarchy, work, CONTROLLER_PIDS)) {
		boot->process_events = file_open(work, "pids.events", O_RDONLY);
		if (boot->process_events < 0)
			return boot->process_events;
	}
	if (hierarchy->unified) {
		boot->init_directory = TAKE_FD(init);
		return 0;
	}
	boot->init_procs[at] = file_open(init, "cgroup.procs", O_WRONLY);
	return MIN(boot->init_procs[at], 0);
}

int cgroup_make(const struct host *host, const struct id *id, const struct limits *limits,
		uint32_t reasons[LIMIT_COUNT], struct cgroup_boot *ret_boot, struct error *error)
{
	const struct hierarchies *all = cgroup_hierarchies(host);
	struct cgroup_boot boot = CGROUP_BOOT_NONE;
	for (uint32_t i = 0; i < all->count; i++) {
		const char *what = "making cgroups";
		int result = groups_make(&all->list[i], host, id);
		/* Not writable for us: its limits are reported as not enforced. */
		if (result == -EACCES || result == -EPERM || result == -EROFS)
			continue;
		CLOSE_FD int work =
		    result < 0 ? result : cgroup_group_open(&all->list[i], host, id, "work");
		result = MIN(work, 0);
		if (result >= 0)
			result = cgroup_group_set_limits(&all->list[i], work, limits, &what);
		if (result >= 0) {
			what = "opening cgroups";
			result = boot_open_files(&all->list[i], host, id, work, &boot);
		}
		if (result < 0) {
			cgroup_boot_done(&boot);
			return error_set_errno(error, error_kind_of_errno(result), result, "%s",
					       what);
		}
	}
	cgroup_reasons(host, id, reasons);
	*ret_boot = boot;
	return 0;
}

/* Version 1 lets a process join a cgroup if it belongs to the user who opened the file (or if
 * that user is the host's root). */
static int procs_reopen_as(const struct host *host, uid_t owner, int *procs)
{
	struct ids_disguise guise;
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", *procs);
	if (fchown(*procs, owner, (gid_t)-1) < 0)
		return -errno;
	int result = ids_disguise_enter(host, owner, &guise);
	if (result < 0)
		return result;
	int fd = file_open(AT_FDCWD, path, O_WRONLY);
	ids_disguise_leave(&guise);
	if (fd < 0)
		return fd;
	fd_close(procs);
	*procs = fd;
	return 0;
}

int cgroup_let_root_join(const struct host *host, uid_t owner, struct cgroup_boot *boot,
			 struct error *error)
{
	for (uint32_t i = 0; host->rights == RIGHTS_SUBUIDS && owner != 0 && i < boot->count; i++) {
		/* Version 2 checks whether the opener may write to both cgroups, which we may. */
		if (boot->init_procs[i] < 0)
			continue;
		int result = procs_reopen_as(host, owner, &boot->work_procs[i]);
		if (result < 0)
			return error_set_errno(error, error_kind_of_errno(result), result,
					       "passing it its cgroups");
	}
	return 0;
}

int cgroup_open_work(const struct host *host, const struct id *id, uint32_t controller,
		     bool *ret_unified)
{
	const struct hierarchies *all = cgroup_hierarchies(host);
	for (uint32_t i = 0; i < all->count; i++) {
		if (!(all->list[i].controllers & controller))
			continue;
		*ret_unified = all->list[i].unified;
		return cgroup_group_open(&all->list[i], host, id, "work");
	}
	return -ENOENT;
}

static bool group_is_frozen(int work, bool unified)
{
	char state[64];
	if (unified)
		return cgroup_read_number(work, "cgroup.events", "frozen") == 1;
	return fd_read_small(work, "freezer.state", state, sizeof(state)) > 0 &&
	       strcmp(state, "FROZEN\n") == 0;
}

static int group_set_frozen(int work, bool unified, bool frozen)
{
	if (unified)
		return fd_write_small(work, "cgroup.freeze", frozen ? "1" : "0");
	return fd_write_small(work, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

int cgroup_freeze(const struct host *host, const struct id *id, bool frozen, struct error *error)
{
	bool unified;
	CLOSE_FD int work = cgroup_open_work(host, id, CONTROLLER_FREEZER, &unified);
	if (work == -ENOENT && cgroup_hierarchies(host)->withheld & CONTROLLER_FREEZER)
		return error_set(error, ERROR_UNSUPPORTED,
				 "a sandbox cannot be paused: the cgroup freezer is not delegated "
				 "to the user who runs the daemon");
	if (work == -ENOENT)
		return error_set(error, ERROR_UNSUPPORTED,
				 "this host has no cgroup freezer: a sandbox cannot be paused");
	/* Written each time: a version 1 freezer may miss a process that is forking and must be
	 * told again. */
	int result = work < 0 ? work : group_set_frozen(work, unified, frozen);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result, "freezer");
	return group_is_frozen(work, unified) == frozen ? 0 : 1;
}

bool cgroup_is_frozen(const struct host *host, const struct id *id)
{
	bool unified;
	CLOSE_FD int work = cgroup_open_work(host, id, CONTROLLER_FREEZER, &unified);
	return work >= 0 && group_is_frozen(work, unified);
}

bool cgroup_is_thawed(const struct host *host, const struct id *id)
{
	bool unified;
	CLOSE_FD int work = cgroup_open_work(host, id, CONTROLLER_FREEZER, &unified);
	if (work < 0)
		return true;
	return cgroup_read_number(work, unified ? "cgroup.freeze" : "freezer.self_freezing",
				  NULL) == 0;
}

/* Calls `each` for each number in a file, one per line. */
static void file_each_number(int directory, const char *name, void (*each)(pid_t, const void *),
			     const void *data)
{
	char line[64];
	int fd = file_open(directory, name, O_RDONLY);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	if (!file) {
		fd_close(&fd);
		return;
	}
	while (fgets(line, sizeof(line), file)) {
		long number = strtol(line, NULL, 10);
		if (number > 0)
			each((pid_t)number, data);
	}
	fclose(file);
}

static const char *const group_leaves[] = {"work", "init"};

static void process_kill(pid_t pid, const void *data)
{
	(void)data;
	kill(pid, SIGKILL);
}

/* A process in a version 1 freezer dies only when it is thawed. */
static void group_thaw_to_die(int work, bool unified)
{
	int result = group_set_frozen(work, unified, false);
	(void)result;
}

void cgroup_kill(const struct host *host, const struct id *id)
{
	const struct hierarchies *all = cgroup_hierarchies(host);
	bool unified;
	for (uint32_t i = 0; i < all->count; i++) {
		if (all->list[i].unified) {
			CLOSE_FD int directory = cgroup_group_open(&all->list[i], host, id, "");
			if (directory >= 0 && fd_write_small(directory, "cgroup.kill", "1") >= 0)
				continue;
		}
		for (size_t leaf = 0; leaf < ARRAY_SIZE(group_leaves); leaf++) {
			CLOSE_FD int directory =
			    cgroup_group_open(&all->list[i], host, id, group_leaves[leaf]);
			if (directory >= 0)
				file_each_number(directory, "cgroup.procs", process_kill, NULL);
		}
	}
	CLOSE_FD int work = cgroup_open_work(host, id, CONTROLLER_FREEZER, &unified);
	if (work >= 0)
		group_thaw_to_die(work, unified);
}

void cgroup_kill_frozen(const struct host *host, const struct id *id)
{
	bool unified;
	CLOSE_FD int work = cgroup_open_work(host, id, CONTROLLER_FREEZER, &unified);
	if (work < 0)
		return;
	if (!unified || fd_write_small(work, "cgroup.kill", "1") < 0)
		file_each_number(work, "cgroup.procs", process_kill, NULL);
	group_thaw_to_die(work, unified);
}

bool cgroup_is_empty(const struct host *host, const struct id *id)
{
	const struct hierarchies *all = cgroup_hierarchies(host);
	for (uint32_t i = 0; i < all->count; i++) {
		for (size_t leaf = 0; leaf < ARRAY_SIZE(group_leaves); leaf++) {
			char byte;
			CLOSE_FD int directory =
			    cgroup_group_open(&all->list[i], host, id, group_leaves[leaf]);
			CLOSE_FD int procs =
			    directory < 0 ? -1 : file_open(directory, "cgroup.procs", O_RDONLY);
			if (procs >= 0 && read(procs, &byte, 1) > 0)
				return false;
		}
	}
	return true;
}

void cgroup_each_thread(const struct host *host, const struct id *id,
			void (*each)(pid_t thread, const void *data), const void *data)
{
	const struct hierarchies *all = cgroup_hierarchies(host);
	for (uint32_t i = 0; i < all->count; i++) {
		bool there = false;
		for (size_t leaf = 0; leaf < ARRAY_SIZE(group_leaves); leaf++) {
			CLOSE_FD int directory =
			    cgroup_group_open(&all->list[i], host, id, group_leaves[leaf]);
			if (directory < 0)
				continue;
			there = true;
			file_each_number(directory,
					 all->list[i].unified ? "cgroup.threads" : "tasks", each,
					 data);
		}
		/* The threads are the same in every hierarchy. */
		if (there)
			return;
	}
}

bool cgroup_holds_process(const struct host *host, const struct id *id, pid_t pid)
{
	char path[64], suffix[PATH_ROOM], line[4096];
	uint32_t expected = 0, found = 0;
	const struct hierarchies *all = cgroup_hierarchies(host);
	for (uint32_t i = 0; i < all->count; i++) {
		CLOSE_FD int directory = cgroup_group_open(&all->list[i], host, id, "init");
		expected += directory >= 0;
	}
	if (text_format(path, sizeof(path), "/proc/%d/cgroup", (int)pid) < 0 ||
	    text_format(suffix, sizeof(suffix), "/%s/%s/init\n", host->instance, id->text) < 0)
		return false;
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	while (fgets(line, sizeof(line), file)) {
		size_t length = strlen(line), tail = strlen(suffix);
		found += length >= tail && strcmp(line + length - tail, suffix) == 0;
	}
	fclose(file);
	/* Without cgroups only the process's start time identifies it. */
	return found >= expected;
}

static int group_remove(int root, const char *path, int64_t deadline)
{
	for (;;) {
		/* Checked before the removal: on a stalled host it is tried once more after the
		 * deadline. */
		bool last = clock_boot() > deadline;
		if (unlinkat(root, path, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (errno != EBUSY || last)
			return -errno;
		removal_pause();
	}
}

int cgroup_remove(const struct host *host, const struct id *id, int timeout_ms)
{
	static const char *const names[] = {"work", "init", ""};
	const struct hierarchies *all = cgroup_hierarchies(host);
	int64_t deadline = clock_boot() + timeout_ms * NSEC_PER_MSEC;
	int first = 0;
	cgroup_counters_forget(id);
	for (uint32_t i = 0; i < all->count; i++) {
		for (size_t name = 0; name < ARRAY_SIZE(names); name++) {
			char path[PATH_ROOM];
			int result = group_path(host, id, names[name], path);
			if (result >= 0)
				result = group_remove(all->list[i].root, path, deadline);
			if (result < 0 && first == 0)
				first = result;
		}
	}
	return first;
}

/* Finds an id below <instance> in one hierarchy that is not known; 0: none. */
static int group_find_unknown(const struct hierarchy *hierarchy, const struct host *host,
			      bool (*known)(void *data, const struct id *id), void *data,
			      struct id *ret_id)
{
	int fd = openat(hierarchy->root, host->instance, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	int found = 0;
	if (!directory)
		fd_close(&fd);
	for (struct dirent *entry; directory && !found && (entry = readdir(directory));)
		found = id_parse(entry->d_name, ret_id) >= 0 && !known(data, ret_id);
	if (directory)
		closedir(directory);
	return found;
}

int cgroup_sweep(const struct host *host, bool (*known)(void *data, const struct id *id),
		 void *data, int timeout_ms)
{
	const struct hierarchies *all = cgroup_hierarchies(host);
	for (uint32_t i = 0; i < all->count; i++) {
		struct id id;
		while (group_find_unknown(&all->list[i], host, known, data, &id)) {
			cgroup_kill(host, &id);
			/* Waits for the killed processes to end. */
			int result = cgroup_remove(host, &id, timeout_ms);
			if (result < 0)
				return result;
		}
		/* Fails unless it is empty. */
		unlinkat(all->list[i].root, host->instance, AT_REMOVEDIR);
	}
	return 0;
}
