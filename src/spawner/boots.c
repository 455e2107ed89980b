/* Creates and starts of sandboxes. Orders are queued, workers (worker.c) carry out a few at a time,
 * and the request is answered when the init listens.
 *
 * Called by requests.c and loop.c; never waits. */
#include "spawner/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

/* A driver gives up by itself after ten seconds. The tools for its disk may take as long before
 * that. */
#define BOOT_PATIENCE (45 * NSEC_PER_SEC)
#define BOOTS_MIN 4
#define BOOTS_MAX 16

void boots_forget_order(struct guest_entry *entry)
{
	if (!entry->order)
		return;
	mounts_done(entry->order->mounts);
	free(entry->order);
	entry->order = NULL;
}

/* Takes over the mounts. */
static struct boot_order *order_new(const struct spawn_create *create, struct mount *mounts,
				    enum boot_origin origin)
{
	struct boot_order *order = calloc(1, sizeof(*order));
	if (!order)
		abort();
	order->create = *create;
	order->origin = origin;
	mounts_init(order->mounts);
	if (mounts) {
		memcpy(order->mounts, mounts, sizeof(order->mounts));
		mounts_init(mounts);
	}
	return order;
}

bool boots_is_booting(const struct guest_entry *entry)
{
	return entry->state == ENTRY_BOOTING;
}

/* ---- Replies. */

static void boot_reply_error(struct spawner *spawner, uint32_t request, const struct id *id,
			     const struct error *error)
{
	struct spawn_message reply = {.type = SPAWN_REPLY,
				      .request = request,
				      .sandbox = *id,
				      .result = (uint32_t)error->kind};
	memcpy(reply.message, error->message, sizeof(reply.message));
	if (request != 0)
		spawner_loop_send(spawner, &reply);
}

static void boot_reply_created(struct spawner *spawner, struct guest_entry *entry)
{
	const struct guest *guest = &entry->guest;
	struct spawn_message reply = {
	    .type = SPAWN_REPLY, .request = entry->boot_request, .sandbox = guest->id};
	if (entry->boot_request == 0)
		return;
	reply.created.pid = (uint32_t)guest->init.pid;
	memcpy(reply.created.rootfs_digest, guest->rootfs_digest, sizeof(guest->rootfs_digest));
	memcpy(reply.created.limit_reasons, guest->limit_reasons, sizeof(guest->limit_reasons));
	reply.created.phase_count = MIN(guest->phase_count, SPAWN_PHASES_MAX);
	memcpy(reply.created.phases, guest->phases, sizeof(guest->phases));
	entry->boot_request = 0;
	spawner_loop_send(spawner, &reply);
}

/* A list waits until no boot is under way, so that it is correct. */
static void list_answer_when_settled(struct spawner *spawner)
{
	if (spawner->list_request == 0 || boots_count(spawner) > 0)
		return;
	uint32_t request = spawner->list_request;
	spawner->list_request = 0;
	requests_list(spawner, request);
}

/* Removes what the boot made, and with `erase` the sandbox's files. The request is answered
 * afterwards, so that normally nothing is left when its sender hears of the failure. */
static void boot_undo(struct spawner *spawner, struct guest_entry *entry, bool erase,
		      const struct error *error)
{
	uint32_t request = entry->boot_request;
	struct id id = entry->guest.id;
	entry->boot_request = 0;
	boots_forget_order(entry);
	guests_discard_boot(spawner, entry, erase);
	boot_reply_error(spawner, request, &id, error);
}

static void boot_failed(struct spawner *spawner, struct guest_entry *entry,
			const struct error *error)
{
	log_debug("sandbox %s: %s", entry->guest.id.text, error->message);
	boot_undo(spawner, entry, !entry->order || entry->order->origin == BOOT_NEW, error);
}

static void boot_succeeded(struct spawner *spawner, struct guest_entry *entry)
{
	struct error error;
	entry->state = ENTRY_RUNNING;
	entry->check_at = 0;
	if (!entry->end_requested) {
		boots_forget_order(entry);
		boot_reply_created(spawner, entry);
		return;
	}
	/* A request to end it arrived before the boot was done. */
	error_set(&error, ERROR_CONFLICT, "sandbox %s is ending", entry->guest.id.text);
	boot_undo(spawner, entry,
		  entry->erase_files || (entry->order && entry->order->origin == BOOT_NEW), &error);
}

/* ---- Workers. */

static bool boot_waits_for_worker(const struct guest_entry *entry)
{
	return entry->state == ENTRY_BOOTING && entry->worker == 0;
}

uint32_t boots_count(const struct spawner *spawner)
{
	uint32_t count = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		count += boots_is_booting(&spawner->entries[i]);
	return count;
}

/* The order that has waited longest. */
static struct guest_entry *boot_next_waiting(struct spawner *spawner)
{
	struct guest_entry *next = NULL;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		if (boot_waits_for_worker(entry) && (!next || entry->boot_turn < next->boot_turn))
			next = entry;
	}
	return next;
}

static void boots_start_waiting(struct spawner *spawner)
{
	long most = MIN(MAX(2 * sysconf(_SC_NPROCESSORS_ONLN), BOOTS_MIN), BOOTS_MAX), working = 0;
	struct error error;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++)
		working += boots_is_booting(&spawner->entries[i]) && spawner->entries[i].worker > 0;
	for (struct guest_entry *entry; working < most && (entry = boot_next_waiting(spawner));
	     working++) {
		if (worker_boot(spawner, entry, &error) < 0)
			boot_failed(spawner, entry, &error);
		else
			guests_check_later(spawner, entry, clock_monotonic() + BOOT_PATIENCE);
	}
}

static void boot_enqueue(struct spawner *spawner, struct guest_entry *entry,
			 struct boot_order *order, uint32_t request)
{
	entry->order = order;
	entry->state = ENTRY_BOOTING;
	entry->boot_request = request;
	entry->boot_turn = ++spawner->boot_turns;
	entry->end_requested = entry->erase_files = entry->ended_unasked = entry->unreported =
	    false;
	entry->guest.limits = order->create.limits;
	entry->guest.frozen = false;
	entry->guest.phase_count = 0;
	entry->guest.init = PROCESS_NONE;
	boots_start_waiting(spawner);
}

void boots_take_result(struct spawner *spawner, uint32_t slot)
{
	struct guest_entry *entry = slot < UID_BLOCK_SLOTS ? &spawner->entries[slot] : NULL;
	struct work_result result;
	struct error error;
	if (!entry || entry->worker_socket < 0)
		return;
	if (worker_receive_boot(spawner, entry, &result) < 0) {
		/* The worker was killed, by us or by the kernel. A child that it started ends by
		 * itself when its channel closes, or is found by its record. */
		error_set(&error, entry->end_requested ? ERROR_CONFLICT : ERROR_INTERNAL,
			  entry->end_requested ? "sandbox %s is ending"
					       : "the process that made sandbox %s did not finish",
			  entry->guest.id.text);
		struct error ignored;
		if (entry->driver->adopt(&spawner->host, &entry->guest, &ignored) < 0)
			log_warning("sandbox %s: %s", entry->guest.id.text, ignored.message);
		boot_failed(spawner, entry, &error);
	} else {
		entry->guest = result.guest;
		entry->guest.phase_count = MIN(entry->guest.phase_count, SPAWN_PHASES_MAX);
		if (result.result == 0)
			result.result = guests_watch(spawner, entry, &result.error);
		if (result.result < 0)
			boot_failed(spawner, entry, &result.error);
		else
			boot_succeeded(spawner, entry);
	}
	boots_start_waiting(spawner);
	list_answer_when_settled(spawner);
}

void boots_check_timeout(struct spawner *spawner UNUSED, struct guest_entry *entry)
{
	if (clock_monotonic() < entry->check_at)
		return;
	entry->check_at = 0;
	if (entry->worker <= 0)
		return;
	/* The loop is told of its end next. */
	log_warning("sandbox %s was not made within %d seconds", entry->guest.id.text,
		    (int)(BOOT_PATIENCE / NSEC_PER_SEC));
	kill(entry->worker, SIGKILL);
}

/* ---- Orders. */

/* Writes "SLOT TIER" in the sandbox's directory before anything else of it exists, so that
 * leftovers of a crash are found by that directory. A third word, "pooled", marks a member of
 * the daemon's pool. */
static int slot_file_write(int directory, const struct guest_entry *entry)
{
	char text[64];
	CLOSE_FD int fd =
	    openat(directory, "slot", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int length = snprintf(text, sizeof(text), "%u %s%s\n", entry->guest.slot,
			      entry->driver->name, entry->pooled ? " pooled" : "");
	int result = fd < 0 ? -errno : fd_write_full(fd, text, (size_t)length);
	/* The old text is overwritten by one write. A kill leaves the old line or the new one;
	 * the end of the old one may follow, which is never read. */
	if (result == 0 && ftruncate(fd, length) < 0)
		result = -errno;
	return result;
}

int boots_mark_owned(struct spawner *spawner, struct guest_entry *entry, struct error *error)
{
	char path[SPAWNER_PATH_MAX];
	int result = guests_path(spawner, "sandboxes", &entry->guest.id, path);
	CLOSE_FD int directory =
	    result < 0 ? -1 : open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (result == 0 && directory < 0)
		result = -errno;
	entry->pooled = false;
	if (result == 0)
		result = slot_file_write(directory, entry);
	if (result < 0)
		return error_set_errno(error, error_kind_of_errno(result), result,
				       "writing the sandbox's slot");
	return 0;
}

static int sandbox_directory_make(struct spawner *spawner, struct guest_entry *entry,
				  struct error *error)
{
	char path[SPAWNER_PATH_MAX];
	if (guests_path(spawner, "sandboxes", &entry->guest.id, path) < 0)
		return error_set(error, ERROR_INTERNAL, "a path is too long");
	if (mkdir(path, 0700) < 0)
		return error_set_errno(error, error_kind_of_errno(errno), errno,
				       "making the sandbox's directory");
	CLOSE_FD int directory = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int result = directory < 0 ? -errno : slot_file_write(directory, entry);
	if (result == 0)
		return 0;
	if (directory >= 0)
		unlinkat(directory, "slot", 0);
	rmdir(path);
	return error_set_errno(error, error_kind_of_errno(result), result,
			       "writing the sandbox's slot");
}

static struct guest_entry *entry_claim(struct spawner *spawner, const struct id *id, enum tier tier)
{
	size_t slot = 0;
	while (slot < UID_BLOCK_SLOTS && spawner->entries[slot].state != ENTRY_FREE)
		slot++;
	if (slot == UID_BLOCK_SLOTS)
		return NULL;
	struct guest_entry *entry = &spawner->entries[slot];
	*entry = (struct guest_entry)ENTRY_NONE;
	entry->driver = spawner->driver_of(tier);
	entry->guest.id = *id;
	entry->guest.tier = tier;
	entry->guest.slot = (uint32_t)slot;
	return entry;
}

int boots_create(struct spawner *spawner, const struct id *id, const struct spawn_create *create,
		 struct mount *mounts, uint32_t request, struct error *error)
{
	if (guests_id_in_use(spawner, id))
		return error_set(error, ERROR_CONFLICT, "sandbox %s already exists", id->text);
	/* The daemon enforces each of the two numbers, because only the daemon knows which
	 * sandboxes belong to the pool. */
	if (guests_count(spawner) >= spawner->config.sandboxes_max + spawner->config.pool_max)
		return error_set(error, ERROR_BUSY,
				 "the configuration allows no more sandboxes "
				 "([sandbox] count_max %u and [pool] max %u)",
				 spawner->config.sandboxes_max, spawner->config.pool_max);
	struct guest_entry *entry = entry_claim(spawner, id, (enum tier)create->tier);
	if (!entry)
		return error_set(error, ERROR_BUSY,
				 "all %d uid ranges of this instance are in use: remove a sandbox",
				 (int)UID_BLOCK_SLOTS);
	entry->pooled = create->flags & CREATE_POOLED;
	if (sandbox_directory_make(spawner, entry, error) < 0)
		return -1;
	boot_enqueue(spawner, entry, order_new(create, mounts, BOOT_NEW), request);
	return 1;
}

int boots_start(struct spawner *spawner, struct guest_entry *entry,
		const struct spawn_create *create, struct mount *mounts, uint32_t request,
		struct error *error)
{
	const char *id = entry->guest.id.text;
	if (entry->state == ENTRY_DYING)
		return error_set(error, ERROR_CONFLICT, "sandbox %s is ending", id);
	if (boots_is_booting(entry))
		return error_set(error, ERROR_CONFLICT, "sandbox %s is being started", id);
	if (guests_is_running(entry))
		return error_set(error, ERROR_SANDBOX_STATE, "sandbox %s is already running", id);
	if (create->tier != (uint32_t)entry->guest.tier)
		return error_set(error, ERROR_INVALID, "sandbox %s has another tier", id);
	boot_enqueue(spawner, entry, order_new(create, mounts, BOOT_STORED), request);
	return 1;
}

/* ---- Boots that are aborted. */

void boots_abort(struct spawner *spawner, struct guest_entry *entry, bool destroy)
{
	struct error error;
	entry->end_requested = true;
	entry->erase_files |= destroy;
	if (entry->worker > 0) {
		kill(entry->worker, SIGKILL);
		return;
	}
	error_set(&error, ERROR_CONFLICT, "sandbox %s is ending", entry->guest.id.text);
	boot_failed(spawner, entry, &error);
	list_answer_when_settled(spawner);
}

void boots_forget_requests(struct spawner *spawner)
{
	struct error error;
	spawner->list_request = 0;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		entry->boot_request = 0;
		if (!boot_waits_for_worker(entry))
			continue;
		error_set(&error, ERROR_CONFLICT, "the daemon that requested it has ended");
		boot_failed(spawner, entry, &error);
	}
}
