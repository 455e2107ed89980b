/* /v1/sandboxes/{sandbox}/code and .../contexts: runs code in a fresh interpreter or in a context,
 * makes, lists, restarts, interrupts and deletes contexts; and .../repl, the same in another API's
 * names and shapes. Everything waits through callbacks of core/code/code.h. */
#include "api/code/code.h"

#include <stdlib.h>
#include <string.h>

#include "api/routes.h"
#include "api/exec/record.h"
#include "base/clock.h"
#include "base/text.h"
#include "edge/fields/exec_fields.h"
#include "edge/json/json_pairs.h"

#define SESSION_TIMEOUT_MS 30000u
#define BODY_MAX (4 * 1024 * 1024) /* code of CODE_SOURCE_MAX, escaped */

/* --- run --- */

static void code_free(void *state)
{
	struct code_call *code = state;
	for (size_t i = 0; i < code->event_count; i++)
		buffer_done(&code->events[i].json);
	free(code->environment);
	free(code);
}

static void put_own(struct json_writer *writer, const struct code_call *code,
		    const struct code_context *context, const struct code_cell *cell)
{
	put_object(writer, NULL);
	put_cell(writer, context, cell, true);
	put_cell_output(writer, context, cell, code->output_max, false);
	put_expiry_warning(writer, &context->sandbox->row);
	put_object_end(writer);
}

static void put_session(struct json_writer *writer, const struct code_call *code,
			const struct code_context *context, const struct code_cell *cell)
{
	put_object(writer, NULL);
	if (code->form == CODE_FORM_ONCE)
		put_text(writer, "language", code_language_name(context->row.language));
	put_cell_output(writer, context, cell, code->output_max, true);
	put_int(writer, "exit", cell->exit_code);
	put_int(writer, "exit_code", cell->exit_code);
	put_cell_results(writer, context, cell);
	put_cell_error_text(writer, "error", context, cell);
	put_bool(writer, "timed_out", cell->timed_out);
	put_number(writer, "duration_ms", (double)cell->duration_ns / NSEC_PER_MSEC);
	put_object_end(writer);
}

static void cell_reply(struct code_call *code, const struct code_context *context,
		       const struct code_cell *cell)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	if (code->form == CODE_FORM_OWN)
		put_own(&writer, code, context, cell);
	else
		put_session(&writer, code, context, cell);
	reply_json(code->call, 200, &writer);
}

static void code_cell_changed(void *data, struct code_context *context,
			      const struct code_cell *cell)
{
	code_stream_changed(((struct call *)data)->state, context, cell);
}

static void code_cell_done(void *data, struct code_context *context, const struct code_cell *cell,
			   const struct error *error)
{
	struct call *call = data;
	struct code_call *code = call->state;
	code->cell = NULL;
	if (code->stream)
		code_stream_done(code, context, cell, error);
	else if (error)
		reply_error(call, error);
	else if (call->exchange)
		cell_reply(code, context, cell);
	call_release(call);
}

static void cell_gone(struct call *call)
{
	struct code_call *code = call->state;
	code_stream_gone(code);
	if (!code->cell)
		return;
	foreground_cell_abandon(TAKE_PTR(code->cell));
	call_release(call);
}

static void code_cell_act(struct call *call, struct sandbox *sandbox)
{
	struct code_call *code = call->state;
	struct code_context *context = NULL;
	struct error error;
	const struct code_callbacks callbacks = {code->stream ? code_cell_changed : NULL,
						 code_cell_done, call_hold(call)};
	code->spec.principal = &call->principal;
	if ((code->context[0] && code_context_find(sandbox, code->context, &context, &error) < 0) ||
	    foreground_cell_start(sandbox, context, &code->spec, &callbacks, &code->cell, &error) <
		0) {
		code->cell = NULL;
		reply_error(call, &error);
		call_release(call);
		return;
	}
	call->on_gone = cell_gone;
	call->stream.on_drain = code_stream_drain;
}

/* --- what is asked for --- */

static int code_fields_check(struct code_call *code, uint32_t usual_timeout, struct error *error)
{
	struct code_spec *spec = &code->spec;
	struct code_fields *fields = &code->fields;
	bool own = fields->environment || spec->cwd || spec->user || fields->language;
	if (fields->context && text_copy(code->context, sizeof(code->context), fields->context) < 0)
		return error_set(
		    error, ERROR_ID_MALFORMED,
		    "that is not the id of a context, which is 16 characters a-z, 0-9");
	if (code->context[0] && own)
		return error_set(
		    error, ERROR_INVALID,
		    "a context has its own language, env, cwd and user: leave them out");
	spec->language = code_language_parse(fields->language ? fields->language : "python");
	if (!spec->language)
		return error_set(error, ERROR_LANGUAGE_UNAVAILABLE,
				 "there is no language `%.40s`; there are python, node and bash",
				 fields->language);
	if (fields->timeout_given && fields->timeout_ms_given)
		return error_set(error, ERROR_INVALID,
				 "give `timeout_seconds` or `timeout_ms`, not both");
	if (!fields->timeout_given && !fields->timeout_ms_given)
		fields->timeout_ms = usual_timeout;
	if (exec_timeout_check(fields->timeout, fields->timeout_ms, CODE_TIMEOUT_MAX * 1000,
			       FIELDS_REST, &spec->timeout_ms, error) < 0 ||
	    json_environment("env", fields->environment, EXEC_REQUEST_BYTES_MAX / 2,
			     &code->environment, &spec->environment_count, error) < 0)
		return -1;
	spec->environment = code->environment;
	spec->code = spec->code ? spec->code : "";
	spec->size = strlen(spec->code);
	return 0;
}

static struct code_call *code_call_new(struct call *call, enum code_form form)
{
	struct code_call *code = calloc(1, sizeof(*code));
	if (!code)
		abort();
	code->call = call;
	code->form = form;
	call->state = code;
	call->state_free = code_free;
	return code;
}

#define AT(kind, member) FIELD_##kind##_AT(struct code_call, member)
#define OF(member) FIELD_GIVEN(struct code_call, member)

static const struct field context_fields[] = {
    {"language", AT(TEXT, fields.language), .min = 1, .max = 20,
     .rest = "`python` (also `py`, `python3`), `node` (`js`, `javascript`, `nodejs`) or `bash` "
	     "(`sh`, `shell`). Default: python."},
    {"env", AT(PAIRS, fields.environment)},
    {"cwd", AT(TEXT, spec.cwd), .min = 1, .max = GUEST_PATH_MAX - 1,
     .rest = "Default: /workspace, where a relative one begins too. `~` is the home of `user`."},
    {"user", AT(TEXT, spec.user), .min = 1, .max = 63,
     .rest = "A name, `name:group`, or numbers. Default: root of the sandbox."},
    {0},
};

/* In a context there are no further fields. */
static const struct field cell_fields[] = {
    {"code", AT(TEXT, spec.code), FIELD_REQUIRED, .max = CODE_SOURCE_MAX,
     .rest = "At most 1 MiB of UTF-8."},
    {"timeout_seconds", AT(NUMBER, fields.timeout), .max = CODE_TIMEOUT_MAX,
     .given = OF(fields.timeout_given),
     .rest = "0: none. Default: 300; of the compatible routes 30."},
    {"timeout_ms", AT(NUMBER, fields.timeout_ms), .max = CODE_TIMEOUT_MAX * 1000,
     .given = OF(fields.timeout_ms_given), .rest = "The same; give one of the two."},
    {"max_output_bytes", AT(UINT, output_max), .min = 1, .max = CODE_OUTPUT_MAX,
     .fallback = CODE_OUTPUT_DEFAULT,
     .rest = "Of each stream, in the answer; the rest is in the middle and can be had by offset "
	     "from …/execs/{exec_id}/output. Default: 1048576."},
    {0},
};

/* A table within a table fills the struct itself. */
#define ROWS(rows)                                                                                 \
	{                                                                                          \
		"", FIELD_ROWS, .inner = rows                                                      \
	}
static const struct field repl_fields[] = {ROWS(cell_fields), ROWS(context_fields), {0}};

static const struct field code_fields[] = {
    ROWS(cell_fields),
    ROWS(context_fields),
    {"context", AT(TEXT, fields.context), .min = 1, .max = ID_LENGTH,
     .rest = "Run it in this context; language, env, cwd and user are the context's then."},
    {0},
};

/* `context` is in the body or in the path. */
static void cell_post(struct call *call, enum code_form form, const char *context)
{
	struct code_call *code = code_call_new(call, form);
	struct error error;
	uint32_t usual = form == CODE_FORM_OWN ? CODE_TIMEOUT_DEFAULT_MS : SESSION_TIMEOUT_MS;
	int result = call_fields(call, code, &error);
	if (context)
		code->fields.context = context;
	if (result < 0 || code_fields_check(code, usual, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	code->stream = form == CODE_FORM_OWN && call_accepts(call, "text/event-stream");
	call_ready(call, code_cell_act);
}

static void code_post(struct call *call)
{
	cell_post(call, CODE_FORM_OWN, NULL);
}

static void context_cell_post(struct call *call)
{
	cell_post(call, CODE_FORM_OWN, call->parameters[1]);
}

static void session_cell_post(struct call *call)
{
	cell_post(call, CODE_FORM_SESSION, call->parameters[1]);
}

static void repl_post(struct call *call)
{
	cell_post(call, CODE_FORM_ONCE, NULL);
}

/* --- contexts --- */

static void context_reply(struct call *call, int status, const struct code_context *context)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_context(&writer, NULL, context);
	reply_json(call, status, &writer);
}

static void context_created(void *data, struct code_context *context, const struct error *error)
{
	struct call *call = data;
	const struct code_call *code = call->state;
	if (error)
		reply_error(call, error);
	else if (call->exchange)
		context_reply(call, code ? 201 : 200, context);
	else if (code)
		code_context_delete(context, &call->principal); /* nobody knows its id */
	call_release(call);
}

static void context_create_act(struct call *call, struct sandbox *sandbox)
{
	struct code_call *code = call->state;
	struct error error;
	code->spec.principal = &call->principal;
	if (code_context_create(sandbox, &code->spec, context_created, call_hold(call), &error) ==
	    0)
		return;
	reply_error(call, &error);
	call_release(call);
}

static void context_post(struct call *call)
{
	struct code_call *code = code_call_new(call, CODE_FORM_OWN);
	struct error error;
	if (call_fields(call, code, &error) < 0 || code_fields_check(code, 0, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	call_ready(call, context_create_act);
}

/* The context of this call, or NULL after an error reply. */
static struct code_context *context_find(struct call *call)
{
	struct code_context *context;
	struct error error;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return NULL;
	if (code_context_find(sandbox, call->parameters[1], &context, &error) == 0)
		return context;
	reply_error(call, &error);
	return NULL;
}

/* A list: an object of ours, or a bare array. */
static void contexts_list(struct call *call, bool bare)
{
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	if (!bare)
		put_object(&writer, NULL);
	put_array(&writer, bare ? NULL : "contexts");
	for (struct code_context *context = code_context_next(sandbox, NULL); context;
	     context = code_context_next(sandbox, context))
		if (!bare || code_context_alive(context))
			put_context(&writer, NULL, context);
	put_array_end(&writer);
	if (!bare)
		put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static void contexts_get(struct call *call)
{
	contexts_list(call, false);
}

static void sessions_get(struct call *call)
{
	contexts_list(call, true);
}

static void context_get(struct call *call)
{
	struct code_context *context = context_find(call);
	if (context)
		context_reply(call, 200, context);
}

static void context_delete(struct call *call)
{
	struct code_context *context = context_find(call);
	if (!context)
		return;
	code_context_delete(context, &call->principal);
	reply_empty(call, 204);
}

struct cell_query {
	uint64_t number, output_max;
};

static const struct field cell_query[] = {
    {"number", FIELD_UINT_AT(struct cell_query, number), .min = 1, .max = INT64_MAX},
    {"max_output_bytes", FIELD_UINT_AT(struct cell_query, output_max), .min = 1,
     .max = CODE_OUTPUT_MAX, .fallback = CODE_OUTPUT_DEFAULT},
    {0},
};

static void cell_get(struct call *call)
{
	struct code_context *context = context_find(call);
	const struct code_cell *cell;
	struct error error;
	if (!context)
		return;
	struct cell_query query = {.number = context->row.cells};
	if (call_query(call, &query, &error) < 0 ||
	    code_cell_find(context, query.number, &cell, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct code_call code = {.output_max = query.output_max};
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_own(&writer, &code, context, cell);
	reply_json(call, 200, &writer);
}

static void context_interrupt_act(struct call *call, struct sandbox *sandbox)
{
	(void)sandbox;
	struct code_context *context = context_find(call);
	if (!context)
		return;
	bool interrupted = code_context_interrupt(context);
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "context_id", context->row.id.text);
	put_bool(&writer, "interrupted", interrupted);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

static const struct field nothing_fields[] = {{0}};

static int body_check_empty(struct call *call)
{
	struct error error;
	if (call_fields(call, NULL, &error) == 0)
		return 0;
	reply_error(call, &error);
	return -1;
}

static void interrupt_post(struct call *call)
{
	if (body_check_empty(call) == 0)
		call_ready(call, context_interrupt_act);
}

static void context_restart_act(struct call *call, struct sandbox *sandbox)
{
	struct error error;
	(void)sandbox;
	struct code_context *context = context_find(call);
	if (!context)
		return;
	if (code_context_restart(context, &call->principal, context_created, call_hold(call),
				 &error) == 0)
		return;
	reply_error(call, &error);
	call_release(call);
}

static void restart_post(struct call *call)
{
	if (body_check_empty(call) == 0)
		call_ready(call, context_restart_act);
}

static void languages_get(struct call *call)
{
	struct buffer buffer = BUFFER(4 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_array(&writer, "languages");
	for (uint32_t i = 1; i <= CODE_LANGUAGE_COUNT; i++)
		put_text(&writer, NULL, code_language_name(i));
	put_array_end(&writer);
	put_object_end(&writer);
	reply_json(call, 200, &writer);
}

#define CONTEXT SB "/contexts/{context}"
#define SESSION SB "/repl/sessions/{context}"

const struct route code_routes[] = {
    {"POST", SB "/code", WRITE, ROUTE_SANDBOX | ROUTE_JSON, code_post, NULL, BODY_MAX, code_fields},
    {"POST", SB "/contexts", WRITE, ROUTE_SANDBOX | ROUTE_JSON, context_post, NULL, 0,
     context_fields},
    {"GET", SB "/contexts", READ, ROUTE_SANDBOX, contexts_get, NULL, 0},
    {"GET", CONTEXT, READ, ROUTE_SANDBOX, context_get, NULL, 0},
    {"DELETE", CONTEXT, WRITE, ROUTE_SANDBOX, context_delete, NULL, 0},
    {"POST", CONTEXT "/run", WRITE, ROUTE_SANDBOX | ROUTE_JSON, context_cell_post, NULL, BODY_MAX,
     cell_fields},
    {"GET", CONTEXT "/cell", READ, ROUTE_SANDBOX, cell_get, cell_query},
    {"POST", CONTEXT "/interrupt", WRITE, ROUTE_SANDBOX | ROUTE_JSON, interrupt_post, NULL, 0,
     nothing_fields},
    {"POST", CONTEXT "/restart", WRITE, ROUTE_SANDBOX | ROUTE_JSON, restart_post, NULL, 0,
     nothing_fields},
    {"POST", SB "/repl", WRITE, ROUTE_SANDBOX | ROUTE_JSON, repl_post, NULL, BODY_MAX, repl_fields},
    {"POST", SB "/repl/sessions", WRITE, ROUTE_SANDBOX | ROUTE_JSON, context_post, NULL, 0,
     context_fields},
    {"GET", SB "/repl/sessions", READ, ROUTE_SANDBOX, sessions_get, NULL, 0},
    {"DELETE", SESSION, WRITE, ROUTE_SANDBOX, context_delete, NULL, 0},
    {"POST", SESSION "/run", WRITE, ROUTE_SANDBOX | ROUTE_JSON, session_cell_post, NULL, BODY_MAX,
     cell_fields},
    {"GET", "/v1/repl/languages", READ, 0, languages_get, NULL, 0},
    {0},
};
