/* The files of output: <state>/logs/<sandbox>/<exec>.out and .err, the daemon's. Made before the
 * exec begins, opened when somebody reads, removed with the sandbox or when a sandbox keeps more
 * than it may. Called by exec*.c and timers.c; each call is a few short file operations,
 * directories are emptied a batch per turn of the loop. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"

/* Each is a row to write as well: a turn of the loop must stay short. */
#define REMOVE_BATCH 32
/* Between two counts of what running execs have written. */
#define GROWN_PAUSE (10 * NSEC_PER_MSEC)

static const char *const suffixes[2] = {"out", "err"};
#define LOG_PATH_MAX (2 * ID_LENGTH + 8)

static void log_path(const struct id *sandbox, const struct id *exec, int stream,
		     char path[LOG_PATH_MAX])
{
	if (text_format(path, LOG_PATH_MAX, "%s/%s.%s", sandbox->text, exec->text,
			suffixes[stream]) < 0)
		abort(); /* ids have a fixed length */
}

int logs_open_directory(struct core *core, struct error *error)
{
	char path[512];
	int fd = -1;
	if (text_format(path, sizeof(path), "%s/logs", core->config.state) == 0)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s", path);
	core->private->logs_fd = fd;
	return 0;
}

static int stream_count(const struct exec_row *row)
{
	return row->flags & EXEC_TTY ? 1 : 2;
}

static int create_one(struct exec *exec, int stream, struct error *error)
{
	struct core *core = exec->sandbox->core;
	char path[LOG_PATH_MAX];
	log_path(&exec->sandbox->row.id, &exec->row.id, stream, path);
	int fd = spare_take(core, path);
	if (fd < 0)
		fd = openat(core->private->logs_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
			    0600);
	if (fd < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "making the output's log");
	exec->logs[stream].fd = fd;
	int result = output_log_format(fd, exec->row.head, exec->row.tail);
	if (result == 0)
		result = output_log_open(fd, &exec->logs[stream]);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "making the output's log");
	return 0;
}

int exec_logs_create(struct exec *exec, struct error *error)
{
	struct core *core = exec->sandbox->core;
	const char *directory = exec->sandbox->row.id.text;
	if (mkdirat(core->private->logs_fd, directory, 0700) < 0 && errno != EEXIST)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "making the directory of logs");
	for (int i = 0; i < stream_count(&exec->row); i++) {
		if (create_one(exec, i, error) == 0)
			continue;
		exec_logs_close(exec);
		exec_logs_unlink(exec->sandbox, &exec->row.id);
		return -1;
	}
	return 0;
}

/* 0 when all that should be there is open. */
int exec_logs_open(struct exec *exec)
{
	if (exec->logs_removed)
		return -ENOENT;
	for (int i = 0; i < stream_count(&exec->row); i++) {
		struct output_log *log = &exec->logs[i];
		char path[LOG_PATH_MAX];
		if (log->fd >= 0)
			continue;
		log_path(&exec->sandbox->row.id, &exec->row.id, i, path);
		CLOSE_FD int fd = openat(exec->sandbox->core->private->logs_fd, path,
					 O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0) {
			exec->logs_removed = errno == ENOENT;
			return -errno;
		}
		int result = output_log_open(fd, log);
		/* The sizes that we made it with: the header is the guest's to write. */
		if (result == 0 && (log->head != exec->row.head || log->tail != exec->row.tail))
			result = -EBADMSG;
		log->fd = result == 0 ? TAKE_FD(fd) : -1;
		if (result < 0)
			return result;
	}
	return 0;
}

void exec_logs_close(struct exec *exec)
{
	fd_close(&exec->logs[0].fd);
	fd_close(&exec->logs[1].fd);
}

void exec_logs_unlink(struct sandbox *sandbox, const struct id *exec)
{
	for (int i = 0; i < 2; i++) {
		char path[LOG_PATH_MAX];
		log_path(&sandbox->row.id, exec, i, path);
		unlinkat(sandbox->core->private->logs_fd, path, 0);
	}
}

/* What can be read is what the log says, whatever a frame said. */
void exec_logs_refresh(struct exec *exec)
{
	uint64_t *totals[2] = {&exec->row.out_total, &exec->row.err_total};
	for (int i = 0; i < stream_count(&exec->row); i++) {
		struct output_log *log = &exec->logs[i];
		if (log->fd >= 0 && output_log_refresh(log) == 0)
			*totals[i] = MIN(log->total, (uint64_t)INT64_MAX);
	}
}

ssize_t exec_read(struct exec *exec, enum exec_stream stream, uint64_t offset, void *data,
		  size_t size, uint64_t *ret_gap)
{
	struct output_log *log = &exec->logs[stream == EXEC_STDOUT ? 0 : 1];
	uint64_t total = exec_total(exec, stream);
	*ret_gap = 0;
	if (stream == EXEC_STDERR && (exec->row.flags & EXEC_TTY))
		return 0;
	int result = exec_logs_open(exec);
	if (result == -ENOENT) {
		/* Removed, as the oldest: all that is left is how much it was. */
		*ret_gap = total > offset ? total - offset : 0;
		return 0;
	}
	if (result == 0)
		result = output_log_refresh(log);
	ssize_t got = result < 0 ? result : output_log_read(log, offset, data, size, ret_gap);
	if (exec_ended(exec) && list_empty(&exec->watchers))
		exec_logs_close(exec);
	return got;
}

uint64_t exec_logs_size(const struct exec_row *row)
{
	uint64_t most = row->head + row->tail;
	if (most == 0)
		return 0; /* removed */
	return MIN(row->out_total, most) + MIN(row->err_total, most) +
	       (uint64_t)stream_count(row) * OUTPUT_LOG_HEADER;
}

/* --- how much is kept --- */

/* The channel of a code context must hold a whole record: it has what it asks for, beside the
 * others. A context has one. */
static bool is_channel(const struct exec_row *row)
{
	return id_is_set(&row->context) && row->flags & EXEC_LOSSLESS;
}

/* What running execs may come to have, and what they have. An ended one that has processes left may
 * go on too. */
static void live_bytes(const struct sandbox *sandbox, uint64_t *ret_promised, uint64_t *ret_used)
{
	*ret_promised = *ret_used = 0;
	list_each (&sandbox->execs, node) {
		const struct exec *exec = list_entry(node, struct exec, link);
		const struct exec_row *row = &exec->row;
		uint64_t streams = (uint64_t)stream_count(row);
		if (!exec_ended(exec))
			*ret_used += exec_logs_size(row);
		if ((!exec_ended(exec) || row->left_running > 0) && !is_channel(row))
			*ret_promised += streams * (row->head + row->tail + OUTPUT_LOG_HEADER);
	}
}

/* Half of what is left, so that there is always something for the next one. */
void exec_logs_fit(const struct sandbox *sandbox, struct exec_row *row)
{
	uint64_t maximum = sandbox->core->config.log_bytes_max, promised, used;
	uint64_t asked = row->head + row->tail;
	if (maximum == 0 || is_channel(row))
		return;
	live_bytes(sandbox, &promised, &used);
	uint64_t left = maximum > promised ? maximum - promised : 0;
	uint64_t each = MAX(left / 2 / (uint64_t)stream_count(row), OUTPUT_LEAST);
	if (asked <= each)
		return;
	row->head = row->head * each / asked;
	row->tail = each - row->head;
}

/* The oldest ended execs of a sandbox whose logs, or whose rows, are too many. */
struct excess {
	uint64_t bytes, bytes_allowed;
	uint32_t rows, rows_allowed;
	struct {
		struct id id;
		uint64_t bytes;
		bool row_too;
	} found[REMOVE_BATCH];
	size_t count;
};

static bool find_excess(void *data, const struct exec_row *row)
{
	struct excess *excess = data;
	uint64_t bytes = exec_logs_size(row);
	bool over_bytes = bytes > 0 && excess->bytes > excess->bytes_allowed;
	bool over_rows = excess->rows >= excess->rows_allowed;
	bool ended = row->state == EXEC_ENDED || row->state == EXEC_FAILED;
	excess->rows++;
	/* The store does not know how much a running one has. */
	if (!ended)
		return true;
	excess->bytes += bytes;
	if (!(over_bytes || over_rows) || row->left_running > 0)
		return true;
	/* Rows come newest first, and the oldest are to go: the last of them stay in the batch. */
	size_t at = excess->count++ % REMOVE_BATCH;
	excess->found[at].id = row->id;
	excess->found[at].bytes = bytes;
	excess->found[at].row_too = over_rows;
	return true;
}

/* The row says so with a retention of nothing; its totals stay. */
static int forget_logs(struct sandbox *sandbox, const struct id *id, struct error *error)
{
	struct exec_row row = {0};
	logs_remove(sandbox->core, &sandbox->row.id, id);
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (!id_equal(&exec->row.id, id))
			continue;
		exec_logs_close(exec);
		exec->logs_removed = true;
		exec->row.head = exec->row.tail = 0;
	}
	int found = store_exec_get(sandbox->core->store, &sandbox->row.id, id, &row, error);
	if (found <= 0)
		return found;
	row.head = row.tail = 0;
	int result = store_exec_update(sandbox->core->store, &row, error);
	exec_row_done(&row);
	return result;
}

/* `live`: bytes of those that run. */
static void remove_excess(struct sandbox *sandbox, uint64_t live)
{
	struct core *core = sandbox->core;
	struct error error;
	uint64_t maximum = core->config.log_bytes_max;
	/* To three quarters, so that this walk is not made for every exec. */
	struct excess excess = {
	    .bytes_allowed = maximum / 4 * 3 - MIN(maximum / 4 * 3, live),
	    .rows_allowed = EXEC_ROWS_MAX / 4 * 3,
	};
	if (maximum == 0)
		excess.bytes_allowed = UINT64_MAX;
	int result = store_exec_each(core->store, &sandbox->row.id, find_excess, &excess, &error);
	size_t count = MIN(excess.count, REMOVE_BATCH);
	for (size_t i = 0; i < count && result >= 0; i++) {
		if (excess.found[i].row_too) {
			logs_remove(core, &sandbox->row.id, &excess.found[i].id);
			result = store_exec_delete(core->store, &sandbox->row.id,
						   &excess.found[i].id, &error);
			excess.rows--;
		} else {
			result = forget_logs(sandbox, &excess.found[i].id, &error);
		}
		excess.bytes -= excess.found[i].bytes;
	}
	if (result < 0)
		log_warning("sandbox %s: its oldest output cannot be removed: %s",
			    sandbox->row.id.text, error.message);
	sandbox->life->log_bytes = excess.bytes;
	sandbox->life->log_bytes_pruned = excess.bytes + live;
	sandbox->life->exec_rows = excess.rows;
}

void exec_logs_account(struct sandbox *sandbox, const struct exec_row *row)
{
	struct sandbox_life *life = sandbox->life;
	uint64_t maximum = sandbox->core->config.log_bytes_max, promised, used;
	life->log_bytes += exec_logs_size(row);
	live_bytes(sandbox, &promised, &used);
	if ((maximum > 0 && life->log_bytes + used > maximum) || life->exec_rows > EXEC_ROWS_MAX)
		remove_excess(sandbox, used);
}

void exec_logs_grown(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	uint64_t maximum = sandbox->core->config.log_bytes_max, promised, used;
	int64_t now = clock_boot();
	/* The guest chooses how often it tells of output. */
	if (maximum == 0 || life->log_bytes == 0 || now - life->log_bytes_seen_at < GROWN_PAUSE)
		return;
	life->log_bytes_seen_at = now;
	live_bytes(sandbox, &promised, &used);
	uint64_t all = life->log_bytes + used;
	/* Not at every line: what could not be removed a moment ago cannot be now. */
	if (all > maximum && all > life->log_bytes_pruned + maximum / 16)
		remove_excess(sandbox, used);
}

/* A removal under way, in a thread of libuv's: freeing a file whose pages are being written back
 * waits for the disk. The thread has nothing but this struct. */
struct log_work {
	uv_work_t work;
	struct core *core; /* NULL: stopped meanwhile */
	int logs_fd;
	struct log_removal removal;
};

static void remove_directory(int logs, const char *name)
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
	if (unlinkat(logs, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		log_warning("the logs of sandbox %s cannot be removed: %s", name, strerror(errno));
}

void logs_remove_now(int logs, const struct log_removal *removal)
{
	if (!id_is_set(&removal->exec)) {
		remove_directory(logs, removal->sandbox.text);
		return;
	}
	for (int i = 0; i < 2; i++) {
		char path[LOG_PATH_MAX];
		log_path(&removal->sandbox, &removal->exec, i, path);
		unlinkat(logs, path, 0);
	}
}

static void on_work(uv_work_t *work)
{
	struct log_work *log_work = container_of(work, struct log_work, work);
	logs_remove_now(log_work->logs_fd, &log_work->removal);
}

static void remove_next(struct core *core);

static void on_work_done(uv_work_t *work, int status UNUSED)
{
	struct log_work *log_work = container_of(work, struct log_work, work);
	struct core *core = log_work->core;
	fd_close(&log_work->logs_fd);
	free(log_work);
	if (!core)
		return;
	core->private->removing = NULL;
	remove_next(core);
}

/* One at a time: the disk is shared with everybody's output. */
static void remove_next(struct core *core)
{
	struct core_private *private = core->private;
	if (private->removing || private->stopping || list_empty(&private->removals))
		return;
	struct log_removal *removal = list_entry(private->removals.next, struct log_removal, link);
	struct log_work *work = calloc(1, sizeof(*work));
	if (!work)
		abort();
	work->core = core;
	work->removal = *removal;
	work->logs_fd = fcntl(private->logs_fd, F_DUPFD_CLOEXEC, 0);
	list_remove(&removal->link);
	free(removal);
	if (work->logs_fd < 0 ||
	    uv_queue_work(core->loop, &work->work, on_work, on_work_done) < 0) {
		/* The next start finds what has no sandbox. */
		fd_close(&work->logs_fd);
		free(work);
		return;
	}
	private->removing = work;
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
	remove_next(core);
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

/* Does a file of this name belong to an exec whose output is kept? What nobody can tell is kept. */
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

/* Logs are made before the row of their exec and removed after it: a crash between the two leaves
 * them. */
static void remove_stray_logs(struct sandbox *sandbox)
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
		remove_stray_logs(list_entry(node, struct sandbox, link));
	int fd = openat(core->private->logs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	if (!directory) {
		fd_close(&fd);
		return;
	}
	struct dirent *entry;
	while ((entry = readdir(directory))) {
		struct id id;
		if (id_parse(entry->d_name, &id) == 0 && !sandbox_by_id(core, &id))
			logs_remove(core, &id, NULL);
	}
	closedir(directory);
}
