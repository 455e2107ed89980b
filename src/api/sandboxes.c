/* /v1/sandboxes but for its creation: list, get, patch, delete, the transitions, metrics. A status
 * is read without waking a sandbox and without counting as activity. Runs on the loop; nothing
 * blocks (the list with tombstones reads the store). */
#include "api/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/sandbox_record.h"
#include "base/clock.h"
#include "base/text.h"

static void reply_sandbox(struct call *call, int status, const struct sandbox_row *row,
			  const struct sandbox *sandbox)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_sandbox(&writer, NULL, row, sandbox);
	reply_json(call, status, &writer);
}

/* --- list --- */

#define LIST_DEFAULT 100
#define LIST_MAX 1000

struct listing {
	struct call *call;
	struct json_writer writer;
	char state[16], name[NAME_MAX_LENGTH + 1];
	bool all;
	uint64_t limit, before; /* before: created earlier than this; 0 = from the newest */
	uint64_t count;
	int64_t last; /* created_wall of the last one written */
	bool more;
};

/* Newest first. The cursor is the time of creation of the last one given: it stays true when
 * sandboxes come and go between two pages. */
static bool list_one(void *data, const struct sandbox_row *row)
{
	struct listing *listing = data;
	struct core *core = listing->call->api->core;
	const struct principal *principal = &listing->call->principal;
	if (strcmp(row->workspace, principal->workspace) != 0 ||
	    (id_is_set(&principal->sandbox) && !id_equal(&principal->sandbox, &row->id)) ||
	    (listing->before && (uint64_t)row->created_wall >= listing->before) ||
	    (listing->name[0] && (!row->name || strcmp(row->name, listing->name) != 0)) ||
	    (listing->state[0] &&
	     strcmp(sandbox_state_name((enum sandbox_state)row->state), listing->state) != 0))
		return true;
	if (listing->count == listing->limit) {
		listing->more = true;
		return false;
	}
	/* What runs is known better in memory. */
	struct sandbox *live = sandbox_by_id(core, &row->id);
	put_sandbox(&listing->writer, NULL, live ? &live->row : row, live);
	listing->last = row->created_wall;
	listing->count++;
	return true;
}

static int list_parse(struct call *call, struct listing *listing, struct error *error)
{
	if (query_text(call, "state", listing->state, sizeof(listing->state), false, error) < 0 ||
	    query_text(call, "name", listing->name, sizeof(listing->name), false, error) < 0 ||
	    query_flag(call, "all", &listing->all, error) < 0 ||
	    query_uint(call, "limit", 1, LIST_MAX, &listing->limit, error) < 0 ||
	    query_uint(call, "cursor", 1, INT64_MAX, &listing->before, error) < 0)
		return -1;
	if (!listing->state[0])
		return 0;
	for (int state = SANDBOX_CREATING; state <= SANDBOX_ENDED; state++)
		if (strcmp(sandbox_state_name((enum sandbox_state)state), listing->state) == 0)
			return 0;
	return error_set(error, ERROR_INVALID, "query parameter `state`: there is no state `%s`",
			 listing->state);
}

void sandboxes_get(struct call *call)
{
	struct listing listing = {.call = call, .limit = LIST_DEFAULT};
	struct core *core = call->api->core;
	struct error error;
	if (list_parse(call, &listing, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct buffer buffer = BUFFER(REPLY_MAX);
	listing.writer = json_writer_on(&buffer);
	put_object(&listing.writer, NULL);
	put_array(&listing.writer, "items");
	bool ended = strcmp(listing.state, "ended") == 0;
	if (listing.all || ended) {
		if (store_sandbox_each(core->store, call->principal.workspace, false, list_one,
				       &listing, &error) < 0) {
			buffer_done(&buffer);
			reply_error(call, &error);
			return;
		}
	} else {
		for (struct list *node = core->sandboxes.previous; node != &core->sandboxes;
		     node = node->previous)
			if (!list_one(&listing, &list_entry(node, struct sandbox, link)->row))
				break;
	}
	put_array_end(&listing.writer);
	char cursor[24];
	snprintf(cursor, sizeof(cursor), "%lld", (long long)listing.last);
	put_text(&listing.writer, "next_cursor", listing.more ? cursor : NULL);
	put_object_end(&listing.writer);
	reply_json(call, 200, &listing.writer);
}

/* --- one --- */

void sandbox_get(struct call *call)
{
	struct core *core = call->api->core;
	struct sandbox *sandbox;
	struct sandbox_row row = {0};
	struct error error;
	if (sandbox_find(core, &call->principal, call->parameters[0], &sandbox, &error) == 0) {
		reply_sandbox(call, 200, &sandbox->row, sandbox);
	} else if (error.kind == ERROR_SANDBOX_ENDED &&
		   sandbox_find_row(core, &call->principal, call->parameters[0], &row, &error) ==
		       0) {
		reply_sandbox(call, 200, &row, NULL);
		sandbox_row_done(&row);
	} else {
		reply_error(call, &error);
	}
}

void sandbox_patch(struct call *call)
{
	uint64_t timeout = 0;
	bool timeout_set = false;
	json_t *name, *metadata, *cpu, *memory, *idle;
	bool later[5];
	struct error error;
	struct field fields[] = {
	    {"timeout_seconds", FIELD_UINT, &timeout, false, 0, SANDBOX_TIMEOUT_MAX,
	     .present = &timeout_set},
	    {"name", FIELD_ANY, &name, .present = &later[0]},
	    {"metadata", FIELD_ANY, &metadata, .present = &later[1]},
	    {"cpu", FIELD_ANY, &cpu, .present = &later[2]},
	    {"memory_mb", FIELD_ANY, &memory, .present = &later[3]},
	    {"idle_timeout_seconds", FIELD_ANY, &idle, .present = &later[4]},
	};
	if (json_fields(call->body, fields, ARRAY_SIZE(fields), &error) < 0) {
		reply_error(call, &error);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(later); i++) {
		if (!later[i])
			continue;
		error_set(&error, ERROR_UNSUPPORTED,
			  "field `%s` cannot be changed after the creation; `timeout_seconds` can",
			  fields[i + 1].name);
		reply_error(call, &error);
		return;
	}
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (timeout_set && sandbox_set_timeout(sandbox, (uint32_t)timeout, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	reply_sandbox(call, 200, &sandbox->row, sandbox);
}

/* --- transitions --- */

static void moved(void *data, const struct error *error)
{
	struct call *call = data;
	if (error) {
		reply_error(call, error);
	} else if (call->exchange) {
		struct sandbox *sandbox = call_sandbox(call);
		if (sandbox)
			reply_sandbox(call, 200, &sandbox->row, sandbox);
	}
	call_release(call);
}

static void move(struct call *call,
		 int (*begin)(struct sandbox *sandbox, SANDBOX_DONE, struct error *error))
{
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	call_hold(call);
	if (begin(sandbox, moved, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

void sandbox_stop_post(struct call *call)
{
	move(call, sandbox_stop);
}

void sandbox_start_post(struct call *call)
{
	move(call, sandbox_start);
}

void sandbox_pause_post(struct call *call)
{
	move(call, sandbox_pause);
}

void sandbox_resume_post(struct call *call)
{
	move(call, sandbox_resume);
}

static void deleted(void *data, const struct error *error)
{
	struct call *call = data;
	if (error)
		reply_error(call, error);
	else
		reply_empty(call, 204);
	call_release(call);
}

void sandbox_delete_call(struct call *call)
{
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	call_hold(call);
	if (sandbox_delete(sandbox, END_REASON_USER, NULL, deleted, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

/* --- metrics --- */

static void put_counter(struct json_writer *writer, const char *key, bool known, uint64_t value)
{
	if (known)
		put_uint(writer, key, value);
	else
		put_null(writer, key);
}

static void reply_metrics(struct call *call, const struct sandbox *sandbox)
{
	const struct spawn_counters *counters = &sandbox->counters;
	const uint8_t *known = counters->known;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "id", sandbox->row.id.text);
	put_text(&writer, "status", sandbox_state_name((enum sandbox_state)sandbox->row.state));
	if (known[0])
		put_number(&writer, "cpu_seconds", (double)counters->cpu_ns / NSEC_PER_SEC);
	else
		put_null(&writer, "cpu_seconds");
	put_counter(&writer, "memory_bytes", known[1], counters->memory);
	put_counter(&writer, "memory_peak_bytes", known[2], counters->memory_peak);
	put_uint(&writer, "memory_limit_bytes", sandbox->row.limits.memory);
	put_counter(&writer, "oom_kills", known[3], counters->oom_kills);
	put_counter(&writer, "processes", known[4], counters->processes);
	put_counter(&writer, "disk_bytes", known[5], counters->disk);
	put_counter(&writer, "disk_inodes", known[5], counters->disk_inodes);
	put_uint(&writer, "disk_limit_bytes", sandbox->row.limits.disk);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void counted(void *data, const struct error *error)
{
	struct call *call = data;
	if (error) {
		reply_error(call, error);
	} else if (call->exchange) {
		struct sandbox *sandbox = call_sandbox(call);
		if (sandbox)
			reply_metrics(call, sandbox);
	}
	call_release(call);
}

void sandbox_metrics_get(struct call *call)
{
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	call_hold(call);
	if (sandbox_refresh_counters(sandbox, counted, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}
