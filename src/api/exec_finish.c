/* The ends of an exec's pipes that outlive a request: what it left running, and standard input that
 * was given whole. Called by the exec handlers; everything waits through callbacks. */
#include "api/exec_ask.h"

#include <stdlib.h>

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

/* --- standard input --- */

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
	if (exec_ended(exec) || exec->row.state == EXEC_FAILED) {
		feed_end(feed);
		return;
	}
	ssize_t taken = 0;
	if (feed->at < feed->size)
		taken = exec_stdin(exec, feed->data + feed->at, feed->size - feed->at, &error);
	/* A program that has closed its input does not want the rest. */
	if (taken < 0) {
		feed_end(feed);
		return;
	}
	feed->at += (size_t)taken;
	if (feed->at < feed->size)
		return;
	int result = exec_stdin_close(exec, &error);
	(void)result;
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
