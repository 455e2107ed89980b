/* Changes an existing sandbox: its name, labels, metadata, times, options and limits. A change is
 * made completely or not at all: everything is checked first; new limits go to the spawner before
 * the row is written, and the old ones again when the row cannot be written. Called by the edges;
 * blocks for the store only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "core/core_private.h"
#include "core/sandbox/ephemeral.h"
#include "core/sandbox/labels.h"

/* A checked change. Its strings are owned until they move into the row. */
struct prepared_change {
	struct core *core;
	struct kept_principal caller; /* the caller, recorded when the spawner has answered */
	struct id id;
	struct sandbox_change change; /* its pointers are not used after the check */
	char *name, *metadata, *labels;
	uint32_t metadata_size, labels_size;
	struct limits limits_before;
	void (*done)(void *data, const struct error *error);
	void *data;
};

static void prepared_free(struct prepared_change *prepared)
{
	free(prepared->name);
	free(prepared->metadata);
	free(prepared->labels);
	free(prepared);
}

static int change_prepare_name(struct sandbox *sandbox, const struct sandbox_change *change,
			       struct prepared_change *prepared, struct error *error)
{
	struct sandbox *other;
	struct error ignored;
	if (!change->name_set || !change->name)
		return 0;
	if (!name_valid(change->name))
		return error_set(error, ERROR_INVALID,
				 "name `%.80s` is not 1 to %d of a-z, 0-9 and '-', without '-' at "
				 "its ends and not of an id's form",
				 change->name, NAME_MAX_LENGTH);
	struct principal anybody = {0};
	if (text_copy(anybody.workspace, sizeof(anybody.workspace), sandbox->row.workspace) == 0 &&
	    sandbox_find(sandbox->core, &anybody, change->name, &other, &ignored) == 0 &&
	    other != sandbox)
		return error_set(error, ERROR_NAME_TAKEN, "the name \"%s\" is taken", change->name);
	prepared->name = text_duplicate(change->name);
	return 0;
}

static int change_prepare_pairs(struct sandbox *sandbox, const struct principal *principal,
				const struct sandbox_change *change,
				struct prepared_change *prepared, struct error *error)
{
	const struct sandbox_row *row = &sandbox->row;
	struct pair *merged;
	size_t count;
	int result = 0;
	if (change->metadata_count > 0) {
		packed_merge(row->metadata, row->metadata_size, change->metadata,
			     change->metadata_count, &merged, &count);
		result = metadata_pack(merged, count, &prepared->metadata, &prepared->metadata_size,
				       error);
		free(merged);
	}
	if (result == 0 && change->label_count > 0) {
		packed_merge(row->labels, row->labels_size, change->labels, change->label_count,
			     &merged, &count);
		struct ephemeral_name name;
		if (principal)
			ephemeral_name_labels(principal, merged, count, &name);
		result =
		    labels_pack(merged, count, &prepared->labels, &prepared->labels_size, error);
		free(merged);
	}
	return result;
}

/* Removes a default time-out when a client sets the sandbox's life in another way. */
static void change_prepare_default_timeout(const struct sandbox *sandbox,
					   struct sandbox_change *change)
{
	bool stays = change->options_mask & change->options & OPTION_PERSISTENT;
	if (change->timeout_set || !(sandbox->row.options & OPTION_TIMEOUT_UNASKED) ||
	    !(stays || (change->idle_timeout_set && change->idle_timeout_seconds != 0)))
		return;
	change->timeout_set = true;
	change->timeout_seconds = timeout_longest(&sandbox->core->config);
}

static int change_prepare_times(const struct config *config, const struct sandbox_change *change,
				struct error *error)
{
	if (change->timeout_set && timeout_check(config, change->timeout_seconds, error) < 0)
		return -1;
	if (change->idle_timeout_seconds > SANDBOX_TIMEOUT_MAX ||
	    change->auto_pause_seconds > SANDBOX_TIMEOUT_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED, "a time-out is at most %u seconds",
				 SANDBOX_TIMEOUT_MAX);
	return 0;
}

/* Exchanges the texts of the row and of `prepared`. */
static void change_swap_texts(struct sandbox_row *row, struct prepared_change *prepared)
{
	const struct sandbox_change *change = &prepared->change;
	if (change->name_set)
		SWAP(row->name, prepared->name);
	if (change->metadata_count > 0) {
		SWAP(row->metadata, prepared->metadata);
		SWAP(row->metadata_size, prepared->metadata_size);
	}
	if (change->label_count > 0) {
		SWAP(row->labels, prepared->labels);
		SWAP(row->labels_size, prepared->labels_size);
	}
}

static void change_set_numbers(struct sandbox_row *row, const struct prepared_change *prepared)
{
	const struct sandbox_change *change = &prepared->change;
	/* While paused no time passes: the deadline counts from the moment of the pause. */
	int64_t now = row->paused_wall != 0 ? row->paused_wall : clock_wall();
	if (change->timeout_set) {
		row->timeout_seconds = change->timeout_seconds;
		row->deadline_wall =
		    change->timeout_seconds == 0 ? 0 : now + change->timeout_seconds * NSEC_PER_SEC;
		row->options &= ~(uint32_t)OPTION_TIMEOUT_UNASKED;
	}
	if (change->idle_timeout_set)
		row->idle_timeout_seconds = change->idle_timeout_seconds;
	if (change->auto_pause_set)
		row->auto_pause_seconds = change->auto_pause_seconds;
	row->options =
	    (row->options & ~change->options_mask) | (change->options & change->options_mask);
	row->limits = limits_changed(&row->limits, &change->limits);
}

static void change_record(struct sandbox *sandbox, const struct principal *principal,
			  const struct sandbox_change *change)
{
	char timeout[16], idle[16], pause[16], limits[96];
	snprintf(timeout, sizeof(timeout), "%u", change->timeout_seconds);
	snprintf(idle, sizeof(idle), "%u", change->idle_timeout_seconds);
	snprintf(pause, sizeof(pause), "%u", change->auto_pause_seconds);
	snprintf(limits, sizeof(limits), "cpu_millis %u, memory %llu, pids %u",
		 sandbox->row.limits.cpu_millis, (unsigned long long)sandbox->row.limits.memory,
		 sandbox->row.limits.pids);
	bool limited = change->limits.cpu_millis || change->limits.memory || change->limits.pids;
	const char *name = sandbox->row.name ? sandbox->row.name : "";
	ACTIVITY(sandbox, ACTIVITY_SANDBOX_CHANGED, principal, NULL,
		 {"name", change->name_set ? name : NULL},
		 {"metadata", change->metadata_count > 0 ? "changed" : NULL},
		 {"labels", change->label_count > 0 ? "changed" : NULL},
		 {"timeout_seconds", change->timeout_set ? timeout : NULL},
		 {"idle_timeout_seconds", change->idle_timeout_set ? idle : NULL},
		 {"auto_pause_seconds", change->auto_pause_set ? pause : NULL},
		 {"options", change->options_mask ? "changed" : NULL},
		 {"limits", limited ? limits : NULL});
}

/* Writes the changed row; it is as before when that fails. */
static int change_apply(struct sandbox *sandbox, struct prepared_change *prepared,
			struct error *error)
{
	struct sandbox_row *row = &sandbox->row, before = *row;
	if (sandbox_check_kept(sandbox, error) < 0)
		return -1;
	change_swap_texts(row, prepared);
	change_set_numbers(row, prepared);
	if (store_sandbox_update(sandbox->core->store, row, error) < 0) {
		change_swap_texts(row, prepared);
		*row = before;
		return -1;
	}
	change_record(sandbox, kept_principal_get(&prepared->caller), &prepared->change);
	if (prepared->change.name_set)
		sandbox_relist(sandbox);
	if (prepared->change.timeout_set) {
		sandbox_clock_deadline(sandbox);
		link_send_deadline(sandbox);
	}
	if (prepared->change.idle_timeout_set || prepared->change.auto_pause_set)
		sandbox->life->active = clock_boot();
	timers_wake_at(sandbox->core, clock_boot());
	return 0;
}

static void limits_restored(void *data UNUSED, const struct error *error)
{
	/* A sandbox that has ended has no limits. */
	if (error && error->kind != ERROR_SANDBOX_STATE && error->kind != ERROR_SANDBOX_ENDED)
		log_error("limits that could not be written down cannot be taken back: %s",
			  error->message);
}

static void limits_set_done(void *data, const struct error *refused)
{
	struct prepared_change *prepared = data;
	struct sandbox *sandbox = sandbox_by_id(prepared->core, &prepared->id);
	struct error error, ignored;
	if (!refused && !sandbox) {
		error_set(&error, ERROR_SANDBOX_ENDED, "sandbox `%s` ended during the request",
			  prepared->id.text);
		refused = &error;
	} else if (!refused && change_apply(sandbox, prepared, &error) < 0) {
		if (sandbox_set_limits(sandbox, kept_principal_get(&prepared->caller),
				       &prepared->limits_before, limits_restored, NULL,
				       &ignored) < 0)
			limits_restored(NULL, &ignored);
		refused = &error;
	}
	prepared->done(prepared->data, refused);
	prepared_free(prepared);
}

int sandbox_change(struct sandbox *sandbox, const struct principal *principal,
		   const struct sandbox_change *change, SANDBOX_DONE, struct error *error)
{
	struct core *core = sandbox->core;
	struct prepared_change *prepared = calloc(1, sizeof(*prepared));
	if (!prepared)
		abort();
	*prepared = (struct prepared_change){.core = core,
					     .caller = principal_keep(principal),
					     .id = sandbox->row.id,
					     .change = *change,
					     .done = done,
					     .data = data};
	if (change_prepare_name(sandbox, change, prepared, error) < 0 ||
	    change_prepare_pairs(sandbox, principal, change, prepared, error) < 0 ||
	    change_prepare_times(&core->config, change, error) < 0 ||
	    limits_check_change(sandbox, &change->limits, error) < 0) {
		prepared_free(prepared);
		return -1;
	}
	change_prepare_default_timeout(sandbox, &prepared->change);
	prepared->limits_before = sandbox->row.limits;
	const struct limits limits = limits_changed(&sandbox->row.limits, &change->limits);
	if (!limits_same(&limits, &sandbox->row.limits)) {
		if (sandbox_set_limits(sandbox, principal, &limits, limits_set_done, prepared,
				       error) == 0)
			return 0;
		prepared_free(prepared);
		return -1;
	}
	int result = change_apply(sandbox, prepared, error);
	prepared_free(prepared);
	if (result == 0)
		core_done_later(core, done, data);
	return result;
}
