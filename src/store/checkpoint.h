/* Checkpoints of the database in a thread: they move committed changes from SQLite's log of writes
 * into the database, and wait for the disk (5 to 40 ms) twice. SQLite itself would do that within a
 * commit, on the loop, every thousand pages.
 *
 * The thread has a connection of its own and takes no lock that a writer waits for. If a checkpoint
 * has moved the whole log, the next write begins it anew. Under continuous load that never happens,
 * since writes go on meanwhile. So when the log is large and a thread has moved all but its last
 * pages, the loop moves those, and waits for the disk as well. Nothing else bounds the log: if the
 * thread gets no processor time, it grows.
 *
 * Another wait remains on the loop: the write that begins the log anew makes its new header
 * durable, which SQLite needs after a power failure. It is a single page, once in
 * LOG_PAGES_CHECKPOINT.
 *
 * Called by sqlite.c alone, on the loop. */
#pragma once

#include <sqlite3.h>
#include <uv.h>

#include "base/error.h"

struct checkpointer;

/* From now on no commit to `writer` makes a checkpoint. */
NODISCARD int checkpointer_new(sqlite3 *writer, const char *path, uv_loop_t *loop,
			       struct checkpointer **ret_checkpointer, struct error *error);
/* Before the writer is closed. A checkpoint under way ends first, in a later turn of the loop. */
void checkpointer_free(struct checkpointer *checkpointer);

/* Lengths of the log in pages of 4 KiB: from the first on, a thread makes checkpoints; from the
 * second on, the loop moves the last pages if these are few; from the third on, however many. */
#define LOG_PAGES_CHECKPOINT 4000
#define LOG_PAGES_LARGE 8000
#define LOG_PAGES_HUGE 12000
#define LAST_PAGES_FEW 100
