/* POST /v1/run: creates a sandbox, runs one command in it, removes the sandbox and answers with the
 * result. The run ends when the client disconnects. Runs on the loop; everything waits through
 * callbacks. */
#include <stdlib.h>

#include "api/exec/record.h"
#include "api/routes.h"
#include "api/sandbox/ask.h"
#include "core/exec/oneshot.h"
#include "edge/exec_fields.h"
#include "edge/idempotency.h"
#include "proto/tiers.h"

struct one_run {
	struct call *call; /* held by the oneshot's callback */
	struct exec_fields exec;
	struct sandbox_ask sandbox;
	struct idempotent *request;
	struct oneshot *oneshot;
	struct buffer answer;
	struct json_writer writer;
	struct id sandbox_id, exec_id;
};

static void run_free(void *state)
{
	struct one_run *run = state;
	exec_fields_done(&run->exec);
	sandbox_ask_done(&run->sandbox);
	idempotency_end(run->request, false);
	buffer_done(&run->answer);
	free(run);
}

/* `timeout_seconds` is the command's: its sandbox lives a little longer. */
static const struct field run_fields[] = {
    {"timeout_seconds", FIELD_NUMBER_AT(struct one_run, exec.timeout_seconds),
     .max = EXEC_TIMEOUT_MAX,
     .rest = "Of the command; 600 unless said. Its sandbox lives a little longer."},
    {"stdin", FIELD_ANY_AT(struct one_run, exec.input), .shape = "\"type\":\"string\""},
    {FIELD_ROWS_AT(struct one_run, exec, struct exec_fields), .inner = exec_fields,
     .words = "timeout_seconds,stdin,tty,rows,cols,lossless,background"},
    {FIELD_ROWS_AT(struct one_run, sandbox.fields, struct sandbox_fields),
     .inner = sandbox_create_fields, .words = "timeout_seconds,env"},
    {0},
};

static int run_parse(struct call *call, struct one_run *run, struct error *error)
{
	if (call_fields(call, run, error) < 0 ||
	    exec_fields_check(&run->exec, FIELDS_REST, error) < 0 ||
	    sandbox_ask_check(call, &run->sandbox, error) < 0)
		return -1;
	if (run->exec.stdin_kind == STDIN_OPEN)
		return error_set(error, ERROR_INVALID,
				 "`stdin: true` needs a sandbox that stays: create one");
	struct sandbox_spec *spec = &run->sandbox.fields.spec;
	spec->timeout_seconds = oneshot_life(call->core, &run->exec.spec.timeout_ms);
	spec->timeout_set = true;
	return 0;
}

/* The sandbox still exists: the answer is written now and sent after the removal. */
static void ran(void *data, const struct oneshot_result *result)
{
	struct one_run *run = data;
	struct json_writer *writer = &run->writer;
	run->sandbox_id = result->sandbox->row.id;
	run->exec_id = result->exec->row.id;
	run->answer = BUFFER(REPLY_MAX);
	*writer = json_writer_on(&run->answer);
	put_object(writer, NULL);
	put_exec_members(writer, &result->exec->row);
	put_exec_output(writer, result->exec, run->exec.answer_max);
	put_left_running(writer, result->left, result->left_count);
	put_text(writer, "isolation", tier_name((enum tier)result->sandbox->row.tier));
	put_text(writer, "boot_mode", boot_mode_name(result->sandbox->row.boot_origin));
	put_object(writer, "timings");
	put_number(writer, "create_ms", (double)result->created_us / 1000.0);
	put_number(writer, "run_ms", (double)result->ran_us / 1000.0);
	put_object_end(writer);
	put_object_end(writer);
}

static void done(void *data, const struct error *error)
{
	struct one_run *run = data;
	struct call *call = run->call;
	struct error failed;
	run->oneshot = NULL;
	if (!error && run->request &&
	    idempotency_record(run->request, &run->sandbox_id, &run->exec_id, run->answer.data,
			       run->writer.full ? 0 : run->answer.size, &failed) < 0)
		error = &failed;
	idempotency_end(TAKE_PTR(run->request), !error);
	if (error)
		reply_error(call, error);
	else
		reply_json(call, 200, &run->writer);
	call_release(call);
}

static void gone(struct call *call)
{
	struct one_run *run = call->state;
	if (!run->oneshot)
		return;
	oneshot_cancel(TAKE_PTR(run->oneshot), NULL);
	call_release(call);
}

/* The answer of the first request. Its sandbox and its output are gone, except the stored part of
 * the answer. */
static void replay(struct call *call, struct request_row *row)
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

static void run_post(struct call *call)
{
	static const struct oneshot_callbacks callbacks = {.ran = ran, .done = done};
	struct request_row row = {0};
	struct error error;
	struct one_run *run = calloc(1, sizeof(*run));
	if (!run)
		abort();
	run->call = call;
	call->state = run;
	call->state_free = run_free;
	int found = run_parse(call, run, &error) < 0
			? -1
			: idempotent_begin(call, "run", "/v1/run", &run->request, &row, &error);
	if (found > 0) {
		replay(call, &row);
		return;
	}
	if (found < 0) {
		reply_error(call, &error);
		return;
	}
	call_hold(call);
	call->on_gone = gone;
	if (oneshot_start(call->core, &call->principal, &run->sandbox.fields.spec, &run->exec.spec,
			  TAKE_PTR(run->exec.stdin_data), run->exec.stdin_size, &callbacks, run,
			  &run->oneshot, &error) < 0) {
		reply_error(call, &error);
		call_release(call);
	}
}

const struct route run_routes[] = {
    {"POST", "/v1/run", WRITE, ROUTE_UNBOUND | ROUTE_JSON, run_post, .body = run_fields},
    {0},
};
