/* Sandboxes that hold more memory than they may: a kernel that lets that happen (tier/jail/jail.h,
 * over_open) says when, and is then made to see to it, in a worker (guest_jobs.c). Called by
 * guests.c, guest_jobs.c and loop.c; microseconds. */
#include "spawner/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

/* The metering looks again after that at the latest, where no event does. */
#define RETRY_PAUSE (2 * NSEC_PER_SEC)

void memory_watch(struct spawner *spawner, struct entry *entry)
{
	struct epoll_event event = {.events = EPOLLPRI,
				    .data.u64 = LOOP_MEMORY | entry->guest.slot};
	memory_forget(spawner, entry);
	int events = spawner->jail->over_open(&spawner->host, &entry->guest);
	if (events >= 0 && epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, events, &event) < 0) {
		int saved = -errno;
		fd_close(&events);
		events = saved;
	}
	entry->memory_events = MAX(events, -1);
	/* The kernel needs no help, or nothing limits its memory, which its record says. */
	if (events < 0 && events != -EOPNOTSUPP && events != -ENOENT)
		log_warning("sandbox %s: its memory limit is no longer watched: %s",
			    entry->guest.id.text, strerror(-events));
}

void memory_forget(struct spawner *spawner, struct entry *entry)
{
	/* Workers may have a copy: closing is not enough to leave the epoll. */
	if (entry->memory_events >= 0)
		epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, entry->memory_events, NULL);
	fd_close(&entry->memory_events);
}

void memory_failed(struct entry *entry, const char *why)
{
	entry->memory_retry_at = clock_monotonic() + RETRY_PAUSE;
	log_warning("sandbox %s holds more memory than it may: %s", entry->guest.id.text, why);
}

void memory_look(struct spawner *spawner, struct entry *entry)
{
	struct error error;
	if (entry->memory_events < 0)
		return;
	int over = spawner->jail->over_read(&spawner->host, &entry->guest, entry->memory_events);
	/* Its cgroup has gone, and would be an event for ever. */
	if (over < 0)
		memory_forget(spawner, entry);
	/* What is under way ends with a look of its own; one that does not run will be gone. */
	if (over <= 0 || jobs_under_way(entry) || !guests_runs(entry) ||
	    clock_monotonic() < entry->memory_retry_at)
		return;
	if (jobs_end_over(spawner, entry, &error) < 0)
		memory_failed(entry, error.message);
}

void memory_changed(struct spawner *spawner, uint32_t slot)
{
	if (slot < UID_BLOCK_SLOTS)
		memory_look(spawner, &spawner->entries[slot]);
}
