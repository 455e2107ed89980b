/* Scheduling of work in an event loop (work.h). Called by everything with work for the loop: http,
 * api, mcp, core.
 *
 * This is start-time fair queueing: each share has a clock that runs while it is served (`time`).
 * The queue has a level (the clock of the share served last). A share that begins to wait is raised
 * to the level. */
#include "base/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define BUCKETS 64
/* The maximum charged for one piece: the process may have been stopped in the middle of it. */
#define CHARGE_MAX (10 * 1000 * 1000)

struct work_share {
	struct list link;    /* in its bucket */
	struct list waiting; /* in the queue's list, while it has pieces */
	struct list tasking; /* in the queue's list, while it has tasks and none of them runs */
	struct list pieces;  /* struct work */
	struct list tasks;   /* struct work_task */
	struct work_queue *queue;
	int64_t time;
	uint32_t references;
	char name[WORK_NAME_MAX + 1];
};

struct work_queue {
	struct list link; /* in the list of all queues: a process has one, tests have one after
			   * another */
	uv_loop_t *loop;
	uv_check_t check; /* runs waiting pieces, after the sockets */
	uv_idle_t awake;  /* active while pieces wait, so that libuv does not sleep */
	unsigned open_handles;
	uint32_t references;
	struct list buckets[BUCKETS];
	struct list waiting, tasking; /* struct work_share */
	struct work_share *serving;   /* share that is being charged, since `since` */
	int64_t since, spent, level;
	struct work_share *in_thread; /* share whose task runs */
	uint64_t pieces;
	int64_t (*clock)(void);
};

static struct list queues = {&queues, &queues};

/* --- queues --- */

static void on_work_awake(uv_idle_t *idle UNUSED)
{
}

static void on_work_check(uv_check_t *check);

static struct work_queue *queue_new(uv_loop_t *loop)
{
	struct work_queue *queue = calloc(1, sizeof(*queue));
	if (!queue)
		abort();
	queue->loop = loop;
	queue->clock = clock_monotonic;
	list_init(&queue->waiting);
	list_init(&queue->tasking);
	for (size_t i = 0; i < BUCKETS; i++)
		list_init(&queue->buckets[i]);
	uv_check_init(loop, &queue->check);
	uv_idle_init(loop, &queue->awake);
	queue->check.data = queue->awake.data = queue;
	queue->open_handles = 2;
	uv_check_start(&queue->check, on_work_check);
	/* Unreferenced: a loop without other handles ends. */
	uv_unref((uv_handle_t *)&queue->check);
	list_append(&queues, &queue->link);
	return queue;
}

struct work_queue *work_queue_of(uv_loop_t *loop)
{
	struct work_queue *found = NULL;
	list_each (&queues, node) {
		struct work_queue *queue = list_entry(node, struct work_queue, link);
		if (queue->loop == loop)
			found = queue;
	}
	if (!found)
		found = queue_new(loop);
	found->references++;
	return found;
}

static void share_free(struct work_share *share)
{
	list_remove(&share->link);
	free(share);
}

static void on_work_closed(uv_handle_t *handle)
{
	struct work_queue *queue = handle->data;
	if (--queue->open_handles == 0)
		free(queue);
}

void work_queue_release(struct work_queue *queue)
{
	if (--queue->references > 0)
		return;
	/* Shares in use would hold a reference to the queue. */
	for (size_t i = 0; i < BUCKETS; i++)
		while (!list_empty(&queue->buckets[i]))
			share_free(list_entry(queue->buckets[i].next, struct work_share, link));
	list_remove(&queue->link);
	uv_close((uv_handle_t *)&queue->check, on_work_closed);
	uv_close((uv_handle_t *)&queue->awake, on_work_closed);
}

void work_set_clock(struct work_queue *queue, int64_t (*clock)(void))
{
	queue->clock = clock;
}

uint64_t work_pieces_run(const struct work_queue *queue)
{
	return queue->pieces;
}

/* --- shares --- */

static struct list *bucket_of(struct work_queue *queue, const char *name)
{
	uint32_t hash = 2166136261u;
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return &queue->buckets[hash % BUCKETS];
}

/* An unused share without debt equals a new one of its name. */
static bool share_forgettable(const struct work_share *share)
{
	return share->references == 0 && share->time <= share->queue->level;
}

struct work_share *work_share_get(struct work_queue *queue, const char *name)
{
	char cut[WORK_NAME_MAX + 1];
	snprintf(cut, sizeof(cut), "%s", name);
	struct list *bucket = bucket_of(queue, cut);
	list_each (bucket, node) {
		struct work_share *share = list_entry(node, struct work_share, link);
		if (strcmp(share->name, cut) == 0)
			return work_share_hold(share);
		if (share_forgettable(share))
			share_free(share);
	}
	struct work_share *share = calloc(1, sizeof(*share));
	if (!share)
		abort();
	share->queue = queue;
	memcpy(share->name, cut, sizeof(cut));
	list_init(&share->waiting);
	list_init(&share->tasking);
	list_init(&share->pieces);
	list_init(&share->tasks);
	list_append(bucket, &share->link);
	return work_share_hold(share);
}

struct work_share *work_share_hold(struct work_share *share)
{
	if (share->references++ == 0)
		share->queue->references++;
	return share;
}

void work_share_release(struct work_share *share)
{
	if (!share || --share->references > 0)
		return;
	struct work_queue *queue = share->queue;
	if (share_forgettable(share))
		share_free(share);
	work_queue_release(queue);
}

/* --- pieces --- */

/* From now on time is charged to `share`; NULL: to none. Returns the previous one. */
static struct work_share *queue_charge(struct work_queue *queue, struct work_share *share)
{
	struct work_share *before = queue->serving;
	int64_t now = queue->clock();
	int64_t took = MIN(now - queue->since, CHARGE_MAX);
	if (before) {
		before->time += took;
		queue->spent += took;
	}
	queue->since = now;
	queue->serving = share;
	return before;
}

static void share_raise_to_level(struct work_share *share)
{
	share->time = MAX(share->time, share->queue->level);
}

static void piece_run(struct work *work, struct work_share *share)
{
	struct work_queue *queue = share->queue;
	work_share_hold(share);
	share_raise_to_level(share);
	queue->level = share->time;
	queue->pieces++;
	/* This may run within a piece of another share. */
	struct work_share *outer = queue_charge(queue, share);
	work->run(work);
	queue_charge(queue, outer);
	work_share_release(share);
}

bool work_waits(const struct work *work)
{
	return work->share != NULL;
}

void work_wait(struct work *work, struct work_share *share)
{
	struct work_queue *queue = share->queue;
	if (work_waits(work))
		return;
	work->share = work_share_hold(share);
	if (list_empty(&share->pieces)) {
		share_raise_to_level(share);
		list_append(&queue->waiting, &share->waiting);
	}
	list_append(&share->pieces, &work->link);
	uv_idle_start(&queue->awake, on_work_awake);
}

void work_run(struct work *work, struct work_share *share)
{
	struct work_queue *queue = share->queue;
	bool free_turn = list_empty(&queue->waiting) && queue->spent < WORK_TURN_NS;
	if (work_waits(work))
		return;
	if (free_turn || queue->serving == share)
		piece_run(work, share);
	else
		work_wait(work, share);
}

/* Removes a piece from its share; the caller takes over the share's reference. */
static struct work_share *piece_take_out(struct work *work)
{
	struct work_share *share = work->share;
	work->share = NULL;
	list_remove(&work->link);
	if (list_empty(&share->pieces))
		list_remove(&share->waiting);
	return share;
}

void work_cancel(struct work *work)
{
	if (work_waits(work))
		work_share_release(piece_take_out(work));
}

static void queue_run_next(struct work_queue *queue)
{
	struct work_share *next = NULL;
	list_each (&queue->waiting, node) {
		struct work_share *share = list_entry(node, struct work_share, waiting);
		if (!next || share->time < next->time)
			next = share;
	}
	struct work *work = list_entry(next->pieces.next, struct work, link);
	(void)piece_take_out(work);
	piece_run(work, next);
	work_share_release(next);
}

static void on_work_check(uv_check_t *check)
{
	struct work_queue *queue = check->data;
	queue->references++;
	if (!list_empty(&queue->waiting))
		do
			queue_run_next(queue);
		while (!list_empty(&queue->waiting) && queue->spent < WORK_TURN_NS);
	queue->spent = 0;
	if (list_empty(&queue->waiting))
		uv_idle_stop(&queue->awake);
	work_queue_release(queue);
}

/* --- tasks --- */

static void queue_task_start(struct work_queue *queue);

static void on_work_thread(struct loop_job *job)
{
	struct work_task *task = container_of(job, struct work_task, job);
	task->in_thread(task);
}

static void on_work_task_done(struct work *work)
{
	struct work_task *task = container_of(work, struct work_task, work);
	task->done(task);
}

static void on_work_thread_end(struct loop_job *job)
{
	struct work_task *task = container_of(job, struct work_task, job);
	struct work_share *share = task->share;
	share->queue->in_thread = NULL;
	if (!list_empty(&share->tasks))
		list_append(&share->queue->tasking, &share->tasking);
	queue_task_start(share->queue);
	work_run(&task->work, share);
	work_share_release(share);
}

static void queue_task_start(struct work_queue *queue)
{
	if (queue->in_thread || list_empty(&queue->tasking))
		return;
	struct work_share *share = list_entry(queue->tasking.next, struct work_share, tasking);
	struct work_task *task = list_entry(share->tasks.next, struct work_task, link);
	list_remove(&share->tasking);
	list_remove(&task->link);
	queue->in_thread = share;
	task->job.in_thread = on_work_thread;
	task->job.done = on_work_thread_end;
	loop_job_run(queue->loop, &task->job);
}

void work_in_thread(struct work_task *task, struct work_share *share)
{
	task->share = work_share_hold(share);
	task->work.run = on_work_task_done;
	if (list_empty(&share->tasks) && share->queue->in_thread != share)
		list_append(&share->queue->tasking, &share->tasking);
	list_append(&share->tasks, &task->link);
	queue_task_start(share->queue);
}
