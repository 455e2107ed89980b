/* Finds again the sandboxes of an earlier spawner: all by their directories in the state, running
 * ones by their drivers. Leftovers that belong to no sandbox are removed: guests without state,
 * cgroups, incomplete directories. Called once, before the daemon is started. */
#include "spawner/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "proto/tiers.h"

#define STRAY_TIMEOUT (5 * NSEC_PER_SEC)

/* "SLOT TIER", and "pooled" for a member of the pool: see boots.c. */
static int slot_file_read(const struct spawner *spawner, const struct id *id, uint32_t *ret_slot,
			  enum tier *ret_tier, bool *ret_pooled)
{
	char path[SPAWNER_PATH_MAX], text[64];
	uint64_t slot;
	if (text_format(path, sizeof(path), "%s/sandboxes/%s/slot", spawner->host.state, id->text) <
	    0)
		return -ENAMETOOLONG;
	ssize_t length = fd_read_small(AT_FDCWD, path, text, sizeof(text));
	if (length < 0)
		return (int)length;
	text[strcspn(text, "\n")] = '\0';
	char *space = strchr(text, ' ');
	if (!space)
		return -EINVAL;
	*space = '\0';
	char *third = strchr(space + 1, ' ');
	if (third)
		*third++ = '\0';
	if (third && strcmp(third, "pooled") != 0)
		return -EINVAL;
	enum tier tier = tier_parse(space + 1);
	if (text_to_u64(text, 0, UID_BLOCK_SLOTS - 1, &slot) < 0 || tier >= TIER_COUNT)
		return -EINVAL;
	*ret_slot = (uint32_t)slot;
	*ret_tier = tier;
	*ret_pooled = third != NULL;
	return 0;
}

static void entry_adopt(struct spawner *spawner, struct guest_entry *entry)
{
	struct error error;
	const char *id = entry->guest.id.text;
	int running = entry->driver->adopt(&spawner->host, &entry->guest, &error);
	if (running > 0) {
		entry->state = ENTRY_RUNNING;
		if (guests_watch(spawner, entry, &error) == 0) {
			log_info("sandbox %s adopted, pid %d", id, (int)entry->guest.init.pid);
			return;
		}
		running = -1;
	}
	if (running < 0) {
		/* Some of its processes run but cannot be controlled: stop them rather than lose
		 * track of them. */
		log_error("sandbox %s cannot be adopted and is stopped: %s", id, error.message);
		if (entry->driver->kill(&spawner->host, &entry->guest, &error) < 0)
			log_error("sandbox %s: %s", id, error.message);
	}
	guests_finish_dying(spawner, entry);
}

static void guest_adopt(struct spawner *spawner, const char *name)
{
	struct id id;
	uint32_t slot;
	enum tier tier;
	bool pooled;
	if (id_parse(name, &id) < 0) {
		log_warning("%s/sandboxes/%s is not a sandbox: ignored", spawner->host.state, name);
		return;
	}
	if (guests_find(spawner, &id))
		return;
	int found = slot_file_read(spawner, &id, &slot, &tier, &pooled);
	if (found < 0) {
		log_warning("sandbox %s is incomplete: removing it", name);
		trash_move_files(spawner, name);
		return;
	}
	struct guest_entry *entry = &spawner->entries[slot];
	const struct driver *driver = spawner->driver_of(tier);
	if (entry->state != ENTRY_FREE || !driver) {
		log_error("sandbox %s is ignored: %s", name,
			  driver ? "another sandbox has its uid range"
				 : "this build has no such tier");
		return;
	}
	*entry = (struct guest_entry)ENTRY_NONE;
	entry->driver = driver;
	entry->guest.id = id;
	entry->guest.tier = tier;
	entry->guest.slot = slot;
	entry->pooled = pooled;
	entry_adopt(spawner, entry);
}

/* May wait, because nothing else is served yet. The bound is what a killed process may
 * reasonably take to end. */
static int stray_release(struct spawner *spawner, struct guest *guest, struct error *error)
{
	int64_t until = clock_monotonic() + STRAY_TIMEOUT;
	int result = 1;
	while (result > 0) {
		if (!process_alive(&guest->init))
			result = spawner->jail->release(&spawner->host, guest, error);
		if (result > 0 && clock_monotonic() > until)
			return error_set(error, ERROR_TIMED_OUT, "it has not ended in time");
		if (result > 0)
			nanosleep(&(struct timespec){.tv_nsec = NSEC_PER_MSEC}, NULL);
	}
	return result;
}

/* A guest in the runtime directory that has no files in the state: its state was removed, or a
 * crash interrupted its destroy. */
static void stray_end(struct spawner *spawner, const char *name)
{
	struct id id;
	if (id_parse(name, &id) < 0 || guests_id_known(spawner, &id))
		return;
	log_info("removing leftovers of guest %s", name);
	for (unsigned tier = TIER_AUTO + 1; tier < TIER_COUNT; tier++) {
		const struct driver *driver = spawner->driver_of((enum tier)tier);
		struct guest guest = {.id = id, .tier = (enum tier)tier, .init = PROCESS_NONE};
		struct error error;
		if (!driver)
			continue;
		if (driver->adopt(&spawner->host, &guest, &error) != 0 &&
		    driver->kill(&spawner->host, &guest, &error) < 0)
			log_error("guest %s: %s", name, error.message);
		else if (stray_release(spawner, &guest, &error) < 0)
			log_warning("guest %s: %s", name, error.message);
		process_done(&guest.init);
	}
}

/* Calls `act` for each name in a directory. The names are collected first, because `act` changes
 * the directory. */
static void directory_each_name(struct spawner *spawner, const char *root, const char *below,
				void (*act)(struct spawner *spawner, const char *name))
{
	enum { NAMES_MAX = 2 * SANDBOX_COUNT_MAX };
	char path[SPAWNER_PATH_MAX];
	if (text_format(path, sizeof(path), "%s/%s", root, below) < 0)
		return;
	DIR *entries = opendir(path);
	if (!entries) {
		log_error("%s: %s", path, strerror(errno));
		return;
	}
	char(*names)[NAME_MAX_LENGTH + 1] = calloc(NAMES_MAX, sizeof(*names));
	size_t count = 0;
	for (struct dirent *entry; names && count < NAMES_MAX && (entry = readdir(entries));)
		if (entry->d_name[0] != '.' &&
		    text_copy(names[count], sizeof(names[count]), entry->d_name) == 0)
			count++;
	closedir(entries);
	for (size_t i = 0; i < count; i++)
		act(spawner, names[i]);
	free(names);
}

static bool id_is_in_use(void *data, const struct id *id)
{
	return guests_id_in_use(data, id);
}

void adopt_sweep_cgroups(struct spawner *spawner)
{
	struct error error;
	if (spawner->jail->sweep(&spawner->host, id_is_in_use, spawner, &error) < 0)
		log_warning("%s", error.message);
}

/* Running guests are adopted first, so that nothing else that claims the same uid range can hide
 * them. */
static void guest_adopt_running(struct spawner *spawner, const char *name)
{
	char path[SPAWNER_PATH_MAX];
	if (text_format(path, sizeof(path), "%s/guests/%s/boot", spawner->host.runtime, name) ==
		0 &&
	    access(path, F_OK) == 0)
		guest_adopt(spawner, name);
}

void adopt_guests(struct spawner *spawner)
{
	directory_each_name(spawner, spawner->host.state, "sandboxes", guest_adopt_running);
	directory_each_name(spawner, spawner->host.state, "sandboxes", guest_adopt);
	spawner->adopted = true;
	directory_each_name(spawner, spawner->host.runtime, "guests", stray_end);
	adopt_sweep_cgroups(spawner);
	trash_empty(spawner);
}
