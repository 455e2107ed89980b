/* The output of an exec: its two files (<state>/logs/<sandbox>/<exec>.out and .err, owned by the
 * daemon), made before it begins, opened for readers; the part that fits an answer; how much a
 * sandbox keeps. Called by the files beside this one, the edges and timers.c; each call is a few
 * short file operations. log_removal.c frees removed files. */
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

/* Each also needs a write of a row: a turn of the loop must stay short. */
#define REMOVE_BATCH 32
/* A lossless exec needs a ring buffer of this size. */
#define LOSSLESS_TAIL_MIN (64 * KIB)
/* The pause between two counts of the output of running execs. */
#define GROWN_PAUSE (10 * NSEC_PER_MSEC)

static const char *const stream_suffixes[2] = {"out", "err"};

void log_path(const struct id *sandbox, const struct id *exec, int stream, char path[LOG_PATH_MAX])
{
	if (text_format(path, LOG_PATH_MAX, "%s/%s.%s", sandbox->text, exec->text,
			stream_suffixes[stream]) < 0)
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

/* --- the files of one exec --- */

static int stream_count(const struct exec_row *row)
{
	return row->flags & EXEC_TTY ? 1 : 2;
}

/* The control channel of a code context (core/code/start.c). */
static bool exec_is_channel(const struct exec_row *row)
{
	return id_is_set(&row->context) && row->flags & EXEC_LOSSLESS;
}

/* Nobody reads what is written to a channel's standard error. */
static uint64_t stream_tail(const struct exec_row *row, int stream)
{
	return stream == 1 && exec_is_channel(row) ? MIN(row->tail, CODE_CHANNEL_LEAST) : row->tail;
}

int exec_logs_create(struct exec *exec, struct error *error)
{
	int logs_fd = exec->sandbox->core->private->logs_fd, result = 0;
	bool plain = stream_count(&exec->row) == 2 && !exec_is_channel(&exec->row);
	if (plain && !id_is_set(&exec->row.id) &&
	    ready_logs_take(&exec->sandbox->life->ready_logs, exec))
		return 0;
	if (!id_is_set(&exec->row.id))
		exec->row.id = id_new();
	if (mkdirat(logs_fd, exec->sandbox->row.id.text, 0700) < 0 && errno != EEXIST)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "making the directory of logs");
	for (int i = 0; i < stream_count(&exec->row) && result == 0; i++) {
		char path[LOG_PATH_MAX];
		log_path(&exec->sandbox->row.id, &exec->row.id, i, path);
		int fd = spare_take(exec->sandbox->core, path);
		if (fd < 0)
			fd = openat(logs_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		result = fd < 0 ? -errno
				: output_log_format(fd, exec->row.head, stream_tail(&exec->row, i));
		exec->logs[i].fd = fd;
		if (result == 0)
			result = output_log_open(fd, &exec->logs[i]);
	}
	if (result == 0)
		return 0;
	exec_logs_close(exec);
	exec_logs_unlink(exec->sandbox, &exec->row.id);
	return error_set_errno(error, error_kind_of_errno(result), result,
			       "making the output's log");
}

/* 0 if all existing logs are open. */
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
		/* As we (or earlier daemons) made it: the header is the guest's to write. */
		if (result == 0 &&
		    (log->head != exec->row.head ||
		     (log->tail != stream_tail(&exec->row, i) && log->tail != exec->row.tail)))
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

/* The log decides what can be read, whatever a frame reported. */
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
		/* Removed as one of the oldest: only its size is known. */
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

/* --- the first and the last of it, for an answer --- */

/* Reads [from, to) into `buffer` up to the first gap; *ret_gap = the missing bytes before its first
 * byte. */
static int exec_read_range(struct exec *exec, enum exec_stream stream, uint64_t from, uint64_t to,
			   struct buffer *buffer, uint64_t *ret_gap, struct error *error)
{
	size_t done = 0;
	*ret_gap = 0;
	if (to <= from)
		return 0;
	*buffer = BUFFER(to - from);
	if (buffer_reserve(buffer, to - from) < 0)
		abort(); /* its maximum is sufficient */
	while (from + *ret_gap + done < to) {
		uint64_t gap = 0;
		size_t room = (size_t)(to - from - *ret_gap) - done;
		ssize_t size = exec_read(exec, stream, from + *ret_gap + done, buffer->data + done,
					 room, &gap);
		if (size < 0)
			return error_set_errno(error, ERROR_INTERNAL, (int)-size,
					       "the output log of exec `%s` cannot be read",
					       exec->row.id.text);
		if (gap > 0 && done > 0)
			break;
		if (gap > 0)
			*ret_gap = gap;
		if (size == 0 || from + gap >= to)
			break;
		done += MIN((size_t)size, (size_t)(to - from - *ret_gap) - done);
	}
	buffer_grow(buffer, done);
	return 0;
}

size_t utf8_rest(const char *text, size_t size)
{
	size_t at = 0;
	while (at < size && at < 3 && ((unsigned char)text[at] & 0xc0) == 0x80)
		at++;
	return at;
}

/* Where to cut a head: after a line in its last quarter, else between two characters. */
static size_t output_head_end(const char *data, size_t size)
{
	const char *line = size ? memrchr(data + size - size / 4, '\n', size / 4) : NULL;
	return line ? (size_t)(line - data) + 1 : text_utf8_prefix(data, size);
}

/* How many bytes to skip at the start of a tail: up to a line in its first quarter, else the rest
 * of a character. */
static size_t output_tail_start(const char *data, size_t size)
{
	const char *line = size ? memchr(data, '\n', size / 4) : NULL;
	return line ? (size_t)(line - data) + 1 : utf8_rest(data, size);
}

int output_cut(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
	       uint64_t head_max, uint64_t tail_max, struct output_cut *ret_cut,
	       struct error *error)
{
	struct output_cut *cut = ret_cut;
	*cut = (struct output_cut){.total = end > begin ? end - begin : 0};
	uint64_t gap, total = cut->total, whole = head_max + tail_max;
	uint64_t head = total <= whole ? total : head_max;
	if (total == 0)
		return 0;
	if (exec_read_range(exec, stream, begin, begin + head, &cut->head, &gap, error) < 0)
		goto failed;
	if (gap > 0)
		buffer_clear(&cut->head); /* its beginning is not kept: all of it is the tail */
	if (cut->head.size == total)
		return 0;
	/* Between head and tail is the part that does not fit, or that the log has not kept, or
	 * both. */
	uint64_t start = total <= whole ? cut->head.size : total - tail_max;
	start = MAX(start, cut->head.size);
	if (exec_read_range(exec, stream, begin + start, begin + total, &cut->tail, &gap, error) <
	    0)
		goto failed;
	start += gap;
	cut->head.size = output_head_end(cut->head.data, cut->head.size);
	if (start > cut->head.size) {
		size_t skipped = output_tail_start(cut->tail.data, cut->tail.size);
		buffer_consume(&cut->tail, skipped);
		start += skipped;
	}
	cut->tail_offset = begin + start;
	cut->omitted = start - cut->head.size;
	return 0;

failed:
	output_cut_done(cut);
	return -1;
}

void output_cut_done(struct output_cut *cut)
{
	buffer_done(&cut->head);
	buffer_done(&cut->tail);
}

/* --- its size --- */

uint64_t exec_logs_size(const struct exec_row *row)
{
	uint64_t most = row->head + row->tail;
	if (most == 0)
		return 0; /* removed */
	return MIN(row->out_total, most) + MIN(row->err_total, row->head + stream_tail(row, 1)) +
	       (uint64_t)stream_count(row) * OUTPUT_LOG_HEADER;
}

/* --- how much is kept --- */

/* What execs whose processes still run may come to have (channels, or all others), and what all
 * have whose output is not in life->log_bytes yet. */
static void logs_live_bytes(const struct sandbox *sandbox, bool channels, uint64_t *ret_promised,
			    uint64_t *ret_used)
{
	*ret_promised = *ret_used = 0;
	list_each (&sandbox->execs, node) {
		const struct exec *exec = list_entry(node, struct exec, link);
		const struct exec_row *row = &exec->row;
		if (!exec_settled(exec))
			*ret_used += exec_logs_size(row);
		if ((!exec_ended(exec) || row->left_running > 0) &&
		    exec_is_channel(row) == channels)
			for (int i = 0; i < stream_count(row); i++)
				*ret_promised +=
				    row->head + stream_tail(row, i) + OUTPUT_LOG_HEADER;
	}
}

int exec_logs_fit(const struct sandbox *sandbox, const struct exec_spec *spec, struct exec_row *row,
		  struct error *error)
{
	const struct config *config = &sandbox->core->config;
	row->head = spec->head ? spec->head : config->output_head;
	row->tail = spec->tail ? spec->tail : config->output_tail;
	bool channel = exec_is_channel(row), asked = !channel && (spec->head || spec->tail);
	/* If only one of them is requested, the other may shrink to fit. */
	if (asked && !spec->tail)
		row->tail = MIN(row->tail, config->output_max - MIN(row->head, config->output_max));
	if (asked && !spec->head)
		row->head = MIN(row->head, config->output_max - MIN(row->tail, config->output_max));
	if (row->head > OUTPUT_KEEP_MAX || row->tail > OUTPUT_KEEP_MAX ||
	    (asked && row->head + row->tail > config->output_max))
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "output of %llu + %llu bytes is to be kept; this host allows %llu "
				 "in all (output_max)",
				 (unsigned long long)row->head, (unsigned long long)row->tail,
				 (unsigned long long)config->output_max);
	if (row->head + row->tail == 0)
		row->head = OUTPUT_HEAD_DEFAULT;
	/* Half of what is left, so that there is always something for the next one. A half of
	 * all is for channels: however much commands are promised, code can show its results. */
	if (config->log_bytes_max > 0) {
		uint64_t promised, used, wanted = row->head + row->tail;
		uint64_t part = config->log_bytes_max / 2;
		logs_live_bytes(sandbox, channel, &promised, &used);
		uint64_t left = part - MIN(part, promised);
		uint64_t each = channel ? MAX(left / 2, CODE_CHANNEL_LEAST)
					: MAX(left / 2 / (uint64_t)stream_count(row), OUTPUT_LEAST);
		if (wanted > each) {
			row->head = row->head * each / wanted;
			row->tail = each - row->head;
		}
	}
	if (spec->flags & EXEC_LOSSLESS)
		row->tail = MAX(row->tail, LOSSLESS_TAIL_MIN);
	return 0;
}

/* The oldest ended execs of a sandbox with too many logs or rows. */
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

static bool logs_find_excess(void *data, const struct exec_row *row)
{
	struct excess *excess = data;
	uint64_t bytes = exec_logs_size(row);
	bool over_bytes = bytes > 0 && excess->bytes > excess->bytes_allowed;
	bool over_rows = excess->rows >= excess->rows_allowed;
	excess->rows++;
	/* The store does not know the size of an exec whose processes still write. */
	if (row->state < EXEC_ENDED || row->left_running > 0)
		return true;
	excess->bytes += bytes;
	if (!(over_bytes || over_rows))
		return true;
	/* Rows come newest first, and the oldest are to be removed: the last of them stay in the
	 * batch. */
	size_t at = excess->count++ % REMOVE_BATCH;
	excess->found[at].id = row->id;
	excess->found[at].bytes = bytes;
	excess->found[at].row_too = over_rows;
	return true;
}

static void exec_remove_logs(struct sandbox *sandbox, const struct id *id)
{
	logs_remove(sandbox->core, &sandbox->row.id, id);
	list_each (&sandbox->execs, node) {
		struct exec *exec = list_entry(node, struct exec, link);
		if (!id_equal(&exec->row.id, id))
			continue;
		exec_logs_close(exec);
		exec->logs_removed = true;
		exec->row.head = exec->row.tail = 0;
		exec->log_counted = 0;
	}
}

/* The row records it with a retention of zero; its totals stay. */
static int exec_forget_logs(struct sandbox *sandbox, const struct id *id, struct error *error)
{
	struct exec_row row = {0};
	exec_remove_logs(sandbox, id);
	int found = store_exec_get(sandbox->core->store, &sandbox->row.id, id, &row, error);
	if (found <= 0)
		return found;
	row.head = row.tail = 0;
	int result = store_exec_update(sandbox->core->store, &row, error);
	exec_row_done(&row);
	return result;
}

/* `live`: bytes of execs that cannot be removed yet. */
static void logs_remove_excess(struct sandbox *sandbox, uint64_t live)
{
	struct core *core = sandbox->core;
	struct error error;
	uint64_t maximum = core->config.log_bytes_max;
	/* Down to three quarters, so that the walk is not made for every exec. */
	struct excess excess = {
	    .bytes_allowed = maximum / 4 * 3 - MIN(maximum / 4 * 3, live),
	    .rows_allowed = EXEC_ROWS_MAX / 4 * 3,
	};
	if (maximum == 0)
		excess.bytes_allowed = UINT64_MAX;
	int result =
	    store_exec_each(core->store, &sandbox->row.id, logs_find_excess, &excess, &error);
	size_t count = MIN(excess.count, REMOVE_BATCH);
	for (size_t i = 0; i < count && result >= 0; i++) {
		if (excess.found[i].row_too) {
			exec_remove_logs(sandbox, &excess.found[i].id);
			result = store_exec_delete(core->store, &sandbox->row.id,
						   &excess.found[i].id, &error);
			excess.rows--;
		} else {
			result = exec_forget_logs(sandbox, &excess.found[i].id, &error);
		}
		excess.bytes -= excess.found[i].bytes;
	}
	if (result < 0)
		log_warning("sandbox %s: its oldest output cannot be removed: %s",
			    sandbox->row.id.text, error.message);
	sandbox->life->log_bytes = excess.bytes;
	/* After a full batch there may be more to remove. */
	sandbox->life->log_bytes_pruned = excess.count > REMOVE_BATCH ? 0 : excess.bytes + live;
	sandbox->life->exec_rows = excess.rows;
}

void exec_logs_account(struct exec *exec)
{
	struct sandbox *sandbox = exec->sandbox;
	struct sandbox_life *life = sandbox->life;
	uint64_t maximum = sandbox->core->config.log_bytes_max, promised, used;
	uint64_t size = exec_settled(exec) ? exec_logs_size(&exec->row) : 0;
	life->log_bytes -= MIN(exec->log_counted, life->log_bytes);
	life->log_bytes += size;
	exec->log_counted = size;
	logs_live_bytes(sandbox, false, &promised, &used);
	if ((maximum > 0 && life->log_bytes + used > maximum) || life->exec_rows > EXEC_ROWS_MAX)
		logs_remove_excess(sandbox, used);
}

void exec_logs_grown(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	uint64_t maximum = sandbox->core->config.log_bytes_max, promised, used;
	int64_t now = clock_boot();
	/* The guest chooses how often it reports output: count at most once per pause. */
	if (maximum == 0 || life->log_bytes == 0 || now - life->log_bytes_seen_at < GROWN_PAUSE)
		return;
	life->log_bytes_seen_at = now;
	logs_live_bytes(sandbox, false, &promised, &used);
	uint64_t all = life->log_bytes + used;
	/* Not at every line: logs that could not be removed a moment ago cannot be removed now. */
	if (all <= maximum)
		life->log_bytes_pruned = 0;
	else if (all > life->log_bytes_pruned + maximum / 16)
		logs_remove_excess(sandbox, used);
}
