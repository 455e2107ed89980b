/* The daemon's requests: one function each, in a table that also says what a message of that
 * type may carry. Each request gets exactly one reply, some of them later (guests.c). A failure
 * is a kind of error_kinds.def and a text. Called by loop.c; blocks as long as the driver that
 * it calls. */
#include "spawner/internal.h"

#include <string.h>

#include "base/log.h"
#include "spawner/fault.h"

struct daemon_request {
	struct spawner *spawner;
	struct spawn_message *message;
	const int *fds;
	size_t fd_count;
	/* Of message->sandbox, where the table requires an existing one. */
	struct guest_entry *entry;
	struct spawn_message *reply;
};

static int request_hello(struct daemon_request *request, struct error *error)
{
	request->reply->hello.version = SPAWNER_PROTOCOL_VERSION;
	request->reply->hello.programs = request->spawner->programs_hash;
	memcpy(request->reply->hello.rootfs_digest, request->spawner->rootfs_digest,
	       sizeof(request->spawner->rootfs_digest));
	if (request->message->hello.version != SPAWNER_PROTOCOL_VERSION)
		return error_set(error, ERROR_UNSUPPORTED,
				 "the spawner speaks version %d: restart `caisson serve`",
				 SPAWNER_PROTOCOL_VERSION);
	return 0;
}

struct mounts {
	struct mount list[SANDBOX_MOUNTS_MAX];
};

static void mounts_close(struct mounts *mounts)
{
	mounts_done(mounts->list);
}

/* A create, or the start of an existing sandbox. */
static int request_boot(struct daemon_request *request, struct error *error)
{
	struct spawner *spawner = request->spawner;
	struct spawn_message *message = request->message;
	CLEANUP(mounts_close) struct mounts mounts;
	mounts_init(mounts.list);
	if (validate_create(spawner, &message->create, request->fds, request->fd_count, mounts.list,
			    error) < 0)
		return -1;
	int result = request->entry ? boots_start(spawner, request->entry, &message->create,
						  mounts.list, message->request, error)
				    : boots_create(spawner, &message->sandbox, &message->create,
						   mounts.list, message->request, error);
	if (result < 0)
		return -1;
	request->reply = NULL;
	return 0;
}

static int request_kill(struct daemon_request *request, struct error *error)
{
	int result =
	    guests_stop(request->spawner, request->entry, false, request->message->request, error);
	if (result > 0)
		request->reply = NULL;
	return result;
}

static int request_destroy(struct daemon_request *request, struct error *error)
{
	struct spawner *spawner = request->spawner;
	struct guest_entry *entry = request->entry;
	int result = guests_stop(spawner, entry, true, request->message->request, error);
	if (result < 0)
		return -1;
	if (result == 0) {
		/* Answered now, because nothing of it runs. Erasing concerns only us. */
		spawner_loop_send(spawner, request->reply);
		trash_move_entry(spawner, entry);
	}
	request->reply = NULL;
	return 0;
}

static int entry_check_running(const struct guest_entry *entry, struct error *error)
{
	if (guests_is_running(entry))
		return 0;
	if (entry->state == ENTRY_DYING)
		return error_set(error, ERROR_CONFLICT, "sandbox %s is ending",
				 entry->guest.id.text);
	if (boots_is_booting(entry))
		return error_set(error, ERROR_CONFLICT, "sandbox %s is being made",
				 entry->guest.id.text);
	return error_set(error, ERROR_SANDBOX_STATE, "sandbox %s does not run",
			 entry->guest.id.text);
}

static int request_set_frozen(struct daemon_request *request, bool frozen, struct error *error)
{
	if (entry_check_running(request->entry, error) < 0)
		return -1;
	int result = guests_freeze(request->spawner, request->entry, frozen,
				   request->message->request, error);
	if (result > 0)
		request->reply = NULL;
	return result;
}

static int request_freeze(struct daemon_request *request, struct error *error)
{
	return request_set_frozen(request, true, error);
}

static int request_thaw(struct daemon_request *request, struct error *error)
{
	return request_set_frozen(request, false, error);
}

static int request_set_limits(struct daemon_request *request, struct error *error)
{
	struct guest_entry *entry = request->entry;
	const struct limits *limits = &request->message->limits;
	if (validate_limits(request->spawner, limits, error) < 0 ||
	    entry_check_running(entry, error) < 0 ||
	    changes_set_limits(request->spawner, entry, limits, request->message->request, error) <
		0)
		return -1;
	request->reply = NULL;
	return 0;
}

static int request_reclaim(struct daemon_request *request, struct error *error)
{
	if (entry_check_running(request->entry, error) < 0 ||
	    changes_reclaim(request->spawner, request->entry, request->message->request, error) < 0)
		return -1;
	request->reply = NULL;
	return 0;
}

static int request_own(struct daemon_request *request, struct error *error)
{
	return boots_mark_owned(request->spawner, request->entry, error);
}

/* Counts all running sandboxes; a failure concerns only that sandbox. */
static void request_counters_of_all(struct daemon_request *request)
{
	struct spawner *spawner = request->spawner;
	struct spawn_message counted = {.type = SPAWN_COUNTED,
					.request = request->message->request};
	struct error ignored;
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		if (!guests_is_running(entry) ||
		    entry->driver->counters(&spawner->host, &entry->guest, &counted.counters,
					    &ignored) < 0)
			continue;
		counted.sandbox = entry->guest.id;
		spawner_loop_send(spawner, &counted);
		if (counted.counters.memory > entry->guest.limits.memory)
			memory_limit_check(spawner, entry);
	}
}

static int request_counters(struct daemon_request *request, struct error *error)
{
	struct guest_entry *entry = request->entry;
	if (!entry) {
		request_counters_of_all(request);
		return 0;
	}
	if (entry_check_running(entry, error) < 0)
		return -1;
	return entry->driver->counters(&request->spawner->host, &entry->guest,
				       &request->reply->counters, error);
}

void requests_list(struct spawner *spawner, uint32_t request)
{
	for (size_t i = 0; i < UID_BLOCK_SLOTS; i++) {
		struct guest_entry *entry = &spawner->entries[i];
		if (guests_find(spawner, &entry->guest.id) != entry)
			continue;
		/* The daemon now knows that it runs, so it must be told of its end. */
		entry->unreported = false;
		struct spawn_message listed = {
		    .type = SPAWN_LISTED,
		    .request = request,
		    .sandbox = entry->guest.id,
		    .listed = {.tier = (uint32_t)entry->guest.tier,
			       .running = entry->state != ENTRY_STOPPED,
			       .frozen = entry->guest.frozen && entry->state != ENTRY_THAWING,
			       .pooled = entry->pooled,
			       .pid = (uint32_t)entry->guest.init.pid,
			       .limits = entry->guest.limits},
		};
		spawner_loop_send(spawner, &listed);
	}
	const struct spawn_message reply = {.type = SPAWN_REPLY, .request = request};
	spawner_loop_send(spawner, &reply);
}

static int request_list(struct daemon_request *request, struct error *error)
{
	struct spawner *spawner = request->spawner;
	if (spawner->list_request != 0)
		return error_set(error, ERROR_BUSY, "a list is under way");
	request->reply = NULL;
	if (boots_count(spawner) > 0)
		spawner->list_request = request->message->request;
	else
		requests_list(spawner, request->message->request);
	return 0;
}

static int request_probe(struct daemon_request *request, struct error *error)
{
	struct spawner *spawner = request->spawner;
	uint32_t tier = request->message->tier;
	struct spawn_probe *result = &request->reply->probe;
	if (tier == TIER_AUTO || tier >= TIER_COUNT)
		return error_set(error, ERROR_INVALID, "unknown tier %u", tier);
	struct probe *known = &spawner->probes[tier];
	result->tier = tier;
	if (!spawner->driver_of((enum tier)tier)) {
		memcpy(result->missing, "this build has no driver for it",
		       sizeof("this build has no driver for it"));
		return 0;
	}
	if (known->result.available) {
		*result = known->result;
		return 0;
	}
	if (known->waiting_count == PROBE_WAITING_MAX)
		return error_set(error, ERROR_BUSY,
				 "%d requests wait for a probe of that tier already",
				 PROBE_WAITING_MAX);
	if (known->socket < 0 && worker_probe(spawner, (enum tier)tier, error) < 0)
		return -1;
	known->waiting[known->waiting_count++] = request->message->request;
	request->reply = NULL;
	return 0;
}

enum subject { SUBJECT_NONE, SUBJECT_ID, SUBJECT_SANDBOX, SUBJECT_SANDBOX_OR_ALL };

static const struct handler {
	int (*serve)(struct daemon_request *request, struct error *error);
	enum subject subject; /* nothing, a well-formed id, a sandbox that exists, or no id */
	bool descriptors;     /* it may carry descriptors */
} handlers[] = {
    [SPAWN_HELLO] = {request_hello, SUBJECT_NONE, false},
    [SPAWN_CREATE] = {request_boot, SUBJECT_ID, true},
    [SPAWN_START] = {request_boot, SUBJECT_SANDBOX, true},
    [SPAWN_KILL] = {request_kill, SUBJECT_SANDBOX, false},
    [SPAWN_DESTROY] = {request_destroy, SUBJECT_SANDBOX, false},
    [SPAWN_FREEZE] = {request_freeze, SUBJECT_SANDBOX, false},
    [SPAWN_THAW] = {request_thaw, SUBJECT_SANDBOX, false},
    [SPAWN_LIMITS] = {request_set_limits, SUBJECT_SANDBOX, false},
    [SPAWN_COUNTERS] = {request_counters, SUBJECT_SANDBOX_OR_ALL, false},
    [SPAWN_LIST] = {request_list, SUBJECT_NONE, false},
    [SPAWN_PROBE] = {request_probe, SUBJECT_NONE, false},
    [SPAWN_RECLAIM] = {request_reclaim, SUBJECT_SANDBOX, false},
    [SPAWN_OWN] = {request_own, SUBJECT_SANDBOX, false},
};

static int request_serve(struct daemon_request *request, struct error *error)
{
	struct spawn_message *message = request->message;
	const struct handler *handler =
	    message->type < ARRAY_SIZE(handlers) ? &handlers[message->type] : NULL;
	if (!handler || !handler->serve)
		return error_set(error, ERROR_INVALID, "unknown message type %u", message->type);
	if (request->fd_count > 0 && !handler->descriptors)
		return error_set(error, ERROR_INVALID, "message type %u carries no descriptors",
				 message->type);
	if (handler->subject == SUBJECT_NONE)
		return handler->serve(request, error);
	/* Terminate the text, whatever was received. */
	message->sandbox.text[ID_LENGTH] = '\0';
	if (handler->subject == SUBJECT_SANDBOX_OR_ALL && message->sandbox.text[0] == '\0')
		return handler->serve(request, error);
	if (!id_valid(message->sandbox.text))
		return error_set(error, ERROR_ID_MALFORMED, "the sandbox's id is malformed");
	request->reply->sandbox = message->sandbox;
	if (handler->subject != SUBJECT_ID) {
		request->entry = guests_find(request->spawner, &message->sandbox);
		if (!request->entry)
			return error_set(error, ERROR_SANDBOX_NOT_FOUND, "there is no sandbox %s",
					 message->sandbox.text);
	}
	return handler->serve(request, error);
}

void requests_serve(struct spawner *spawner, struct spawn_message *message, const int *fds,
		    size_t fd_count)
{
	struct spawn_message reply = {.type = SPAWN_REPLY, .request = message->request};
	struct daemon_request request = {
	    .spawner = spawner,
	    .message = message,
	    .fds = fds,
	    .fd_count = fd_count,
	    .reply = &reply,
	};
	struct error error = {.kind = ERROR_NONE};
	FAULT_SERVE(message, BEFORE);
	if (request_serve(&request, &error) < 0) {
		reply.result = error.kind == ERROR_NONE ? ERROR_INTERNAL : (uint32_t)error.kind;
		memcpy(reply.message, error.message, sizeof(reply.message));
		log_debug("request %u of type %u: %s", message->request, message->type,
			  error.message);
	}
	FAULT_SERVE(message, AFTER);
	if (request.reply)
		spawner_loop_send(spawner, &reply);
}
