/* The threads of a loop (base/loop_threads.h). */
#include "base/loop_threads.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "test.h"

TEST_MAIN

#define JOBS 1000

struct counted {
	struct loop_job job;
	struct counts *counts;
};

struct counts {
	pthread_mutex_t mutex;
	unsigned running, most, ran, done;
	pthread_t loop;
	struct counted jobs[JOBS];
	uv_loop_t *uv;
};

static void count_in_thread(struct loop_job *job)
{
	struct counts *counts = container_of(job, struct counted, job)->counts;
	sigset_t blocked;
	pthread_mutex_lock(&counts->mutex);
	counts->running++;
	counts->most = MAX(counts->most, counts->running);
	pthread_mutex_unlock(&counts->mutex);
	CHECK(!pthread_equal(pthread_self(), counts->loop));
	CHECK_INT(getpriority(PRIO_PROCESS, 0), LOOP_THREADS_NICE);
	CHECK_INT(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
	CHECK(sigismember(&blocked, SIGTERM));
	pthread_mutex_lock(&counts->mutex);
	counts->running--;
	counts->ran++;
	pthread_mutex_unlock(&counts->mutex);
}

static void count_done(struct loop_job *job)
{
	struct counts *counts = container_of(job, struct counted, job)->counts;
	CHECK(pthread_equal(pthread_self(), counts->loop));
	/* The second half is begun by the first. */
	if (counts->done++ < JOBS / 2)
		loop_job_run(counts->uv, &counts->jobs[JOBS / 2 + counts->done - 1].job);
}

static void run_each_once(bool held)
{
	static struct counts counts;
	uv_loop_t loop;
	counts = (struct counts){.mutex = PTHREAD_MUTEX_INITIALIZER, .loop = pthread_self()};
	CHECK_INT(uv_loop_init(&loop), 0);
	counts.uv = &loop;
	if (held)
		loop_threads_hold(&loop);
	for (size_t i = 0; i < JOBS; i++)
		counts.jobs[i] =
		    (struct counted){{.in_thread = count_in_thread, .done = count_done}, &counts};
	for (size_t i = 0; i < JOBS / 2; i++)
		loop_job_run(&loop, &counts.jobs[i].job);
	/* It ends with the last job. */
	CHECK_INT(uv_run(&loop, UV_RUN_DEFAULT), 0);
	CHECK_INT(counts.ran, JOBS);
	CHECK_INT(counts.done, JOBS);
	CHECK(counts.most <= LOOP_THREADS_MAX);
	if (held)
		loop_threads_release(&loop);
	CHECK_INT(uv_run(&loop, UV_RUN_DEFAULT), 0);
	CHECK_INT(uv_loop_close(&loop), 0);
}

TEST(each_job_runs_once)
{
	run_each_once(false);
}

TEST(each_job_runs_once_in_held_threads)
{
	run_each_once(true);
}

struct meeting {
	struct loop_job job;
	int reads, writes;
	bool done;
};

/* Goes on when the other one has begun as well. */
static void meet(struct loop_job *job)
{
	struct meeting *meeting = container_of(job, struct meeting, job);
	char byte = 0;
	CHECK_INT(write(meeting->writes, &byte, 1), 1);
	CHECK_INT(read(meeting->reads, &byte, 1), 1);
}

static void met(struct loop_job *job)
{
	container_of(job, struct meeting, job)->done = true;
}

static void run_two_beside_each_other(uv_loop_t *loop)
{
	int there[2], back[2];
	CHECK_INT(pipe(there), 0);
	CHECK_INT(pipe(back), 0);
	struct meeting one = {{.in_thread = meet, .done = met}, there[0], back[1], false};
	struct meeting two = {{.in_thread = meet, .done = met}, back[0], there[1], false};
	loop_job_run(loop, &one.job);
	loop_job_run(loop, &two.job);
	CHECK_INT(uv_run(loop, UV_RUN_DEFAULT), 0);
	CHECK(one.done && two.done);
	for (int i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
	}
}

TEST(jobs_run_beside_each_other)
{
	uv_loop_t loop;
	CHECK_INT(uv_loop_init(&loop), 0);
	run_two_beside_each_other(&loop);
	CHECK_INT(uv_loop_close(&loop), 0);
}

/* Jobs that follow each other: the next one is begun when the loop is told of the end. */
struct chain {
	struct loop_job job;
	uv_loop_t *loop;
	pthread_t first, last;
	unsigned ran;
	bool moved;
};

static void chain_in_thread(struct loop_job *job)
{
	container_of(job, struct chain, job)->last = pthread_self();
}

static void chain_done(struct loop_job *job)
{
	struct chain *chain = container_of(job, struct chain, job);
	if (chain->ran++ == 0)
		chain->first = chain->last;
	chain->moved = chain->moved || !pthread_equal(chain->first, chain->last);
	if (chain->ran < JOBS)
		loop_job_run(chain->loop, job);
}

TEST(jobs_that_follow_each_other_stay_on_one_thread)
{
	uv_loop_t loop;
	CHECK_INT(uv_loop_init(&loop), 0);
	loop_threads_hold(&loop);
	run_two_beside_each_other(&loop);
	struct chain chain = {.job = {.in_thread = chain_in_thread, .done = chain_done},
			      .loop = &loop};
	loop_job_run(&loop, &chain.job);
	CHECK_INT(uv_run(&loop, UV_RUN_DEFAULT), 0);
	CHECK_INT(chain.ran, JOBS);
	CHECK(!chain.moved);
	loop_threads_release(&loop);
	CHECK_INT(uv_run(&loop, UV_RUN_DEFAULT), 0);
	CHECK_INT(uv_loop_close(&loop), 0);
}

TEST(held_threads_do_not_keep_the_loop)
{
	uv_loop_t loop;
	CHECK_INT(uv_loop_init(&loop), 0);
	loop_threads_hold(&loop);
	CHECK_INT(uv_run(&loop, UV_RUN_DEFAULT), 0);
	loop_threads_release(&loop);
	CHECK_INT(uv_run(&loop, UV_RUN_DEFAULT), 0);
	CHECK_INT(uv_loop_close(&loop), 0);
}
