/* /v1/sandboxes/{sandbox}/exec and .../execs: runs a command and waits, or not; lists, signals,
 * cancels. Everything waits through callbacks; reading output for an answer is bounded. */

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/exec/events.h"
#include "api/exec/exec_call.h"
#include "api/exec/execs.h"
#include "base/text.h"
#include "edge/idempotency.h"

/* --- run and wait --- */

void exec_call_clear(struct exec_call *exec_call)
{
	exec_fields_done(&exec_call->fields);
	if (exec_call->request)
		idempotency_end(exec_call->request, false);
	buffer_done(&exec_call->stdin_left);
	buffer_done(&exec_call->input);
}

static void exec_call_free(void *state)
{
	exec_call_clear(state);
	free(state);
}

static void exec_call_done(void *data, struct exec *exec, const struct left_process *left,
			   size_t count, const struct error *error)
{
	struct exec_call *exec_call = data;
	exec_call->exec = NULL;
	if (error) {
		reply_error(exec_call->call, error);
		return;
	}
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_exec_result(&writer, exec, exec_call->fields.answer_max, left, count);
	put_expiry_warning(&writer, &exec->sandbox->row);
	put_object_end(&writer);
	reply_json(exec_call->call, 200, &writer);
}

/* Ends a command for which no client waits any more. */
static void exec_call_gone(struct call *call)
{
	struct exec_call *exec_call = call->state;
	if (exec_call->exec)
		foreground_abandon(exec_call->exec, !exec_call->kept);
	exec_call->exec = NULL;
}

static void exec_reply(struct call *call, int status, const struct exec *exec)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_exec(&writer, NULL, exec);
	reply_json(call, status, &writer);
}

/* The sandbox is ready: begins the command, and waits for it unless it runs in the background. */
static void exec_call_act(struct call *call, struct sandbox *sandbox)
{
	static const struct foreground_callbacks callbacks = {.done = exec_call_done};
	struct exec_call *exec_call = call->state;
	struct exec_fields *fields = &exec_call->fields;
	struct exec *exec = NULL;
	struct error error;
	int result = 0;
	fields->spec.principal = &call->principal;
	/* Recorded right before the start: after a crash either the key is known, or the command
	 * was not begun. */
	if (exec_call->request) {
		fields->spec.id = id_new();
		result = idempotency_record(exec_call->request, &sandbox->row.id, &fields->spec.id,
					    NULL, 0, &error);
	}
	if (result == 0 && fields->background) {
		result = exec_start(sandbox, &fields->spec, &exec, &error);
	} else if (result == 0) {
		call->on_gone = exec_call_gone;
		result = foreground_start(sandbox, &fields->spec, TAKE_PTR(fields->stdin_data),
					  fields->stdin_size, &callbacks, exec_call,
					  &exec_call->exec, &error);
	}
	if (exec_call->request) {
		exec_call->kept = result == 0;
		idempotency_end(TAKE_PTR(exec_call->request), result == 0);
	}
	if (result < 0) {
		reply_error(call, &error);
	} else if (exec) {
		if (fields->stdin_kind == STDIN_GIVEN)
			stdin_feed(exec, TAKE_PTR(fields->stdin_data), fields->stdin_size);
		exec_reply(call, 202, exec);
	}
}

/* background: overrides the body. */
static void exec_call_begin(struct call *call, bool background, bool stream)
{
	struct exec_call *exec_call = calloc(1, sizeof(*exec_call));
	struct exec_stream_query query = {0};
	struct error error;
	if (!exec_call)
		abort();
	struct exec_fields *fields = &exec_call->fields;
	exec_call->call = call;
	call->state = exec_call;
	call->state_free = exec_call_free;
	int result = call_fields(call, fields, &error);
	if (result == 0)
		result = exec_fields_check(fields, FIELDS_REST, &error);
	fields->background |= background;
	bool waits = !stream && !fields->background;
	if (result == 0 && call->route->query)
		result = call_query(call, &query, &error);
	exec_call->detach = query.detach;
	if (result < 0)
		; /* the error says it */
	else if (stream && (fields->background || fields->stdin_kind == STDIN_GIVEN))
		result = error_set(&error, ERROR_INVALID,
				   "over a stream standard input comes in frames, and `background` "
				   "is `?detach=1`");
	else if (!stream && exec_call->detach)
		result = error_set(&error, ERROR_INVALID,
				   "`detach` is for a stream (Upgrade: %s); use `background`",
				   EXEC_STREAM_PROTOCOL);
	else if (waits && fields->spec.flags & EXEC_LOSSLESS)
		result = error_set(&error, ERROR_INVALID,
				   "`lossless` needs a reader while the command runs: use "
				   "`background` and read its output, or a stream");
	else if (waits && fields->stdin_kind == STDIN_OPEN)
		result = error_set(&error, ERROR_INVALID,
				   "`stdin: true` needs `background`, or a stream");
	else if (stream && call_idempotency_key(call))
		result = error_set(&error, ERROR_INVALID,
				   "an Idempotency-Key is not for streams: use `background`");
	else if (http_request(call->exchange)->fd_count > 0)
		result =
		    error_set(&error, ERROR_INVALID, "descriptors are for `mounts` of a create");
	/* Unless a request with the same key has begun it. */
	else if (call_idempotency_key(call))
		result = exec_replay(call, exec_call, &error);
	if (result < 0)
		reply_error(call, &error);
	else if (result == 0)
		call_ready(call, stream ? exec_stream_begin : exec_call_act);
}

void exec_post(struct call *call)
{
	bool stream = call_upgrades(call, EXEC_STREAM_PROTOCOL);
	if (!stream && call_wants_events(call))
		exec_stream_post(call);
	else
		exec_call_begin(call, false, stream);
}

void job_post(struct call *call)
{
	exec_call_begin(call, true, false);
}

/* --- look --- */

#define EXEC_LIST_DEFAULT 100
#define EXEC_LIST_MAX 1000

struct exec_list_call {
	struct json_writer writer;
	uint32_t states;            /* a bit for each wanted state */
	const char *state, *cursor; /* of the query */
	bool all;                   /* also the internal execs of code contexts */
	uint64_t limit, count;
	struct id last; /* the last listed exec */
};

static bool execs_list_one(void *data, const struct exec_row *row, struct exec *exec)
{
	struct exec_list_call *listing = data;
	if (!(listing->states & 1u << row->state))
		return true;
	if (listing->count++ == listing->limit)
		return false;
	listing->last = row->id;
	if (exec) {
		put_exec(&listing->writer, NULL, exec);
		return true;
	}
	put_object(&listing->writer, NULL);
	put_exec_members(&listing->writer, row);
	put_uint(&listing->writer, "stdout_bytes", row->out_total);
	put_uint(&listing->writer, "stderr_bytes", row->err_total);
	put_object_end(&listing->writer);
	return true;
}

const struct field execs_query[] = {
    {"limit", FIELD_UINT_AT(struct exec_list_call, limit), .min = 1, .max = EXEC_LIST_MAX,
     .fallback = EXEC_LIST_DEFAULT},
    {"all", FIELD_BOOL_AT(struct exec_list_call, all)},
    {"state", FIELD_TEXT_AT(struct exec_list_call, state), .max = 15,
     .words = "running,ended,failed"},
    {"cursor", FIELD_TEXT_AT(struct exec_list_call, cursor), .max = ID_LENGTH + 1,
     .shape = "\"type\":\"string\",\"pattern\":\"^([a-z][a-z0-9]{15})?$\""},
    {0},
};

static uint32_t execs_states(const char *state)
{
	return !state                          ? UINT32_MAX
	       : strcmp(state, "running") == 0 ? 1u << EXEC_STARTING | 1u << EXEC_RUNNING
	       : strcmp(state, "ended") == 0   ? 1u << EXEC_ENDED
					       : 1u << EXEC_FAILED;
}

/* The key after which a page continues. */
static int execs_parse_cursor(struct call *call, const char *cursor, uint64_t *ret_key,
			      struct error *error)
{
	struct id id;
	*ret_key = UINT64_MAX;
	if (!cursor)
		return 0;
	int found = id_parse(cursor, &id);
	if (found < 0)
		return error_set(error, ERROR_INVALID,
				 "query parameter `cursor` must be `next_cursor` of a page");
	found = exec_key(call->core, &call->sandbox, &id, ret_key, error);
	if (found == 0)
		return error_set(error, ERROR_CURSOR_GONE, "the command it names was removed");
	return found < 0 ? -1 : 0;
}

static void execs_reply(struct call *call, const char *name)
{
	struct exec_list_call listing = {0};
	struct error error;
	uint64_t key;
	if (call_query(call, &listing, &error) < 0 ||
	    execs_parse_cursor(call, listing.cursor, &key, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	struct buffer buffer = BUFFER(REPLY_MAX);
	listing.writer = json_writer_on(&buffer);
	listing.states = execs_states(listing.state);
	put_object(&listing.writer, NULL);
	put_array(&listing.writer, name);
	if (exec_page(sandbox, key, listing.all, execs_list_one, &listing, &error) < 0) {
		buffer_done(&buffer);
		reply_error(call, &error);
		return;
	}
	bool more = listing.count > listing.limit;
	put_array_end(&listing.writer);
	put_bool(&listing.writer, "truncated", more);
	put_text(&listing.writer, "next_cursor", more ? listing.last.text : NULL);
	put_object_end(&listing.writer);
	reply_json(call, 200, &listing.writer);
}

void execs_get(struct call *call)
{
	execs_reply(call, "execs");
}

void jobs_get(struct call *call)
{
	execs_reply(call, "jobs");
}

/* The exec of this call, or NULL after an error reply. */
static struct exec *call_exec(struct call *call)
{
	struct exec *exec;
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return NULL;
	if (exec_find(sandbox, call->parameters[1], &exec, &error) == 0)
		return exec;
	reply_error(call, &error);
	return NULL;
}

void exec_get(struct call *call)
{
	struct exec *exec = call_exec(call);
	if (exec)
		exec_reply(call, 200, exec);
}

/* --- signal, cancel --- */

struct signal_fields {
	json_t *signal;
	bool tree;
};

const struct field exec_signal_fields[] = {
    {"signal", FIELD_ANY_AT(struct signal_fields, signal), FIELD_REQUIRED,
     .shape =
	 "\"oneOf\":[{\"type\":\"integer\",\"minimum\":1,\"maximum\":64},{\"type\":\"string\"}]",
     .rest = "15, \"TERM\" or \"SIGTERM\". To the command itself; of a terminal to its foreground "
	     "process group."},
    {"tree", FIELD_BOOL_AT(struct signal_fields, tree), .rest = "To all that it started, too."},
    {0},
};

const struct field exec_resize_fields[] = {
    {"rows", FIELD_UINT_AT(struct terminal_size, rows), FIELD_REQUIRED, 1, TERMINAL_SIZE_MAX},
    {"cols", FIELD_UINT_AT(struct terminal_size, columns), FIELD_REQUIRED, 1, TERMINAL_SIZE_MAX},
    {0},
};

int exec_signal_parse(const json_t *json, int *ret_signal, struct error *error)
{
	json_int_t number = json_integer_value(json);
	const char *text = json_string_value(json);
	char digits[24];
	if (json_is_integer(json)) {
		snprintf(digits, sizeof(digits), "%lld", (long long)number);
		text = digits;
	}
	*ret_signal = text ? signal_by_name(text) : -1;
	if (*ret_signal > 0)
		return 0;
	return error_set(error, ERROR_INVALID,
			 "field `signal` must be a name like TERM or a number from 1 to 64");
}

static void exec_signal_act(struct call *call, struct sandbox *sandbox)
{
	struct error error;
	struct signal_fields fields = {0};
	int number = 0;
	(void)sandbox;
	if (call_fields(call, &fields, &error) < 0 ||
	    exec_signal_parse(fields.signal, &number, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct exec *exec = call_exec(call);
	if (!exec)
		return;
	if (exec_signal(exec, &call->principal, number, fields.tree ? SIGNAL_TREE : SIGNAL_LEADER,
			&error) < 0)
		reply_error(call, &error);
	else
		exec_reply(call, 200, exec);
}

void exec_signal_post(struct call *call)
{
	call_ready(call, exec_signal_act);
}

static void exec_resize_act(struct call *call, struct sandbox *sandbox)
{
	struct terminal_size size = {0};
	struct error error;
	(void)sandbox;
	if (call_fields(call, &size, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct exec *exec = call_exec(call);
	if (!exec)
		return;
	if (exec_resize(exec, size.rows, size.columns, &error) < 0)
		reply_error(call, &error);
	else
		exec_reply(call, 200, exec);
}

void exec_resize_post(struct call *call)
{
	call_ready(call, exec_resize_act);
}

struct exec_delete_query {
	bool purge;
};

const struct field exec_delete_query[] = {
    {"purge", FIELD_BOOL_AT(struct exec_delete_query, purge)},
    {0},
};

static void exec_kill_act(struct call *call, struct sandbox *sandbox)
{
	struct error error;
	struct exec_delete_query query = {0};
	(void)sandbox;
	struct exec *exec = call_exec(call);
	if (!exec)
		return;
	if (call_query(call, &query, &error) < 0) {
		reply_error(call, &error);
	} else if (query.purge) {
		exec_purge(exec, &call->principal);
		reply_empty(call, 204);
	} else if ((!exec_ended(exec) || exec->row.left_running > 0) &&
		   /* Also for an ended exec: kills its left-over processes. */
		   exec_signal(exec, &call->principal, SIGKILL, SIGNAL_TREE, &error) < 0) {
		reply_error(call, &error);
	} else {
		reply_empty(call, 204);
	}
}

/* Kills a running exec; removes an ended one, which does not need the sandbox to be awake. */
void exec_delete(struct call *call)
{
	struct error error;
	struct exec *exec = call_exec(call);
	if (!exec)
		return;
	if (!exec_ended(exec) || exec->row.left_running > 0 || exec->written == EXEC_UNSAVED) {
		call_ready(call, exec_kill_act);
		return;
	}
	if (exec_remove(exec, &call->principal, &error) < 0)
		reply_error(call, &error);
	else
		reply_empty(call, 204);
}
