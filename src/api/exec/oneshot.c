/* POST /v1/run: creates a sandbox, runs one command in it, answers with the result and removes the
 * sandbox; for `caisson run` over a stream. The run ends when the client disconnects. Runs on the
 * loop; everything waits through callbacks. */
#include <stdlib.h>

#include "api/exec/exec_call.h"
#include "api/routes.h"
#include "api/sandbox/create_fields.h"
#include "core/exec/oneshot.h"
#include "edge/fields/exec_fields.h"
#include "edge/idempotency.h"
#include "proto/tiers.h"

/* Its call is held by the oneshot's callback. */
struct oneshot_call {
	struct exec_call exec; /* first: stream.c takes it from the call */
	struct create_fields sandbox;
	struct buffer answer;
	struct json_writer writer;
	struct id sandbox_id, exec_id;
};

static void oneshot_call_free(void *state)
{
	struct oneshot_call *oneshot_call = state;
	exec_call_clear(&oneshot_call->exec);
	sandbox_fields_done(&oneshot_call->sandbox.fields);
	buffer_done(&oneshot_call->answer);
	free(oneshot_call);
}

/* `timeout_seconds` is the command's: its sandbox lives a little longer. */
static const struct field oneshot_fields[] = {
    {"timeout_seconds", FIELD_NUMBER_AT(struct oneshot_call, exec.fields.timeout_seconds),
     .max = EXEC_TIMEOUT_MAX,
     .rest = "Of the command; 600 unless said, over a stream none. Its sandbox lives a little "
	     "longer."},
    {"stdin", FIELD_ANY_AT(struct oneshot_call, exec.fields.input), .shape = "\"type\":\"string\""},
    {FIELD_ROWS_AT(struct oneshot_call, exec.fields, struct exec_fields), .inner = exec_fields,
     .words = "timeout_seconds,stdin,lossless,background"},
    {FIELD_ROWS_AT(struct oneshot_call, sandbox.fields, struct sandbox_fields),
     .inner = sandbox_create_fields, .words = "timeout_seconds,env"},
    {0},
};

static int oneshot_parse(struct call *call, struct oneshot_call *oneshot_call, bool stream,
			 struct error *error)
{
	struct exec_fields *exec = &oneshot_call->exec.fields;
	struct sandbox_spec *spec = &oneshot_call->sandbox.fields.spec;
	if (call_fields(call, oneshot_call, error) < 0 ||
	    exec_fields_check(exec, FIELDS_REST, error) < 0 ||
	    create_fields_check(call, &oneshot_call->sandbox, error) < 0)
		return -1;
	if (stream && exec->stdin_kind == STDIN_GIVEN)
		return error_set(error, ERROR_INVALID,
				 "over a stream standard input comes in frames");
	if (stream && call_idempotency_key(call))
		return error_set(error, ERROR_INVALID, "an Idempotency-Key is not for streams");
	if (!stream && exec->stdin_kind == STDIN_OPEN)
		return error_set(error, ERROR_INVALID,
				 "`stdin: true` needs a sandbox that stays: create one");
	if (!stream && exec->spec.flags & EXEC_TTY)
		return error_set(error, ERROR_INVALID,
				 "`tty` needs a stream (Upgrade: %s), or a sandbox that stays",
				 EXEC_STREAM_PROTOCOL);
	if (!stream || exec->spec.timeout_ms > 0) {
		spec->timeout_seconds = oneshot_life(call->core, &exec->spec.timeout_ms);
		spec->timeout_set = true;
	}
	return 0;
}

static void oneshot_ran(void *data, const struct oneshot_result *result)
{
	struct oneshot_call *oneshot_call = data;
	struct json_writer *writer = &oneshot_call->writer;
	oneshot_call->sandbox_id = result->sandbox->row.id;
	oneshot_call->exec_id = result->exec->row.id;
	oneshot_call->answer = BUFFER(REPLY_MAX);
	*writer = json_writer_on(&oneshot_call->answer);
	put_object(writer, NULL);
	put_exec_result(writer, result->exec, oneshot_call->exec.fields.answer_max, result->left,
			result->left_count);
	put_text(writer, "isolation", tier_name((enum tier)result->sandbox->row.tier));
	put_text(writer, "boot_mode",
		 create_origin_facts(result->sandbox->row.create_origin)->name);
	put_object(writer, "timings");
	put_number(writer, "create_ms", (double)result->created_us / 1000.0);
	put_number(writer, "run_ms", (double)result->ran_us / 1000.0);
	put_object_end(writer);
	put_object_end(writer);
}

static void oneshot_done(void *data, const struct error *error)
{
	struct oneshot_call *oneshot_call = data;
	struct call *call = oneshot_call->exec.call;
	struct error failed;
	oneshot_call->exec.oneshot = NULL;
	if (!error && oneshot_call->exec.request &&
	    idempotency_record(oneshot_call->exec.request, &oneshot_call->sandbox_id,
			       &oneshot_call->exec_id, oneshot_call->answer.data,
			       oneshot_call->writer.full ? 0 : oneshot_call->answer.size,
			       &failed) < 0)
		error = &failed;
	idempotency_end(TAKE_PTR(oneshot_call->exec.request), !error);
	if (error)
		reply_error(call, error);
	else
		reply_json(call, 200, &oneshot_call->writer);
	call_release(call);
}

static void oneshot_gone(struct call *call)
{
	struct oneshot_call *oneshot_call = call->state;
	if (!oneshot_call->exec.oneshot)
		return;
	oneshot_cancel(TAKE_PTR(oneshot_call->exec.oneshot), NULL);
	call_release(call);
}

/* --- over a stream --- */

static void oneshot_stream_ready(void *data, struct sandbox *sandbox)
{
	struct oneshot_call *oneshot_call = data;
	struct call *call = oneshot_call->exec.call;
	exec_stream_begin(call, sandbox);
	call_release(call);
}

static void oneshot_stream_failed(void *data, const struct error *error)
{
	struct oneshot_call *oneshot_call = data;
	struct call *call = oneshot_call->exec.call;
	oneshot_call->exec.oneshot = NULL;
	reply_error(call, error);
	call_release(call);
}

static int oneshot_stream_start(struct call *call, struct oneshot_call *oneshot_call,
				struct error *error)
{
	static const struct oneshot_sandbox_callbacks callbacks = {.ready = oneshot_stream_ready,
								   .failed = oneshot_stream_failed};
	return oneshot_sandbox_start(call->core, &call->principal,
				     &oneshot_call->sandbox.fields.spec, &callbacks, oneshot_call,
				     &oneshot_call->exec.oneshot, error);
}

/* --- waited for --- */

/* The answer of the first request. Its sandbox and its output are gone, except the stored part of
 * the answer. */
static void oneshot_replay(struct call *call, struct request_row *row)
{
	struct error error;
	if (!row->answer) {
		error_set(&error, ERROR_SANDBOX_ENDED,
			  "the run with this Idempotency-Key is over (exec %s in sandbox %s); its "
			  "answer was larger than %d KiB and is not kept",
			  row->exec.text, row->sandbox.text, REQUEST_ANSWER_MAX / 1024);
		reply_error(call, &error);
		return;
	}
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	writer.full = buffer_append(&buffer, row->answer, row->answer_size) < 0;
	free(row->answer);
	reply_replayed(call, 200, &writer);
}

static int oneshot_call_start(struct call *call, struct oneshot_call *oneshot_call,
			      struct error *error)
{
	static const struct oneshot_callbacks callbacks = {.ran = oneshot_ran,
							   .done = oneshot_done};
	struct exec_fields *exec = &oneshot_call->exec.fields;
	return oneshot_start(call->core, &call->principal, &oneshot_call->sandbox.fields.spec,
			     &exec->spec, TAKE_PTR(exec->stdin_data), exec->stdin_size, &callbacks,
			     oneshot_call, &oneshot_call->exec.oneshot, error);
}

static void oneshot_post(struct call *call)
{
	bool stream = call_upgrades(call, EXEC_STREAM_PROTOCOL);
	struct request_row row = {0};
	struct error error;
	struct oneshot_call *oneshot_call = calloc(1, sizeof(*oneshot_call));
	if (!oneshot_call)
		abort();
	oneshot_call->exec.call = call;
	call->state = oneshot_call;
	call->state_free = oneshot_call_free;
	int found = oneshot_parse(call, oneshot_call, stream, &error);
	if (found == 0 && !stream)
		found = idempotent_begin(call, "run", "/v1/run", &oneshot_call->exec.request, &row,
					 &error);
	if (found > 0) {
		oneshot_replay(call, &row);
		return;
	}
	if (found < 0) {
		reply_error(call, &error);
		return;
	}
	call_hold(call);
	call->on_gone = oneshot_gone;
	int result = stream ? oneshot_stream_start(call, oneshot_call, &error)
			    : oneshot_call_start(call, oneshot_call, &error);
	if (result < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

const struct route oneshot_routes[] = {
    {"POST", "/v1/run", WRITE, ROUTE_UNBOUND | ROUTE_JSON, oneshot_post, .body = oneshot_fields},
    {0},
};
