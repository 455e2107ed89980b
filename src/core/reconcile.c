/* At start-up: compares the rows with what the spawner found on the host. The host wins; every
 * state that ends in -ing is finished or undone; sandboxes without a row are destroyed. Called by
 * core.c, once, between the spawner's LIST and `ready`; blocks for the store only. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/code/code.h"
#include "core/core_private.h"

struct host_entry {
	struct list link; /* in core_private.listed */
	struct id id;
	struct spawn_listed listed;
	bool has_row;
};

static struct host_entry *host_entry_of(struct core *core, const struct id *id)
{
	list_each (&core->private->listed, node) {
		struct host_entry *entry = list_entry(node, struct host_entry, link);
		if (id_equal(&entry->id, id))
			return entry;
	}
	return NULL;
}

void reconcile_listed(struct core *core, const struct id *id, const struct spawn_listed *listed)
{
	if (core->private->started || !id_valid(id->text) || host_entry_of(core, id))
		return;
	struct host_entry *entry = calloc(1, sizeof(*entry));
	if (!entry)
		abort();
	entry->id = *id;
	entry->listed = *listed;
	list_append(&core->private->listed, &entry->link);
}

void reconcile_ended(struct core *core, const struct id *id)
{
	struct host_entry *entry = host_entry_of(core, id);
	if (entry)
		entry->listed.running = 0;
}

void reconcile_done(struct core *core)
{
	while (!list_empty(&core->private->listed)) {
		struct host_entry *entry =
		    list_entry(core->private->listed.next, struct host_entry, link);
		list_remove(&entry->link);
		free(entry);
	}
}

struct loaded_row {
	struct list link;
	struct sandbox_row row;
};

static bool reconcile_load_row(void *data, const struct sandbox_row *row)
{
	struct list *rows = data;
	struct loaded_row *loaded = calloc(1, sizeof(*loaded));
	if (!loaded)
		abort();
	sandbox_row_copy(row, &loaded->row);
	/* They come newest first: each is put before the others. */
	list_append(rows->next, &loaded->link);
	return true;
}

/* Its processes have ended, its files exist. */
static void reconcile_stopped(struct sandbox *sandbox)
{
	if (sandbox->row.state != SANDBOX_STOPPED) {
		log_info("sandbox %s was %s; its processes have ended, its files are kept",
			 sandbox->row.id.text, state_facts(sandbox->row.state)->name);
		meter_forget_gap(sandbox);
		sandbox_force_step(sandbox, SANDBOX_EVENT_FOUND_STOPPED);
	}
	exec_all_lost(sandbox);
}

static void reconcile_delete(struct sandbox *sandbox)
{
	if (sandbox->row.state == SANDBOX_CREATING)
		sandbox_delete_unasked(sandbox, END_REASON_ERROR,
				       "the daemon was restarted while it was being made");
	else if (sandbox->row.options & OPTION_ONESHOT)
		sandbox_delete_unasked(sandbox, END_REASON_ERROR,
				       "the daemon was restarted during its one-shot run");
	else
		sandbox_delete_unasked(sandbox, END_REASON_HOST,
				       "its files are gone from the host");
}

static void reconcile_sandbox(struct sandbox *sandbox, const struct spawn_listed *listed)
{
	bool usable = listed && !(sandbox->row.options & OPTION_ONESHOT);
	enum sandbox_event event = !usable            ? SANDBOX_EVENT_FOUND_UNUSABLE
				   : !listed->running ? SANDBOX_EVENT_FOUND_STOPPED
				   : !listed->frozen  ? SANDBOX_EVENT_FOUND_RUNNING
						      : SANDBOX_EVENT_FOUND_FROZEN;
	enum sandbox_action action = sandbox_action(sandbox, event);
	if (action == SANDBOX_ACTION_DELETE) {
		reconcile_delete(sandbox);
	} else if (action == SANDBOX_ACTION_DESTROY) {
		delete_send(sandbox);
	} else if (action == SANDBOX_ACTION_LOSE) {
		reconcile_stopped(sandbox);
	} else if (action == SANDBOX_ACTION_KILL) {
		stop_by_force(sandbox, event);
	} else if (action == SANDBOX_ACTION_ADOPT) {
		/* Its init answers on its socket, as before. */
		sandbox_force_step(sandbox, event);
		log_info("sandbox %s goes on (%s)", sandbox->row.id.text,
			 state_facts(sandbox->row.state)->name);
		limits_reconcile(sandbox, listed);
		link_connect(sandbox);
	} else if (action == SANDBOX_ACTION_CONTINUE_BOOT) {
		sandbox->row.create_origin = ORIGIN_COLD; /* its row was written before the boot */
		link_connect(sandbox);
	}
}

static void stray_destroyed(void *data UNUSED, const struct spawn_message *reply UNUSED,
			    const struct error *error)
{
	if (error)
		log_warning("a sandbox without a record could not be removed: %s", error->message);
}

/* A sandbox on the host without a row. */
static void reconcile_stray(struct core *core, const struct id *id)
{
	struct spawn_message message = {.type = SPAWN_DESTROY, .sandbox = *id};
	struct error error;
	log_warning("sandbox %s has no record; it is removed", id->text);
	if (spawner_request(core->spawner, &message, NULL, 0, SPAWN_TIMEOUT_MS, stray_destroyed,
			    NULL, &error) < 0)
		log_warning("%s", error.message);
}

static int reconcile_row(struct core *core, struct sandbox_row *row, struct error *error)
{
	struct host_entry *entry = host_entry_of(core, &row->id);
	struct sandbox *sandbox = sandbox_new(core, row);
	/* The idle time before the restart counts. */
	sandbox->life->active -= MAX(clock_wall() - sandbox->row.active_wall, 0);
	sandbox_clock_deadline(sandbox);
	if (meter_load(sandbox, error) < 0 || exec_load_live(sandbox, error) < 0)
		return -1;
	code_load(sandbox);
	if (entry)
		entry->has_row = true;
	/* The slot on the host still says that it has no owner; a stopped sandbox needs that
	 * corrected too. */
	if (entry && entry->listed.pooled)
		boot_own(sandbox);
	reconcile_sandbox(sandbox, entry ? &entry->listed : NULL);
	return 0;
}

int core_reconcile(struct core *core, struct error *error)
{
	struct list rows; /* struct loaded_row, newest last */
	list_init(&rows);
	int result = store_sandbox_each(core->store, NULL, true, reconcile_load_row, &rows, error);
	while (!list_empty(&rows)) {
		struct loaded_row *loaded = list_entry(rows.next, struct loaded_row, link);
		list_remove(&loaded->link);
		if (result == 0)
			result = reconcile_row(core, &loaded->row, error);
		sandbox_row_done(&loaded->row);
		free(loaded);
	}
	if (result < 0)
		return -1;
	if (pool_load(core, error) < 0)
		return -1;
	list_each (&core->private->listed, node) {
		struct host_entry *entry = list_entry(node, struct host_entry, link);
		if (!entry->has_row && !pool_adopt(core, &entry->id, &entry->listed))
			reconcile_stray(core, &entry->id);
	}
	return 0;
}
