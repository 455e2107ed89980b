/* Spare log files: <state>/logs/spare/<number>, empty and without an owner. Making a file is the
 * most expensive part of beginning an exec (on an ext4 without a journal the search for an inode
 * passes every inode that was freed in the last minute), so a thread makes a few in advance, and
 * two of them are renamed for each exec. Files that a sandbox has used are never reused: an init
 * may keep the descriptor of a log as long as it likes.
 *
 * They are made in a separate directory and then moved: the search for an inode holds the lock of
 * the directory, and the loop's rename would wait for it. Every 256 files have a new one, which
 * ext4 is asked to place in another block group than its parent: there are few inodes that were
 * freed in the last minutes (12 instead of 800 us per file, beside a run of the tests). If the
 * files were used up, twice as many are kept from then on. A daemon first removes the leftovers of
 * the last one.
 * Called by ready_logs.c, log.c, ends.c and core.c, on the loop. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop_threads.h"
#include "base/text.h"
#include "core/core_private.h"

#define SPARES_FIRST 16
#define SPARES_MAX 256
#define BATCH 16 /* per job, so that ready files need not wait long */
#define MADE_IN_ONE 256
#define SPARE_PATH_MAX 48
#define DIRECTORY "spare"
#define MAKING DIRECTORY "/making"

/* The thread uses only this struct. */
struct spare_work {
	struct loop_job job;
	struct core *core; /* NULL: stopped meanwhile */
	int logs_fd;
	bool first; /* existing files are an earlier daemon's */
	uint64_t next;
	uint32_t wanted, made;
};

static void spare_path(const char *directory, uint64_t number, char path[SPARE_PATH_MAX])
{
	if (text_format(path, SPARE_PATH_MAX, "%s/%llu", directory, (unsigned long long)number) < 0)
		abort(); /* a number has at most twenty digits */
}

/* An earlier daemon's files, and the directories in which it made them. */
static void spares_remove_old(int logs_fd, const char *path)
{
	char file[NAME_MAX + 3];
	int fd = openat(logs_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	if (!directory) {
		fd_close(&fd);
		return;
	}
	for (struct dirent *entry; (entry = readdir(directory));) {
		if (entry->d_name[0] == '.' || unlinkat(fd, entry->d_name, 0) == 0)
			continue;
		snprintf(file, sizeof(file), "%s/f", entry->d_name);
		unlinkat(fd, file, 0);
		unlinkat(fd, entry->d_name, AT_REMOVEDIR);
	}
	closedir(directory);
}

/* Asks ext4 to spread the directories in this one over its block groups, as it does with those in
 * the root. Another file system may not know the flag. */
static void directory_spread(int logs_fd, const char *path)
{
	CLOSE_FD int fd = openat(logs_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	unsigned flags;
	if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || (flags & FS_TOPDIR_FL))
		return;
	flags |= FS_TOPDIR_FL;
	(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static bool spares_prepare(const struct spare_work *work)
{
	int logs_fd = work->logs_fd;
	if (work->first) {
		spares_remove_old(logs_fd, MAKING);
		spares_remove_old(logs_fd, DIRECTORY);
	}
	if ((mkdirat(logs_fd, DIRECTORY, 0700) < 0 && errno != EEXIST) ||
	    (mkdirat(logs_fd, MAKING, 0700) < 0 && errno != EEXIST))
		return false;
	if (work->first)
		directory_spread(logs_fd, MAKING);
	return true;
}

static void spares_make(struct loop_job *job)
{
	struct spare_work *work = container_of(job, struct spare_work, job);
	int logs_fd = work->logs_fd;
	char place[SPARE_PATH_MAX], made[SPARE_PATH_MAX + 2], path[SPARE_PATH_MAX];
	uint64_t number = work->next / MADE_IN_ONE;
	if (!spares_prepare(work))
		return;
	spare_path(MAKING, number, place);
	if (mkdirat(logs_fd, place, 0700) < 0) {
		if (errno != EEXIST)
			return;
	} else if (number > 0) {
		spare_path(MAKING, number - 1, path);
		unlinkat(logs_fd, path, AT_REMOVEDIR);
	}
	snprintf(made, sizeof(made), "%s/f", place);
	for (; work->made < work->wanted; work->made++) {
		spare_path(DIRECTORY, work->next + work->made, path);
		CLOSE_FD int fd =
		    openat(logs_fd, made, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0 || renameat(logs_fd, made, logs_fd, path) < 0)
			break;
	}
}

static void spares_made(struct loop_job *job)
{
	struct spare_work *work = container_of(job, struct spare_work, job);
	if (work->core) {
		struct log_spares *spares = &work->core->private->spares;
		spares->work = NULL;
		spares->count += work->made;
		spares->started = true;
		if (work->made == work->wanted)
			spares_fill(work->core);
	}
	fd_close(&work->logs_fd);
	free(work);
}

void spares_fill(struct core *core)
{
	struct log_spares *spares = &core->private->spares;
	spares->target = MAX(spares->target, SPARES_FIRST);
	if (spares->work || spares->count > spares->target / 2 || core->private->stopping)
		return;
	struct spare_work *work = calloc(1, sizeof(*work));
	if (!work)
		abort();
	*work = (struct spare_work){
	    .job = {.in_thread = spares_make, .done = spares_made},
	    .core = core,
	    .logs_fd = fcntl(core->private->logs_fd, F_DUPFD_CLOEXEC, 0),
	    .first = !spares->started,
	    .next = spares->first + spares->count,
	    .wanted = MIN(spares->target - spares->count, BATCH),
	};
	/* Without spare files an exec makes its own. */
	if (work->logs_fd < 0) {
		free(work);
		return;
	}
	spares->work = work;
	loop_job_run(core->loop, &work->job);
}

int spare_take(struct core *core, const char *path)
{
	struct log_spares *spares = &core->private->spares;
	char spare[SPARE_PATH_MAX];
	if (spares->count == 0) {
		if (spares->started)
			spares->target = MIN(2 * spares->target, SPARES_MAX);
		spares_fill(core);
		return -ENOENT;
	}
	if (text_format(spare, sizeof(spare), DIRECTORY "/%llu",
			(unsigned long long)spares->first) < 0)
		return -ENAMETOOLONG;
	spares->first++;
	spares->count--;
	if (renameat(core->private->logs_fd, spare, core->private->logs_fd, path) < 0)
		return -errno;
	int fd = openat(core->private->logs_fd, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

void spares_stop(struct core *core)
{
	struct log_spares *spares = &core->private->spares;
	if (spares->work)
		spares->work->core = NULL;
	spares->work = NULL;
}
