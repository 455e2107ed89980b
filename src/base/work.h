/* Whose turn it is in an event loop.
 *
 * A loop does one thing at a time: whatever it reads or parses for one client, all others wait for.
 * So everything that may be much is cut into pieces of at most about WORK_PIECE_NS, and the pieces
 * go through one queue per loop:
 *
 *   - In a turn of the loop pieces run until WORK_TURN_NS are used up, and at least one. Then the
 *     sockets are looked at again.
 *   - Each piece belongs to a share: a token, a local user, the sandboxes of a workspace. Of the
 *     shares that wait, the one that has had the least time is next. A share that comes back after
 *     a pause begins level with the others: time cannot be saved up. Within a share, the first that
 *     came is the first that runs.
 *   - While nobody waits and the turn has time left, a piece runs at once. A quiet daemon pays two
 *     reads of the clock.
 *
 * So a flood of one share delays a piece of another by the rest of a turn, however long the flood.
 * Time is measured, not estimated: a piece that takes long is paid for by its share.
 *
 * What takes longer and needs nothing but its own memory runs in a thread (struct work_task).
 *
 * Do not use a timer of 0 ms to go on later: libuv 1.44 runs one that its callback starts again in
 * the same pass over the timers, before it looks at any socket.
 *
 * Everything here is called on the loop's thread. Nothing blocks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/list.h"

#define WORK_TURN_NS (500 * 1000)
#define WORK_PIECE_NS (100 * 1000)
#define WORK_NAME_MAX 71
/* Tasks in threads at once; libuv has four threads, which others use too. */
#define WORK_TASKS_MAX 2

struct work_queue;
struct work_share;

/* The queue of a loop: made for the first who asks, gone after the last has released it (then the
 * loop must turn once more, to close its handles). */
struct work_queue *work_queue_of(uv_loop_t *loop);
void work_queue_release(struct work_queue *queue);

/* The share of that name, made when there is none. Longer names are cut. Counted. */
struct work_share *work_share_get(struct work_queue *queue, const char *name);
struct work_share *work_share_hold(struct work_share *share);
void work_share_release(struct work_share *share); /* NULL is fine */

/* --- pieces, on the loop --- */

/* Embedded in what it is about. Zero it, and set `run`, before its first use. */
struct work {
	void (*run)(struct work *work); /* may free it */
	struct list link;
	struct work_share *share; /* while it waits */
};

/* Runs it: at once if it may, else when its turn comes. One that waits already stays where it is.
 */
void work_run(struct work *work, struct work_share *share);
/* The same, but never at once: for what goes on with itself. */
void work_wait(struct work *work, struct work_share *share);
/* It does not run any more; nothing happens when it does not wait. */
void work_cancel(struct work *work);
bool work_waits(const struct work *work);

/* --- tasks, in a thread --- */

/* Zero it, and set `in_thread` and `done`, before it is given away. Shares take turns: of each, one
 * task runs at a time. It cannot be cancelled. */
struct work_task {
	void (*in_thread)(struct work_task *task); /* touches nothing but the task */
	void (*done)(struct work_task *task);      /* on the loop, as a piece; may free it */
	struct work work;
	uv_work_t thread;
	struct list link;
	struct work_share *share;
};
void work_in_thread(struct work_task *task, struct work_share *share);

/* For tests: another clock (nanoseconds), and how many pieces have run. */
void work_set_clock(struct work_queue *queue, int64_t (*clock)(void));
uint64_t work_pieces_run(const struct work_queue *queue);
