/* Commands that somebody waits for (run.h): run and wait, what of an exec outlives a request, its
 * output for an answer. Called by every edge; waits through callbacks, reads logs from the page
 * cache. What was begun goes on when the connection to the sandbox was lost and is there again. */
#include "core/exec/run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"

struct finish {
	void (*done)(void *data, const struct left_process *processes, size_t count);
	void *data;
};

static void left(void *data, const struct left_process *processes, size_t count,
		 const struct error *error)
{
	struct finish *finish = data;
	finish->done(finish->data, processes, error ? 0 : count);
	free(finish);
}

void exec_finish(struct exec *exec,
		 void (*done)(void *data, const struct left_process *processes, size_t count),
		 void *data)
{
	struct error error;
	if (exec->row.left_running == 0) {
		done(data, NULL, 0);
		return;
	}
	struct finish *finish = malloc(sizeof(*finish));
	if (!finish)
		abort();
	*finish = (struct finish){done, data};
	if (exec_left_running(exec, left, finish, &error) < 0) {
		free(finish);
		done(data, NULL, 0);
	}
}

void exec_start_error(const struct exec *exec, struct error *ret_error)
{
	error_set(ret_error, (enum error_kind)exec->row.error_kind, "%s",
		  exec->row.error_message ? exec->row.error_message
					  : "the command could not be started");
}

/* --- signals that are not lost with the connection --- */

struct owed_signal {
	struct exec_watcher watcher;
	struct asker asker;
	int signal;
};

static void owed_done(struct exec_watcher *watcher)
{
	exec_unwatch(watcher);
	free(container_of(watcher, struct owed_signal, watcher));
}

static void owed_again(struct exec_watcher *watcher, struct exec *exec)
{
	struct owed_signal *owed = container_of(watcher, struct owed_signal, watcher);
	struct error error;
	if (exec_ended(exec) || exec_signal(exec, asker_principal(&owed->asker), owed->signal,
					    SIGNAL_TREE, &error) == 0)
		owed_done(watcher);
}

static void exec_signal_when_reachable(struct exec *exec, const struct principal *principal,
				       int signal)
{
	struct error error;
	if (exec_ended(exec) || exec_signal(exec, principal, signal, SIGNAL_TREE, &error) == 0)
		return;
	log_info("exec %s: signal %d as soon as its sandbox can be reached: %s", exec->row.id.text,
		 signal, error.message);
	struct owed_signal *owed = calloc(1, sizeof(*owed));
	if (!owed)
		abort();
	owed->signal = signal;
	owed->asker = asker_of(principal);
	owed->watcher.changed = owed_again;
	owed->watcher.forgotten = owed_done;
	exec_watch(exec, &owed->watcher);
}

void exec_cancel(struct exec *exec, const struct principal *principal)
{
	exec_signal_when_reachable(exec, principal, SIGKILL);
}

void exec_hang_up(struct exec *exec, const struct principal *principal)
{
	exec_signal_when_reachable(exec, principal, SIGHUP);
}

/* --- standard input --- */

bool stdin_lost(const struct exec *exec, struct error *error)
{
	if (exec_ended(exec) || exec->stdin_closed || !exec->stdin_broken)
		return false;
	error_set(error, ERROR_GUEST_GONE,
		  "the connection to the sandbox was lost while exec `%s` was being fed; its input "
		  "is not whole, so it is cancelled",
		  exec->row.id.text);
	return true;
}

struct feed {
	struct exec_watcher watcher;
	char *data;
	size_t size, at;
};

static void feed_end(struct feed *feed)
{
	exec_unwatch(&feed->watcher);
	free(feed->data);
	free(feed);
}

static void feed_forgotten(struct exec_watcher *watcher)
{
	feed_end(container_of(watcher, struct feed, watcher));
}

static void feed_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct feed *feed = container_of(watcher, struct feed, watcher);
	struct error error;
	if (exec_ended(exec) || exec->stdin_closed) {
		feed_end(feed);
		return;
	}
	/* Half an input, and one that never ends, are worse than none. */
	if (stdin_lost(exec, &error)) {
		log_warning("exec %s is cancelled: %s", exec->row.id.text, error.message);
		exec_cancel(exec, NULL);
		feed_end(feed);
		return;
	}
	if (feed->at < feed->size) {
		ssize_t taken =
		    exec_stdin(exec, feed->data + feed->at, feed->size - feed->at, &error);
		if (taken > 0)
			feed->at += (size_t)taken;
	}
	/* A refusal is a lost connection: the rest goes when it is back. */
	if (feed->at == feed->size && exec_stdin_close(exec, &error) == 0)
		feed_end(feed);
}

void stdin_feed(struct exec *exec, char *data, size_t size)
{
	struct feed *feed = calloc(1, sizeof(*feed));
	if (!feed)
		abort();
	feed->data = data;
	feed->size = size;
	feed->watcher.changed = feed_changed;
	feed->watcher.forgotten = feed_forgotten;
	exec_watch(exec, &feed->watcher);
	feed_changed(&feed->watcher, exec);
}

/* --- run and wait --- */

struct run {
	struct exec_watcher watcher;
	struct exec *exec;  /* NULL: forgotten */
	struct asker asker; /* in whose name it is cancelled */
	const struct run_callbacks *callbacks;
	void *data;
	bool fed;       /* its standard input was given whole */
	bool finishing; /* its end was seen; what it left running is being asked for */
	bool over;      /* `done` is being called */
	bool abandoned;
};

static void run_free(struct run *run)
{
	if (run->exec)
		exec_unwatch(&run->watcher);
	free(run);
}

static void run_over(struct run *run, const struct left_process *processes, size_t count,
		     const struct error *error)
{
	run->over = true;
	if (!run->abandoned)
		run->callbacks->done(run->data, run->exec, processes, count, error);
	run_free(run);
}

static void run_finished(void *data, const struct left_process *processes, size_t count)
{
	run_over(data, processes, count, NULL);
}

static void run_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct run *run = container_of(watcher, struct run, watcher);
	struct error error;
	if (run->finishing || run->over)
		return;
	if (exec->row.state == EXEC_FAILED) {
		exec_start_error(exec, &error);
		run_over(run, NULL, 0, &error);
	} else if (exec_ended(exec)) {
		run->finishing = true;
		exec_finish(exec, run_finished, run);
	} else if (run->fed && stdin_lost(exec, &error)) {
		/* The feed cancels it; here is who waits for it. */
		run_over(run, NULL, 0, &error);
	} else if (run->callbacks->changed) {
		run->callbacks->changed(run, exec); /* the run may be abandoned in it */
	}
}

/* The question what is left running was answered before: exec_forget_all() sees to it. */
static void run_forgotten(struct exec_watcher *watcher)
{
	struct run *run = container_of(watcher, struct run, watcher);
	struct error error;
	core_forgotten_error(run->exec->sandbox->core, &run->exec->sandbox->row.id, &error);
	run->exec = NULL;
	/* The sandbox was ended by whom `done` told: once is enough. */
	if (run->over)
		return;
	run_over(run, NULL, 0, &error);
}

int run_start(struct sandbox *sandbox, const struct exec_spec *spec, char *stdin_data,
	      size_t stdin_size, const struct run_callbacks *callbacks, void *data,
	      struct run **ret_run, struct error *error)
{
	struct exec *exec;
	if (exec_start(sandbox, spec, &exec, error) < 0) {
		free(stdin_data);
		return -1;
	}
	struct run *run = calloc(1, sizeof(*run));
	if (!run)
		abort();
	run->exec = exec;
	run->asker = asker_of(spec->principal);
	run->callbacks = callbacks;
	run->data = data;
	run->fed = stdin_data;
	run->watcher.changed = run_changed;
	run->watcher.forgotten = run_forgotten;
	exec_watch(exec, &run->watcher);
	if (stdin_data)
		stdin_feed(exec, stdin_data, stdin_size);
	*ret_run = run;
	return 0;
}

void *run_data(const struct run *run)
{
	return run->data;
}

struct exec *run_exec(const struct run *run)
{
	return run->exec;
}

void run_cancel(struct run *run)
{
	struct asker asker = run->asker; /* the run may end in it */
	exec_cancel(run->exec, asker_principal(&asker));
}

void run_abandon(struct run *run, bool kill)
{
	if (kill)
		run_cancel(run);
	run->abandoned = true;
	/* Who was asked what is left running still answers. */
	if (!run->finishing)
		run_free(run);
}

/* --- output for an answer --- */

/* Reads [from, to) as far as it is kept without a hole: how much came, or -errno; *ret_gap = what
 * is missing before its first byte. */
static ssize_t read_range(struct exec *exec, enum exec_stream stream, uint64_t from, uint64_t to,
			  char *data, uint64_t *ret_gap)
{
	size_t done = 0;
	*ret_gap = 0;
	while (from + *ret_gap + done < to) {
		uint64_t gap = 0;
		ssize_t size = exec_read(exec, stream, from + *ret_gap + done, data + done,
					 (size_t)(to - from - *ret_gap) - done, &gap);
		if (size < 0)
			return size;
		if (gap > 0 && done > 0)
			break;
		if (gap > 0)
			*ret_gap = gap;
		if (size == 0 || from + gap >= to)
			break;
		done += MIN((size_t)size, (size_t)(to - from - *ret_gap) - done);
	}
	return (ssize_t)done;
}

size_t utf8_rest(const char *text, size_t size)
{
	size_t at = 0;
	while (at < size && at < 3 && ((unsigned char)text[at] & 0xc0) == 0x80)
		at++;
	return at;
}

/* Where a head ends: after a line in its last quarter, else between two characters. */
static size_t head_end(const char *data, size_t size)
{
	const char *line = size ? memrchr(data + size - size / 4, '\n', size / 4) : NULL;
	return line ? (size_t)(line - data) + 1 : text_utf8_prefix(data, size);
}

/* How much of a tail's beginning is left out: up to a line in its first quarter, else the rest of a
 * character. */
static size_t tail_start(const char *data, size_t size)
{
	const char *line = size ? memchr(data, '\n', size / 4) : NULL;
	return line ? (size_t)(line - data) + 1 : utf8_rest(data, size);
}

static int read_into(struct buffer *buffer, struct exec *exec, enum exec_stream stream,
		     uint64_t from, uint64_t to, uint64_t *ret_gap, struct error *error)
{
	*ret_gap = 0;
	if (to <= from)
		return 0;
	*buffer = BUFFER(to - from);
	if (buffer_reserve(buffer, to - from) < 0)
		abort(); /* its maximum was made for it */
	ssize_t size = read_range(exec, stream, from, to, buffer->data, ret_gap);
	if (size < 0)
		return error_set_errno(error, ERROR_INTERNAL, (int)-size,
				       "the output log of exec `%s` cannot be read",
				       exec->row.id.text);
	buffer_grow(buffer, (size_t)size);
	return 0;
}

static int cut_read(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t head_max,
		    uint64_t tail_max, struct output_cut *cut, struct error *error)
{
	uint64_t gap, total = cut->total, whole = head_max + tail_max;
	uint64_t head = total <= whole ? total : head_max;
	if (read_into(&cut->head, exec, stream, begin, begin + head, &gap, error) < 0)
		return -1;
	if (gap > 0)
		buffer_clear(&cut->head); /* nothing of its beginning is kept: all is tail */
	if (cut->head.size == total)
		return 0;
	/* Between them is what does not fit, or what the log has not kept, or both. */
	uint64_t start = total <= whole ? cut->head.size : total - tail_max;
	start = MAX(start, cut->head.size);
	if (read_into(&cut->tail, exec, stream, begin + start, begin + total, &gap, error) < 0)
		return -1;
	start += gap;
	cut->head.size = head_end(cut->head.data, cut->head.size);
	if (start > cut->head.size) {
		size_t skipped = tail_start(cut->tail.data, cut->tail.size);
		buffer_consume(&cut->tail, skipped);
		start += skipped;
	}
	cut->tail_offset = begin + start;
	cut->omitted = start - cut->head.size;
	return 0;
}

int output_cut(struct exec *exec, enum exec_stream stream, uint64_t begin, uint64_t end,
	       uint64_t head_max, uint64_t tail_max, struct output_cut *ret_cut,
	       struct error *error)
{
	struct output_cut cut = {.total = end > begin ? end - begin : 0};
	if (cut_read(exec, stream, begin, head_max, tail_max, &cut, error) < 0) {
		output_cut_done(&cut);
		return -1;
	}
	*ret_cut = cut;
	return 0;
}

void output_cut_done(struct output_cut *cut)
{
	buffer_done(&cut->head);
	buffer_done(&cut->tail);
}
