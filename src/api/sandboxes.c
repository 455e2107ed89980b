/* /v1/sandboxes but for its creation: list, get, patch, delete, the transitions, metrics. A status
 * is read without waking a sandbox and without counting as activity. Runs on the loop; nothing
 * blocks but the list, which reads one page of the store. */
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
#define CURSOR_MAX 48

struct listing {
	struct call *call;
	struct json_writer writer;
	uint32_t state; /* enum sandbox_state; 0 = any */
	char name[NAME_MAX_LENGTH + 1];
	bool all;
	uint64_t limit;
	int64_t before_wall; /* of the last one of the page before; 0 = from the newest */
	struct id before;
	uint64_t count;
	char cursor[CURSOR_MAX]; /* of the last one written */
	bool more;
};

/* Newest first. The cursor is when the last one given was made, and its id: it stays true when
 * sandboxes come and go between two pages. */
static bool list_one(void *data, const struct sandbox_row *row)
{
	struct listing *listing = data;
	if (listing->count == listing->limit) {
		listing->more = true;
		return false;
	}
	/* What runs is known better in memory. */
	struct sandbox *live = sandbox_by_id(listing->call->api->core, &row->id);
	put_sandbox(&listing->writer, NULL, live ? &live->row : row, live);
	snprintf(listing->cursor, sizeof(listing->cursor), "%lld-%s", (long long)row->created_wall,
		 row->id.text);
	listing->count++;
	return true;
}

static int cursor_parse(struct listing *listing, char *text, struct error *error)
{
	uint64_t wall;
	char *id = strchr(text, '-');
	if (id)
		*id++ = '\0';
	if (!id || text_to_u64(text, 1, INT64_MAX, &wall) < 0 || id_parse(id, &listing->before) < 0)
		return error_set(error, ERROR_INVALID,
				 "query parameter `cursor` must be `next_cursor` of another page");
	listing->before_wall = (int64_t)wall;
	return 0;
}

static int state_parse(struct listing *listing, const char *text, struct error *error)
{
	for (uint32_t state = SANDBOX_CREATING; state <= SANDBOX_ENDED; state++) {
		if (strcmp(sandbox_state_name((enum sandbox_state)state), text) != 0)
			continue;
		listing->state = state;
		return 0;
	}
	return error_set(error, ERROR_INVALID, "query parameter `state`: there is no state `%s`",
			 text);
}

static int list_parse(struct call *call, struct listing *listing, struct error *error)
{
	char state[16] = "", cursor[CURSOR_MAX] = "";
	if (query_text(call, "state", state, sizeof(state), false, error) < 0 ||
	    query_text(call, "name", listing->name, sizeof(listing->name), false, error) < 0 ||
	    query_flag(call, "all", &listing->all, error) < 0 ||
	    query_uint(call, "limit", 1, LIST_MAX, &listing->limit, error) < 0 ||
	    query_text(call, "cursor", cursor, sizeof(cursor), false, error) < 0)
		return -1;
	if (state[0] && state_parse(listing, state, error) < 0)
		return -1;
	return cursor[0] ? cursor_parse(listing, cursor, error) : 0;
}

/* A token for one sandbox sees that one alone. */
static void list_bound(struct listing *listing)
{
	const struct principal *principal = &listing->call->principal;
	struct sandbox_row row = {0};
	struct error error;
	if (sandbox_find_row(listing->call->api->core, principal, principal->sandbox.text, &row,
			     &error) < 0)
		return;
	bool wanted = (row.state != SANDBOX_ENDED || listing->all) &&
		      (!listing->state || row.state == listing->state) &&
		      (!listing->name[0] || (row.name && strcmp(row.name, listing->name) == 0));
	if (wanted && listing->before_wall == 0)
		list_one(listing, &row);
	sandbox_row_done(&row);
}

static int list_page(struct listing *listing, struct error *error)
{
	struct call *call = listing->call;
	if (id_is_set(&call->principal.sandbox)) {
		list_bound(listing);
		return 0;
	}
	/* One more than is given: whether there is another page. */
	return store_sandbox_page(call->api->core->store, call->principal.workspace, !listing->all,
				  (enum sandbox_state)listing->state,
				  listing->name[0] ? listing->name : NULL, listing->before_wall,
				  &listing->before, (uint32_t)listing->limit + 1, list_one, listing,
				  error);
}

void sandboxes_get(struct call *call)
{
	struct listing listing = {.call = call, .limit = LIST_DEFAULT};
	struct error error;
	if (list_parse(call, &listing, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	/* Who asks for the ended ones wants them. */
	listing.all |= listing.state == SANDBOX_ENDED;
	struct buffer buffer = BUFFER(REPLY_MAX);
	listing.writer = json_writer_on(&buffer);
	put_object(&listing.writer, NULL);
	put_array(&listing.writer, "items");
	if (list_page(&listing, &error) < 0) {
		buffer_done(&buffer);
		reply_error(call, &error);
		return;
	}
	put_array_end(&listing.writer);
	put_text(&listing.writer, "next_cursor", listing.more ? listing.cursor : NULL);
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
