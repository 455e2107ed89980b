/* Removes output files that are not needed any more. Freeing a file whose pages are being written
 * back waits for the disk, so a thread does it, one at a time. Called by core.c and
 * the code that deletes, on the loop. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/loop_threads.h"
#include "base/text.h"
#include "core/core_private.h"

/* A removal under way in a thread. The thread uses only this struct. */
struct log_work {
	struct loop_job job;
	struct core *core; /* NULL: stopped meanwhile */
	int logs_fd;
	struct log_removal removal;
};

static void logs_empty_directory(int logs, const char *name)
{
	int fd = openat(logs, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	for (struct dirent *entry; directory && (entry = readdir(directory));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(fd, entry->d_name, 0);
	if (directory)
		closedir(directory);
	else
		fd_close(&fd);
}

static void logs_remove_directory(int logs, const char *name)
{
	logs_empty_directory(logs, name);
	if (unlinkat(logs, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		log_warning("the logs of sandbox %s cannot be removed: %s", name, strerror(errno));
}

void logs_remove_now(int logs, const struct log_removal *removal)
{
	if (!id_is_set(&removal->exec)) {
		logs_remove_directory(logs, removal->sandbox.text);
		return;
	}
	for (int i = 0; i < 2; i++) {
		char path[LOG_PATH_MAX];
		log_path(&removal->sandbox, &removal->exec, i, path);
		unlinkat(logs, path, 0);
	}
}

static void log_remove(struct loop_job *job)
{
	struct log_work *log_work = container_of(job, struct log_work, job);
	logs_remove_now(log_work->logs_fd, &log_work->removal);
}

static void logs_remove_next(struct core *core);

static void log_removed(struct loop_job *job)
{
	struct log_work *log_work = container_of(job, struct log_work, job);
	struct core *core = log_work->core;
	fd_close(&log_work->logs_fd);
	free(log_work);
	if (!core)
		return;
	core->private->removing = NULL;
	logs_remove_next(core);
}

/* One at a time: all sandboxes share the disk. */
static void logs_remove_next(struct core *core)
{
	struct core_private *private = core->private;
	if (private->removing || private->stopping || list_empty(&private->removals))
		return;
	struct log_removal *removal = list_entry(private->removals.next, struct log_removal, link);
	struct log_work *work = calloc(1, sizeof(*work));
	if (!work)
		abort();
	work->job = (struct loop_job){.in_thread = log_remove, .done = log_removed};
	work->core = core;
	work->removal = *removal;
	work->logs_fd = fcntl(private->logs_fd, F_DUPFD_CLOEXEC, 0);
	list_remove(&removal->link);
	free(removal);
	if (work->logs_fd < 0) {
		/* The next start finds directories without a sandbox. */
		free(work);
		return;
	}
	private->removing = work;
	loop_job_run(core->loop, &work->job);
}

void logs_remove(struct core *core, const struct id *sandbox, const struct id *exec)
{
	struct log_removal *removal = calloc(1, sizeof(*removal));
	if (!removal)
		abort();
	removal->sandbox = *sandbox;
	if (exec)
		removal->exec = *exec;
	list_append(&core->private->removals, &removal->link);
	logs_remove_next(core);
}

void logs_stop(struct core *core)
{
	struct core_private *private = core->private;
	if (private->removing)
	private->removing->core = NULL;
	private->removing = NULL;
	while (!list_empty(&private->removals)) {
		struct log_removal *removal =
		    list_entry(private->removals.next, struct log_removal, link);
		list_remove(&removal->link);
		free(removal);
	}
	fd_close(&private->logs_fd);
}

/* --- what a crash has left --- */

/* Does a file of this name belong to an exec whose output is kept? Doubtful files are kept. */
static bool log_wanted(struct sandbox *sandbox, const char *name)
{
	struct exec_row row = {0};
	struct error error;
	struct id id;
	char text[ID_LENGTH + 1] = "";
	if (strnlen(name, ID_LENGTH + 1) > ID_LENGTH)
		memcpy(text, name, ID_LENGTH);
	if (id_parse(text, &id) < 0)
		return true;
	int found = store_exec_get(sandbox->core->store, &sandbox->row.id, &id, &row, &error);
	bool wanted = found < 0 || (found > 0 && row.head + row.tail > 0);
	if (found > 0)
		exec_row_done(&row);
	return wanted;
}

/* Logs are made before the row of their exec and removed after it, so a crash in between leaves
 * stray logs. */
static void sandbox_remove_stray_logs(struct sandbox *sandbox)
{
	int fd = openat(sandbox->core->private->logs_fd, sandbox->row.id.text,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	if (!directory) {
		fd_close(&fd);
		return;
	}
	for (struct dirent *entry; (entry = readdir(directory));)
		if (entry->d_name[0] != '.' && !log_wanted(sandbox, entry->d_name))
			unlinkat(fd, entry->d_name, 0);
	closedir(directory);
}

void logs_remove_strays(struct core *core)
{
	list_each (&core->sandboxes, node)
		sandbox_remove_stray_logs(list_entry(node, struct sandbox, link));
	int fd = openat(core->private->logs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	if (!directory) {
		fd_close(&fd);
		return;
	}
	struct dirent *entry;
	while ((entry = readdir(directory))) {
		struct id id;
		if (id_parse(entry->d_name, &id) < 0 || sandbox_by_id(core, &id))
			continue;
		/* Not later: a member of the pool gets new ones as soon as it is ready. */
		if (pool_has(core, &id))
			logs_empty_directory(fd, entry->d_name);
		else
			logs_remove(core, &id, NULL);
	}
	closedir(directory);
}
