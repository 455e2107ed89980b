/* creating -> running: the row, then SPAWN_CREATE, then the connection (sandbox_link.c) and
 * CONFIGURE. Called by the edges; does not block but for the store. Whatever fails is undone: the
 * spawner destroys, the row becomes a tombstone that says why. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/core_private.h"

/* How a boot (create or start) is put to the spawner. */
void boot_message(const struct sandbox *sandbox, uint32_t type, struct spawn_message *message)
{
	const struct sandbox_row *row = &sandbox->row;
	*message = (struct spawn_message){
	    .type = type,
	    .create =
		{
		    .tier = row->tier,
		    .template = 0,
		    .flags = row->flags,
		    .limits = row->limits,
		    .mount_count = sandbox->life->mount_count,
		},
	};
	struct bytes packed = {(const uint8_t *)row->mounts, row->mounts_size};
	size_t at = 0;
	for (uint32_t i = 0; i < sandbox->life->mount_count; i++) {
		const char *mode = packed_next(packed, &at);
		packed_next(packed, &at);
		packed_next(packed, &at);
		message->create.mount_modes[i] = !mode                      ? MOUNT_READ_ONLY
						 : strcmp(mode, "rw") == 0  ? MOUNT_READ_WRITE
						 : strcmp(mode, "cow") == 0 ? MOUNT_COPY_ON_WRITE
									    : MOUNT_READ_ONLY;
	}
}

/* What the spawner tells of a boot. */
void boot_take_reply(struct sandbox *sandbox, const struct spawn_message *reply)
{
	memcpy(sandbox->row.limit_reasons, reply->created.limit_reasons,
	       sizeof(sandbox->row.limit_reasons));
	uint32_t count = MIN(reply->created.phase_count, SPAWN_PHASES_MAX);
	for (uint32_t i = 0; i < count && sandbox->phase_count < SANDBOX_PHASES_MAX - 2; i++) {
		struct phase *phase = &sandbox->phases[sandbox->phase_count++];
		memcpy(phase->name, reply->created.phases[i].name, sizeof(phase->name));
		phase->name[sizeof(phase->name) - 1] = '\0';
		phase->microseconds = reply->created.phases[i].microseconds;
	}
}

static void tell_created(struct sandbox *sandbox, const struct error *error)
{
	void (*created)(void *, struct sandbox *, const struct error *) = sandbox->life->created;
	sandbox->life->created = NULL;
	if (created)
		created(sandbox->life->created_data, error ? NULL : sandbox, error);
}

static void on_undone(const struct sandbox_answer *answer);

void create_failed(struct sandbox *sandbox, const struct error *error)
{
	link_drop(sandbox, error);
	if (error->kind == ERROR_SPAWNER_GONE) {
		/* The next daemon finds the row in `creating` and undoes it. */
		tell_created(sandbox, error);
		return;
	}
	log_warning("sandbox %s could not be made: %s", sandbox->row.id.text, error->message);
	sandbox_set_end(sandbox, END_REASON_ERROR, error->message);
	sandbox_force_state(sandbox, SANDBOX_DELETING);
	struct error *kept = malloc(sizeof(*kept));
	if (!kept)
		abort();
	*kept = *error;
	struct spawn_message message = {.type = SPAWN_DESTROY};
	struct error ask_error;
	sandbox->life->destroy_sent = true;
	if (sandbox_ask(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, on_undone, kept, 0,
			&ask_error) < 0) {
		sandbox->life->destroy_sent = false;
		sandbox->life->destroy_at = clock_boot() + NSEC_PER_SEC;
		timers_wake_at(sandbox->core, sandbox->life->destroy_at);
		tell_created(sandbox, kept);
		free(kept);
	}
}

static void on_undone(const struct sandbox_answer *answer)
{
	struct error *why = answer->data;
	struct sandbox *sandbox = answer->sandbox;
	if (sandbox) {
		tell_created(sandbox, why);
		delete_answered(sandbox, answer->error);
	}
	free(why);
}

static void on_created(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	/* Deleted meanwhile: DESTROY follows CREATE in the spawner's queue. */
	if (!sandbox || !answer->current || sandbox->row.state != SANDBOX_CREATING)
		return;
	if (answer->error) {
		create_failed(sandbox, answer->error);
		return;
	}
	boot_take_reply(sandbox, answer->reply);
	link_connect(sandbox);
}

/* Kept as long as the sandbox: a stopped one is started with the same folders. */
static int keep_mounts(struct sandbox *sandbox, const struct sandbox_spec *spec,
		       struct error *error)
{
	struct sandbox_life *life = sandbox->life;
	for (size_t i = 0; i < spec->mount_count; i++) {
		life->mount_fds[i] = fcntl(spec->mounts[i].fd, F_DUPFD_CLOEXEC, 0);
		if (life->mount_fds[i] < 0)
			return error_set_errno(error, error_kind_of_errno(errno), errno,
					       "mounts: entry %zu", i);
		life->mount_count++;
	}
	return 0;
}

int sandbox_create(struct core *core, const struct principal *principal,
		   const struct sandbox_spec *spec,
		   void (*done)(void *data, struct sandbox *sandbox, const struct error *error),
		   void *data, struct error *error)
{
	int64_t began = clock_monotonic();
	struct sandbox_row row;
	if (id_is_set(&principal->sandbox))
		return error_set(error, ERROR_FORBIDDEN,
				 "this token is bound to one sandbox and may not make others");
	uint32_t maximum = core->config.sandboxes_max;
	maximum = maximum == 0 ? SANDBOX_COUNT_MAX : MIN(maximum, SANDBOX_COUNT_MAX);
	if (core->sandbox_count >= maximum)
		return error_set(error, ERROR_BUSY,
				 "there are %u sandboxes, the most that this host is configured "
				 "for; remove some, or try again later",
				 core->sandbox_count);
	if (spec_check(core, principal, spec, &row, error) < 0)
		return -1;
	if (store_sandbox_insert(core->store, &row, error) < 0) {
		sandbox_row_done(&row);
		return -1;
	}
	struct sandbox *sandbox = sandbox_new(core, &row);
	sandbox->life->began = began;
	sandbox->life->booting = true;
	sandbox_add_phase(sandbox, "store", began);
	struct spawn_message message;
	if (keep_mounts(sandbox, spec, error) == 0) {
		boot_message(sandbox, SPAWN_CREATE, &message);
		if (sandbox_ask(sandbox, &message, sandbox->life->mount_fds,
				sandbox->life->mount_count, SPAWN_BOOT_TIMEOUT_MS, on_created, NULL,
				0, error) == 0) {
			sandbox->life->created = done;
			sandbox->life->created_data = data;
			sandbox_clock_deadline(sandbox);
			return 0;
		}
	}
	/* Nothing has been asked of the spawner: there is nothing but the row. */
	sandbox_set_end(sandbox, END_REASON_ERROR, error->message);
	sandbox->row.ended_wall = clock_wall();
	sandbox_force_state(sandbox, SANDBOX_ENDED);
	sandbox_free(sandbox);
	return -1;
}
