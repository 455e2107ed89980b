/* Erasing. A sandbox's directory is first renamed into <state>/trash, so that a crash leaves
 * either a complete sandbox or trash. Then a forked process erases it in the background. At most
 * a few run at once. The slot is free when the files are gone. */
#include "spawner/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "base/text.h"
#include "tier/remove_tree.h"

#define WORKERS_MAX 4
#define FINISH_TIMEOUT (2 * NSEC_PER_SEC)
#define NAMES_TRIED 64

static int trash_open(const struct host *host)
{
	char path[SPAWNER_PATH_MAX];
	if (text_format(path, sizeof(path), "%s/trash", host->state) < 0)
		return -ENAMETOOLONG;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		log_error("opening %s: %s", path, strerror(errno));
		return -errno;
	}
	return fd;
}

/* Runs in the child. */
static int trash_erase(int trash, const char *name)
{
	int result = remove_tree(trash, name);
	if (result < 0)
		log_warning("erasing %s: %s; it stays in the trash until the next start", name,
			    strerror(-result));
	return result;
}

/* A child that keeps only the standard descriptors. */
static pid_t eraser_fork(void)
{
	pid_t child = fork();
	if (child != 0)
		return child;
	spawner_loop_reset_signals();
	int closed = sys_close_range(3, ~0u, 0);
	if (closed < 0) {
		log_error("erasing: closing descriptors: %s", strerror(-closed));
		_exit(1);
	}
	/* Low priority: erasing must not slow down sandboxes. */
	if (nice(10) < 0)
		errno = 0;
	return 0;
}

static void eraser_start(struct spawner *spawner, struct guest_entry *entry)
{
	pid_t child = eraser_fork();
	if (child == 0) {
		int trash = trash_open(&spawner->host);
		_exit(trash < 0 || trash_erase(trash, entry->guest.id.text) < 0);
	}
	if (child < 0) {
		/* The next start empties the trash. */
		log_warning("starting a process to erase %s: %s", entry->guest.id.text,
			    strerror(errno));
		*entry = (struct guest_entry)ENTRY_NONE;
		return;
	}
	entry->worker = child;
	spawner->worker_count++;
}

static void erasers_start(struct spawner *spawner)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS && spawner->worker_count < WORKERS_MAX; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		if (entry->state == ENTRY_ERASING && entry->worker == 0)
			eraser_start(spawner, entry);
	}
}

/* If the name exists in the trash, another is used. A directory that stays in sandboxes/ would
 * be adopted by the next start. */
void trash_move_files(struct spawner *spawner, const char *name)
{
	char from[SPAWNER_PATH_MAX], to[SPAWNER_PATH_MAX];
	int result = text_format(from, sizeof(from), "%s/sandboxes/%s", spawner->host.state, name);
	for (int turn = 0; result >= 0 && turn < NAMES_TRIED; turn++) {
		result = turn == 0
			     ? text_format(to, sizeof(to), "%s/trash/%s", spawner->host.state, name)
			     : text_format(to, sizeof(to), "%s/trash/%s.%d", spawner->host.state,
					   name, turn);
		if (result >= 0 && (rename(from, to) == 0 || errno == ENOENT))
			return;
		if (errno != ENOTEMPTY && errno != EEXIST)
			break;
	}
	log_error("moving %s to the trash: %s", from, strerror(errno));
}

void trash_move_entry(struct spawner *spawner, struct guest_entry *entry)
{
	trash_move_files(spawner, entry->guest.id.text);
	process_done(&entry->guest.init);
	entry->worker = 0;
	entry->state = ENTRY_ERASING;
	erasers_start(spawner);
}

void trash_empty(struct spawner *spawner)
{
	pid_t child = eraser_fork();
	if (child > 0)
		spawner->trash_worker = child;
	if (child != 0)
		return;
	int trash = trash_open(&spawner->host);
	DIR *entries = trash < 0 ? NULL : fdopendir(dup(trash));
	if (!entries)
		_exit(1);
	for (struct dirent *entry; (entry = readdir(entries));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			trash_erase(trash, entry->d_name);
	_exit(0);
}

/* Some file systems need long for one file; the next start continues then. */
void trash_wait(struct spawner *spawner)
{
	int64_t until = clock_monotonic() + FINISH_TIMEOUT;
	while ((spawner->worker_count > 0 || spawner->trash_worker > 0) &&
	       clock_monotonic() < until) {
		trash_reap(spawner);
		nanosleep(&(struct timespec){.tv_nsec = NSEC_PER_MSEC}, NULL);
	}
}

/* The worker itself logs what fails, unless it is killed. */
static bool eraser_reap(struct guest_entry *entry)
{
	int status = 0;
	if (waitpid(entry->worker, &status, WNOHANG) == 0)
		return false;
	if (WIFSIGNALED(status))
		log_warning("erasing %s: the worker was ended by signal %d; the rest stays in the "
			    "trash until the next start",
			    entry->guest.id.text, WTERMSIG(status));
	return true;
}

bool trash_reap(struct spawner *spawner)
{
	bool any = false;
	if (spawner->trash_worker > 0 && waitpid(spawner->trash_worker, NULL, WNOHANG) > 0)
		spawner->trash_worker = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		if (entry->state != ENTRY_ERASING || entry->worker == 0 || !eraser_reap(entry))
			continue;
		spawner->worker_count--;
		*entry = (struct guest_entry)ENTRY_NONE;
		any = true;
	}
	if (any)
		erasers_start(spawner);
	return any;
}
