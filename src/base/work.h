/* Fair scheduling of work in an event loop.
 *
 * A loop does one thing at a time: while it reads or parses for one client, all others wait. So
 * long work is cut into pieces of at most about WORK_PIECE_NS, and the pieces go through one queue
 * per loop:
 *
 *   - In each iteration pieces run until WORK_TURN_NS are used up, at least one. Then the sockets
 *     are checked again.
 *   - Each piece belongs to a share: a token, a local user, the sandboxes of a workspace. Of the
 *     waiting shares, the one that has used the least time is next. A share that returns after a
 *     pause starts level with the others: time cannot be saved up. Within a share, pieces run in
 *     the order in which they came.
 *   - While nothing waits and the iteration has time left, a piece runs at once. An idle daemon
 *     pays two reads of the clock.
 *
 * So a flood of one share delays a piece of another by the rest of an iteration, however long the
 * flood. Time is measured, not estimated: a share pays for a piece that takes long.
 *
 * Longer work that needs only its own memory runs in a thread (struct work_task).
 *
 * Do not use a timer of 0 ms to continue later: libuv 1.44 runs a timer that its own callback
 * restarts in the same pass over the timers, before it checks any socket.
 *
 * Everything here is called on the loop's thread. Nothing blocks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/list.h"
#include "base/loop_threads.h"

#define WORK_TURN_NS (200 * 1000)
#define WORK_PIECE_NS (100 * 1000)
#define WORK_NAME_MAX 71

struct work_queue;
struct work_share;

/* The queue of a loop: made by the first call, freed after the last release (then the loop must
 * run once more, to close its handles). */
struct work_queue *work_queue_of(uv_loop_t *loop);
void work_queue_release(struct work_queue *queue);

/* The share with that name, made if needed. Longer names are cut. Reference-counted. */
struct work_share *work_share_get(struct work_queue *queue, const char *name);
struct work_share *work_share_hold(struct work_share *share);
void work_share_release(struct work_share *share); /* NULL is fine */

/* --- pieces, on the loop --- */

/* Embedded in the object it works on. Zero it, and set `run`, before its first use. */
struct work {
	void (*run)(struct work *work); /* may free it */
	struct list link;
	struct work_share *share; /* while it is queued */
};

/* Runs the piece: now if possible, else when its share's turn comes. A queued piece stays where
 * it is. */
void work_run(struct work *work, struct work_share *share);
/* Queues the piece, never runs it now: for work that continues itself. */
void work_wait(struct work *work, struct work_share *share);
/* Removes it from the queue, if it is queued. */
void work_cancel(struct work *work);
bool work_waits(const struct work *work);

/* --- tasks, in a thread --- */

/* Zero it, and set `in_thread` and `done`, before it is started. One task runs at a time, and the
 * shares take turns: two at once, on a processor that the loop shares with them, delay the loop by
 * 2 ms, one by 0.2 ms. It cannot be cancelled. */
struct work_task {
	void (*in_thread)(struct work_task *task); /* may only touch the task */
	void (*done)(struct work_task *task);      /* runs on the loop, as a piece; may free it */
	struct work work;
	struct loop_job job;
	struct list link;
	struct work_share *share;
};
void work_in_thread(struct work_task *task, struct work_share *share);

/* For tests: another clock (nanoseconds), and the number of pieces run. */
void work_set_clock(struct work_queue *queue, int64_t (*clock)(void));
uint64_t work_pieces_run(const struct work_queue *queue);
