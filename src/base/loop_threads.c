/* See loop_threads.h. */
#include "base/loop_threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

struct loop_threads {
	struct list link; /* in the list of all: a process has one loop, tests have several */
	uv_loop_t *loop;
	uv_poll_t poll; /* on `ended_fd`; referenced while there are jobs */
	int ended_fd;
	unsigned references; /* holders and jobs */
	unsigned jobs;       /* begun and not done */
	unsigned started;
	pthread_t threads[LOOP_THREADS_MAX];

	pthread_mutex_t mutex; /* protects the following */
	pthread_cond_t wanted;
	struct list waiting, ended; /* struct loop_job */
	bool stop;
};

static struct list loop_threads_all = {&loop_threads_all, &loop_threads_all};

/* --- in a thread --- */

static void job_run(struct loop_threads *threads, struct loop_job *job)
{
	uint64_t one = 1;
	job->in_thread(job);
	pthread_mutex_lock(&threads->mutex);
	list_append(&threads->ended, &job->link);
	pthread_mutex_unlock(&threads->mutex);
	while (write(threads->ended_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void *thread_main(void *data)
{
	struct loop_threads *threads = data;
	/* Of this thread alone. If it fails, the loop is slower beside long jobs. */
	(void)setpriority(PRIO_PROCESS, 0, LOOP_THREADS_NICE);
	pthread_mutex_lock(&threads->mutex);
	while (!threads->stop) {
		if (list_empty(&threads->waiting)) {
			pthread_cond_wait(&threads->wanted, &threads->mutex);
			continue;
		}
		struct loop_job *job = list_entry(threads->waiting.next, struct loop_job, link);
		list_remove(&job->link);
		pthread_mutex_unlock(&threads->mutex);
		job_run(threads, job);
		pthread_mutex_lock(&threads->mutex);
	}
	pthread_mutex_unlock(&threads->mutex);
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
	pthread_cond_init(&threads->wanted, NULL);
	list_init(&threads->waiting);
	list_init(&threads->ended);
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
	pthread_cond_destroy(&threads->wanted);
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
	pthread_cond_broadcast(&threads->wanted);
	pthread_mutex_unlock(&threads->mutex);
	for (unsigned i = 0; i < threads->started; i++)
		pthread_join(threads->threads[i], NULL);
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
static bool thread_start(struct loop_threads *threads)
{
	sigset_t blocked, before;
	sigfillset(&blocked);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	int result =
	    pthread_create(&threads->threads[threads->started], NULL, thread_main, threads);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (result == 0)
		threads->started++;
	return result == 0;
}

void loop_job_run(uv_loop_t *loop, struct loop_job *job)
{
	struct loop_threads *threads = threads_hold(loop);
	if (threads->jobs++ == 0)
		uv_ref((uv_handle_t *)&threads->poll);
	bool more = threads->started < LOOP_THREADS_MAX && threads->started < threads->jobs;
	if (more && !thread_start(threads) && threads->started == 0) {
		/* No thread can be had: the job takes the loop's time. */
		job_run(threads, job);
		return;
	}
	pthread_mutex_lock(&threads->mutex);
	list_append(&threads->waiting, &job->link);
	pthread_cond_signal(&threads->wanted);
	pthread_mutex_unlock(&threads->mutex);
}
