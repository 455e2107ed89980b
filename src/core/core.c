/* Start and stop of the domain: store, spawner, reconciliation; notices of the spawner; callbacks
 * for a later turn of the loop. Called by the daemon's main. */
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/loop_threads.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/text.h"
#include "base/work.h"
#include "core/account/budget.h"
#include "core/code/code.h"
#include "core/core_private.h"
#include "core/sandbox/create_queue.h"
#include "proto/tiers.h"
#include "store/secrets.h"

#define START_TIMEOUT_MS 30000
#define RESTARTING "the daemon is being restarted"
/* While writing fails, core_store_works() tries it no more often than this. */
#define STORE_TRY_INTERVAL NSEC_PER_SEC

struct core_later_call {
	struct list link;
	void (*call)(void *data);
	void *data;
};

struct done_call {
	void (*done)(void *data, const struct error *error);
	void *data;
};

struct kept_principal principal_keep(const struct principal *principal)
{
	return principal ? (struct kept_principal){true, *principal} : (struct kept_principal){0};
}

const struct principal *kept_principal_get(const struct kept_principal *caller)
{
	return caller->set ? &caller->principal : NULL;
}

static void core_run_later(struct core *core)
{
	/* Calls that are added during this turn wait for the next one. */
	struct list due;
	list_take_all(&core->private->later, &due);
	while (!list_empty(&due)) {
		struct core_later_call *later = list_entry(due.next, struct core_later_call, link);
		list_remove(&later->link);
		later->call(later->data);
		free(later);
	}
}

static void core_idle_turn(uv_idle_t *idle)
{
	uv_idle_stop(idle);
	core_run_later(idle->data);
}

void core_later(struct core *core, void (*call)(void *data), void *data)
{
	struct core_later_call *later = calloc(1, sizeof(*later));
	if (!later)
		abort();
	*later = (struct core_later_call){.call = call, .data = data};
	list_append(&core->private->later, &later->link);
	if (!core->private->stopping && !uv_is_active((uv_handle_t *)&core->private->soon))
		uv_idle_start(&core->private->soon, core_idle_turn);
}

static void done_call_finish(void *data)
{
	struct done_call *call = data;
	call->done(call->data, NULL);
	free(call);
}

void core_done_later(struct core *core, void (*done)(void *data, const struct error *error),
		     void *data)
{
	if (!done)
		return;
	struct done_call *call = malloc(sizeof(*call));
	if (!call)
		abort();
	*call = (struct done_call){.done = done, .data = data};
	core_later(core, done_call_finish, call);
}

static void core_start_failed(struct core *core, const struct error *error)
{
	log_error("the daemon cannot start: %s", error->message);
	if (core->hooks.failed)
		core->hooks.failed(core->hooks.data, error);
}

static void spawner_sandbox_ended(void *data, const struct id *id, const struct spawn_ended *ended)
{
	struct core *core = data;
	struct sandbox *sandbox = sandbox_by_id(core, id);
	if (!core->private->started)
		reconcile_ended(core, id);
	else if (!sandbox)
		pool_ended(core, id);
	else {
		counters_take(sandbox, &ended->counters);
		sandbox_processes_ended(sandbox, (enum end_cause)ended->cause);
	}
}

static void spawner_sandbox_counted(void *data, const struct id *id,
				    const struct spawn_counters *counters)
{
	struct sandbox *sandbox = sandbox_by_id(data, id);
	if (sandbox)
		counters_take(sandbox, counters);
	else
		pool_counted(data, id, counters);
}

static void spawner_sandbox_listed(void *data, const struct id *id,
				   const struct spawn_listed *listed)
{
	reconcile_listed(data, id, listed);
}

static void spawner_reload(void *data)
{
	struct core *core = data;
	if (core->hooks.reload)
		core->hooks.reload(core->hooks.data);
}

static void spawner_quit(void *data)
{
	struct core *core = data;
	if (core->hooks.quit)
		core->hooks.quit(core->hooks.data);
}

/* Tells all waiting requests of the sandbox that the daemon ends; the sandbox itself continues. */
static void sandbox_let_go(struct sandbox *sandbox, const struct error *error)
{
	link_drop(sandbox, error);
	waiters_finish(&sandbox->life->transition.waiters, error);
	waiters_finish(&sandbox->life->ready, error);
	watchers_lost(sandbox, error);
	exec_forget_all(sandbox);
}

void core_let_go(struct core *core)
{
	struct error error;
	if (!core->private || core->private->let_go)
		return;
	activity_flush(core);
	if (core->store) {
		meter_settle(core);
		code_let_go(core);
	}
	core->private->let_go = true;
	/* Transitions end as if the spawner had exited: the next daemon finishes them. The links
	 * are closed, since the next daemon may start before this one has ended: if both recorded
	 * the init's messages, each would miss those that the other one received. */
	error_set(&error, ERROR_SPAWNER_GONE, RESTARTING);
	list_each (&core->sandboxes, node) {
		struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		if (state_facts(sandbox->row.state)->booting)
			create_tell(sandbox, &error);
		sandbox_let_go(sandbox, &error);
	}
	pool_let_go(core);
	create_queue_fail_all(core, &error);
}

bool core_running(const struct core *core)
{
	return core->private != NULL;
}

int core_check_serving(const struct core *core, struct error *error)
{
	if (!core->private || !core->private->let_go)
		return 0;
	return error_set(error, ERROR_SPAWNER_GONE, RESTARTING);
}

static void spawner_lost(void *data)
{
	struct core *core = data;
	log_error("the spawner is gone; sandboxes run on");
	core_let_go(core);
	if (core->hooks.lost)
		core->hooks.lost(core->hooks.data);
}

static void spawner_reply_late(void *data, uint32_t type, const struct spawn_message *reply)
{
	struct core *core = data;
	if (core->private->started)
		transition_late(core, type, reply);
}

/* Logs one line for each reason. */
static void log_unenforced(const struct core *core)
{
	const uint32_t *reasons = core->probes[tier_automatic(core)].limit_reasons;
	for (int kind = 0, next; kind < LIMIT_COUNT; kind = next) {
		char names[128] = "";
		size_t used = 0;
		for (next = kind; next < LIMIT_COUNT && reasons[next] == reasons[kind]; next++)
			used +=
			    (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					     used ? ", " : "", limit_name((enum limit_kind)next));
		if (reasons[kind] != LIMIT_ENFORCED)
			log_info("limits that are not enforced on this host: %s: %s", names,
				 limit_reason_text((enum limit_reason)reasons[kind]));
	}
}

static void spawner_list_answered(void *data, const struct spawn_message *reply UNUSED,
				  const struct error *error)
{
	struct core *core = data;
	struct error own;
	if (!error && core_reconcile(core, &own) < 0)
		error = &own;
	reconcile_done(core);
	if (error) {
		core_start_failed(core, error);
		return;
	}
	core->private->started = true;
	pool_start(core);
	logs_remove_strays(core);
	spares_fill(core);
	timers_start(core);
	log_unenforced(core);
	core->private->ready(core->private->ready_data);
}

static void core_ask_next_probe(struct core *core);

static void spawner_probe_answered(void *data, const struct spawn_message *reply,
				   const struct error *error)
{
	struct core *core = data;
	struct spawn_probe *probe = &core->probes[core->private->probe];
	if (error && error->kind == ERROR_SPAWNER_GONE)
		return;
	if (error) {
		/* The tier is not built in or its probe failed: it is missing. */
		*probe = (struct spawn_probe){.tier = core->private->probe};
		if (text_copy(probe->missing, sizeof(probe->missing), error->message) < 0)
			probe->missing[0] = '\0';
	} else {
		*probe = reply->probe;
		probe->missing[sizeof(probe->missing) - 1] = '\0';
	}
	core_ask_next_probe(core);
}

/* Asks for each tier in turn, then for the list of sandboxes. */
static void core_ask_next_probe(struct core *core)
{
	struct error error;
	struct spawn_message message = {.type = SPAWN_PROBE};
	int result;
	if (++core->private->probe < TIER_COUNT) {
		message.tier = core->private->probe;
		result = spawner_request(core->spawner, &message, NULL, 0, START_TIMEOUT_MS,
					 spawner_probe_answered, core, &error);
	} else {
		message.type = SPAWN_LIST;
		result = spawner_request(core->spawner, &message, NULL, 0, START_TIMEOUT_MS,
					 spawner_list_answered, core, &error);
	}
	if (result < 0 && error.kind != ERROR_SPAWNER_GONE)
		core_start_failed(core, &error);
}

static void spawner_hello_answered(void *data, const struct spawn_message *reply,
				   const struct error *error)
{
	struct core *core = data;
	struct error own;
	if (!error && reply->hello.version != SPAWNER_PROTOCOL_VERSION) {
		error_set(&own, ERROR_INTERNAL,
			  "the spawner speaks version %u of its protocol, this daemon version %d: "
			  "restart `caisson serve`",
			  reply->hello.version, SPAWNER_PROTOCOL_VERSION);
		error = &own;
	}
	if (!error) {
		core->programs_hash = reply->hello.programs;
		memcpy(core->host_digest, reply->hello.rootfs_digest, sizeof(core->host_digest));
		core_ask_next_probe(core);
	} else if (error->kind != ERROR_SPAWNER_GONE) {
		core_start_failed(core, error);
	}
}

static int core_make_directory(const char *state, const char *name, char *path, size_t room,
			       struct error *error)
{
	if (text_format(path, room, "%s/%s", state, name) < 0)
		return error_set(error, ERROR_CONFIG, "the state directory's path is too long");
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return error_set_errno(error, error_kind_of_errno(errno), errno, "%s", path);
	return 0;
}

static void core_private_new(struct core *core)
{
	struct core_private *private = calloc(1, sizeof(*private));
	if (!private)
		abort();
	core->private = private;
	loop_threads_hold(core->loop);
	private->logs_fd = -1;
	list_init(&private->later);
	list_init(&private->pool.members);
	list_init(&private->workspaces);
	list_init(&private->metering.waiting);
	list_init(&private->token_watchers);
	list_init(&private->holds);
	admission_start(core);
	activity_start(core);
	list_init(&private->requests);
	list_init(&private->contexts);
	list_init(&private->removals);
	list_init(&private->listed);
	for (size_t i = 0; i < BUCKETS; i++) {
		list_init(&private->by_id[i]);
		list_init(&private->by_name[i]);
	}
	uv_timer_init(core->loop, &private->timer);
	uv_idle_init(core->loop, &private->soon);
	uv_timer_init(core->loop, &private->ends_timer);
	list_init(&private->ending);
	private->timer.data = private->soon.data = private->ends_timer.data = core;
	private->open_handles = 3;
}

int core_start(struct core *core, uv_loop_t *loop, const struct config *config, int spawner_fd,
	       void (*ready)(void *data), void *data, struct error *error)
{
	static const struct spawner_callbacks callbacks = {
	    .ended = spawner_sandbox_ended,
	    .counted = spawner_sandbox_counted,
	    .listed = spawner_sandbox_listed,
	    .reload = spawner_reload,
	    .quit = spawner_quit,
	    .lost = spawner_lost,
	    .late = spawner_reply_late,
	};
	*core = (struct core){.hooks = core->hooks, .loop = loop, .config = *config};
	list_init(&core->sandboxes);
	core_private_new(core);
	core->private->ready = ready;
	core->private->ready_data = data;
	char path[512];
	struct spawn_message hello = {.type = SPAWN_HELLO,
				      .hello.version = SPAWNER_PROTOCOL_VERSION};
	if (core_make_directory(config->state, "db", path, sizeof(path), error) == 0 &&
	    store_open(path, &core->store, error) == 0 &&
	    store_checkpoint_in_thread(core->store, loop, error) == 0 &&
	    budgets_load(core, error) == 0 &&
	    core_make_directory(config->state, "logs", path, sizeof(path), error) == 0 &&
	    logs_open_directory(core, error) == 0) {
		core->spawner = spawner_client_new(loop, spawner_fd, &callbacks, core);
		if (spawner_request(core->spawner, &hello, NULL, 0, START_TIMEOUT_MS,
				    spawner_hello_answered, core, error) == 0)
			return 0;
	}
	core_stop(core);
	return -1;
}

static void core_private_closed(uv_handle_t *handle)
{
	struct core_private *private =
	    container_of(handle->data, struct core_private, open_handles);
	if (--private->open_handles == 0)
		free(private);
}

void core_stop(struct core *core)
{
	struct core_private *private = core->private;
	struct error error;
	if (!private || private->stopping)
		return;
	private->stopping = true;
	error_set(&error, ERROR_CANCELLED, "the daemon is stopping");
	/* After core_let_go() the next daemon may already write. */
	if (core->store && !private->let_go) {
		execs_write_ends(core);
		meter_settle(core);
	}
	create_queue_fail_all(core, &error);
	pool_stop(core);
	spawner_client_free(core->spawner);
	core->spawner = NULL;
	core_run_later(core);
	while (!list_empty(&core->sandboxes)) {
		struct sandbox *sandbox = list_entry(core->sandboxes.next, struct sandbox, link);
		create_tell(sandbox, &error);
		sandbox_let_go(sandbox, &error);
		sandbox_free(sandbox);
	}
	activity_stop(core);
	core_run_later(core);
	reconcile_done(core);
	spares_stop(core);
	logs_stop(core);
	admission_stop(core);
	workspaces_free(core);
	store_close(core->store);
	core->store = NULL;
	core->private = NULL;
	loop_threads_release(core->loop);
	if (core->work)
		work_queue_release(TAKE_PTR(core->work));
	private->timer.data = private->soon.data = private->ends_timer.data =
	    &private->open_handles;
	uv_close((uv_handle_t *)&private->timer, core_private_closed);
	uv_close((uv_handle_t *)&private->ends_timer, core_private_closed);
	uv_close((uv_handle_t *)&private->soon, core_private_closed);
}

void core_forgotten_error(const struct core *core, const struct id *sandbox, struct error *error)
{
	if (core->private && core->private->let_go)
		error_set(error, ERROR_DAEMON_RESTARTING,
			  "the daemon is being restarted while the command runs; it goes on in "
			  "sandbox %s, and its output is kept",
			  sandbox->text);
	else if (core->private && core->private->exec_leaves)
		error_set(error, ERROR_EXEC_NOT_FOUND, "the command was removed");
	else
		error_set(error, ERROR_SANDBOX_ENDED, "sandbox %s ended while the command ran",
			  sandbox->text);
}

void core_configure(struct core *core, const struct config *config)
{
	struct config before = core->config;
	core->config = *config;
	memcpy(core->config.state, before.state, sizeof(before.state));
	memcpy(core->config.runtime, before.runtime, sizeof(before.runtime));
	if (core->private->started)
		pool_configure(core);
}

void core_end_pool(struct core *core, void (*done)(void *data), void *data)
{
	if (core->private && core->private->started && !core->private->let_go)
		pool_end(core, done, data);
	else
		done(data);
}

static struct work_share *core_share_of(struct core *core, const char *kind, const char *name)
{
	char text[WORK_NAME_MAX + 1];
	if (!core->work)
		core->work = work_queue_of(core->loop);
	snprintf(text, sizeof(text), "%s %s", kind, name);
	return work_share_get(core->work, text);
}

struct work_share *core_share(struct core *core, const struct principal *principal)
{
	char uid[16];
	snprintf(uid, sizeof(uid), "%u", principal->uid);
	/* The uid of local users without a token, as in http/callers.c. */
	return id_is_set(&principal->token) ? core_share_of(core, "token", principal->token.text)
					    : core_share_of(core, "uid", uid);
}

struct work_share *core_share_of_guests(struct core *core, const char *workspace)
{
	return core_share_of(core, "guests", workspace);
}

int core_secret(struct core *core, const char *name, size_t size, uint8_t *ret_value,
		struct error *error)
{
	if (!core->store)
		return error_set(error, ERROR_CANCELLED, "the daemon has let its store go");
	return store_secret_get(core->store, name, size, ret_value, error);
}

bool core_idle(const struct core *core)
{
	return core->sandbox_count == 0 && core->private && core->private->started &&
	       list_empty(&core->private->later) && !core->private->removing &&
	       create_queue_empty(core);
}

bool core_store_works(struct core *core)
{
	static int64_t tried_at;
	struct error ignored;
	int64_t now = clock_monotonic();
	if (statistics.store_failing == 0)
		return true;
	if (now - tried_at < STORE_TRY_INTERVAL)
		return false;
	tried_at = now;
	return store_test_write(core->store, &ignored) == 0;
}
