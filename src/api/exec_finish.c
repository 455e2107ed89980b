/* What of an exec outlives a request: the question what it left running, standard input that was
 * given whole, and a cancel. Each goes on when the connection to the sandbox was lost and is there
 * again (`changed` comes then). Called by the exec handlers; everything waits through callbacks. */
#include "api/exec_ask.h"

#include <signal.h>
#include <stdlib.h>

#include "base/log.h"

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

/* --- cancel --- */

static void cancel_done(struct exec_watcher *watcher)
{
	exec_unwatch(watcher);
	free(watcher);
}

static void cancel_again(struct exec_watcher *watcher, struct exec *exec)
{
	struct error error;
	if (exec_ended(exec) || exec_signal(exec, SIGKILL, SIGNAL_TREE, &error) == 0)
		cancel_done(watcher);
}

void exec_cancel(struct exec *exec)
{
	struct error error;
	if (exec_ended(exec) || exec_signal(exec, SIGKILL, SIGNAL_TREE, &error) == 0)
		return;
	log_info("exec %s: cancelled as soon as its sandbox can be reached: %s", exec->row.id.text,
		 error.message);
	struct exec_watcher *watcher = calloc(1, sizeof(*watcher));
	if (!watcher)
		abort();
	watcher->changed = cancel_again;
	watcher->forgotten = cancel_done;
	exec_watch(exec, watcher);
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
		exec_cancel(exec);
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
