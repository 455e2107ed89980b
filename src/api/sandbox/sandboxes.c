/* One sandbox: get, delete, the transitions. A status is read without waking a sandbox and without
 * counting as activity. Runs on the loop; nothing blocks. */
#include "edge/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/sandbox/create_fields.h"
#include "api/sandbox/record.h"
#include "api/sandbox/sandboxes.h"
#include "base/clock.h"
#include "base/text.h"
#include "edge/fields/sandbox_fields.h"

void reply_sandbox(struct call *call, int status, const struct sandbox_row *row,
		   const struct sandbox *sandbox)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_sandbox(&writer, NULL, row, sandbox);
	reply_json(call, status, &writer);
}

/* --- one --- */

void sandbox_get(struct call *call)
{
	struct core *core = call->core;
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

/* --- transitions --- */

void reply_sandbox_done(void *data, const struct error *error)
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

static void sandbox_transition_begin(struct call *call,
				     int (*begin)(struct sandbox *sandbox,
						  const struct principal *principal, SANDBOX_DONE,
						  struct error *error))
{
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	call_hold(call);
	if (begin(sandbox, &call->principal, reply_sandbox_done, call, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

void sandbox_stop_post(struct call *call)
{
	sandbox_transition_begin(call, sandbox_stop);
}

struct start {
	json_t *mounts;
};

const struct field sandbox_start_fields[] = {
    {"mounts", FIELD_ARRAY_AT(struct start, mounts), .max = SANDBOX_MOUNTS_MAX,
     .inner = mount_fields,
     .rest =
	 "For one that was created with `mounts`, when the daemon was restarted since: the same "
	 "ones, in any order, their open directories passed as at the creation."},
    {0},
};

void sandbox_start_post(struct call *call)
{
	struct mount_spec mounts[SANDBOX_MOUNTS_MAX];
	size_t count;
	struct start start = {0};
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (call_fields(call, &start, &error) < 0 ||
	    mounts_parse(call, start.mounts, mounts, &count, &error) < 0 ||
	    sandbox_give_folders(sandbox, &call->principal, mounts, count, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	sandbox_transition_begin(call, sandbox_start);
}

void sandbox_pause_post(struct call *call)
{
	sandbox_transition_begin(call, sandbox_pause);
}

void sandbox_resume_post(struct call *call)
{
	sandbox_transition_begin(call, sandbox_resume);
}

static void sandbox_deleted(void *data, const struct error *error)
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
	if (sandbox_delete(sandbox, &call->principal, END_REASON_USER, NULL, sandbox_deleted, call,
			   &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}
