/* See loop_threads.h. */
#include "base/loop_threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

struct loop_thread {
	struct list link; /* in `idle`, while it has nothing to do */
	struct loop_threads *threads;
	struct loop_job *next;
	pthread_cond_t wanted;
	pthread_t id;
};

struct loop_threads {
	struct list link; /* in the list of all: a process has one loop, tests have several */
	uv_loop_t *loop;
	uv_poll_t poll; /* on `ended_fd`; referenced while there are jobs */
	int ended_fd;
	unsigned references; /* holders and jobs */
	unsigned jobs;       /* begun and not done */
	unsigned started;
	struct loop_thread threads[LOOP_THREADS_MAX];

	pthread_mutex_t mutex; /* protects the following, and each thread's `link` and `next` */
	struct list waiting, ended; /* struct loop_job */
	struct list idle;           /* struct loop_thread, the one that worked last comes last */
	bool stop;
};

static struct list loop_threads_all = {&loop_threads_all, &loop_threads_all};

/* --- in a thread --- */

static void ended_tell(const struct loop_threads *threads)
{
	uint64_t one = 1;
	while (write(threads->ended_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Its own next job or, at the end, NULL. */
static struct loop_job *thread_wait(struct loop_thread *thread)
{
	struct loop_threads *threads = thread->threads;
	pthread_mutex_lock(&threads->mutex);
	while (!thread->next && !threads->stop)
		pthread_cond_wait(&thread->wanted, &threads->mutex);
	struct loop_job *job = thread->next;
	thread->next = NULL;
	pthread_mutex_unlock(&threads->mutex);
	return job;
}

/* Before the loop is told, the thread has its next job or is idle: so that a job which the loop
 * begins then finds this thread, and no other one is woken. */
static void thread_job_ended(struct loop_thread *thread, struct loop_job *job)
{
	struct loop_threads *threads = thread->threads;
	pthread_mutex_lock(&threads->mutex);
	list_append(&threads->ended, &job->link);
	if (list_empty(&threads->waiting)) {
		list_append(&threads->idle, &thread->link);
	} else {
		thread->next = list_entry(threads->waiting.next, struct loop_job, link);
		list_remove(&thread->next->link);
	}
	pthread_mutex_unlock(&threads->mutex);
	ended_tell(threads);
}

static void *thread_main(void *data)
{
	struct loop_thread *thread = data;
	struct loop_job *job;
	/* Of this thread alone. If it fails, the loop is slower beside long jobs. */
	(void)setpriority(PRIO_PROCESS, 0, LOOP_THREADS_NICE);
	while ((job = thread_wait(thread))) {
		job->in_thread(job);
		thread_job_ended(thread, job);
	}
	return NULL;
}

/* --- on the loop --- */

static void threads_release(struct loop_threads *threads);

static void poll_ended(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
	struct loop_threads *threads = poll->data;
	struct list ended;
	uint64_t count;
	(void)!read(threads->ended_fd, &count, sizeof(count));
	pthread_mutex_lock(&threads->mutex);
	list_take_all(&threads->ended, &ended);
	pthread_mutex_unlock(&threads->mutex);
	while (!list_empty(&ended)) {
		struct loop_job *job = list_entry(ended.next, struct loop_job, link);
		list_remove(&job->link);
		if (--threads->jobs == 0)
			uv_unref((uv_handle_t *)&threads->poll);
		job->done(job);
		threads_release(threads);
	}
}

static struct loop_threads *threads_new(uv_loop_t *loop)
{
	struct loop_threads *threads = calloc(1, sizeof(*threads));
	if (!threads)
		abort();
	threads->loop = loop;
	threads->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (threads->ended_fd < 0 || uv_poll_init(loop, &threads->poll, threads->ended_fd) < 0)
		abort();
	threads->poll.data = threads;
	uv_poll_start(&threads->poll, UV_READABLE, poll_ended);
	uv_unref((uv_handle_t *)&threads->poll);
	pthread_mutex_init(&threads->mutex, NULL);
	list_init(&threads->waiting);
	list_init(&threads->ended);
	list_init(&threads->idle);
	list_append(&loop_threads_all, &threads->link);
	return threads;
}

static struct loop_threads *threads_find(const uv_loop_t *loop)
{
	list_each (&loop_threads_all, node) {
		struct loop_threads *threads = list_entry(node, struct loop_threads, link);
		if (threads->loop == loop)
			return threads;
	}
	return NULL;
}

static struct loop_threads *threads_hold(uv_loop_t *loop)
{
	struct loop_threads *threads = threads_find(loop);
	if (!threads)
		threads = threads_new(loop);
	threads->references++;
	return threads;
}

static void poll_closed(uv_handle_t *poll)
{
	struct loop_threads *threads = poll->data;
	close(threads->ended_fd);
	pthread_mutex_destroy(&threads->mutex);
	free(threads);
}

/* Without references there are no jobs, so joining takes no longer than waking a thread. */
static void threads_release(struct loop_threads *threads)
{
	if (--threads->references > 0)
		return;
	list_remove(&threads->link);
	pthread_mutex_lock(&threads->mutex);
	threads->stop = true;
	for (unsigned i = 0; i < threads->started; i++)
		pthread_cond_signal(&threads->threads[i].wanted);
	pthread_mutex_unlock(&threads->mutex);
	for (unsigned i = 0; i < threads->started; i++) {
		pthread_join(threads->threads[i].id, NULL);
		pthread_cond_destroy(&threads->threads[i].wanted);
	}
	uv_close((uv_handle_t *)&threads->poll, poll_closed);
}

void loop_threads_hold(uv_loop_t *loop)
{
	threads_hold(loop);
}

void loop_threads_release(uv_loop_t *loop)
{
	threads_release(threads_find(loop));
}

/* Its signals are blocked: the loop's thread handles them. */
static int thread_start(struct loop_threads *threads, struct loop_job *first)
{
	struct loop_thread *thread = &threads->threads[threads->started];
	sigset_t blocked, before;
	*thread = (struct loop_thread){.threads = threads, .next = first};
	list_init(&thread->link);
	pthread_cond_init(&thread->wanted, NULL);
	sigfillset(&blocked);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	int result = pthread_create(&thread->id, NULL, thread_main, thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result == 0)
		threads->started++;
	return -result;
}

/* Of the idle threads the one that worked last takes the job: jobs that follow each other stay on
 * one thread. If they alternated between two, one would start while the other is about to sleep,
 * and a kernel with EEVDF (since 6.6) that prefers the latter does not let the loop preempt the
 * former: the loop waited up to 4 ms. */
static bool threads_take(struct loop_threads *threads, struct loop_job *job)
{
	if (!list_empty(&threads->idle)) {
		struct loop_thread *thread =
		    list_entry(threads->idle.previous, struct loop_thread, link);
		list_remove(&thread->link);
		thread->next = job;
		pthread_cond_signal(&thread->wanted);
		return true;
	}
	if (threads->started < LOOP_THREADS_MAX && thread_start(threads, job) == 0)
		return true;
	if (threads->started > 0)
		list_append(&threads->waiting, &job->link);
	return threads->started > 0;
}

void loop_job_run(uv_loop_t *loop, struct loop_job *job)
{
	struct loop_threads *threads = threads_hold(loop);
	if (threads->jobs++ == 0)
		uv_ref((uv_handle_t *)&threads->poll);
	pthread_mutex_lock(&threads->mutex);
	bool taken = threads_take(threads, job);
	if (!taken) {
		/* No thread can be had: the job takes the loop's time. */
		job->in_thread(job);
		list_append(&threads->ended, &job->link);
		ended_tell(threads);
	}
	pthread_mutex_unlock(&threads->mutex);
}
