/* Threads of an event loop, for jobs that take long and need only their own memory.
 *
 * In place of uv_queue_work(), whose threads report their end by uv_async_send(): the loop of libuv
 * 1.44 spins, and calls sched_yield(), while the thread that woke it is not done with that call. If
 * that thread loses its processor there, everything in the loop waits for it (measured: 4 ms beside
 * two busy processes). Here a thread writes to an eventfd, and the loop waits for nobody.
 *
 * The threads have a lower priority than the loop. With the same one, a loop that shares a
 * processor with them waits for the end of their time slice whenever something becomes readable: 2
 * to 4 ms.
 *
 * Everything here is called on the loop's thread, except `in_thread`. Nothing blocks. */
#pragma once

#include <uv.h>

#include "base/list.h"

/* Concurrent jobs of a loop; the others wait in the order in which they came. */
#define LOOP_THREADS_MAX 4
#define LOOP_THREADS_NICE 10

struct loop_job {
	void (*in_thread)(struct loop_job *job);
	void (*done)(struct loop_job *job); /* runs on the loop; may free the job */
	struct list link;
};

/* Runs the job. It cannot be cancelled, and the loop does not end before its `done`. */
void loop_job_run(uv_loop_t *loop, struct loop_job *job);

/* Threads are started when they are needed, and end with the last job unless the loop's threads
 * are held. After the last release the loop must run once more, to close a handle. */
void loop_threads_hold(uv_loop_t *loop);
void loop_threads_release(uv_loop_t *loop);
