/* Changes of a running sandbox that may take long: new limits (memory above them is reclaimed
 * first), reclaiming memory, and enforcing the memory limit. Each runs in a forked worker, one at a
 * time per sandbox, and the loop is told when it ends. A request that must not wait (resume, end)
 * kills the worker: the kernel then abandons the operation, and only then can the cgroups be
 * removed.
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

/* Shorter than the daemon waits for an answer. */
#ifdef CAISSON_FAULT_POINTS
#define LIMITS_PATIENCE (2 * NSEC_PER_SEC)
#else
#define LIMITS_PATIENCE (10 * NSEC_PER_SEC)
#endif
#define ENFORCE_PATIENCE LIMITS_PATIENCE
#define RECLAIM_PATIENCE (2 * NSEC_PER_SEC)

struct change_result {
	int result; /* 0, or -1 with error */
	struct error error;
	struct limits limits; /* LIMITS: the limits in force afterwards */
	struct spawn_reclaimed reclaimed;
};

/* Runs in the worker. */
typedef int change_run(struct spawner *spawner, struct guest *guest,
		       const struct guest_change *change, struct change_result *result);

static int limits_change_run(struct spawner *spawner, struct guest *guest,
			     const struct guest_change *change, struct change_result *result)
{
	const struct driver *driver = spawner->driver_of(guest->tier);
	int done = driver->set_limits(&spawner->host, guest, &change->limits, &result->error);
	result->limits = guest->limits;
	return done;
}

static int reclaim_run(struct spawner *spawner, struct guest *guest,
		       const struct guest_change *change, struct change_result *result)
{
	(void)change;
	return spawner->jail->reclaim(&spawner->host, guest, &result->reclaimed, &result->error);
}

static int memory_enforce_run(struct spawner *spawner, struct guest *guest,
			      const struct guest_change *change, struct change_result *result)
{
	(void)change;
	return spawner->jail->memory_limit_enforce(&spawner->host, guest, &result->error);
}

static const struct {
	change_run *run;
	int64_t patience;
	const char *what;
} kinds[] = {
    [CHANGE_LIMITS] = {limits_change_run, LIMITS_PATIENCE, "its limits are being changed"},
    [CHANGE_LIMITS_BACK] = {limits_change_run, LIMITS_PATIENCE, "its limits are being restored"},
    [CHANGE_RECLAIM] = {reclaim_run, RECLAIM_PATIENCE, "its memory is being reclaimed"},
    [CHANGE_ENFORCE_MEMORY] = {memory_enforce_run, ENFORCE_PATIENCE,
			       "its memory limit is being enforced"},
};

bool changes_is_running(const struct guest_entry *entry)
{
	return entry->change.kind != CHANGE_NONE;
}

static int worker_start(struct spawner *spawner, struct guest_entry *entry, struct error *error)
{
	struct guest_change *change = &entry->change;
	int socket;
	pid_t worker = worker_fork(spawner, &socket);
	if (worker == 0) {
		struct change_result result = {0};
		struct guest guest = entry->guest;
		result.result = kinds[change->kind].run(spawner, &guest, change, &result);
		_exit(fd_send(socket, &result, sizeof(result), NULL, 0) < 0);
	}
	if (worker < 0)
		return error_set_errno(error, error_kind_of_errno(worker), worker,
				       "a process for it");
	if (worker_watch(spawner, worker, &socket, LOOP_CHANGE | entry->guest.slot,
			 "watching a worker", error) < 0)
		return -1;
	change->worker = worker;
	change->socket = socket;
	change->began = clock_monotonic();
	change->until = change->began + kinds[change->kind].patience;
	/* While it is being paused or resumed it is checked more often, and its change with it. */
	if (entry->state == ENTRY_RUNNING)
		guests_check_later(spawner, entry, change->until);
	return 0;
}

static int guest_change_begin(struct spawner *spawner, struct guest_entry *entry,
			      const struct guest_change *wish, struct error *error)
{
	/* No request waits for the memory limit to be enforced. So this is stopped, and begun
	 * again after the new change. */
	if (entry->change.kind == CHANGE_ENFORCE_MEMORY && entry->next_change.kind == CHANGE_NONE) {
		entry->next_change = *wish;
		changes_stop(entry);
		return 1;
	}
	if (changes_is_running(entry))
		return error_set(error, ERROR_BUSY, "sandbox %s: %s", entry->guest.id.text,
				 kinds[entry->change.kind].what);
	entry->change = *wish;
	entry->change.socket = -1;
	if (worker_start(spawner, entry, error) < 0) {
		entry->change = CHANGE_IDLE;
		return -1;
	}
	return 1;
}

int changes_set_limits(struct spawner *spawner, struct guest_entry *entry,
		       const struct limits *limits, uint32_t request, struct error *error)
{
	struct guest_change change = {.kind = CHANGE_LIMITS, .limits = *limits, .request = request};
	return guest_change_begin(spawner, entry, &change, error);
}

static bool guest_is_paused(const struct guest_entry *entry)
{
	return entry->guest.frozen && entry->state == ENTRY_RUNNING;
}

int changes_reclaim(struct spawner *spawner, struct guest_entry *entry, uint32_t request,
		    struct error *error)
{
	struct guest_change change = {.kind = CHANGE_RECLAIM, .request = request};
	struct spawn_counters counters;
	if (!guest_is_paused(entry))
		return error_set(error, ERROR_CONFLICT, "sandbox %s is not paused",
				 entry->guest.id.text);
	if (entry->driver->counters(&spawner->host, &entry->guest, &counters, error) < 0)
		return -1;
	change.memory = counters.memory;
	return guest_change_begin(spawner, entry, &change, error);
}

int changes_enforce_memory(struct spawner *spawner, struct guest_entry *entry, struct error *error)
{
	struct guest_change change = {.kind = CHANGE_ENFORCE_MEMORY};
	return guest_change_begin(spawner, entry, &change, error);
}

static void guest_change_answer(struct spawner *spawner, const struct guest_entry *entry,
				struct guest_change *change, const struct change_result *result)
{
	struct spawn_message reply = {
	    .type = SPAWN_REPLY, .request = change->request, .sandbox = entry->guest.id};
	if (change->request == 0)
		return;
	if (result->result < 0) {
		enum error_kind kind = result->error.kind;
		reply.result = kind == ERROR_NONE ? ERROR_INTERNAL : (uint32_t)kind;
		memcpy(reply.message, result->error.message, sizeof(reply.message));
	} else if (change->kind == CHANGE_RECLAIM) {
		reply.reclaimed = result->reclaimed;
		reply.reclaimed.microseconds =
		    (uint64_t)(clock_monotonic() - change->began) / NSEC_PER_USEC;
	}
	spawner_loop_send(spawner, &reply);
	change->request = 0;
}

/* Begins the change that waited for the worker to end. Memory events that arrived meanwhile are
 * checked now. */
static void guest_change_begin_next(struct spawner *spawner, struct guest_entry *entry)
{
	struct guest_change wish = entry->next_change;
	struct change_result result = {.result = -1};
	entry->next_change = CHANGE_IDLE;
	if (wish.kind == CHANGE_NONE) {
		memory_limit_check(spawner, entry);
		return;
	}
	if (!guests_is_running(entry))
		error_set(&result.error, ERROR_CONFLICT, "sandbox %s is ending",
			  entry->guest.id.text);
	else if (wish.kind == CHANGE_RECLAIM && !guest_is_paused(entry))
		error_set(&result.error, ERROR_CONFLICT, "sandbox %s is not paused",
			  entry->guest.id.text);
	else if (guest_change_begin(spawner, entry, &wish, &result.error) >= 0)
		return;
	guest_change_answer(spawner, entry, &wish, &result);
}

/* The worker sent no result: it was killed or crashed. Limits may be half changed. */
static void guest_change_worker_lost(struct spawner *spawner, struct guest_entry *entry)
{
	struct change_result result = {.result = -1};
	enum change_kind kind = entry->change.kind;
	bool ending = !guests_is_running(entry);
	struct spawn_counters counters;
	if (kind == CHANGE_RECLAIM && !ending &&
	    entry->driver->counters(&spawner->host, &entry->guest, &counters, &result.error) == 0) {
		/* Interrupted: report what was reclaimed until then. */
		result.result = 0;
		result.reclaimed.before = entry->change.memory;
		result.reclaimed.after = counters.memory;
	} else if (ending)
		error_set(&result.error, ERROR_CONFLICT, "sandbox %s is ending",
			  entry->guest.id.text);
	else if (entry->change.stopped)
		error_set(&result.error, ERROR_TIMED_OUT, "it took too long");
	else
		error_set(&result.error, ERROR_INTERNAL, "its worker ended without an answer");
	guest_change_answer(spawner, entry, &entry->change, &result);
	entry->change = CHANGE_IDLE;
	if (kind == CHANGE_ENFORCE_MEMORY && !ending && entry->next_change.kind == CHANGE_NONE)
		memory_limit_note_failure(entry, result.error.message);
	if (kind != CHANGE_LIMITS || ending) {
		guest_change_begin_next(spawner, entry);
		return;
	}
	struct guest_change back = {.kind = CHANGE_LIMITS_BACK, .limits = entry->guest.limits};
	if (guest_change_begin(spawner, entry, &back, &result.error) < 0)
		log_warning("sandbox %s: its limits may be half changed: %s", entry->guest.id.text,
			    result.error.message);
}

void changes_take_result(struct spawner *spawner, uint32_t slot)
{
	struct guest_entry *entry = slot < UID_BLOCK_SLOTS ? &spawner->entries[slot] : NULL;
	struct change_result result;
	if (!entry || entry->change.socket < 0)
		return;
	struct guest_change *change = &entry->change;
	ssize_t got = fd_receive(change->socket, &result, sizeof(result), NULL, NULL);
	epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, change->socket, NULL);
	fd_close(&change->socket);
	worker_reap_later(spawner, change->worker);
	change->worker = 0;
	if (entry->state == ENTRY_RUNNING)
		entry->check_at = 0;
	else if (entry->check_at != 0)
		guests_check_later(spawner, entry, clock_monotonic());
	if (got != (ssize_t)sizeof(result)) {
		guest_change_worker_lost(spawner, entry);
		return;
	}
	enum change_kind kind = change->kind;
	if (result.result >= 0 && (kind == CHANGE_LIMITS || kind == CHANGE_LIMITS_BACK))
		entry->guest.limits = result.limits;
	if (result.result < 0 && kind == CHANGE_ENFORCE_MEMORY)
		memory_limit_note_failure(entry, result.error.message);
	guest_change_answer(spawner, entry, change, &result);
	*change = CHANGE_IDLE;
	guest_change_begin_next(spawner, entry);
}

void changes_stop(struct guest_entry *entry)
{
	if (entry->change.worker <= 0)
		return;
	entry->change.stopped = true;
	kill(entry->change.worker, SIGKILL);
}

void changes_check_timeout(struct spawner *spawner, struct guest_entry *entry)
{
	struct guest_change *change = &entry->change;
	if (change->stopped || clock_monotonic() < change->until) {
		guests_check_later(spawner, entry,
				   change->stopped ? clock_monotonic() + NSEC_PER_SEC
						   : change->until);
		return;
	}
	/* The loop is told of the worker's end next. */
	changes_stop(entry);
	guests_check_later(spawner, entry, clock_monotonic() + NSEC_PER_SEC);
}
