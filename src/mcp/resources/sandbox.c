/* The inventory (`sandboxes://all`) and one sandbox's record (`sandbox://{sandbox}`) as resources.
 * Reading either wakes nothing and is no activity; watching them costs a listener. Also the
 * completion of the variable {sandbox}. Nothing blocks but for the store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "core/activity/activity.h"
#include "core/sandbox/labels.h"
#include "core/account/access.h"
#include "mcp/resources/usual_resources.h"
#include "mcp/resources/uri.h"
#include "proto/init_messages.h"
#include "proto/tiers.h"

#define RECORD_MAX (1 * MIB)
#define RECORD_JOBS_MAX 20

/* --- how they look --- */

static void put_head(struct json_writer *writer, const struct sandbox_row *row)
{
	put_text(writer, "id", row->id.text);
	put_text(writer, "name", row->name);
	put_text(writer, "state", sandbox_state_name((enum sandbox_state)row->state));
	put_text(writer, "template", row->template_asked ? row->template_asked : row->template);
	put_time(writer, "created_at", row->created_wall);
	put_time(writer, "expires_at", row->state == SANDBOX_ENDED ? 0 : row->deadline_wall);
}

static void put_pairs(struct json_writer *writer, const char *key, const char *data, uint32_t size)
{
	struct bytes packed = {(const uint8_t *)data, size};
	size_t at = 0;
	const char *name, *value;
	put_object(writer, key);
	while ((name = packed_next(packed, &at)) && (value = packed_next(packed, &at))) {
		if (metadata_secret(name))
			continue;
		put_key(writer, name);
		put_text(writer, NULL, value);
	}
	put_object_end(writer);
}

static bool put_job(void *data, const struct exec_row *row)
{
	struct json_writer *writer = data;
	put_object(writer, NULL);
	put_text(writer, "job", row->id.text);
	put_text(writer, "command", row->command);
	put_text(writer, "state", exec_state_text(row));
	if (row->state == EXEC_ENDED)
		put_int(writer, "exit_code", exec_exit_code(row));
	put_time(writer, "started_at", row->started_wall);
	put_object_end(writer);
	return true;
}

/* sandbox: NULL for one that has ended. */
static int put_record(struct json_writer *writer, const struct sandbox_row *row,
		      struct sandbox *sandbox, struct error *error)
{
	int result = 0;
	put_object(writer, NULL);
	put_head(writer, row);
	put_text(writer, "isolation", tier_name((enum tier)row->tier));
	put_number(writer, "cpu", row->limits.cpu_millis / 1000.0);
	put_uint(writer, "memory_mb", row->limits.memory / MIB);
	put_uint(writer, "disk_mb", row->limits.disk / MIB);
	put_uint(writer, "timeout_seconds", row->timeout_seconds);
	put_uint(writer, "idle_timeout_seconds", row->idle_timeout_seconds);
	put_uint(writer, "auto_pause_seconds", row->auto_pause_seconds);
	put_time(writer, "active_at", row->active_wall);
	put_pairs(writer, "labels", row->labels, row->labels_size);
	put_pairs(writer, "metadata", row->metadata, row->metadata_size);
	if (row->state == SANDBOX_ENDED) {
		put_time(writer, "ended_at", row->ended_wall);
		put_text(writer, "end_reason", end_reason_name((enum end_reason)row->end_reason));
		put_text(writer, "end_message", row->end_message);
	}
	if (sandbox) {
		put_array(writer, "jobs");
		result = exec_list(sandbox, RECORD_JOBS_MAX, put_job, writer, error);
		put_array_end(writer);
	}
	put_object_end(writer);
	return result;
}

static void resource_reply_json(struct mcp_request *request, const char *uri,
				const struct json_writer *writer)
{
	if (writer->full)
		mcp_error(request, MCP_INTERNAL_ERROR, NULL, "it is longer than %llu bytes",
			  (unsigned long long)writer->buffer->maximum);
	else
		resource_reply_text(request, uri, "application/json", buffer_text(writer->buffer),
				    writer->buffer->size);
}

/* --- the inventory --- */

static void inventory_read(struct mcp_request *request, const char *uri,
			   const char *const *variables)
{
	DONE_BUFFER struct buffer text = BUFFER(RECORD_MAX);
	struct json_writer writer = json_writer_on(&text);
	(void)variables;
	put_object(&writer, NULL);
	put_array(&writer, "sandboxes");
	struct sandbox *sandbox = NULL;
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox))) {
		char record[SANDBOX_URI_SIZE];
		snprintf(record, sizeof(record), SANDBOX_URI, sandbox->row.id.text);
		put_object(&writer, NULL);
		put_head(&writer, &sandbox->row);
		put_text(&writer, "uri", record);
		put_object_end(&writer);
	}
	put_array_end(&writer);
	put_object_end(&writer);
	resource_reply_json(request, uri, &writer);
}

/* --- what both are watched by: the activity, which has every step of a sandbox's life --- */

struct life_watch {
	struct activity_listener listener;
	struct sandbox_watcher watcher; /* of one sandbox; its end is the watch's */
	struct resource_watch *watch;
	struct id sandbox; /* unset: all that the principal may see */
};

static void life_recorded(struct activity_listener *listener, const struct activity_row *row)
{
	struct life_watch *life = container_of(listener, struct life_watch, listener);
	if (row->kind > ACTIVITY_SANDBOX_FAILED ||
	    !principal_sees(&life->watch->principal, row->workspace, &row->sandbox))
		return;
	if (!id_is_set(&life->sandbox) || id_equal(&life->sandbox, &row->sandbox))
		resource_changed(life->watch);
}

static void life_changed(struct sandbox_watcher *watcher, struct sandbox *sandbox)
{
	struct life_watch *life = container_of(watcher, struct life_watch, watcher);
	if (sandbox->row.state == SANDBOX_ENDED)
		resource_over(life->watch);
	else
		resource_changed(life->watch);
}

static void life_lost(struct sandbox_watcher *watcher, const struct error *error)
{
	(void)watcher;
	(void)error;
}

static void life_free(void *state)
{
	struct life_watch *life = state;
	activity_unlisten(&life->listener);
	sandbox_unwatch(&life->watcher);
	free(life);
}

static struct life_watch *life_new(struct resource_watch *watch)
{
	struct life_watch *life = calloc(1, sizeof(*life));
	if (!life)
		abort();
	life->listener.recorded = life_recorded;
	life->watcher.changed = life_changed;
	life->watcher.lost = life_lost;
	life->watch = watch;
	list_init(&life->watcher.link);
	activity_listen(watch->core, &life->listener);
	watch->state = life;
	watch->state_free = life_free;
	return life;
}

static int inventory_watch(struct resource_watch *watch, const char *const *variables,
			   struct error *error)
{
	(void)variables;
	(void)error;
	life_new(watch);
	return 0;
}

const struct resource_kind inventory_resource = {
    .template = "sandboxes://all",
    .name = "sandboxes",
    .title = "Live sandboxes",
    .description = "Every live sandbox that you may use: id, name, state, when it expires.",
    .type = "application/json",
    .read = inventory_read,
    .watch = inventory_watch,
};

/* --- one record --- */

static void sandbox_record_read(struct mcp_request *request, const char *uri,
				const char *const *variables)
{
	DONE_BUFFER struct buffer text = BUFFER(RECORD_MAX);
	struct json_writer writer = json_writer_on(&text);
	struct sandbox *sandbox;
	struct sandbox_row row = {0};
	struct error error;
	int result =
	    sandbox_find(request->core, &request->principal, variables[0], &sandbox, &error);
	if (result == 0) {
		result = put_record(&writer, &sandbox->row, sandbox, &error);
	} else if (error.kind == ERROR_SANDBOX_ENDED &&
		   sandbox_find_row(request->core, &request->principal, variables[0], &row,
				    &error) == 0) {
		result = put_record(&writer, &row, NULL, &error);
		sandbox_row_done(&row);
	}
	if (result < 0)
		resource_fail(request, uri, &error);
	else
		resource_reply_json(request, uri, &writer);
}

static int sandbox_record_watch(struct resource_watch *watch, const char *const *variables,
				struct error *error)
{
	struct sandbox *sandbox;
	if (sandbox_find(watch->core, &watch->principal, variables[0], &sandbox, error) < 0)
		return -1;
	struct life_watch *life = life_new(watch);
	life->sandbox = sandbox->row.id;
	sandbox_watch(sandbox, &life->watcher);
	return 0;
}

/* Continues after the last page's position, in the order of creation: so a sandbox that ended in
 * between does not matter. */
static void sandbox_record_list(struct mcp_request *request, struct page *page)
{
	unsigned long long from = 0;
	struct sandbox *sandbox = NULL;
	const struct sandbox_row *last = NULL;
	char after[ID_LENGTH + 1] = "";
	if (page->position[0] && sscanf(page->position, "%llu.%16s", &from, after) != 2)
		from = 0;
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox))) {
		const struct sandbox_row *row = &sandbox->row;
		char uri[SANDBOX_URI_SIZE];
		if ((unsigned long long)row->created_wall < from ||
		    ((unsigned long long)row->created_wall == from &&
		     strcmp(row->id.text, after) <= 0))
			continue;
		if (page->room == 0) {
			page->more = true;
			break;
		}
		snprintf(uri, sizeof(uri), SANDBOX_URI, row->id.text);
		resource_put(request, page, &record_resource, uri,
			     row->name ? row->name : row->id.text, NULL);
		last = row;
	}
	if (page->more && last)
		snprintf(page->position, sizeof(page->position), "%lld.%s",
			 (long long)last->created_wall, last->id.text);
}

void complete_sandbox(struct mcp_request *request, const char *value)
{
	struct completion completion;
	struct sandbox *sandbox = NULL;
	completion_begin(request, &completion);
	while ((sandbox = sandbox_next(request->core, &request->principal, sandbox))) {
		const struct sandbox_row *row = &sandbox->row;
		if (text_starts(row->id.text, value))
			completion_put(&completion, row->id.text);
		if (row->name && text_starts(row->name, value))
			completion_put(&completion, row->name);
	}
	completion_end(request, &completion);
}

static void sandbox_record_complete(struct mcp_request *request, const char *variable,
				    const char *value)
{
	(void)variable;
	complete_sandbox(request, value);
}

const struct resource_kind record_resource = {
    .template = "sandbox://{sandbox}",
    .name = "sandbox",
    .title = "Sandbox",
    .description = "A sandbox's record, by its id or name: state, limits, times, newest jobs.",
    .type = "application/json",
    .list = sandbox_record_list,
    .read = sandbox_record_read,
    .watch = sandbox_record_watch,
    .complete = sandbox_record_complete,
};

/* The sandbox that the client has chosen already; else the only existing one. */
struct sandbox *completion_sandbox(struct mcp_request *request)
{
	struct core *core = request->core;
	const char *chosen = completion_context(request, "sandbox");
	struct sandbox *sandbox;
	struct error error;
	if (chosen)
		return sandbox_find(core, &request->principal, chosen, &sandbox, &error) == 0
			   ? sandbox
			   : NULL;
	sandbox = sandbox_next(core, &request->principal, NULL);
	return sandbox && !sandbox_next(core, &request->principal, sandbox) ? sandbox : NULL;
}

const struct resource_kind *const usual_resources[] = {
    &inventory_resource, &record_resource, &file_resource, &job_resource, NULL,
};
