/* Sandboxes above their memory limit. A kernel that lets that happen reports it
 * (memory_events_open in tier/jail/jail.h) and is then made to enforce the limit in a worker
 * (guest_changes.c). Called by guests.c, guest_changes.c and loop.c; takes microseconds. */
#include "spawner/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

/* Without events the metering checks again after this time. */
#define RETRY_PAUSE (2 * NSEC_PER_SEC)

void memory_limit_watch(struct spawner *spawner, struct guest_entry *entry)
{
	struct epoll_event event = {.events = EPOLLPRI,
				    .data.u64 = LOOP_MEMORY | entry->guest.slot};
	memory_limit_unwatch(spawner, entry);
	int events = spawner->jail->memory_events_open(&spawner->host, &entry->guest);
	if (events >= 0 && epoll_ctl(spawner->epoll, EPOLL_CTL_ADD, events, &event) < 0) {
		int saved = -errno;
		fd_close(&events);
		events = saved;
	}
	entry->memory_events = MAX(events, -1);
	/* The kernel enforces the limit by itself, or memory is not limited (as its record
	 * says). */
	if (events < 0 && events != -EOPNOTSUPP && events != -ENOENT)
		log_warning("sandbox %s: its memory limit is no longer watched: %s",
			    entry->guest.id.text, strerror(-events));
}

void memory_limit_unwatch(struct spawner *spawner, struct guest_entry *entry)
{
	/* A worker may have a copy of the descriptor, so closing it does not remove it from the
	 * epoll. */
	if (entry->memory_events >= 0)
		epoll_ctl(spawner->epoll, EPOLL_CTL_DEL, entry->memory_events, NULL);
	fd_close(&entry->memory_events);
}

void memory_limit_note_failure(struct guest_entry *entry, const char *why)
{
	entry->memory_retry_at = clock_monotonic() + RETRY_PAUSE;
	log_warning("sandbox %s exceeds its memory limit: %s", entry->guest.id.text, why);
}

void memory_limit_check(struct spawner *spawner, struct guest_entry *entry)
{
	struct error error;
	if (entry->memory_events < 0)
		return;
	int over =
	    spawner->jail->memory_events_read(&spawner->host, &entry->guest, entry->memory_events);
	/* The cgroup is gone, and its descriptor would report an event for ever. */
	if (over < 0)
		memory_limit_unwatch(spawner, entry);
	/* The end of a change under way checks again; a sandbox that is ending needs no check. */
	if (over <= 0 || changes_is_running(entry) || !guests_is_running(entry) ||
	    clock_monotonic() < entry->memory_retry_at)
		return;
	if (changes_enforce_memory(spawner, entry, &error) < 0)
		memory_limit_note_failure(entry, error.message);
}

void memory_limit_take_event(struct spawner *spawner, uint32_t slot)
{
	if (slot < UID_BLOCK_SLOTS)
		memory_limit_check(spawner, &spawner->entries[slot]);
}
