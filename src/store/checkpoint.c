/* See checkpoint.h. */
#include "store/checkpoint.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop_threads.h"
#include "store/sqlite.h"

/* After a failure (a full disk), and while another process holds a lock. */
#define RETRY_PAUSE NSEC_PER_SEC

struct checkpointer {
	struct loop_job job;
	uv_loop_t *loop;
	sqlite3 *writer;   /* the loop's connection; NULL: freed while a job runs */
	sqlite3 *database; /* the thread's */
	bool running, failing;
	int64_t not_before;
	/* What the thread found. */
	int code, log_pages, moved_pages;
};

static void checkpoint_run(struct loop_job *job)
{
	struct checkpointer *checkpointer = container_of(job, struct checkpointer, job);
	checkpointer->code =
	    sqlite3_wal_checkpoint_v2(checkpointer->database, NULL, SQLITE_CHECKPOINT_PASSIVE,
				      &checkpointer->log_pages, &checkpointer->moved_pages);
}

static void checkpoint_begin(struct checkpointer *checkpointer)
{
	checkpointer->running = true;
	loop_job_run(checkpointer->loop, &checkpointer->job);
}

static void checkpointer_destroy(struct checkpointer *checkpointer)
{
	sqlite3_close(checkpointer->database);
	free(checkpointer);
}

static void checkpoint_failed(struct checkpointer *checkpointer)
{
	checkpointer->not_before = clock_monotonic() + RETRY_PAUSE;
	if (!checkpointer->failing && checkpointer->code != SQLITE_BUSY)
		log_warning("database: a checkpoint failed, and is tried again: %s",
			    sqlite3_errmsg(checkpointer->database));
	checkpointer->failing = true;
}

static void checkpoint_done(struct loop_job *job)
{
	struct checkpointer *checkpointer = container_of(job, struct checkpointer, job);
	checkpointer->running = false;
	if (!checkpointer->writer) {
		checkpointer_destroy(checkpointer);
		return;
	}
	if (checkpointer->code != SQLITE_OK) {
		checkpoint_failed(checkpointer);
		return;
	}
	checkpointer->failing = false;
	if (checkpointer->log_pages < LOG_PAGES_LARGE)
		return;
	if (checkpointer->log_pages - checkpointer->moved_pages <= LAST_PAGES_FEW ||
	    checkpointer->log_pages >= LOG_PAGES_HUGE)
		(void)sqlite3_wal_checkpoint_v2(checkpointer->writer, NULL,
						SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	else
		checkpoint_begin(checkpointer);
}

static int log_has_grown(void *data, sqlite3 *writer UNUSED, const char *name UNUSED, int pages)
{
	struct checkpointer *checkpointer = data;
	if (pages >= LOG_PAGES_CHECKPOINT && !checkpointer->running &&
	    clock_monotonic() >= checkpointer->not_before)
		checkpoint_begin(checkpointer);
	return SQLITE_OK;
}

int checkpointer_new(sqlite3 *writer, const char *path, uv_loop_t *loop,
		     struct checkpointer **ret_checkpointer, struct error *error)
{
	struct checkpointer *checkpointer = calloc(1, sizeof(*checkpointer));
	if (!checkpointer)
		abort();
	*checkpointer = (struct checkpointer){
	    .job = {.in_thread = checkpoint_run, .done = checkpoint_done},
	    .loop = loop,
	    .writer = writer,
	};
	if (store_connect(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW,
			  &checkpointer->database, error) < 0) {
		free(checkpointer);
		return -1;
	}
	/* A connection that has read nothing yet does not know that there is a log. */
	int code = sqlite3_exec(checkpointer->database, "PRAGMA schema_version", NULL, NULL, NULL);
	if (code != SQLITE_OK) {
		store_fail(checkpointer->database, code, "reading it", error);
		checkpointer_destroy(checkpointer);
		return -1;
	}
	sqlite3_wal_hook(writer, log_has_grown, checkpointer);
	*ret_checkpointer = checkpointer;
	return 0;
}

void checkpointer_free(struct checkpointer *checkpointer)
{
	if (!checkpointer)
		return;
	sqlite3_wal_hook(checkpointer->writer, NULL, NULL);
	checkpointer->writer = NULL;
	if (!checkpointer->running)
		checkpointer_destroy(checkpointer);
}
