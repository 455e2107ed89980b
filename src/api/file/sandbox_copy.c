/* POST .../files/copy to or from another sandbox: finds it, makes both ready, copies
 * (core/file/sandbox_copy.h), answers. Nothing blocks; a disconnect of the client ends both
 * operations. */
#include "api/file/sandbox_copy.h"

#include <stdlib.h>

#include "core/file/sandbox_copy.h"
#include "edge/json/json.h"

struct sandbox_copy_call {
	struct sandbox_copy_fields fields; /* its texts belong to the body */
	struct id other;
	struct sandbox_copy *copy; /* NULL: not under way */
};

static void sandbox_copy_gone(struct call *call)
{
	struct sandbox_copy_call *state = call->state;
	if (state->copy)
		sandbox_copy_cancel(TAKE_PTR(state->copy));
}

static void sandbox_copy_done(void *data, uint64_t bytes, const struct error *error)
{
	struct call *call = data;
	struct sandbox_copy_call *state = call->state;
	state->copy = NULL;
	if (error) {
		reply_error(call, error);
		return;
	}
	struct buffer buffer = BUFFER(64 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "path", state->fields.from);
	put_text(&writer, "to", state->fields.to);
	put_uint(&writer, "bytes", bytes);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void sandbox_copy_begin(struct call *call, struct sandbox *own, struct sandbox *other)
{
	struct sandbox_copy_call *state = call->state;
	const struct sandbox_copy_fields *fields = &state->fields;
	const struct sandbox_copy_spec spec = {
	    .principal = &call->principal,
	    .from = fields->from_sandbox ? other : own,
	    .to = fields->from_sandbox ? own : other,
	    .from_path = fields->from,
	    .to_path = fields->to,
	    .user = fields->user,
	    .recursive = fields->recursive,
	    .no_replace = fields->no_replace,
	    .parents = fields->parents,
	};
	struct error error;
	if (sandbox_copy_start(&spec, sandbox_copy_done, call, &state->copy, &error) < 0) {
		state->copy = NULL;
		reply_error(call, &error);
	}
}

static void other_sandbox_ready(void *context, const struct error *error)
{
	struct call *call = context;
	struct sandbox_copy_call *state = call->state;
	struct error ended;
	if (call->exchange && error) {
		struct error told = *error;
		error_prepend(&told, "the other sandbox %s", state->other.text);
		reply_error(call, &told);
	} else if (call->exchange) {
		struct sandbox *other = sandbox_by_id(call->core, &state->other);
		struct sandbox *own = other ? call_sandbox(call) : NULL;
		if (!other) {
			error_set(&ended, ERROR_SANDBOX_ENDED, "sandbox %s ended meanwhile",
				  state->other.text);
			reply_error(call, &ended);
		} else if (own) {
			sandbox_copy_begin(call, own, other);
		}
	}
	call_release(call);
}

static void own_sandbox_ready(struct call *call, struct sandbox *sandbox)
{
	struct sandbox_copy_call *state = call->state;
	struct sandbox *other = sandbox_by_id(call->core, &state->other);
	struct error error;
	int result = 0;
	(void)sandbox;
	call_hold(call);
	if (!other)
		result = error_set(&error, ERROR_SANDBOX_ENDED, "sandbox %s ended meanwhile",
				   state->other.text);
	else
		result =
		    sandbox_ready(other, &call->principal, true, other_sandbox_ready, call, &error);
	if (result < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

bool sandbox_copy_answer(struct call *call, const struct sandbox_copy_fields *fields)
{
	struct error error;
	struct sandbox *other = NULL;
	const char *name = fields->from_sandbox ? fields->from_sandbox : fields->to_sandbox;
	if (!name)
		return false;
	int result = 0;
	if (fields->from_sandbox && fields->to_sandbox)
		result = error_set(&error, ERROR_INVALID,
				   "give `from_sandbox` or `to_sandbox`: the other is the one in "
				   "the path");
	else
		result = sandbox_find(call->core, &call->principal, name, &other, &error);
	if (result < 0) {
		reply_error(call, &error);
		return true;
	}
	if (id_equal(&other->row.id, &call->sandbox))
		return false;
	struct sandbox_copy_call *state = calloc(1, sizeof(*state));
	if (!state)
		abort();
	state->fields = *fields;
	state->other = other->row.id;
	call->state = state;
	call->state_free = free;
	call->on_gone = sandbox_copy_gone;
	call_ready(call, own_sandbox_ready);
	return true;
}
