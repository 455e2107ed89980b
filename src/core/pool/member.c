/* One member of the pool: made, connected, configured, kept alive, destroyed. Every failure ends in
 * its destruction. Called by pool.c; blocks for the store only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/pool/pool_private.h"
#include "core/sandbox/template.h"
#include "proto/tiers.h"

#define BACK_OFF_FIRST NSEC_PER_SEC
#define BACK_OFF_MOST (60 * NSEC_PER_SEC)
#define END_TIMEOUT_MS 2000
#define DESTROY_RETRY NSEC_PER_SEC

struct pool *pool_of(struct core *core)
{
	return &core->private->pool;
}

static void pool_count_states(struct core *core)
{
	statistics.pool_ready = statistics.pool_making = 0;
	list_each (&pool_of(core)->members, node) {
		enum pooled_state state = list_entry(node, struct pooled, link)->state;
		statistics.pool_ready += state == POOLED_READY;
		statistics.pool_making += state < POOLED_READY;
	}
}

void pooled_set_state(struct pooled *pooled, enum pooled_state state)
{
	pooled->state = state;
	pool_count_states(pooled->core);
}

struct pooled *pooled_find(struct core *core, const struct id *id)
{
	list_each (&pool_of(core)->members, node) {
		struct pooled *pooled = list_entry(node, struct pooled, link);
		if (id_equal(&pooled->row.id, id))
			return pooled;
	}
	return NULL;
}

struct pooled *pooled_new(struct core *core, const struct pool_row *row)
{
	struct pooled *pooled = calloc(1, sizeof(*pooled));
	if (!pooled)
		abort();
	pooled->core = core;
	pooled->row = *row;
	pooled->row.template = row->template ? text_duplicate(row->template) : NULL;
	list_append(&pool_of(core)->members, &pooled->link);
	pool_of(core)->count++;
	return pooled;
}

void pooled_free(struct pooled *pooled)
{
	struct core *core = pooled->core;
	struct pool *pool = pool_of(core);
	list_remove(&pooled->link);
	pool->count--;
	guest_link_free(pooled->guest);
	ready_logs_done(&pooled->ready_logs);
	pool_row_done(&pooled->row);
	free(pooled);
	pool_count_states(core);
	if (pool->ended && list_empty(&pool->members)) {
		void (*ended)(void *data) = pool->ended;
		pool->ended = NULL;
		ended(pool->ended_data);
	}
}

/* ---- The stamp. */

uint32_t pool_count_packed(struct bytes packed)
{
	uint32_t count = 0;
	for (size_t at = 0; packed_next(packed, &at);)
		count++;
	return count;
}

static uint64_t shape_hash_text(const char *text)
{
	uint64_t hash = 14695981039346656037u;
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 1099511628211u;
	return hash;
}

uint64_t pool_stamp(const struct core *core, const char *template)
{
	const struct config *config = &core->config;
	const struct limits *limits = &config->defaults;
	char text[512];
	snprintf(text, sizeof(text),
		 CAISSON_VERSION " %" PRIx64 " %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64
				 " %u %u %u %u",
		 core->programs_hash, template_stamp(template_find(template)), limits->memory,
		 limits->disk, limits->inodes, limits->cpu_millis, limits->pids, limits->files,
		 config->files_cap);
	return shape_hash_text(text);
}

/* ---- The end of a member. */

/* A request; the member may be gone when the reply comes. */
struct pooled_request {
	struct core *core;
	struct id id;
	void (*answered)(struct pooled *pooled, const struct spawn_message *reply,
			 const struct error *error);
};

static void pooled_request_answered(void *data, const struct spawn_message *reply,
				    const struct error *error)
{
	struct pooled_request request = *(struct pooled_request *)data;
	free(data);
	struct pooled *pooled =
	    request.core->private ? pooled_find(request.core, &request.id) : NULL;
	if (pooled)
		request.answered(pooled, reply, error);
}

static int pooled_ask_spawner(struct pooled *pooled, struct spawn_message *message,
			      uint32_t timeout_ms,
			      void (*answered)(struct pooled *pooled,
					       const struct spawn_message *reply,
					       const struct error *error),
			      struct error *error)
{
	struct pooled_request *request = calloc(1, sizeof(*request));
	if (!request)
		abort();
	*request = (struct pooled_request){
	    .core = pooled->core, .id = pooled->row.id, .answered = answered};
	message->sandbox = pooled->row.id;
	if (spawner_request(pooled->core->spawner, message, NULL, 0, timeout_ms,
			    pooled_request_answered, request, error) == 0)
		return 0;
	free(request);
	return -1;
}

static void pooled_destroy_later(struct pooled *pooled, const struct error *error)
{
	if (error->kind == ERROR_SPAWNER_GONE || pool_of(pooled->core)->ending) {
		pooled_free(pooled); /* its row stays for the next daemon */
		return;
	}
	log_warning("a sandbox of the pool cannot be destroyed, trying again: %s", error->message);
	pooled->until = clock_boot() + DESTROY_RETRY;
	timers_wake_at(pooled->core, pooled->until);
}

static void pooled_destroyed(struct pooled *pooled, const struct spawn_message *reply UNUSED,
			     const struct error *error)
{
	struct core *core = pooled->core;
	struct error own;
	if (pooled->state != POOLED_GOING)
		return;
	if (error && error->kind != ERROR_SANDBOX_NOT_FOUND) {
		pooled_destroy_later(pooled, error);
		return;
	}
	/* A row that cannot be deleted has no sandbox: the next daemon deletes it. */
	if (store_pool_delete(pooled->core->store, &pooled->row.id, &own) < 0)
		log_warning("%s", own.message);
	/* A place is free. Asked before pooled_free(): the end of the last member may end the core.
	 */
	bool refill = !pool_of(core)->ending && pool_of(core)->back_off == 0;
	/* Here alone: a member that only leaves this list may have got an owner. */
	logs_remove_now(core->private->logs_fd, &(struct log_removal){.sandbox = pooled->row.id});
	pooled_free(pooled);
	if (refill)
		pool_refill_at(core, clock_boot());
}

void pooled_send_destroy(struct pooled *pooled)
{
	struct spawn_message message = {.type = SPAWN_DESTROY};
	struct error error;
	uint32_t timeout = pool_of(pooled->core)->ending ? END_TIMEOUT_MS : SPAWN_TIMEOUT_MS;
	pooled->until = 0;
	if (pooled_ask_spawner(pooled, &message, timeout, pooled_destroyed, &error) < 0)
		pooled_destroy_later(pooled, &error);
}

void pooled_destroy(struct pooled *pooled)
{
	struct error ignored;
	if (pooled->state == POOLED_GOING)
		return;
	/* A ready member without a row has an owner: an earlier daemon that had not ended yet gave
	 * it away. The next daemon adopts it. */
	if (pooled->state >= POOLED_KEEPING &&
	    store_pool_has(pooled->core->store, &pooled->row.id, &ignored) == 0) {
		log_warning("sandbox %s is not of the pool any more", pooled->row.id.text);
		pooled_free(pooled);
		return;
	}
	guest_link_free(TAKE_PTR(pooled->guest));
	pooled_set_state(pooled, POOLED_GOING);
	pooled_send_destroy(pooled);
}

/* ---- Making a member. */

void pool_refill_at(struct core *core, int64_t at)
{
	pool_of(core)->refill_at = at;
	timers_wake_at(core, at);
}

void pooled_failed(struct pooled *pooled, const struct error *error)
{
	struct pool *pool = pool_of(pooled->core);
	if (error->kind != ERROR_SPAWNER_GONE) {
		pool->back_off =
		    pool->back_off == 0 ? BACK_OFF_FIRST : MIN(pool->back_off * 2, BACK_OFF_MOST);
		log_warning("no sandbox could be made ready in advance: %s; next try in %d s",
			    error->message, (int)(pool->back_off / NSEC_PER_SEC));
		pool_refill_at(pooled->core, clock_boot() + pool->back_off);
	}
	pooled_destroy(pooled);
}

void pooled_renew(struct pooled *pooled)
{
	pooled->deadline = clock_boot() + POOL_LIFE;
	link_tell_deadline(pooled->guest, &pooled->row.id, pooled->deadline);
}

static void pooled_ready(struct pooled *pooled)
{
	struct pool *pool = pool_of(pooled->core);
	pool->back_off = 0;
	ready_logs_make(pooled->core, &pooled->row.id, &pooled->ready_logs);
	pooled_set_state(pooled, POOLED_READY);
	pool_refill_at(pooled->core, clock_boot());
}

static void pooled_counted(struct pooled *pooled, const struct spawn_message *reply,
			   const struct error *error)
{
	struct error own;
	if (pooled->state != POOLED_COUNTING)
		return;
	if (!error && reply->counters.known[KNOWN_CPU])
		pooled->row.cpu_ns = reply->counters.cpu_ns;
	pooled->row.ready = true;
	if (store_pool_put(pooled->core->store, &pooled->row, &own) < 0)
		pooled_failed(pooled, &own);
	else
		pooled_ready(pooled);
}

static void pooled_configured(struct pooled *pooled)
{
	struct spawn_message message = {.type = SPAWN_COUNTERS};
	struct error error;
	pooled->until = 0;
	pooled_set_state(pooled, POOLED_COUNTING);
	if (pooled_ask_spawner(pooled, &message, SPAWN_TIMEOUT_MS, pooled_counted, &error) < 0)
		pooled_failed(pooled, &error);
}

static int pooled_configure(struct pooled *pooled, struct error *error)
{
	const struct template *template = template_find(pooled->row.template);
	struct configure configure = {.deadline = clock_boot() + POOL_LIFE,
				      .environment = template->environment,
				      .environment_count =
					  pool_count_packed(template->environment)};
	pooled->deadline = configure.deadline;
	if (text_copy(configure.hostname, sizeof(configure.hostname), pooled->row.id.text) < 0)
		return error_set(error, ERROR_INTERNAL, "an id is too long for a host name");
	return link_configure(pooled->guest, &configure, error);
}

static void pooled_kept(struct guest_echo *echo, bool lost)
{
	struct pooled *pooled = container_of(echo, struct pooled, echo);
	if (!lost && pooled->state == POOLED_KEEPING)
		pooled_ready(pooled);
}

static void pooled_link_connected(void *data, const struct hello_reply *reply)
{
	struct pooled *pooled = data;
	struct error error;
	bool keeping = pooled->state == POOLED_KEEPING;
	if (!reply->configured != !keeping) {
		error_set(&error, ERROR_GUEST_PROTOCOL, "its init is not where it should be");
		pooled_failed(pooled, &error);
	} else if (keeping) {
		pooled->echo.answered = pooled_kept;
		pooled_renew(pooled);
		guest_link_echo(pooled->guest, &pooled->echo);
	} else if (pooled_configure(pooled, &error) < 0) {
		pooled_failed(pooled, &error);
	} else {
		pooled->until = clock_boot() + CONFIGURE_TIMEOUT_MS * NSEC_PER_MSEC;
		timers_wake_at(pooled->core, pooled->until);
	}
}

static int pooled_frame_came(void *data, const struct frame *frame, struct error *error)
{
	struct pooled *pooled = data;
	struct failure failure;
	if (frame->type == FRAME_REFUSED && failure_read(frame, &failure) == 0) {
		error_from_failure(error, &failure);
		return error_prepend(error, "the sandbox's init");
	}
	if (frame->type != FRAME_CONFIGURED || frame->size != 0 ||
	    pooled->state != POOLED_CONFIGURING)
		return error_set(error, ERROR_GUEST_PROTOCOL, "a frame that was not asked for");
	pooled_configured(pooled);
	return 0;
}

static void pooled_link_closed(void *data, const struct error *error)
{
	struct pooled *pooled = data;
	struct error copy = *error; /* it is freed with the link */
	if (pooled->state == POOLED_READY)
		pool_ended(pooled->core, &pooled->row.id);
	else
		pooled_failed(pooled, &copy);
}

static const struct guest_link_callbacks callbacks = {
    .connected = pooled_link_connected, .frame = pooled_frame_came, .closed = pooled_link_closed};

void pooled_connect(struct pooled *pooled)
{
	char path[GUEST_SOCKET_PATH_MAX];
	struct error error;
	int result = guest_socket_path(pooled->core->config.runtime, &pooled->row.id, path);
	if (result < 0)
		error_set_errno(&error, ERROR_INTERNAL, result, "the path of the init's socket");
	else
		result = guest_link_open(pooled->core->loop, path, CONNECT_TIMEOUT_MS, &callbacks,
					 pooled, &pooled->guest, &error);
	if (result < 0)
		pooled_failed(pooled, &error);
}

static void pooled_created(struct pooled *pooled, const struct spawn_message *reply,
			   const struct error *error)
{
	if (pooled->state != POOLED_BOOTING)
		return;
	if (error) {
		pooled_failed(pooled, error);
		return;
	}
	memcpy(pooled->row.limit_reasons, reply->created.limit_reasons,
	       sizeof(pooled->row.limit_reasons));
	memcpy(pooled->row.rootfs_digest, reply->created.rootfs_digest,
	       sizeof(pooled->row.rootfs_digest));
	pooled_set_state(pooled, POOLED_CONFIGURING);
	pooled_connect(pooled);
}

void pooled_make(struct core *core, const struct pool_row *shape)
{
	const struct template *template = template_find(shape->template);
	struct pooled *pooled = pooled_new(core, shape);
	struct spawn_message message = {
	    .type = SPAWN_CREATE,
	    .create = {.tier = shape->tier, .flags = CREATE_POOLED, .limits = shape->limits}};
	struct error error;
	if (template)
		message.create.rootfs = template->rootfs;
	if (core->config.files_cap != 0)
		message.create.limits.files = MIN(shape->limits.files, core->config.files_cap);
	pooled->row.id = id_new();
	pooled->row.ready = false;
	pooled->row.stamp = pool_stamp(core, shape->template);
	pooled_set_state(pooled, POOLED_BOOTING);
	if (store_pool_put(core->store, &pooled->row, &error) < 0 ||
	    pooled_ask_spawner(pooled, &message, SPAWN_BOOT_TIMEOUT_MS, pooled_created, &error) < 0)
		pooled_failed(pooled, &error);
}
