/* POST .../files/copy to or from another sandbox: finds it, makes both ready, copies
 * (core/file/between.h), answers. Nothing blocks; a disconnect of the client ends both
 * operations. */
#include "api/file/between.h"

#include <stdlib.h>

#include "core/file/between.h"
#include "edge/json.h"

struct between_call {
	struct between_ask ask; /* its texts belong to the body */
	struct id other;
	struct between *between; /* NULL: not under way */
};

static void gone(struct call *call)
{
	struct between_call *state = call->state;
	if (state->between)
		between_cancel(TAKE_PTR(state->between));
}

static void copied(void *data, uint64_t bytes, const struct error *error)
{
	struct call *call = data;
	struct between_call *state = call->state;
	state->between = NULL;
	if (error) {
		reply_error(call, error);
		return;
	}
	struct buffer buffer = BUFFER(64 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "path", state->ask.from);
	put_text(&writer, "to", state->ask.to);
	put_uint(&writer, "bytes", bytes);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void copy(struct call *call, struct sandbox *own, struct sandbox *other)
{
	struct between_call *state = call->state;
	const struct between_ask *ask = &state->ask;
	const struct between_spec spec = {
	    .principal = &call->principal,
	    .from = ask->from_sandbox ? other : own,
	    .to = ask->from_sandbox ? own : other,
	    .from_path = ask->from,
	    .to_path = ask->to,
	    .user = ask->user,
	    .recursive = ask->recursive,
	    .no_replace = ask->no_replace,
	    .parents = ask->parents,
	};
	struct error error;
	if (between_start(&spec, copied, call, &state->between, &error) < 0) {
		state->between = NULL;
		reply_error(call, &error);
	}
}

static void other_ready(void *context, const struct error *error)
{
	struct call *call = context;
	struct between_call *state = call->state;
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
			copy(call, own, other);
		}
	}
	call_release(call);
}

static void own_ready(struct call *call, struct sandbox *sandbox)
{
	struct between_call *state = call->state;
	struct sandbox *other = sandbox_by_id(call->core, &state->other);
	struct error error;
	int result = 0;
	(void)sandbox;
	call_hold(call);
	if (!other)
		result = error_set(&error, ERROR_SANDBOX_ENDED, "sandbox %s ended meanwhile",
				   state->other.text);
	else
		result = sandbox_ready(other, &call->principal, true, other_ready, call, &error);
	if (result < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

bool file_between(struct call *call, const struct between_ask *ask)
{
	struct error error;
	struct sandbox *other = NULL;
	const char *name = ask->from_sandbox ? ask->from_sandbox : ask->to_sandbox;
	if (!name)
		return false;
	int result = 0;
	if (ask->from_sandbox && ask->to_sandbox)
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
	struct between_call *state = calloc(1, sizeof(*state));
	if (!state)
		abort();
	state->ask = *ask;
	state->other = other->row.id;
	call->state = state;
	call->state_free = free;
	call->on_gone = gone;
	call_ready(call, own_ready);
	return true;
}
