/* POST /v1/sandboxes, and its repetition with the same Idempotency-Key. Runs on the loop; nothing
 * blocks but the store's short calls. */
#include "edge/call.h"

#include <stdlib.h>
#include <string.h>

#include "api/sandbox/create_fields.h"
#include "api/sandbox/record.h"
#include "api/sandbox/sandboxes.h"
#include "core/sandbox/create_queue.h"
#include "edge/idempotency.h"

struct create_call {
	struct create_fields given;
	struct idempotent *request; /* NULL: it has no key */
};

static void create_call_free(void *state)
{
	struct create_call *create = state;
	sandbox_fields_done(&create->given.fields);
	/* If it had a result, it has ended by now. */
	idempotency_end(create->request, false);
	free(create);
}

static void create_call_created(void *data, struct sandbox *sandbox, const struct error *error)
{
	struct call *call = data;
	struct create_call *create = call->state;
	bool named = create->request != NULL;
	idempotency_end(TAKE_PTR(create->request), !error);
	if (error) {
		reply_error(call, error);
	} else if (call->exchange) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_sandbox(&writer, NULL, &sandbox->row, sandbox);
		reply_json(call, 201, &writer);
	} else if (!named) {
		/* The client has not heard of the sandbox, and would create a second one if it
		 * tried again; with an Idempotency-Key it would get this one. */
		struct error ignored;
		(void)!sandbox_delete(sandbox, &call->principal, END_REASON_USER,
				      "the client that created it went away first", NULL, NULL,
				      &ignored);
	}
	call_release(call);
}

/* The present record of the sandbox that the first request made. 0: it was never made, since the
 * daemon died in between. */
static int create_replay(struct call *call, const struct request_row *request)
{
	struct sandbox_row row = {0};
	struct error error;
	struct core *core = call->core;
	if (sandbox_find_row(core, &call->principal, request->sandbox.text, &row, &error) < 0) {
		if (error.kind == ERROR_SANDBOX_NOT_FOUND)
			return 0;
		reply_error(call, &error);
		return 1;
	}
	bool never = row.state == SANDBOX_ENDED && row.started_wall == 0;
	if (!never) {
		struct buffer buffer = BUFFER(REPLY_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_sandbox(&writer, NULL, &row, sandbox_by_id(core, &row.id));
		reply_replayed(call, 201, &writer);
	}
	sandbox_row_done(&row);
	return never ? 0 : 1;
}

/* 0: continue; 1: answered. */
static int create_repeat(struct call *call, struct create_call *create, struct error *error)
{
	struct request_row row = {0};
	for (int tries = 0; tries < 2; tries++) {
		int found = idempotent_begin(call, "create", "/v1/sandboxes", &create->request,
					     &row, error);
		if (found <= 0)
			return found;
		free(row.answer);
		if (create_replay(call, &row))
			return 1;
		idempotent_forget(call);
	}
	return error_set(error, ERROR_INTERNAL, "an Idempotency-Key cannot be forgotten");
}

/* Written together with the sandbox's row, so that no sandbox exists without its key. */
static int create_call_named(void *data, const struct id *id, struct error *error)
{
	struct create_call *create = ((struct call *)data)->state;
	return idempotency_record(create->request, id, NULL, NULL, 0, error);
}

/* A create that waits for room ends with its client. */
static void create_leave_queue(struct call *call)
{
	if (create_queue_leave(call->core, call))
		call_release(call);
}

void sandbox_post(struct call *call)
{
	struct error error;
	struct create_call *create = calloc(1, sizeof(*create));
	if (!create)
		abort();
	call->state = create;
	call->state_free = create_call_free;
	int found = call_fields(call, &create->given.fields, &error);
	if (found == 0)
		found = create_fields_check(call, &create->given, &error);
	if (found == 0 && call_idempotency_key(call))
		found = create_repeat(call, create, &error);
	if (found > 0)
		return;
	if (found < 0) {
		reply_error(call, &error);
		return;
	}
	create->given.fields.spec.named = create->request ? create_call_named : NULL;
	call_hold(call);
	call->on_gone = create_leave_queue;
	if (sandbox_create(call->core, &call->principal, &create->given.fields.spec,
			   create_call_created, call, &error) < 0) {
		idempotency_end(TAKE_PTR(create->request), false);
		reply_error(call, &error);
		call_release(call);
	}
}
