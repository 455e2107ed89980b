/* A sandbox's record: made, found by id or name, changed in small ways, freed. Only step.c changes
 * its state. Called by the rest of core/ and by the edges; blocks for the store only. */
#include "core/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/account/access.h"
#include "core/account/workspace.h"

/* Idle time must survive a restart without a write per request. */
#define ACTIVE_STORE_INTERVAL (5 * NSEC_PER_SEC)

static const char *const reason_names[] = {
    [END_REASON_NONE] = "",     [END_REASON_USER] = "user", [END_REASON_TIMEOUT] = "timeout",
    [END_REASON_IDLE] = "idle", [END_REASON_HOST] = "host", [END_REASON_ERROR] = "error",
};

const char *sandbox_state_name(enum sandbox_state state)
{
	return state_facts(state)->name;
}

const char *end_reason_name(enum end_reason reason)
{
	bool known = (unsigned)reason < ARRAY_SIZE(reason_names) && reason_names[reason];
	return known ? reason_names[reason] : "unknown";
}

static const struct create_origin_facts facts_of_origins[ORIGIN_COUNT] = {
    [ORIGIN_COLD] = {.name = "cold", .counters_from_zero = true},
    [ORIGIN_POOL] = {.name = "pool", .environment_with_exec = true},
};

const struct create_origin_facts *create_origin_facts(uint32_t origin)
{
	return &facts_of_origins[origin < ORIGIN_COUNT ? origin : ORIGIN_COLD];
}

static uint32_t name_bucket(const char *text)
{
	uint32_t hash = 2166136261u;
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash % BUCKETS;
}

/* Takes the row. */
struct sandbox *sandbox_new(struct core *core, struct sandbox_row *row)
{
	struct sandbox *sandbox = calloc(1, sizeof(*sandbox));
	struct sandbox_life *life = calloc(1, sizeof(*life));
	if (!sandbox || !life)
		abort();
	sandbox->core = core;
	sandbox->life = life;
	life->sandbox = sandbox;
	life->workspace = workspace_get(core, row->workspace);
	sandbox->row = *row;
	*row = (struct sandbox_row){0};
	sandbox->next_operation = 1;
	list_init(&sandbox->execs);
	list_init(&sandbox->operations);
	list_init(&life->transition.waiters);
	list_init(&life->exec_listeners);
	list_init(&life->ready);
	list_init(&life->watchers);
	list_init(&life->drained);
	list_init(&life->by_name);
	for (size_t i = 0; i < SANDBOX_MOUNTS_MAX; i++)
		life->mount_fds[i] = -1;
	life->transition.began = clock_monotonic();
	life->active = clock_boot();
	life->active_stored = sandbox->row.active_wall;
	list_append(&core->sandboxes, &sandbox->link);
	list_append(&core->private->by_id[name_bucket(sandbox->row.id.text)], &life->by_id);
	if (sandbox->row.name)
		list_append(&core->private->by_name[name_bucket(sandbox->row.name)],
			    &life->by_name);
	core->sandbox_count++;
	ephemeral_begin(sandbox);
	return sandbox;
}

void sandbox_relist(struct sandbox *sandbox)
{
	struct list *by_name = sandbox->core->private->by_name;
	list_remove(&sandbox->life->by_name);
	if (sandbox->row.name)
		list_append(&by_name[name_bucket(sandbox->row.name)], &sandbox->life->by_name);
}

/* It is not found any more. */
void sandbox_unlist(struct sandbox *sandbox)
{
	if (list_empty(&sandbox->life->by_id))
		return;
	list_remove(&sandbox->link);
	list_remove(&sandbox->life->by_id);
	list_remove(&sandbox->life->by_name);
	sandbox->core->sandbox_count--;
}

void sandbox_free(struct sandbox *sandbox)
{
	sandbox_unlist(sandbox);
	guest_link_free(sandbox->guest);
	for (size_t i = 0; i < SANDBOX_MOUNTS_MAX; i++)
		fd_close(&sandbox->life->mount_fds[i]);
	ready_logs_done(&sandbox->life->ready_logs);
	sandbox_row_done(&sandbox->row);
	counters_free(sandbox);
	free(sandbox->life);
	free(sandbox);
}

struct sandbox *sandbox_by_id(struct core *core, const struct id *id)
{
	list_each (&core->private->by_id[name_bucket(id->text)], node) {
		struct sandbox_life *life = list_entry(node, struct sandbox_life, by_id);
		struct sandbox *sandbox = life->sandbox;
		if (id_equal(&sandbox->row.id, id))
			return sandbox;
	}
	return NULL;
}

static struct sandbox *sandbox_by_name(struct core *core, const char *workspace, const char *name)
{
	list_each (&core->private->by_name[name_bucket(name)], node) {
		struct sandbox_life *life = list_entry(node, struct sandbox_life, by_name);
		struct sandbox *sandbox = life->sandbox;
		if (strcmp(sandbox->row.name, name) == 0 &&
		    strcmp(sandbox->row.workspace, workspace) == 0)
			return sandbox;
	}
	return NULL;
}

static int sandbox_not_found(const char *id_or_name, struct error *error)
{
	return error_set(error, ERROR_SANDBOX_NOT_FOUND, "there is no sandbox `%s`", id_or_name);
}

static int sandbox_find_live(struct core *core, const struct principal *principal,
			     const char *id_or_name, struct sandbox **ret_sandbox,
			     struct error *error)
{
	struct id id;
	struct sandbox *sandbox;
	if (id_parse(id_or_name, &id) == 0)
		sandbox = sandbox_by_id(core, &id);
	else if (name_valid(id_or_name))
		sandbox = sandbox_by_name(core, principal->workspace, id_or_name);
	else
		return error_set(error, ERROR_ID_MALFORMED,
				 "\"%.64s\" is neither the id nor the name of a sandbox: an id is "
				 "16 characters a-z, 0-9; a name is 1 to 63 of a-z, 0-9 and '-'",
				 id_or_name);
	if (!sandbox || !row_visible(principal, &sandbox->row))
		return sandbox_not_found(id_or_name, error);
	*ret_sandbox = sandbox;
	return 0;
}

static bool row_take(void *data, const struct sandbox_row *row)
{
	sandbox_row_copy(row, data);
	return false;
}

/* The newest sandbox that had this name. 1: found; 0: none; -1: *error. */
static int tombstone_by_name(struct core *core, const char *workspace, const char *name,
			     struct sandbox_row *ret_row, struct error *error)
{
	if (store_sandbox_page(core->store, workspace, false, SANDBOX_ENDED, name, 0, NULL, 1,
			       row_take, ret_row, error) < 0)
		return -1;
	return id_is_set(&ret_row->id) ? 1 : 0;
}

int sandbox_find_row(struct core *core, const struct principal *principal, const char *id_or_name,
		     struct sandbox_row *ret_row, struct error *error)
{
	struct sandbox *sandbox;
	struct id id;
	if (sandbox_find_live(core, principal, id_or_name, &sandbox, error) == 0) {
		sandbox_row_copy(&sandbox->row, ret_row);
		return 0;
	}
	if (error->kind != ERROR_SANDBOX_NOT_FOUND)
		return -1;
	struct sandbox_row row = {0};
	bool is_id = id_parse(id_or_name, &id) == 0;
	int found = is_id ? store_sandbox_get(core->store, &id, &row, error)
			  : tombstone_by_name(core, principal->workspace, id_or_name, &row, error);
	if (found < 0)
		return -1;
	if (found == 0 || !row_visible(principal, &row)) {
		sandbox_row_done(&row);
		return sandbox_not_found(id_or_name, error);
	}
	*ret_row = row;
	return 0;
}

int sandbox_find(struct core *core, const struct principal *principal, const char *id_or_name,
		 struct sandbox **ret_sandbox, struct error *error)
{
	if (sandbox_find_live(core, principal, id_or_name, ret_sandbox, error) == 0)
		return 0;
	if (error->kind != ERROR_SANDBOX_NOT_FOUND)
		return -1;
	struct sandbox_row row = {0};
	if (sandbox_find_row(core, principal, id_or_name, &row, error) < 0)
		return -1;
	char when[CLOCK_TEXT_SIZE];
	clock_text(row.ended_wall, when);
	error_set(error, ERROR_SANDBOX_ENDED, "sandbox `%s` ended at %s (%s%s%s)", id_or_name, when,
		  end_reason_name((enum end_reason)row.end_reason), row.end_message ? ": " : "",
		  row.end_message ? row.end_message : "");
	sandbox_row_done(&row);
	return -1;
}

void sandbox_set_end(struct sandbox *sandbox, enum end_reason reason, const char *why)
{
	/* The first reason counts: a later delete only cleans up. */
	if (sandbox->row.end_reason != END_REASON_NONE)
		return;
	sandbox->row.end_reason = reason;
	sandbox->row.end_message = why ? text_duplicate(why) : NULL;
}

void sandbox_clock_deadline(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	life->deadline = 0;
	if (sandbox->row.deadline_wall == 0)
		return;
	life->deadline = clock_boot() + (sandbox->row.deadline_wall - clock_wall());
	life->deadline = MAX(life->deadline, 1);
	timers_wake_at(sandbox->core, life->deadline);
}

bool sandbox_may_exec(const struct sandbox *sandbox)
{
	return state_facts(sandbox->row.state)->may_exec && sandbox->guest_ready;
}

int sandbox_refuse_exec(const struct sandbox *sandbox, struct error *error)
{
	const struct state_facts *facts = state_facts(sandbox->row.state);
	if (!facts->may_exec)
		return error_set(error, ERROR_SANDBOX_STATE, "sandbox `%s` is %s",
				 sandbox->row.id.text, facts->name);
	return error_set(error, ERROR_GUEST_GONE, "sandbox `%s` is not connected",
			 sandbox->row.id.text);
}

int sandbox_check_kept(const struct sandbox *sandbox, struct error *error)
{
	if (!state_facts(sandbox->row.state)->going)
		return 0;
	return error_set(error, ERROR_SANDBOX_STATE, "sandbox `%s` is being deleted",
			 sandbox->row.id.text);
}

int64_t sandbox_expires_in(const struct sandbox_row *row)
{
	if (row->deadline_wall == 0 || row->state == SANDBOX_ENDED)
		return -1;
	/* The clock of a paused one stands still. */
	int64_t now = row->paused_wall != 0 ? row->paused_wall : clock_wall();
	int64_t left = row->deadline_wall - now;
	return left > 0 ? (left + NSEC_PER_SEC - 1) / NSEC_PER_SEC : 0;
}

int sandbox_set_timeout(struct sandbox *sandbox, uint32_t seconds, struct error *error)
{
	struct core *core = sandbox->core;
	uint32_t maximum = core->config.timeout_seconds_max;
	bool unlimited = maximum == 0 || maximum >= SANDBOX_TIMEOUT_MAX;
	if (seconds > (unlimited ? SANDBOX_TIMEOUT_MAX : maximum) || (seconds == 0 && !unlimited))
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "timeout_seconds is %u; it must be 1 to %u%s", seconds,
				 unlimited ? SANDBOX_TIMEOUT_MAX : maximum,
				 unlimited ? ", or 0 for none" : "");
	if (sandbox_check_kept(sandbox, error) < 0)
		return -1;
	uint32_t seconds_before = sandbox->row.timeout_seconds;
	uint32_t options_before = sandbox->row.options;
	int64_t deadline_before = sandbox->row.deadline_wall;
	sandbox->row.options &= ~(uint32_t)OPTION_TIMEOUT_UNASKED;
	sandbox->row.timeout_seconds = seconds;
	int64_t now = sandbox->row.paused_wall != 0 ? sandbox->row.paused_wall : clock_wall();
	sandbox->row.deadline_wall = seconds == 0 ? 0 : now + seconds * NSEC_PER_SEC;
	if (store_sandbox_update(core->store, &sandbox->row, error) < 0) {
		sandbox->row.options = options_before;
		sandbox->row.timeout_seconds = seconds_before;
		sandbox->row.deadline_wall = deadline_before;
		return -1;
	}
	sandbox_clock_deadline(sandbox);
	link_send_deadline(sandbox);
	return 0;
}

void sandbox_touch(struct sandbox *sandbox)
{
	struct sandbox_life *life = sandbox->life;
	if (sandbox->row.paused_wall != 0)
		return; /* idle time begins again when it is resumed */
	life->active = clock_boot();
	sandbox->row.active_wall = clock_wall();
	if ((sandbox->row.idle_timeout_seconds == 0 && sandbox->row.auto_pause_seconds == 0) ||
	    sandbox->row.active_wall - life->active_stored < ACTIVE_STORE_INTERVAL)
		return;
	struct error error;
	if (store_sandbox_update(sandbox->core->store, &sandbox->row, &error) < 0)
		log_warning("sandbox %s: %s", sandbox->row.id.text, error.message);
	life->active_stored = sandbox->row.active_wall;
}

void waiter_append(struct sandbox *sandbox, struct list *list,
		   void (*done)(void *data, const struct error *error), void *data, int64_t until,
		   bool wake)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		abort();
	*waiter = (struct waiter){
	    .done = done,
	    .data = data,
	    .until = until,
	    .wake = wake,
	};
	list_append(list, &waiter->link);
	if (until != 0)
		timers_wake_at(sandbox->core, until);
}

int waiter_add(struct sandbox *sandbox, struct list *list,
	       void (*done)(void *data, const struct error *error), void *data, int64_t until,
	       bool wake, struct error *error)
{
	const struct sandbox_life *life = sandbox->life;
	size_t count = list_length(&life->transition.waiters) + list_length(&life->ready) +
		       list_length(&life->drained);
	if (core_check_serving(sandbox->core, error) < 0)
		return -1;
	if (count >= WAITERS_MAX)
		return error_set(error, ERROR_BUSY, "too many requests wait for sandbox `%s`",
				 sandbox->row.id.text);
	waiter_append(sandbox, list, done, data, until, wake);
	return 0;
}

void waiter_take_back(struct list *list)
{
	struct waiter *waiter = list_entry(list->previous, struct waiter, link);
	list_remove(&waiter->link);
	free(waiter);
}

void waiters_finish(struct list *list, const struct error *error)
{
	/* A callback may add new waiters: those wait for the next end. */
	struct list due;
	list_take_all(list, &due);
	while (!list_empty(&due)) {
		struct waiter *waiter = list_entry(due.next, struct waiter, link);
		list_remove(&waiter->link);
		if (waiter->done)
			waiter->done(waiter->data, error);
		free(waiter);
	}
}

void sandbox_add_phase(struct sandbox *sandbox, const char *name, int64_t since_monotonic)
{
	if (sandbox->phase_count >= SANDBOX_PHASES_MAX)
		return;
	struct phase *phase = &sandbox->phases[sandbox->phase_count++];
	int64_t microseconds = (clock_monotonic() - since_monotonic) / NSEC_PER_USEC;
	if (text_copy(phase->name, sizeof(phase->name), name) < 0)
		phase->name[0] = '\0';
	phase->microseconds = (uint32_t)MIN(MAX(microseconds, 0), (int64_t)UINT32_MAX);
}

struct sandbox_later_call {
	struct core *core;
	struct id id;
	void (*call)(struct sandbox *sandbox);
};

static void sandbox_later_come(void *data)
{
	struct sandbox_later_call *later = data;
	struct sandbox *sandbox = sandbox_by_id(later->core, &later->id);
	if (sandbox)
		later->call(sandbox);
	free(later);
}

void sandbox_later(struct sandbox *sandbox, void (*call)(struct sandbox *sandbox))
{
	struct sandbox_later_call *later = malloc(sizeof(*later));
	if (!later)
		abort();
	*later = (struct sandbox_later_call){sandbox->core, sandbox->row.id, call};
	core_later(sandbox->core, sandbox_later_come, later);
}

static void counters_answered(const struct sandbox_answer *answer)
{
	struct waiter *waiter = answer->data;
	if (answer->sandbox && !answer->error)
		counters_take(answer->sandbox, &answer->reply->counters);
	waiter->done(waiter->data, answer->error);
	free(waiter);
}

int sandbox_refresh_counters(struct sandbox *sandbox, SANDBOX_DONE, struct error *error)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		abort();
	*waiter = (struct waiter){.done = done, .data = data};
	struct spawn_message message = {.type = SPAWN_COUNTERS};
	if (sandbox_ask_spawner(sandbox, &message, NULL, 0, SPAWN_TIMEOUT_MS, counters_answered,
				waiter, 0, error) < 0) {
		free(waiter);
		return -1;
	}
	return 0;
}
