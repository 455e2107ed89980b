/* Erasing. A sandbox's directory is renamed into <state>/trash first, so that a crash leaves either
 * a whole sandbox or rubbish; then a forked process erases it, so that nobody waits. At most a few
 * work at once; the slot is free again when the files are gone. */
#include "spawner/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "base/syscalls.h"
#include "base/text.h"

#define WORKERS_MAX 4
/* A sandbox may nest directories by the ten thousand: below this depth they are moved up to the
 * top and removed from there, so that descriptors and stack stay bounded. */
#define DEPTH_MAX 64

struct removal {
	int top;      /* where deep directories are moved to */
	dev_t device; /* other file systems are not entered */
	int failure;  /* the first -errno */
};

static void remove_contents(struct removal *removal, int directory, int depth);

static void remove_directory(struct removal *removal, int parent, const char *name, int depth)
{
	struct stat info;
	char moved[32];
	if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return;
	if (depth >= DEPTH_MAX) {
		snprintf(moved, sizeof(moved), "deep-%016llx", (unsigned long long)random_u64());
		if (renameat(parent, name, removal->top, moved) < 0 && removal->failure == 0)
			removal->failure = -errno;
		return;
	}
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &info) == 0 && info.st_dev == removal->device) {
		remove_contents(removal, fd, depth);
		if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return;
	} else {
		fd_close(&fd);
	}
	if (removal->failure == 0)
		removal->failure = -errno;
}

/* Takes the descriptor. */
static void remove_contents(struct removal *removal, int directory, int depth)
{
	DIR *entries = fdopendir(directory);
	if (!entries) {
		if (removal->failure == 0)
			removal->failure = -errno;
		close(directory);
		return;
	}
	for (struct dirent *entry; (entry = readdir(entries));) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(entries), entry->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno == EISDIR || errno == EPERM || errno == ENOTEMPTY)
			remove_directory(removal, dirfd(entries), entry->d_name, depth + 1);
		else if (removal->failure == 0)
			removal->failure = -errno;
	}
	closedir(entries);
}

int trash_remove_tree(int parent, const char *name)
{
	struct stat info;
	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	/* What was moved up from the deep is met in another round. */
	for (int round = 0;; round++) {
		if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		CLOSE_FD int top =
		    openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (top < 0 || fstat(top, &info) < 0)
			return -errno;
		struct removal removal = {.top = top, .device = info.st_dev};
		int copy = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (copy < 0)
			return -errno;
		remove_contents(&removal, copy, 0);
		if (removal.failure < 0)
			return removal.failure;
		if (round > 100000)
			return -ELOOP;
	}
}

static int open_trash(const struct host *host)
{
	char path[SPAWNER_PATH_MAX];
	if (text_format(path, sizeof(path), "%s/trash", host->state) < 0)
		return -ENAMETOOLONG;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* In a worker: a driver may keep what plain removal cannot remove. */
static int erase(const struct host *host, const struct driver *driver, struct guest *guest,
		 int trash, const char *name)
{
	struct error error;
	if (driver && driver->erase && driver->erase(host, guest, &error) < 0)
		log_debug("erasing %s: %s", name, error.message);
	int result = trash_remove_tree(trash, name);
	if (result < 0)
		log_warning("erasing %s: %s; it stays in the trash until the next start", name,
			    strerror(-result));
	return result;
}

/* A child that holds nothing of ours but the standard descriptors. */
static pid_t fork_worker(void)
{
	pid_t child = fork();
	if (child != 0)
		return child;
	spawner_loop_reset_signals();
	if (sys_close_range(3, ~0u, 0) < 0)
		_exit(1);
	/* Erasing may take its time; those who work should not notice. */
	if (nice(10) < 0)
		errno = 0;
	return 0;
}

static void start_worker(struct spawner *spawner, struct entry *entry)
{
	pid_t child = fork_worker();
	if (child == 0) {
		int trash = open_trash(&spawner->host);
		_exit(trash < 0 || erase(&spawner->host, entry->driver, &entry->guest, trash,
					 entry->guest.id.text) < 0);
	}
	if (child < 0) {
		/* The next start empties the trash. */
		log_warning("no process to erase %s: %s", entry->guest.id.text, strerror(errno));
		entry->state = ENTRY_FREE;
		return;
	}
	entry->worker = child;
	spawner->worker_count++;
}

static void start_workers(struct spawner *spawner)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS && spawner->worker_count < WORKERS_MAX; i++) {
		struct entry *entry = &spawner->entries[i];
		if (entry->state == ENTRY_ERASING && entry->worker == 0)
			start_worker(spawner, entry);
	}
}

void trash_files(struct spawner *spawner, const char *name)
{
	char from[SPAWNER_PATH_MAX], to[SPAWNER_PATH_MAX];
	if (text_format(from, sizeof(from), "%s/sandboxes/%s", spawner->host.state, name) < 0 ||
	    text_format(to, sizeof(to), "%s/trash/%s", spawner->host.state, name) < 0)
		return;
	if (rename(from, to) == 0 || errno == ENOENT)
		return;
	log_warning("moving %s to the trash: %s", from, strerror(errno));
}

void trash_entry(struct spawner *spawner, struct entry *entry)
{
	trash_files(spawner, entry->guest.id.text);
	process_done(&entry->guest.init);
	entry->worker = 0;
	entry->state = ENTRY_ERASING;
	start_workers(spawner);
}

/* In the worker of a start: what is there may be of any tier, and of a sandbox whose `slot` says
 * which. */
static void erase_rubbish(struct spawner *spawner, int trash, const char *name)
{
	struct guest guest = {.init = PROCESS_NONE};
	const struct driver *driver = NULL;
	char path[SPAWNER_PATH_MAX], text[64];
	if (id_parse(name, &guest.id) == 0 &&
	    text_format(path, sizeof(path), "%s/slot", name) == 0 &&
	    fd_read_small(trash, path, text, sizeof(text)) > 0) {
		text[strcspn(text, "\n")] = '\0';
		char *space = strchr(text, ' ');
		guest.tier = space ? tier_parse(space + 1) : TIER_COUNT;
		driver = spawner->driver_of(guest.tier);
	}
	erase(&spawner->host, driver, &guest, trash, name);
}

void trash_empty(struct spawner *spawner)
{
	pid_t child = fork_worker();
	if (child > 0)
		spawner->trash_worker = child;
	if (child != 0)
		return;
	int trash = open_trash(&spawner->host);
	DIR *entries = trash < 0 ? NULL : fdopendir(dup(trash));
	if (!entries)
		_exit(1);
	for (struct dirent *entry; (entry = readdir(entries));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			erase_rubbish(spawner, trash, entry->d_name);
	_exit(0);
}

bool trash_reap(struct spawner *spawner)
{
	bool any = false;
	if (spawner->trash_worker > 0 && waitpid(spawner->trash_worker, NULL, WNOHANG) > 0)
		spawner->trash_worker = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct entry *entry = &spawner->entries[i];
		if (entry->state != ENTRY_ERASING || entry->worker == 0 ||
		    waitpid(entry->worker, NULL, WNOHANG) == 0)
			continue;
		spawner->worker_count--;
		*entry = (struct entry){.guest.init = PROCESS_NONE};
		any = true;
	}
	if (any)
		start_workers(spawner);
	return any;
}
