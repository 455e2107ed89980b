/* PATCH /v1/sandboxes/{sandbox} and .../lifecycle: changes an existing sandbox, completely or not
 * at all. Runs on the loop; nothing blocks but the store's short calls. */
#include "edge/call.h"

#include "api/sandbox/record.h"
#include "api/sandbox/sandboxes.h"
#include "base/clock.h"
#include "edge/fields/sandbox_fields.h"

void sandbox_patch(struct call *call)
{
	struct sandbox_change_fields fields = {0};
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	call_hold(call);
	if (call_fields(call, &fields, &error) < 0 || sandbox_change_check(&fields, &error) < 0 ||
	    sandbox_change(sandbox, &call->principal, &fields.change, reply_sandbox_done, call,
			   &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
	sandbox_change_done(&fields);
}

/* --- lifecycle: the same in another service's words --- */

static void lifecycle_reply(struct call *call, const struct sandbox *sandbox)
{
	const struct sandbox_row *row = &sandbox->row;
	int64_t now = row->paused_wall != 0 ? row->paused_wall : clock_wall();
	int64_t idle = sandbox_busy(sandbox) ? 0 : MAX(now - row->active_wall, 0) / NSEC_PER_SEC;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "id", row->id.text);
	put_text(&writer, "status", sandbox_state_name((enum sandbox_state)row->state));
	put_uint(&writer, "ttl_seconds", row->idle_timeout_seconds);
	put_bool(&writer, "persistent", row->options & OPTION_PERSISTENT);
	put_int(&writer, "idle_seconds", idle);
	put_uint(&writer, "timeout_seconds", row->timeout_seconds);
	put_uint(&writer, "auto_pause_seconds", row->auto_pause_seconds);
	put_time(&writer, "expires_at", row->deadline_wall);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

void sandbox_lifecycle_get(struct call *call)
{
	struct sandbox *sandbox = call_sandbox(call);
	if (sandbox)
		lifecycle_reply(call, sandbox);
}

static void lifecycle_changed(void *data, const struct error *error)
{
	struct call *call = data;
	if (error)
		reply_error(call, error);
	else if (call->exchange)
		sandbox_lifecycle_get(call);
	call_release(call);
}

const struct field sandbox_lifecycle_fields[] = {
    {"ttl_seconds", FIELD_UINT_AT(struct sandbox_change, idle_timeout_seconds),
     .max = SANDBOX_TIMEOUT_MAX, .given = FIELD_GIVEN(struct sandbox_change, idle_timeout_set)},
    {"persistent", FIELD_BIT_AT(struct sandbox_change, options), .bit = OPTION_PERSISTENT,
     .given = FIELD_GIVEN_BIT(struct sandbox_change, options_mask)},
    {0},
};

void sandbox_lifecycle_patch(struct call *call)
{
	struct sandbox_change change = {0};
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (call_fields(call, &change, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	call_hold(call);
	if (sandbox_change(sandbox, &call->principal, &change, lifecycle_changed, call, &error) <
	    0) {
		reply_error(call, &error);
		call_release(call);
	}
}
