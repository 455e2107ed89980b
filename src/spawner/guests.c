/* The table of sandboxes: which exist, which run, how they end and pause (boots.c starts them). The
 * host holds the truth; the table is rebuilt from it at every start (adopt.c).
 *
 * Called by requests.c and loop.c. A sandbox can delay the end of its processes and their freezing.
 * So these are begun here and checked again by the loop. The requests are answered when it has
 * happened, or after a time-out. */
#include "spawner/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define END_TIMEOUT (10 * NSEC_PER_SEC)
#define FREEZE_TIMEOUT (5 * NSEC_PER_SEC)
#define CHECK_FIRST NSEC_PER_MSEC
#define CHECK_SLOWEST (32 * NSEC_PER_MSEC)
#define CHECK_HOPELESS NSEC_PER_SEC /* after the time-out */
/* Checks of thousands of processes may use at most one part in this many of our time. */
#define CHECK_SHARE 20

int guests_path(const struct spawner *spawner, const char *below, const struct id *id,
		char path[SPAWNER_PATH_MAX])
{
	return text_format(path, SPAWNER_PATH_MAX, "%s/%s/%s", spawner->host.state, below,
			   id->text);
}

/* Whether the daemon may know of it. */
static bool entry_is_visible(const struct guest_entry *entry)
{
	return entry->state != ENTRY_FREE && entry->state != ENTRY_ERASING &&
	       !(entry->unreported && entry->erase_files);
}

struct guest_entry *guests_find(struct spawner *spawner, const struct id *id)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		if (entry_is_visible(entry) && id_equal(&entry->guest.id, id))
			return entry;
	}
	return NULL;
}

bool guests_id_in_use(struct spawner *spawner, const struct id *id)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		const struct guest_entry *entry = &spawner->entries[i];
		if (entry->state != ENTRY_FREE && id_equal(&entry->guest.id, id))
			return true;
	}
	return guests_id_known(spawner, id);
}

uint32_t guests_count(const struct spawner *spawner)
{
	uint32_t count = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		count += entry_is_visible(&spawner->entries[i]);
	return count;
}

bool guests_is_running(const struct guest_entry *entry)
{
	return entry->state == ENTRY_RUNNING || entry->state == ENTRY_FREEZING ||
	       entry->state == ENTRY_THAWING;
}

bool guests_id_known(struct spawner *spawner, const struct id *id)
{
	char path[SPAWNER_PATH_MAX];
	return guests_find(spawner, id) || guests_path(spawner, "sandboxes", id, path) < 0 ||
	       access(path, F_OK) == 0;
}

int guests_watch(struct spawner *spawner, struct guest_entry *entry, struct error *error)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = LOOP_GUEST | entry->guest.slot};
	if (epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, entry->guest.init.pidfd, &event) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "watching sandbox %s", entry->guest.id.text);
	memory_limit_watch(spawner, entry);
	return 0;
}

/* ---- Transitions under way, and the requests that wait for them. */

void guests_check_later(struct spawner *spawner, struct guest_entry *entry, int64_t at)
{
	entry->check_at = at;
	if (spawner->check_at == 0 || at < spawner->check_at)
		spawner->check_at = at;
}

static int64_t state_timeout(const struct spawner *spawner, enum guest_entry_state state)
{
	if (state == ENTRY_DYING)
		return spawner->end_timeout ? spawner->end_timeout : END_TIMEOUT;
	return spawner->freeze_timeout ? spawner->freeze_timeout : FREEZE_TIMEOUT;
}

static void entry_begin_transition(struct spawner *spawner, struct guest_entry *entry,
				   enum guest_entry_state state)
{
	int64_t now = clock_monotonic();
	entry->state = state;
	entry->answer_by = now + state_timeout(spawner, state);
	entry->check_pause = CHECK_FIRST;
	guests_check_later(spawner, entry, now + CHECK_FIRST);
}

static int waiting_request_add(struct guest_entry *entry, uint32_t request, struct error *error)
{
	if (entry->waiting_count == ENTRY_WAITING_MAX)
		return error_set(error, ERROR_BUSY, "%d requests wait for sandbox %s already",
				 ENTRY_WAITING_MAX, entry->guest.id.text);
	entry->waiting[entry->waiting_count++] = request;
	return 1;
}

/* Gives all waiting requests the same answer; error NULL: success. */
static void waiting_requests_answer(struct spawner *spawner, struct guest_entry *entry,
				    const struct error *error)
{
	struct spawn_message reply = {.type = SPAWN_REPLY, .sandbox = entry->guest.id};
	if (error) {
		reply.result = (uint32_t)error->kind;
		memcpy(reply.message, error->message, sizeof(reply.message));
	}
	if (entry->state == ENTRY_STOPPED)
		reply.counters = entry->counters;
	for (uint32_t i = 0; i < entry->waiting_count; i++) {
		reply.request = entry->waiting[i];
		spawner_loop_send(spawner, &reply);
	}
	entry->waiting_count = 0;
}

/* ---- Ending. */

void guests_forget_process(struct spawner *spawner, struct guest_entry *entry)
{
	int pidfd = entry->guest.init.pidfd;
	if (pidfd >= 0) {
		/* An adopted process is not our child and has no exit status. */
		siginfo_t info = {.si_pid = 0};
		bool reaped =
		    waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0;
		entry->cause = reaped && info.si_code != CLD_EXITED       ? END_KILLED
			       : reaped && info.si_status == END_DEADLINE ? END_DEADLINE
									  : END_EXITED;
		epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, pidfd, NULL);
	}
	process_done(&entry->guest.init);
	memory_limit_unwatch(spawner, entry);
	entry->guest.frozen = false;
}

/* Only its files are left. */
static void guest_ended(struct spawner *spawner, struct guest_entry *entry)
{
	struct spawn_message message = {
	    .type = SPAWN_ENDED,
	    .sandbox = entry->guest.id,
	    .ended = {.cause = (uint32_t)entry->cause, .counters = entry->counters}};
	entry->state = ENTRY_STOPPED;
	entry->check_at = 0;
	/* Logged at debug level: only the daemon knows whether it told the init to end. */
	if (entry->ended_unasked)
		log_debug("the processes of sandbox %s have ended (%s)", entry->guest.id.text,
			  entry->cause == END_DEADLINE ? "its deadline has passed"
			  : entry->cause == END_KILLED ? "killed"
						       : "exited");
	/* The request may have timed out, or its daemon may be gone. Before the table is
	 * complete the daemon is not told, because it begins with a list. */
	if (!entry->unreported &&
	    (entry->ended_unasked || (entry->waiting_count == 0 && spawner->adopted)))
		spawner_loop_send(spawner, &message);
	waiting_requests_answer(spawner, entry, NULL);
	entry->unreported = false;
	if (entry->erase_files)
		trash_move_entry(spawner, entry);
}

/* Reads the final counters of its cgroups, which are removed next. Disk usage is only known
 * while it lives and was read before the kill. */
static void guest_count_last(struct spawner *spawner, struct guest_entry *entry)
{
	struct spawn_counters last, *kept = &entry->counters;
	struct error ignored;
	if (entry->guest.init.pidfd < 0 ||
	    entry->driver->counters(&spawner->host, &entry->guest, &last, &ignored) < 0)
		return;
	if (!last.known[KNOWN_DISK] && kept->known[KNOWN_DISK]) {
		last.disk = kept->disk;
		last.disk_inodes = kept->disk_inodes;
		last.known[KNOWN_DISK] = 1;
	}
	*kept = last;
}

static void guest_continue_dying(struct spawner *spawner, struct guest_entry *entry)
{
	struct error error;
	/* When the init ends, all its processes have ended (driver.h). */
	if (process_alive(&entry->guest.init))
		return;
	/* A cgroup that a worker writes to cannot be removed without blocking. */
	if (changes_is_running(entry)) {
		changes_stop(entry);
		return;
	}
	guest_count_last(spawner, entry);
	guests_forget_process(spawner, entry);
	int result = spawner->jail->release(&spawner->host, &entry->guest, &error);
	if (result < 0)
		log_warning("sandbox %s: %s", entry->guest.id.text, error.message);
	if (result <= 0)
		guest_ended(spawner, entry);
}

/* Requests that wait for a pause or resume fail. */
static void guest_begin_dying(struct spawner *spawner, struct guest_entry *entry)
{
	struct error error;
	error_set(&error, ERROR_CONFLICT, "sandbox %s is ending", entry->guest.id.text);
	waiting_requests_answer(spawner, entry, &error);
	entry->erase_files = entry->ended_unasked = false;
	entry->cause = END_KILLED;
	changes_stop(entry);
	entry_begin_transition(spawner, entry, ENTRY_DYING);
}

void guests_finish_dying(struct spawner *spawner, struct guest_entry *entry)
{
	guest_begin_dying(spawner, entry);
	guest_continue_dying(spawner, entry);
}

void guests_discard_boot(struct spawner *spawner, struct guest_entry *entry, bool erase)
{
	struct error error;
	if (entry->driver->kill(&spawner->host, &entry->guest, &error) < 0)
		log_warning("sandbox %s: %s", entry->guest.id.text, error.message);
	/* A request to end it that arrived meanwhile is answered when it has ended. Otherwise
	 * the daemon is not told. */
	entry->unreported = entry->waiting_count == 0;
	entry->erase_files |= erase;
	entry->ended_unasked = false;
	entry->cause = END_KILLED;
	memset(&entry->counters, 0, sizeof(entry->counters));
	entry_begin_transition(spawner, entry, ENTRY_DYING);
	guest_continue_dying(spawner, entry);
}

int guests_stop(struct spawner *spawner, struct guest_entry *entry, bool destroy, uint32_t request,
		struct error *error)
{
	if (entry->state == ENTRY_STOPPED)
		return 0;
	if (boots_is_booting(entry)) {
		if (waiting_request_add(entry, request, error) < 0)
			return -1;
		boots_abort(spawner, entry, destroy);
		return 1;
	}
	if (entry->state == ENTRY_DYING && entry->answer_by == 0)
		return error_set(error, ERROR_CONFLICT,
				 "sandbox %s is ending: its processes were killed and are not "
				 "gone yet",
				 entry->guest.id.text);
	if (entry->state != ENTRY_DYING) {
		memset(&entry->counters, 0, sizeof(entry->counters));
		guest_count_last(spawner, entry);
		if (entry->driver->kill(&spawner->host, &entry->guest, error) < 0)
			return -1;
		guest_begin_dying(spawner, entry);
	}
	if (waiting_request_add(entry, request, error) < 0)
		return -1;
	entry->erase_files |= destroy;
	return 1;
}

void guests_check_process(struct spawner *spawner, uint32_t slot)
{
	struct guest_entry *entry = slot < UID_BLOCK_SLOTS ? &spawner->entries[slot] : NULL;
	struct error error;
	/* The event may be stale: this iteration may have handled the end already. */
	if (!entry || entry->guest.init.pidfd < 0 || process_alive(&entry->guest.init))
		return;
	if (guests_is_running(entry)) {
		memset(&entry->counters, 0, sizeof(entry->counters));
		/* The end of PID 1 ended its pid namespace. A process that was just being forked
		 * into a cgroup may remain. */
		if (entry->driver->kill(&spawner->host, &entry->guest, &error) < 0)
			log_warning("sandbox %s: %s", entry->guest.id.text, error.message);
		guest_begin_dying(spawner, entry);
		entry->ended_unasked = true;
	}
	if (entry->state == ENTRY_DYING)
		guest_continue_dying(spawner, entry);
}

/* ---- Pausing. */

static void guest_return_to_running(struct spawner *spawner, struct guest_entry *entry,
				    const struct error *error)
{
	entry->state = ENTRY_RUNNING;
	entry->check_at = 0;
	if (changes_is_running(entry))
		changes_check_timeout(spawner, entry);
	waiting_requests_answer(spawner, entry, error);
}

/* A pause that fails is undone, so that the state matches what the daemon knows. */
static void freeze_undo(struct spawner *spawner, struct guest_entry *entry)
{
	struct error error;
	int result = entry->driver->freeze(&spawner->host, &entry->guest, false, &error);
	if (result < 0)
		log_warning("sandbox %s: %s", entry->guest.id.text, error.message);
	if (result <= 0)
		guest_return_to_running(spawner, entry, NULL);
	else
		entry_begin_transition(spawner, entry, ENTRY_THAWING);
}

static void freeze_failed(struct spawner *spawner, struct guest_entry *entry,
			  const struct error *error)
{
	waiting_requests_answer(spawner, entry, error);
	if (entry->state == ENTRY_FREEZING)
		freeze_undo(spawner, entry);
	else
		guest_return_to_running(spawner, entry, NULL);
}

static void freeze_continue(struct spawner *spawner, struct guest_entry *entry)
{
	bool frozen = entry->state == ENTRY_FREEZING;
	struct error error;
	int result = entry->driver->freeze(&spawner->host, &entry->guest, frozen, &error);
	if (result < 0) {
		freeze_failed(spawner, entry, &error);
	} else if (result == 0) {
		entry->guest.frozen = frozen;
		guest_return_to_running(spawner, entry, NULL);
	}
}

int guests_freeze(struct spawner *spawner, struct guest_entry *entry, bool frozen, uint32_t request,
		  struct error *error)
{
	enum guest_entry_state wish = frozen ? ENTRY_FREEZING : ENTRY_THAWING;
	if (entry->state == wish)
		return waiting_request_add(entry, request, error);
	if (!frozen) {
		/* Reclaiming memory can be done another time; a resume must not wait for it. */
		if (entry->change.kind == CHANGE_RECLAIM)
			changes_stop(entry);
		if (entry->state == ENTRY_FREEZING) {
			struct error cancelled;
			error_set(&cancelled, ERROR_CONFLICT,
				  "sandbox %s was resumed while it was being paused",
				  entry->guest.id.text);
			waiting_requests_answer(spawner, entry, &cancelled);
			freeze_undo(spawner, entry);
		}
		if (entry->state == wish)
			return waiting_request_add(entry, request, error);
	}
	if (entry->state != ENTRY_RUNNING)
		return error_set(error, ERROR_CONFLICT, "sandbox %s is being %s",
				 entry->guest.id.text, frozen ? "resumed" : "paused");
	int result = entry->driver->freeze(&spawner->host, &entry->guest, frozen, error);
	if (result < 0)
		return -1;
	if (result == 0) {
		entry->guest.frozen = frozen;
		return 0;
	}
	entry_begin_transition(spawner, entry, wish);
	return waiting_request_add(entry, request, error);
}

/* ---- Periodic checks of transitions under way. */

static void transition_timed_out(struct spawner *spawner, struct guest_entry *entry)
{
	struct error error;
	entry->answer_by = 0;
	if (entry->state != ENTRY_DYING) {
		error_set(&error, ERROR_TIMED_OUT, "its processes did not %s",
			  entry->state == ENTRY_FREEZING ? "freeze in time; they continue"
							 : "resume in time");
		freeze_failed(spawner, entry, &error);
		return;
	}
	error_set(&error, ERROR_TIMED_OUT,
		  "its processes have not ended %d seconds after they were killed; it ends when "
		  "they do",
		  (int)(state_timeout(spawner, ENTRY_DYING) / NSEC_PER_SEC));
	log_warning("sandbox %s: %s", entry->guest.id.text, error.message);
	waiting_requests_answer(spawner, entry, &error);
}

static void entry_check(struct spawner *spawner, struct guest_entry *entry)
{
	int64_t before = clock_monotonic();
	if (boots_is_booting(entry)) {
		boots_check_timeout(spawner, entry);
		return;
	}
	if (entry->state == ENTRY_RUNNING) {
		entry->check_at = 0;
		if (changes_is_running(entry))
			changes_check_timeout(spawner, entry);
		return;
	}
	if (entry->state == ENTRY_DYING)
		guest_continue_dying(spawner, entry);
	else
		freeze_continue(spawner, entry);
	if (entry->check_at != 0 && entry->answer_by != 0 && before >= entry->answer_by)
		transition_timed_out(spawner, entry);
	if (entry->check_at == 0)
		return;
	int64_t now = clock_monotonic();
	entry->check_pause = entry->answer_by == 0
				 ? CHECK_HOPELESS
				 : MIN(MAX(entry->check_pause, CHECK_FIRST) * 2, CHECK_SLOWEST);
	entry->check_at = now + MAX(entry->check_pause, CHECK_SHARE * (now - before));
}

void guests_check_due(struct spawner *spawner)
{
	int64_t now = clock_monotonic();
	if (spawner->check_at == 0 || now < spawner->check_at)
		return;
	spawner->check_at = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		if (entry->check_at != 0 && entry->check_at <= now)
			entry_check(spawner, entry);
		if (entry->check_at != 0)
			guests_check_later(spawner, entry, entry->check_at);
	}
}

void guests_forget_requests(struct spawner *spawner)
{
	boots_forget_requests(spawner);
	for (size_t i = 0; i < TIER_COUNT; i++)
		spawner->probes[i].waiting_count = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		entry->waiting_count = 0;
		entry->change.request = entry->next_change.request = 0;
		if (entry->state == ENTRY_FREEZING)
			freeze_undo(spawner, entry);
	}
}
