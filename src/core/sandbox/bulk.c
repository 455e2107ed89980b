/* See bulk.h. A few at a time are under way, so that a bulk of hundreds leaves room for others'
 * requests. Called by the edges, on the loop; everything waits through callbacks. */
#include "core/sandbox/bulk.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/core_private.h"
#include "core/sandbox/labels.h"
#include "core/account/access.h"

#define AT_ONCE 16

struct bulk {
	struct core *core;
	struct principal principal; /* the caller: each step is in its name */
	enum bulk_action action;
	uint32_t drain_seconds;
	bool drain_delete, dry_run;
	struct bulk_result *results;
	size_t count, room, next, under_way;
	void (*done)(void *data, const struct bulk_result *results, size_t count);
	void *data;
	bool stepping;
};

/* One sandbox of it that is under way. */
struct bulk_step {
	struct bulk *bulk;
	size_t at;
};

static const char *const action_names[] = {
    [BULK_STOP] = "stop",     [BULK_START] = "start", [BULK_PAUSE] = "pause",
    [BULK_RESUME] = "resume", [BULK_DRAIN] = "drain", [BULK_DELETE] = "delete",
};

int bulk_action_parse(const char *text, enum bulk_action *ret_action, struct error *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(action_names); i++) {
		if (strcmp(action_names[i], text) != 0)
			continue;
		*ret_action = (enum bulk_action)i;
		return 0;
	}
	return error_set(error, ERROR_INVALID,
			 "field `action` must be stop, start, pause, resume, drain or delete");
}

static void bulk_advance(struct bulk *bulk);

static void bulk_step_done(void *data, const struct error *error)
{
	struct bulk_step *one = data;
	struct bulk *bulk = one->bulk;
	struct bulk_result *result = &bulk->results[one->at];
	struct sandbox *sandbox = sandbox_by_id(bulk->core, &result->id);
	if (error)
		result->error = *error;
	result->state = sandbox ? sandbox->row.state : SANDBOX_ENDED;
	free(one);
	bulk->under_way--;
	bulk_advance(bulk);
}

static int bulk_begin(struct bulk *bulk, struct sandbox *sandbox, struct bulk_step *one,
		      struct error *error)
{
	const struct principal *principal = &bulk->principal;
	switch (bulk->action) {
	case BULK_STOP:
		return sandbox_stop(sandbox, principal, bulk_step_done, one, error);
	case BULK_START:
		return sandbox_start(sandbox, principal, bulk_step_done, one, error);
	case BULK_PAUSE:
		return sandbox_pause(sandbox, principal, bulk_step_done, one, error);
	case BULK_RESUME:
		return sandbox_resume(sandbox, principal, bulk_step_done, one, error);
	case BULK_DRAIN:
		return sandbox_drain(sandbox, principal, bulk->drain_seconds, bulk->drain_delete,
				     bulk_step_done, one, error);
	case BULK_DELETE:
		return sandbox_delete(sandbox, principal, END_REASON_USER, NULL, bulk_step_done,
				      one, error);
	}
	return error_set(error, ERROR_INTERNAL, "an unknown action");
}

static void bulk_begin_next(struct bulk *bulk)
{
	size_t at = bulk->next++;
	struct bulk_result *result = &bulk->results[at];
	if (!id_is_set(&result->id))
		return; /* there is no such sandbox: its error says so */
	struct core_private *private = bulk->core->private;
	if (!private || private->let_go || private->stopping) {
		error_set(&result->error, ERROR_DAEMON_RESTARTING,
			  "the daemon is being restarted; this one was not begun");
		return;
	}
	struct sandbox *sandbox = sandbox_by_id(bulk->core, &result->id);
	if (!sandbox) {
		result->state = SANDBOX_ENDED;
		if (bulk->action != BULK_DELETE)
			error_set(&result->error, ERROR_SANDBOX_ENDED, "sandbox `%s` has ended",
				  result->id.text);
		return;
	}
	struct bulk_step *one = malloc(sizeof(*one));
	if (!one)
		abort();
	*one = (struct bulk_step){bulk, at};
	if (bulk_begin(bulk, sandbox, one, &result->error) < 0) {
		result->state = sandbox->row.state;
		free(one);
		return;
	}
	bulk->under_way++;
}

/* Begins as many as may be under way; ends the bulk when none is left. */
static void bulk_advance(struct bulk *bulk)
{
	if (bulk->stepping)
		return;
	bulk->stepping = true;
	while (bulk->next < bulk->count && bulk->under_way < AT_ONCE)
		bulk_begin_next(bulk);
	bulk->stepping = false;
	if (bulk->next < bulk->count || bulk->under_way > 0)
		return;
	bulk->done(bulk->data, bulk->results, bulk->count);
	free(bulk->results);
	free(bulk);
}

static void bulk_advance_later(void *data)
{
	struct bulk *bulk = data;
	if (bulk->dry_run)
		bulk->next = bulk->count;
	bulk_advance(bulk);
}

static struct bulk_result *bulk_add(struct bulk *bulk)
{
	if (bulk->count == bulk->room) {
		bulk->room = MAX(bulk->room * 2, (size_t)64);
		bulk->results = reallocarray(bulk->results, bulk->room, sizeof(*bulk->results));
		if (!bulk->results)
			abort();
	}
	struct bulk_result *result = &bulk->results[bulk->count++];
	*result = (struct bulk_result){0};
	return result;
}

static void bulk_add_sandbox(struct bulk *bulk, const struct sandbox *sandbox)
{
	for (size_t i = 0; i < bulk->count; i++)
		if (id_equal(&bulk->results[i].id, &sandbox->row.id))
			return; /* named twice: by its id and by its name */
	struct bulk_result *result = bulk_add(bulk);
	result->id = sandbox->row.id;
	result->state = sandbox->row.state;
	if (sandbox->row.name)
		(void)!text_copy(result->name, sizeof(result->name), sandbox->row.name);
}

static bool bulk_selects(const struct bulk_spec *spec, const struct sandbox *sandbox)
{
	const struct sandbox_row *row = &sandbox->row;
	return (spec->state == 0 || row->state == (uint32_t)spec->state) &&
	       packed_has(row->labels, row->labels_size, spec->labels, spec->label_count);
}

static void bulk_select_named(struct bulk *bulk, const struct principal *principal,
			      const struct bulk_spec *spec)
{
	for (size_t i = 0; i < spec->sandbox_count; i++) {
		struct sandbox *sandbox;
		struct error error;
		if (sandbox_find(bulk->core, principal, spec->sandboxes[i], &sandbox, &error) ==
		    0) {
			if (bulk_selects(spec, sandbox))
				bulk_add_sandbox(bulk, sandbox);
			continue;
		}
		struct bulk_result *result = bulk_add(bulk);
		result->error = error;
		(void)!text_copy(result->name, sizeof(result->name), spec->sandboxes[i]);
	}
}

static void bulk_select_all(struct bulk *bulk, const struct principal *principal,
			    const struct bulk_spec *spec)
{
	list_each (&bulk->core->sandboxes, node) {
		struct sandbox *sandbox = list_entry(node, struct sandbox, link);
		if (sandbox_visible(principal, sandbox) && sandbox->row.state != SANDBOX_DELETING &&
		    bulk_selects(spec, sandbox))
			bulk_add_sandbox(bulk, sandbox);
	}
}

int bulk_start(struct core *core, const struct principal *principal, const struct bulk_spec *spec,
	       void (*done)(void *data, const struct bulk_result *results, size_t count),
	       void *data, struct error *error)
{
	if (spec->sandbox_count == 0 && spec->label_count == 0 && spec->state == 0 && !spec->all)
		return error_set(error, ERROR_INVALID,
				 "nothing is selected; for every sandbox say \"all\": true");
	if (spec->sandbox_count > BULK_MAX)
		return error_set(error, ERROR_LIMIT_EXCEEDED, "at most %d sandboxes at once",
				 BULK_MAX);
	struct bulk *bulk = calloc(1, sizeof(*bulk));
	if (!bulk)
		abort();
	*bulk = (struct bulk){
	    .core = core,
	    .principal = *principal,
	    .action = spec->action,
	    .drain_seconds = spec->drain_seconds,
	    .drain_delete = spec->drain_delete,
	    .dry_run = spec->dry_run,
	    .done = done,
	    .data = data,
	};
	if (spec->sandbox_count > 0)
		bulk_select_named(bulk, principal, spec);
	else
		bulk_select_all(bulk, principal, spec);
	if (bulk->count > BULK_MAX) {
		size_t count = bulk->count;
		free(bulk->results);
		free(bulk);
		return error_set(error, ERROR_LIMIT_EXCEEDED,
				 "%zu sandboxes are selected; at most %d at once", count, BULK_MAX);
	}
	core_later(core, bulk_advance_later, bulk);
	return 0;
}
