/* Steps on a sandbox that runs and that may take long: new limits (what is used beyond them is
 * taken back first) and taking memory back. Each is a forked worker, one at a time per sandbox; the
 * loop hears of its end. What must not wait for it (a sandbox that is to go on, or to end) ends it:
 * the kernel gives up both when the worker is killed, and cgroups can be removed only then.
 *
 * Called by requests.c, guests.c and loop.c; starting one costs a fork. */
#include "spawner/internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

/* Less than a daemon waits for an answer. */
#ifdef CAISSON_FAULT_POINTS
#define LIMITS_PATIENCE (2 * NSEC_PER_SEC)
#else
#define LIMITS_PATIENCE (10 * NSEC_PER_SEC)
#endif
#define END_OVER_PATIENCE LIMITS_PATIENCE
#define RECLAIM_PATIENCE (2 * NSEC_PER_SEC)

struct job_result {
	int result; /* 0, or -1 with error */
	struct error error;
	struct limits limits; /* LIMITS: what they are now */
	struct spawn_reclaimed reclaimed;
};

/* In the worker. */
typedef int job_run(struct spawner *spawner, struct guest *guest, const struct job *job,
		    struct job_result *result);

static int run_limits(struct spawner *spawner, struct guest *guest, const struct job *job,
		      struct job_result *result)
{
	const struct driver *driver = spawner->driver_of(guest->tier);
	int done = driver->set_limits(&spawner->host, guest, &job->limits, &result->error);
	result->limits = guest->limits;
	return done;
}

static int run_reclaim(struct spawner *spawner, struct guest *guest, const struct job *job,
		       struct job_result *result)
{
	(void)job;
	return spawner->jail->reclaim(&spawner->host, guest, &result->reclaimed, &result->error);
}

static int run_end_over(struct spawner *spawner, struct guest *guest, const struct job *job,
			struct job_result *result)
{
	(void)job;
	return spawner->jail->over_end(&spawner->host, guest, &result->error);
}

static const struct {
	job_run *run;
	int64_t patience;
	const char *what;
} kinds[] = {
    [JOB_LIMITS] = {run_limits, LIMITS_PATIENCE, "its limits are being changed"},
    [JOB_RESTORE] = {run_limits, LIMITS_PATIENCE, "its limits are being put back"},
    [JOB_RECLAIM] = {run_reclaim, RECLAIM_PATIENCE, "its memory is being taken back"},
    [JOB_END_OVER] = {run_end_over, END_OVER_PATIENCE, "it holds more memory than it may"},
};

bool jobs_under_way(const struct entry *entry)
{
	return entry->job.kind != JOB_NONE;
}

static int start(struct spawner *spawner, struct entry *entry, struct error *error)
{
	struct job *job = &entry->job;
	int socket;
	pid_t worker = worker_fork(spawner, &socket);
	if (worker == 0) {
		struct job_result result = {0};
		struct guest guest = entry->guest;
		result.result = kinds[job->kind].run(spawner, &guest, job, &result);
		_exit(fd_send(socket, &result, sizeof(result), NULL, 0) < 0);
	}
	if (worker < 0)
		return error_set_errno(error, error_kind_of_errno(worker), worker,
				       "a process for it");
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = LOOP_JOB | entry->guest.slot};
	if (epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, socket, &event) < 0) {
		int saved = errno;
		kill(worker, SIGKILL);
		worker_leaves(spawner, worker);
		fd_close(&socket);
		return error_set_errno(error, error_kind_of_errno(saved), saved,
				       "watching a worker");
	}
	job->worker = worker;
	job->socket = socket;
	job->began = clock_monotonic();
	job->until = job->began + kinds[job->kind].patience;
	/* One that is being paused or resumed is looked at sooner, and at its job then. */
	if (entry->state == ENTRY_RUNNING)
		guests_look_at(spawner, entry, job->until);
	return 0;
}

static int begin(struct spawner *spawner, struct entry *entry, const struct job *wish,
		 struct error *error)
{
	/* Nobody asked for that; it is gone on with afterwards. */
	if (entry->job.kind == JOB_END_OVER && entry->next_job.kind == JOB_NONE) {
		entry->next_job = *wish;
		jobs_stop(entry);
		return 1;
	}
	if (jobs_under_way(entry))
		return error_set(error, ERROR_BUSY, "sandbox %s: %s", entry->guest.id.text,
				 kinds[entry->job.kind].what);
	entry->job = *wish;
	entry->job.socket = -1;
	if (start(spawner, entry, error) < 0) {
		entry->job = JOB_IDLE;
		return -1;
	}
	return 1;
}

int jobs_set_limits(struct spawner *spawner, struct entry *entry, const struct limits *limits,
		    uint32_t request, struct error *error)
{
	struct job job = {.kind = JOB_LIMITS, .limits = *limits, .request = request};
	return begin(spawner, entry, &job, error);
}

static bool is_paused(const struct entry *entry)
{
	return entry->guest.frozen && entry->state == ENTRY_RUNNING;
}

int jobs_reclaim(struct spawner *spawner, struct entry *entry, uint32_t request,
		 struct error *error)
{
	struct job job = {.kind = JOB_RECLAIM, .request = request};
	struct spawn_counters counters;
	if (!is_paused(entry))
		return error_set(error, ERROR_CONFLICT, "sandbox %s is not paused",
				 entry->guest.id.text);
	if (entry->driver->counters(&spawner->host, &entry->guest, &counters, error) < 0)
		return -1;
	job.memory = counters.memory;
	return begin(spawner, entry, &job, error);
}

int jobs_end_over(struct spawner *spawner, struct entry *entry, struct error *error)
{
	struct job job = {.kind = JOB_END_OVER};
	return begin(spawner, entry, &job, error);
}

static void answer(struct spawner *spawner, const struct entry *entry, struct job *job,
		   const struct job_result *result)
{
	struct spawn_message reply = {
	    .type = SPAWN_REPLY, .request = job->request, .sandbox = entry->guest.id};
	if (job->request == 0)
		return;
	if (result->result < 0) {
		enum error_kind kind = result->error.kind;
		reply.result = kind == ERROR_NONE ? ERROR_INTERNAL : (uint32_t)kind;
		memcpy(reply.message, result->error.message, sizeof(reply.message));
	} else if (job->kind == JOB_RECLAIM) {
		reply.reclaimed = result->reclaimed;
		reply.reclaimed.microseconds =
		    (uint64_t)(clock_monotonic() - job->began) / NSEC_PER_USEC;
	}
	spawner_loop_send(spawner, &reply);
	job->request = 0;
}

/* Whoever waited for its worker to be gone has his turn. An event that came meanwhile had to wait
 * as well. */
static void go_on(struct spawner *spawner, struct entry *entry)
{
	struct job wish = entry->next_job;
	struct job_result result = {.result = -1};
	entry->next_job = JOB_IDLE;
	if (wish.kind == JOB_NONE) {
		memory_look(spawner, entry);
		return;
	}
	if (!guests_runs(entry))
		error_set(&result.error, ERROR_CONFLICT, "sandbox %s is ending",
			  entry->guest.id.text);
	else if (wish.kind == JOB_RECLAIM && !is_paused(entry))
		error_set(&result.error, ERROR_CONFLICT, "sandbox %s is not paused",
			  entry->guest.id.text);
	else if (begin(spawner, entry, &wish, &result.error) >= 0)
		return;
	answer(spawner, entry, &wish, &result);
}

/* It said nothing: it was killed, or broke. Limits may be half changed then. */
static void broken(struct spawner *spawner, struct entry *entry)
{
	struct job_result result = {.result = -1};
	enum job_kind kind = entry->job.kind;
	bool ending = !guests_runs(entry);
	struct spawn_counters counters;
	if (kind == JOB_RECLAIM && !ending &&
	    entry->driver->counters(&spawner->host, &entry->guest, &counters, &result.error) == 0) {
		/* Cut short: what it got by then, it got. */
		result.result = 0;
		result.reclaimed.before = entry->job.memory;
		result.reclaimed.after = counters.memory;
	} else if (ending)
		error_set(&result.error, ERROR_CONFLICT, "sandbox %s is ending",
			  entry->guest.id.text);
	else if (entry->job.stopped)
		error_set(&result.error, ERROR_TIMED_OUT, "it took too long");
	else
		error_set(&result.error, ERROR_INTERNAL, "its worker ended without an answer");
	answer(spawner, entry, &entry->job, &result);
	entry->job = JOB_IDLE;
	if (kind == JOB_END_OVER && !ending && entry->next_job.kind == JOB_NONE)
		memory_failed(entry, result.error.message);
	if (kind != JOB_LIMITS || ending) {
		go_on(spawner, entry);
		return;
	}
	struct job back = {.kind = JOB_RESTORE, .limits = entry->guest.limits};
	if (begin(spawner, entry, &back, &result.error) < 0)
		log_warning("sandbox %s: its limits may be half changed: %s", entry->guest.id.text,
			    result.error.message);
}

void jobs_done(struct spawner *spawner, uint32_t slot)
{
	struct entry *entry = slot < UID_BLOCK_SLOTS ? &spawner->entries[slot] : NULL;
	struct job_result result;
	if (!entry || entry->job.socket < 0)
		return;
	struct job *job = &entry->job;
	ssize_t got = fd_receive(job->socket, &result, sizeof(result), NULL, NULL);
	epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, job->socket, NULL);
	fd_close(&job->socket);
	worker_leaves(spawner, job->worker);
	job->worker = 0;
	if (entry->state == ENTRY_RUNNING)
		entry->look_at = 0;
	else if (entry->look_at != 0)
		guests_look_at(spawner, entry, clock_monotonic());
	if (got != (ssize_t)sizeof(result)) {
		broken(spawner, entry);
		return;
	}
	enum job_kind kind = job->kind;
	if (result.result >= 0 && (kind == JOB_LIMITS || kind == JOB_RESTORE))
		entry->guest.limits = result.limits;
	if (result.result < 0 && kind == JOB_END_OVER)
		memory_failed(entry, result.error.message);
	answer(spawner, entry, job, &result);
	*job = JOB_IDLE;
	go_on(spawner, entry);
}

void jobs_stop(struct entry *entry)
{
	if (entry->job.worker <= 0)
		return;
	entry->job.stopped = true;
	kill(entry->job.worker, SIGKILL);
}

void jobs_look(struct spawner *spawner, struct entry *entry)
{
	struct job *job = &entry->job;
	if (job->stopped || clock_monotonic() < job->until) {
		guests_look_at(spawner, entry,
			       job->stopped ? clock_monotonic() + NSEC_PER_SEC : job->until);
		return;
	}
	/* Its end is what the loop hears of next. */
	jobs_stop(entry);
	guests_look_at(spawner, entry, clock_monotonic() + NSEC_PER_SEC);
}
