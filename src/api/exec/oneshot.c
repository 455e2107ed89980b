/* POST /v1/run: creates a sandbox, runs one command in it, removes the sandbox and answers with the
 * result. The run ends when the client disconnects. Runs on the loop; everything waits through
 * callbacks. */
#include <stdlib.h>

#include "api/exec/record.h"
#include "api/routes.h"
#include "api/sandbox/create_fields.h"
#include "core/exec/oneshot.h"
#include "edge/fields/exec_fields.h"
#include "edge/idempotency.h"
#include "proto/tiers.h"

struct oneshot_call {
	struct call *call; /* held by the oneshot's callback */
	struct exec_fields exec;
	struct create_fields sandbox;
	struct idempotent *request;
	struct oneshot *oneshot;
	struct buffer answer;
	struct json_writer writer;
	struct id sandbox_id, exec_id;
};

static void oneshot_call_free(void *state)
{
	struct oneshot_call *oneshot_call = state;
	exec_fields_done(&oneshot_call->exec);
	sandbox_fields_done(&oneshot_call->sandbox.fields);
	idempotency_end(oneshot_call->request, false);
	buffer_done(&oneshot_call->answer);
	free(oneshot_call);
}

/* `timeout_seconds` is the command's: its sandbox lives a little longer. */
static const struct field oneshot_fields[] = {
    {"timeout_seconds", FIELD_NUMBER_AT(struct oneshot_call, exec.timeout_seconds),
     .max = EXEC_TIMEOUT_MAX,
     .rest = "Of the command; 600 unless said. Its sandbox lives a little longer."},
    {"stdin", FIELD_ANY_AT(struct oneshot_call, exec.input), .shape = "\"type\":\"string\""},
    {FIELD_ROWS_AT(struct oneshot_call, exec, struct exec_fields), .inner = exec_fields,
     .words = "timeout_seconds,stdin,tty,rows,cols,lossless,background"},
    {FIELD_ROWS_AT(struct oneshot_call, sandbox.fields, struct sandbox_fields),
     .inner = sandbox_create_fields, .words = "timeout_seconds,env"},
    {0},
};

static int oneshot_parse(struct call *call, struct oneshot_call *oneshot_call, struct error *error)
{
	if (call_fields(call, oneshot_call, error) < 0 ||
	    exec_fields_check(&oneshot_call->exec, FIELDS_REST, error) < 0 ||
	    create_fields_check(call, &oneshot_call->sandbox, error) < 0)
		return -1;
	if (oneshot_call->exec.stdin_kind == STDIN_OPEN)
		return error_set(error, ERROR_INVALID,
				 "`stdin: true` needs a sandbox that stays: create one");
	struct sandbox_spec *spec = &oneshot_call->sandbox.fields.spec;
	spec->timeout_seconds = oneshot_life(call->core, &oneshot_call->exec.spec.timeout_ms);
	spec->timeout_set = true;
	return 0;
}

/* The sandbox still exists: the answer is written now and sent after the removal. */
static void oneshot_ran(void *data, const struct oneshot_result *result)
{
	struct oneshot_call *oneshot_call = data;
	struct json_writer *writer = &oneshot_call->writer;
	oneshot_call->sandbox_id = result->sandbox->row.id;
	oneshot_call->exec_id = result->exec->row.id;
	oneshot_call->answer = BUFFER(REPLY_MAX);
	*writer = json_writer_on(&oneshot_call->answer);
	put_object(writer, NULL);
	put_exec_result(writer, result->exec, oneshot_call->exec.answer_max, result->left,
			result->left_count);
	put_text(writer, "isolation", tier_name((enum tier)result->sandbox->row.tier));
	put_text(writer, "boot_mode", boot_mode_name(result->sandbox->row.boot_origin));
	put_object(writer, "timings");
	put_number(writer, "create_ms", (double)result->created_us / 1000.0);
	put_number(writer, "run_ms", (double)result->ran_us / 1000.0);
	put_object_end(writer);
	put_object_end(writer);
}

static void oneshot_done(void *data, const struct error *error)
{
	struct oneshot_call *oneshot_call = data;
	struct call *call = oneshot_call->call;
	struct error failed;
	oneshot_call->oneshot = NULL;
	if (!error && oneshot_call->request &&
	    idempotency_record(oneshot_call->request, &oneshot_call->sandbox_id,
			       &oneshot_call->exec_id, oneshot_call->answer.data,
			       oneshot_call->writer.full ? 0 : oneshot_call->answer.size,
			       &failed) < 0)
		error = &failed;
	idempotency_end(TAKE_PTR(oneshot_call->request), !error);
	if (error)
		reply_error(call, error);
	else
		reply_json(call, 200, &oneshot_call->writer);
	call_release(call);
}

static void oneshot_gone(struct call *call)
{
	struct oneshot_call *oneshot_call = call->state;
	if (!oneshot_call->oneshot)
		return;
	oneshot_cancel(TAKE_PTR(oneshot_call->oneshot), NULL);
	call_release(call);
}

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

static void oneshot_post(struct call *call)
{
	static const struct oneshot_callbacks callbacks = {.ran = oneshot_ran,
							   .done = oneshot_done};
	struct request_row row = {0};
	struct error error;
	struct oneshot_call *oneshot_call = calloc(1, sizeof(*oneshot_call));
	if (!oneshot_call)
		abort();
	oneshot_call->call = call;
	call->state = oneshot_call;
	call->state_free = oneshot_call_free;
	int found =
	    oneshot_parse(call, oneshot_call, &error) < 0
		? -1
		: idempotent_begin(call, "run", "/v1/run", &oneshot_call->request, &row, &error);
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
	if (oneshot_start(call->core, &call->principal, &oneshot_call->sandbox.fields.spec,
			  &oneshot_call->exec.spec, TAKE_PTR(oneshot_call->exec.stdin_data),
			  oneshot_call->exec.stdin_size, &callbacks, oneshot_call,
			  &oneshot_call->oneshot, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

const struct route oneshot_routes[] = {
    {"POST", "/v1/run", WRITE, ROUTE_UNBOUND | ROUTE_JSON, oneshot_post, .body = oneshot_fields},
    {0},
};
