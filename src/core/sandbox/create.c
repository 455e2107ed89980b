/* creating -> running: a member of the pool that fits; else the row is written, then come
 * SPAWN_CREATE, the connection (link.c) and CONFIGURE. A create that fails is undone: the spawner
 * destroys what there is, and the row becomes a tombstone that says why. Called by the edges;
 * blocks for the store only. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"
#include "core/account/budget.h"
#include "core/core_private.h"
#include "core/sandbox/create_queue.h"

/* The request for a boot: type is SPAWN_CREATE or SPAWN_START. */
void boot_message(const struct sandbox *sandbox, uint32_t type, struct spawn_message *message)
{
	const struct sandbox_row *row = &sandbox->row;
	*message = (struct spawn_message){
	    .type = type,
	    .create =
		{
		    .tier = row->tier,
		    .rootfs.kind = row->rootfs_kind,
		    .flags = row->flags,
		    .limits = row->limits,
		    .mount_count = sandbox->life->mount_count,
		},
	};
	/* Its files are over layers that must not change. Only those of `host` are always today's,
	 * like the programs of this machine. */
	if (row->rootfs_kind != ROOTFS_HOST && row->rootfs_digest)
		(void)!text_copy(message->create.rootfs.digest, ROOTFS_DIGEST_TEXT,
				 row->rootfs_digest);
	uint32_t cap = sandbox->core->config.files_cap;
	if (cap != 0)
		message->create.limits.files = MIN(row->limits.files, cap);
	struct sandbox_mount mount;
	size_t at = 0;
	for (uint32_t i = 0; i < sandbox->life->mount_count && sandbox_mount_next(row, &at, &mount);
	     i++)
		message->create.mounts[i] = (struct spawn_mount){mount.source, mount.mode};
}

/* Keeps the spawner's data about a boot. */
void boot_take_reply(struct sandbox *sandbox, const struct spawn_message *reply)
{
	memcpy(sandbox->row.limit_reasons, reply->created.limit_reasons,
	       sizeof(sandbox->row.limit_reasons));
	uint32_t cap = sandbox->core->config.files_cap;
	if (cap != 0)
		sandbox->row.limits.files = MIN(sandbox->row.limits.files, cap);
	sandbox->row.create_origin = ORIGIN_COLD;
	free(sandbox->row.rootfs_digest);
	sandbox->row.rootfs_digest = text_duplicate(reply->created.rootfs_digest);
	uint32_t count = MIN(reply->created.phase_count, SPAWN_PHASES_MAX);
	for (uint32_t i = 0; i < count && sandbox->phase_count < SANDBOX_PHASES_MAX - 2; i++) {
		struct phase *phase = &sandbox->phases[sandbox->phase_count++];
		memcpy(phase->name, reply->created.phases[i].name, sizeof(phase->name));
		phase->name[sizeof(phase->name) - 1] = '\0';
		phase->microseconds = reply->created.phases[i].microseconds;
	}
}

void create_tell(struct sandbox *sandbox, const struct error *error)
{
	struct transition *transition = &sandbox->life->transition;
	void (*created)(void *, struct sandbox *, const struct error *) = transition->created;
	transition->created = NULL;
	if (created)
		created(transition->created_data, error ? NULL : sandbox, error);
}

static void create_undone(const struct sandbox_answer *answer);

void create_failed(struct sandbox *sandbox, const struct error *error)
{
	link_drop(sandbox, error);
	if (error->kind == ERROR_SPAWNER_GONE) {
		/* The next daemon finds the row in `creating` and undoes it. */
		create_tell(sandbox, error);
		return;
	}
	log_warning("sandbox %s could not be made: %s", sandbox->row.id.text, error->message);
	statistics.creates_failed++;
	sandbox_set_end(sandbox, END_REASON_ERROR, error->message);
	activity_failed(sandbox, "create", error);
	sandbox_force_step(sandbox, SANDBOX_EVENT_BOOT_FAILED);
	struct error *kept = malloc(sizeof(*kept));
	if (!kept)
		abort();
	*kept = *error;
	struct error destroy_error;
	if (transition_ask_spawner(sandbox, SPAWN_DESTROY, create_undone, kept, &destroy_error) <
	    0) {
		transition_due_in(sandbox, REQUEST_RETRY_MS);
		create_tell(sandbox, kept);
		free(kept);
	}
}

static void create_undone(const struct sandbox_answer *answer)
{
	struct error *why = answer->data;
	struct sandbox *sandbox = answer->sandbox;
	if (sandbox) {
		create_tell(sandbox, why);
		delete_answered(sandbox, answer->error);
	}
	free(why);
}

static void create_answered(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	/* It may have been deleted: DESTROY follows CREATE in the spawner's queue. */
	if (!sandbox || !answer->current || sandbox->row.state != SANDBOX_CREATING)
		return;
	if (answer->error) {
		create_failed(sandbox, answer->error);
		return;
	}
	boot_take_reply(sandbox, answer->reply);
	link_connect(sandbox);
}

static void own_answered(void *data UNUSED, const struct spawn_message *reply UNUSED,
			 const struct error *error)
{
	if (error && error->kind != ERROR_SANDBOX_NOT_FOUND && error->kind != ERROR_SPAWNER_GONE)
		log_warning("a sandbox from the pool: %s", error->message);
}

void boot_own(struct sandbox *sandbox)
{
	struct spawn_message message = {.type = SPAWN_OWN, .sandbox = sandbox->row.id};
	struct error error;
	if (!sandbox->core->spawner)
		return; /* the next daemon reads the slot */
	if (spawner_request(sandbox->core->spawner, &message, NULL, 0, SPAWN_TIMEOUT_MS,
			    own_answered, NULL, &error) < 0)
		own_answered(NULL, NULL, &error);
}

/* ---- The first row. */

struct insertion {
	const struct create_request *create;
	const struct sandbox_row *row;
	struct pooled *pooled; /* NULL: a cold boot */
};

/* In one transaction. */
static int create_insert(void *data, struct error *error)
{
	const struct insertion *insertion = data;
	const struct create_request *create = insertion->create;
	struct store *store = create->core->store;
	const struct sandbox_row *row = insertion->row;
	if (!create->named && !insertion->pooled)
		return store_sandbox_insert(store, row, error);
	if (store_transaction_begin(store, error) < 0)
		return -1;
	int result = create->named ? create->named(create->data, &row->id, error) : 0;
	if (result == 0 && insertion->pooled)
		result = pool_write_given(insertion->pooled, row, error);
	if (result == 0)
		result = store_sandbox_insert(store, row, error);
	return store_transaction_end(store, result, error);
}

static void create_expect_told(struct sandbox *sandbox, const struct create_request *create)
{
	sandbox->life->transition.created = create->done;
	sandbox->life->transition.created_data = create->data;
	sandbox->queued_ms = create->queued_ms;
	sandbox_clock_deadline(sandbox);
	budget_spend(sandbox->life->workspace, BUDGET_CREATES, 1);
}

/* ---- From the pool. */

static void create_limits_answered(const struct sandbox_answer *answer)
{
	struct sandbox *sandbox = answer->sandbox;
	if (!sandbox || !answer->current || sandbox->row.state != SANDBOX_CREATING)
		return;
	/* The client got an error: the next daemon removes it. */
	if (sandbox->core->private->let_go)
		return;
	if (answer->error) {
		boot_failed(sandbox, answer->error);
		return;
	}
	sandbox_add_phase(sandbox, "limits", sandbox->life->transition.phase_began);
	boot_done(sandbox);
	link_send_deadline(sandbox);
}

static void create_own_given(struct sandbox *sandbox)
{
	struct error error;
	if (sandbox->row.state == SANDBOX_DELETING)
		return;
	boot_own(sandbox);
	/* How long the hand-out took is known only since its transaction has ended. */
	if (store_sandbox_update(sandbox->core->store, &sandbox->row, &error) < 0)
		log_warning("sandbox %s: the time of its create cannot be written: %s",
			    sandbox->row.id.text, error.message);
}

/* The rest comes in another turn: the answer is sent at the end of this one. */
static void create_tell_given(struct sandbox *sandbox)
{
	/* If it has been deleted, its end answers the caller. */
	if (sandbox->row.state == SANDBOX_DELETING)
		return;
	create_tell(sandbox, NULL);
	sandbox_later(sandbox, create_own_given);
}

/* It runs; the caller gets its answer in a later turn of the loop. */
static void create_give_at_once(struct sandbox *sandbox)
{
	boot_entered(sandbox);
	link_send_deadline(sandbox);
	sandbox_later(sandbox, create_tell_given);
}

static void create_fail_given(struct sandbox *sandbox)
{
	if (sandbox->row.state == SANDBOX_CREATING)
		boot_failed(sandbox, &sandbox->life->link_error);
}

/* Its cpu and pids have to be changed: it is `creating` until they are set. */
static void create_give_after_limits(struct sandbox *sandbox)
{
	struct spawn_message message = {.type = SPAWN_LIMITS, .limits = sandbox->row.limits};
	boot_own(sandbox);
	if (sandbox_ask_spawner(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS,
				create_limits_answered, NULL, 0, &sandbox->life->link_error) < 0)
		sandbox_later(sandbox, create_fail_given);
}

static int create_from_pool(struct create_request *create, struct pooled *pooled,
			    struct error *error)
{
	struct sandbox_row *row = &create->row;
	int64_t began = clock_monotonic();
	bool differs = pool_differs(pooled, row);
	pool_fill_row(pooled, row);
	if (!differs) {
		row->started_wall = clock_wall();
		row->boot_us = (uint64_t)MAX((clock_monotonic() - began) / NSEC_PER_USEC, 1);
	}
	struct sandbox *sandbox = sandbox_new(create->core, row);
	struct insertion insertion = {create, &sandbox->row, pooled};
	activity_created(sandbox, create->principal);
	if ((differs ? activity_save(create->core, create_insert, &insertion, error)
		     : sandbox_step_written(sandbox, SANDBOX_EVENT_CONFIGURED, create_insert,
					    &insertion, error)) < 0) {
		activity_take_back(sandbox);
		sandbox_free(sandbox);
		pool_put_back(pooled);
		return -1;
	}
	pool_give(pooled, sandbox);
	sandbox->life->transition.began = sandbox->life->transition.phase_began = began;
	sandbox_add_phase(sandbox, "store", began);
	sandbox->row.boot_us = (uint64_t)((clock_monotonic() - began) / NSEC_PER_USEC);
	create_expect_told(sandbox, create);
	if (differs)
		create_give_after_limits(sandbox);
	else
		create_give_at_once(sandbox);
	return 0;
}

/* ---- Cold. */

/* While the sandbox boots. */
static void create_make_ready_logs(struct sandbox *sandbox)
{
	if (sandbox->row.state == SANDBOX_CREATING)
		ready_logs_make(sandbox->core, &sandbox->row.id, &sandbox->life->ready_logs);
}

static int create_cold(struct create_request *create, struct error *error)
{
	int64_t began = clock_monotonic();
	struct insertion insertion = {create, &create->row, NULL};
	if (create_insert(&insertion, error) < 0)
		return -1;
	struct sandbox *sandbox = sandbox_new(create->core, &create->row);
	activity_created(sandbox, create->principal);
	sandbox->life->transition.began = began;
	sandbox_add_phase(sandbox, "store", began);
	struct spawn_message message;
	if (folders_keep(sandbox, create->mounts, create->mount_count, error) == 0) {
		boot_message(sandbox, SPAWN_CREATE, &message);
		if (sandbox_ask_spawner(sandbox, &message, sandbox->life->mount_fds,
					sandbox->life->mount_count, SPAWN_BOOT_TIMEOUT_MS,
					create_answered, NULL, 0, error) == 0) {
			create_expect_told(sandbox, create);
			sandbox_later(sandbox, create_make_ready_logs);
			return 0;
		}
	}
	/* The spawner was not asked: only the row exists. */
	sandbox_set_end(sandbox, END_REASON_ERROR, error->message);
	sandbox->row.ended_wall = clock_wall();
	sandbox_force_step(sandbox, SANDBOX_EVENT_UNDONE);
	sandbox_free(sandbox);
	return -1;
}

int create_begin(struct create_request *create, struct error *error)
{
	struct pooled *pooled = pool_take(create->core, &create->row);
	return pooled ? create_from_pool(create, pooled, error) : create_cold(create, error);
}

int sandbox_create(struct core *core, const struct principal *principal,
		   const struct sandbox_spec *spec,
		   void (*done)(void *data, struct sandbox *sandbox, const struct error *error),
		   void *data, struct error *error)
{
	struct create_request create = {.core = core,
					.principal = principal,
					.mounts = spec->mounts,
					.mount_count = spec->mount_count,
					.named = spec->named,
					.done = done,
					.data = data};
	struct error why;
	bool never = false;
	if (core_check_serving(core, error) < 0)
		return -1;
	if (id_is_set(&principal->sandbox))
		return error_set(error, ERROR_FORBIDDEN,
				 "this token is bound to one sandbox and may not make others");
	if (spec_check(core, principal, spec, &create.row, error) < 0)
		return -1;
	struct workspace *workspace = workspace_get(core, create.row.workspace);
	int result = create_admit(core, workspace, &create.row.limits, &never, &why);
	/* Creates that wait go first. */
	if (result == 0 && workspace->queue_length > 0)
		result = create_queue_behind(workspace, &why);
	if (result == 0)
		result = create_begin(&create, error);
	else if (spec->wait_ms == 0 || never)
		*error = why;
	else
		result = create_queue_add(&create, spec->wait_ms, &why, error);
	sandbox_row_done(&create.row);
	return result;
}
