/* Long requests about one sandbox: wait, drain; also pause and resume by another service's names. A
 * wait holds the request; a disconnect of the client ends it. Runs on the loop; nothing blocks but
 * the store's short calls. */
#include "edge/call.h"

#include <string.h>

#include <stdlib.h>

#include "api/sandbox/sandboxes.h"

#define WAIT_SECONDS_DEFAULT 60
#define WAIT_SECONDS_MAX 3600
#define DRAIN_SECONDS_DEFAULT 300
#define DRAIN_SECONDS_MAX (24 * 3600)

/* --- wait --- */

static void sandbox_wait_gone(struct call *call)
{
	if (call->state)
		sandbox_wait_cancel(call->state);
	call->state = NULL;
}

static void sandbox_waited(void *data, struct sandbox *sandbox, const struct error *error)
{
	struct call *call = data;
	call->state = NULL;
	if (error)
		reply_error(call, error);
	else
		reply_sandbox(call, 200, &sandbox->row, sandbox);
}

/* For a wait for the end, an ended sandbox is the wanted result. */
static void sandbox_wait_ended(struct call *call, enum wait_for what, const struct error *found)
{
	struct sandbox_row row = {0};
	struct error error = *found;
	if (found->kind == ERROR_SANDBOX_ENDED && what == WAIT_ENDED &&
	    sandbox_find_row(call->core, &call->principal, call->parameters[0], &row, &error) ==
		0) {
		reply_sandbox(call, 200, &row, NULL);
		sandbox_row_done(&row);
		return;
	}
	reply_error(call, &error);
}

struct wait_query {
	const char *what;
	uint32_t seconds;
};

const struct field sandbox_wait_query[] = {
    {"for", FIELD_TEXT_AT(struct wait_query, what), FIELD_WORDS_TOLD, 1, 15,
     .words = "running,stopped,paused,ended,idle", .fallback_text = "running"},
    {"timeout_seconds", FIELD_UINT_AT(struct wait_query, seconds), .max = WAIT_SECONDS_MAX,
     .fallback = WAIT_SECONDS_DEFAULT},
    {0},
};

void sandbox_wait_call(struct call *call)
{
	struct wait_query query = {0};
	enum wait_for what = WAIT_RUNNING;
	struct sandbox *sandbox;
	struct sandbox_wait *wait;
	struct error error;
	if (call_query(call, &query, &error) < 0 || wait_for_parse(query.what, &what, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (sandbox_find(call->core, &call->principal, call->parameters[0], &sandbox, &error) < 0) {
		sandbox_wait_ended(call, what, &error);
		return;
	}
	call->on_gone = sandbox_wait_gone;
	if (sandbox_wait(sandbox, what, query.seconds * 1000, sandbox_waited, call, &wait, &error) <
	    0)
		reply_error(call, &error);
	else
		call->state = wait;
}

/* --- drain --- */

/* Stopped, or deleted. */
static void sandbox_drained(void *data, const struct error *error)
{
	struct call *call = data;
	struct sandbox_row row = {0};
	struct error missing;
	if (error) {
		reply_error(call, error);
	} else if (call->exchange) {
		struct sandbox *sandbox = sandbox_by_id(call->core, &call->sandbox);
		if (sandbox) {
			reply_sandbox(call, 200, &sandbox->row, sandbox);
		} else if (sandbox_find_row(call->core, &call->principal, call->sandbox.text, &row,
					    &missing) == 0) {
			reply_sandbox(call, 200, &row, NULL);
			sandbox_row_done(&row);
		} else {
			reply_error(call, &missing);
		}
	}
	call_release(call);
}

struct drain {
	uint32_t seconds;
	const char *then;
	bool cancel;
};

const struct field sandbox_drain_fields[] = {
    {"timeout_seconds", FIELD_UINT_AT(struct drain, seconds), .max = DRAIN_SECONDS_MAX,
     .fallback = DRAIN_SECONDS_DEFAULT,
     .rest = "After that it is stopped whatever runs. Default: 300."},
    {"then", FIELD_TEXT_AT(struct drain, then), .words = "stop,delete", .rest = "Default: stop."},
    {"cancel", FIELD_BOOL_AT(struct drain, cancel), .rest = "Takes a drain back."},
    {0},
};

void sandbox_drain_post(struct call *call)
{
	struct drain drain = {.then = "stop"};
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (call_fields(call, &drain, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (drain.cancel) {
		if (sandbox_drain_cancel(sandbox, &error) < 0)
			reply_error(call, &error);
		else
			reply_sandbox(call, 200, &sandbox->row, sandbox);
		return;
	}
	call_hold(call);
	if (sandbox_drain(sandbox, &call->principal, drain.seconds,
			  strcmp(drain.then, "delete") == 0, sandbox_drained, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

/* --- hibernate and wake: memory is kept, so they are pause and resume --- */

static void wait_reply_status(struct call *call, const char *status)
{
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "id", sandbox->row.id.text);
	put_text(&writer, "status", status);
	put_text(&writer, "state", sandbox_state_name((enum sandbox_state)sandbox->row.state));
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void sandbox_hibernated(void *data, const struct error *error)
{
	struct call *call = data;
	if (error)
		reply_error(call, error);
	else if (call->exchange)
		wait_reply_status(call, "hibernated");
	call_release(call);
}

/* A stopped sandbox has no memory to keep: it is already in the deepest sleep. */
void sandbox_hibernate_post(struct call *call)
{
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (sandbox->row.state == SANDBOX_STOPPED) {
		wait_reply_status(call, "hibernated");
		return;
	}
	call_hold(call);
	if (sandbox_pause(sandbox, &call->principal, sandbox_hibernated, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

static void sandbox_woken(void *data, const struct error *error)
{
	struct call *call = data;
	if (error)
		reply_error(call, error);
	else if (call->exchange)
		wait_reply_status(call, "running");
	call_release(call);
}

void sandbox_wake_post(struct call *call)
{
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	call_hold(call);
	if (sandbox_ready(sandbox, &call->principal, true, sandbox_woken, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}
