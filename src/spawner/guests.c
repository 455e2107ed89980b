/* The table of sandboxes: which there are, which run, and the calls into their drivers. What is
 * true is on the host; this table is rebuilt from it at every start (adopt.c).
 *
 * Called by requests.c and loop.c. A driver may block for the milliseconds a step takes. */
#include "spawner/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

int guests_path(const struct spawner *spawner, const char *below, const struct id *id,
		char path[SPAWNER_PATH_MAX])
{
	return text_format(path, SPAWNER_PATH_MAX, "%s/%s/%s", spawner->host.state, below,
			   id->text);
}

struct entry *guests_find(struct spawner *spawner, const struct id *id)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct entry *entry = &spawner->entries[i];
		if ((entry->state == ENTRY_STOPPED || entry->state == ENTRY_RUNNING) &&
		    id_equal(&entry->guest.id, id))
			return entry;
	}
	return NULL;
}

uint32_t guests_count(const struct spawner *spawner)
{
	uint32_t count = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		count += spawner->entries[i].state == ENTRY_STOPPED ||
			 spawner->entries[i].state == ENTRY_RUNNING;
	return count;
}

bool guests_known(struct spawner *spawner, const struct id *id)
{
	char path[SPAWNER_PATH_MAX];
	return guests_find(spawner, id) || guests_path(spawner, "sandboxes", id, path) < 0 ||
	       access(path, F_OK) == 0;
}

static struct entry *free_entry(struct spawner *spawner)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		if (spawner->entries[i].state == ENTRY_FREE)
			return &spawner->entries[i];
	return NULL;
}

int guests_watch(struct spawner *spawner, struct entry *entry, struct error *error)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = LOOP_GUEST | entry->guest.slot};
	if (epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, entry->guest.init.pidfd, &event) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "watching sandbox %s", entry->guest.id.text);
	return 0;
}

/* Its directory and its slot, before anything else of it exists: whatever a crash leaves of it is
 * found by its directory. */
static int make_files(struct spawner *spawner, struct entry *entry, struct error *error)
{
	char path[SPAWNER_PATH_MAX], text[64];
	if (guests_path(spawner, "sandboxes", &entry->guest.id, path) < 0)
		return error_set(error, ERROR_INTERNAL, "a path is too long");
	if (mkdir(path, 0700) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "making the sandbox's directory");
	CLOSE_FD int directory = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CLOSE_FD int fd = directory < 0 ? -1
					: openat(directory, "slot",
						 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int length =
	    snprintf(text, sizeof(text), "%u %s\n", entry->guest.slot, entry->driver->name);
	int result = fd < 0 ? -errno : fd_write_full(fd, text, (size_t)length);
	if (result == 0)
		return 0;
	if (directory >= 0)
		unlinkat(directory, "slot", 0);
	rmdir(path);
	return error_set_errno(error, error_kind_of_errno(result), result,
			       "writing the sandbox's slot");
}

static int boot(struct spawner *spawner, struct entry *entry, const struct spawn_create *create,
		const struct folder_grant *folders, bool fresh, struct error *error)
{
	const struct boot order = {.create = create, .folders = folders, .fresh = fresh};
	struct guest *guest = &entry->guest;
	guest->limits = create->limits;
	guest->frozen = false;
	guest->phase_count = 0;
	guest->init = PROCESS_NONE;
	if (entry->driver->boot(&spawner->host, guest, &order, error) < 0)
		return -1;
	guest->phase_count = MIN(guest->phase_count, SPAWN_PHASES_MAX);
	entry->state = ENTRY_RUNNING;
	if (guests_watch(spawner, entry, error) == 0)
		return 0;
	/* Nobody would learn of its end. */
	struct error ignored;
	if (guests_kill(spawner, entry, &ignored) == 0)
		guests_release(spawner, entry);
	return -1;
}

int guests_create(struct spawner *spawner, const struct id *id, const struct spawn_create *create,
		  const struct folder_grant *folders, struct entry **ret_entry, struct error *error)
{
	if (guests_find(spawner, id))
		return error_set(error, ERROR_CONFLICT, "sandbox %s is there already", id->text);
	if (guests_count(spawner) >= spawner->config.sandboxes_max)
		return error_set(error, ERROR_BUSY,
				 "there are %u sandboxes, which is as many as the configuration "
				 "allows (count_max)",
				 spawner->config.sandboxes_max);
	struct entry *entry = free_entry(spawner);
	if (!entry)
		return error_set(error, ERROR_BUSY,
				 "all %d uid ranges of this instance are in use: remove a sandbox",
				 (int)UID_BLOCK_SLOTS);
	*entry = (struct entry){
	    .driver = spawner->driver_of((enum tier)create->tier),
	    .guest = {.id = *id,
		      .tier = (enum tier)create->tier,
		      .slot = (uint32_t)(entry - spawner->entries),
		      .init = PROCESS_NONE},
	};
	if (make_files(spawner, entry, error) < 0)
		return -1;
	if (boot(spawner, entry, create, folders, true, error) < 0) {
		/* What the driver made it has undone; what it could not goes to the trash. */
		entry->state = ENTRY_STOPPED;
		trash_entry(spawner, entry);
		return -1;
	}
	*ret_entry = entry;
	return 0;
}

int guests_start(struct spawner *spawner, struct entry *entry, const struct spawn_create *create,
		 const struct folder_grant *folders, struct error *error)
{
	if (entry->state == ENTRY_RUNNING)
		return error_set(error, ERROR_SANDBOX_STATE, "sandbox %s runs already",
				 entry->guest.id.text);
	if (create->tier != (uint32_t)entry->guest.tier)
		return error_set(error, ERROR_INVALID, "sandbox %s is of another tier",
				 entry->guest.id.text);
	return boot(spawner, entry, create, folders, false, error);
}

/* Takes the exit status, where it is our child (an adopted one is not). */
static enum end_cause reap(const struct guest *guest)
{
	siginfo_t info;
	memset(&info, 0, sizeof(info));
	if (guest->init.pidfd < 0 ||
	    waitid(P_PIDFD, (id_t)guest->init.pidfd, &info, WEXITED | WNOHANG) < 0 ||
	    info.si_pid == 0)
		return END_EXITED;
	if (info.si_code != CLD_EXITED)
		return END_KILLED;
	return info.si_status == END_DEADLINE ? END_DEADLINE : END_EXITED;
}

/* No process of it is left: forgets what was known of them. */
static enum end_cause entry_stopped(struct spawner *spawner, struct entry *entry)
{
	enum end_cause cause = reap(&entry->guest);
	if (entry->guest.init.pidfd >= 0)
		epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, entry->guest.init.pidfd, NULL);
	process_done(&entry->guest.init);
	entry->guest.frozen = false;
	entry->state = ENTRY_STOPPED;
	return cause;
}

int guests_kill(struct spawner *spawner, struct entry *entry, struct error *error)
{
	if (entry->state == ENTRY_STOPPED)
		return 0;
	if (entry->driver->kill(&spawner->host, &entry->guest, error) < 0)
		return -1;
	entry_stopped(spawner, entry);
	return 0;
}

void guests_release(struct spawner *spawner, struct entry *entry)
{
	struct error error;
	if (entry->driver->release(&spawner->host, &entry->guest, &error) < 0)
		log_warning("sandbox %s: %s", entry->guest.id.text, error.message);
}

void guests_check_end(struct spawner *spawner, uint32_t slot)
{
	struct entry *entry = slot < UID_BLOCK_SLOTS ? &spawner->entries[slot] : NULL;
	struct error error;
	/* The event may be older than a request of the same turn that ended it. */
	if (!entry || entry->state != ENTRY_RUNNING || process_alive(&entry->guest.init))
		return;
	/* First, since the driver's kill may wait for its child too. */
	enum end_cause cause = reap(&entry->guest);
	/* PID 1 took its namespace with it, but not what was still being born into a cgroup. */
	if (entry->driver->kill(&spawner->host, &entry->guest, &error) < 0)
		log_warning("sandbox %s: %s", entry->guest.id.text, error.message);
	entry_stopped(spawner, entry);
	guests_release(spawner, entry);
	struct spawn_message message = {
	    .type = SPAWN_ENDED, .sandbox = entry->guest.id, .cause = cause};
	log_info("sandbox %s ended by itself (%s)", entry->guest.id.text,
		 cause == END_DEADLINE ? "its time was up"
		 : cause == END_KILLED ? "killed"
				       : "exited");
	spawner_loop_send(spawner, &message);
}
