/* /v1/sandboxes/{sandbox}/code and .../contexts: runs code in a fresh interpreter or in a context,
 * makes, lists, restarts, interrupts and deletes contexts; and .../repl, the same in another API's
 * names and shapes. Everything waits through callbacks of core/code/code.h. */
#include "api/code/code.h"

#include <stdlib.h>
#include <string.h>

#include "api/routes.h"
#include "api/exec/ask.h"
#include "base/clock.h"
#include "base/text.h"
#include "edge/json_pairs.h"

#define TIMEOUT_MAX_MS (24.0 * 3600 * 1000)
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

static void reply_cell(struct code_call *code, const struct code_context *context,
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

static void run_changed(void *data, struct code_context *context, const struct code_cell *cell)
{
	code_stream_changed(((struct call *)data)->state, context, cell);
}

static void run_done(void *data, struct code_context *context, const struct code_cell *cell,
		     const struct error *error)
{
	struct call *call = data;
	struct code_call *code = call->state;
	code->run = NULL;
	if (code->stream)
		code_stream_done(code, context, cell, error);
	else if (error)
		reply_error(call, error);
	else if (call->exchange)
		reply_cell(code, context, cell);
	call_release(call);
}

static void run_gone(struct call *call)
{
	struct code_call *code = call->state;
	code_stream_gone(code);
	if (!code->run)
		return;
	foreground_cell_abandon(TAKE_PTR(code->run));
	call_release(call);
}

static void run_act(struct call *call, struct sandbox *sandbox)
{
	struct code_call *code = call->state;
	struct code_context *context = NULL;
	struct error error;
	const struct code_callbacks callbacks = {code->stream ? run_changed : NULL, run_done,
						 call_hold(call)};
	code->spec.principal = &call->principal;
	if ((code->context[0] && code_context_find(sandbox, code->context, &context, &error) < 0) ||
	    foreground_cell_start(sandbox, context, &code->spec, &callbacks, &code->run, &error) <
		0) {
		code->run = NULL;
		reply_error(call, &error);
		call_release(call);
		return;
	}
	call->on_gone = run_gone;
	call->stream.on_drain = code_stream_drain;
}

/* --- what is asked for --- */

struct shape {
	const char *language, *code, *context, *cwd, *user;
	double timeout, timeout_ms;
	bool timeout_given, timeout_ms_given;
	json_t *environment;
	uint64_t output_max;
};

static int take_language(const char *name, enum code_language *ret_language, struct error *error)
{
	*ret_language = code_language_parse(name ? name : "python");
	if (!*ret_language)
		return error_set(error, ERROR_LANGUAGE_UNAVAILABLE,
				 "there is no language `%.40s`; there are python, node and bash",
				 name);
	return 0;
}

static int take_timeout(const struct shape *shape, uint32_t usual, struct code_spec *spec,
			struct error *error)
{
	double ms = shape->timeout_given ? shape->timeout * 1000 : shape->timeout_ms;
	if (shape->timeout_given && shape->timeout_ms_given)
		return error_set(error, ERROR_INVALID,
				 "give `timeout_seconds` or `timeout_ms`, not both");
	if (!shape->timeout_given && !shape->timeout_ms_given)
		ms = usual;
	if (ms > TIMEOUT_MAX_MS)
		return error_set(error, ERROR_INVALID, "field `timeout_seconds` must be 0 to %u",
				 (unsigned)(TIMEOUT_MAX_MS / 1000));
	/* At least 1, since 0 would mean none. */
	spec->timeout_ms = ms > 0 && ms < 1 ? 1 : (uint32_t)ms;
	return 0;
}

static int take_shape(struct code_call *code, const struct shape *shape, uint32_t usual_timeout,
		      struct error *error)
{
	struct code_spec *spec = &code->spec;
	bool own = shape->environment || shape->cwd || shape->user || shape->language;
	if (shape->context && text_copy(code->context, sizeof(code->context), shape->context) < 0)
		return error_set(
		    error, ERROR_ID_MALFORMED,
		    "that is not the id of a context, which is 16 characters a-z, 0-9");
	if (code->context[0] && own)
		return error_set(
		    error, ERROR_INVALID,
		    "a context has its own language, env, cwd and user: leave them out");
	if (take_language(shape->language, &spec->language, error) < 0 ||
	    take_timeout(shape, usual_timeout, spec, error) < 0 ||
	    json_environment("env", shape->environment, EXEC_REQUEST_BYTES_MAX / 2,
			     &code->environment, &spec->environment_count, error) < 0)
		return -1;
	spec->environment = code->environment;
	spec->code = shape->code ? shape->code : "";
	spec->size = strlen(spec->code);
	spec->cwd = shape->cwd;
	spec->user = shape->user;
	code->output_max = shape->output_max;
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

/* The body of every request that runs code; `context` is in it or in the path. */
static void run_post(struct call *call, enum code_form form, const char *context)
{
	struct code_call *code = code_call_new(call, form);
	struct shape shape = {.context = NULL, .output_max = CODE_OUTPUT_DEFAULT};
	struct error error;
	struct field_to fields[] = {
	    {"code", FIELD_TEXT, &shape.code, true, 0, CODE_SOURCE_MAX},
	    {"timeout_seconds", FIELD_NUMBER, &shape.timeout, .present = &shape.timeout_given},
	    {"timeout_ms", FIELD_NUMBER, &shape.timeout_ms, .present = &shape.timeout_ms_given},
	    {"max_output_bytes", FIELD_UINT, &shape.output_max, false, 1, CODE_OUTPUT_MAX},
	    {"language", FIELD_TEXT, &shape.language, false, 1, 20},
	    {"env", FIELD_OBJECT, &shape.environment},
	    {"cwd", FIELD_TEXT, &shape.cwd, false, 1, GUEST_PATH_MAX - 1},
	    {"user", FIELD_TEXT, &shape.user, false, 1, 63},
	    {"context", FIELD_TEXT, &shape.context, false, 1, ID_LENGTH},
	};
	/* In a context there are no further fields. */
	size_t count = context ? 4 : form == CODE_FORM_OWN ? ARRAY_SIZE(fields) : 8;
	uint32_t usual = form == CODE_FORM_OWN ? CODE_TIMEOUT_DEFAULT_MS : SESSION_TIMEOUT_MS;
	int result = json_fields(call->body, fields, count, FIELDS_REST, &error);
	if (context)
		shape.context = context;
	if (result < 0 || take_shape(code, &shape, usual, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	code->stream = form == CODE_FORM_OWN && call_accepts(call, "text/event-stream");
	call_ready(call, run_act);
}

static void code_post(struct call *call)
{
	run_post(call, CODE_FORM_OWN, NULL);
}

static void context_run(struct call *call)
{
	run_post(call, CODE_FORM_OWN, call->parameters[1]);
}

static void session_run(struct call *call)
{
	run_post(call, CODE_FORM_SESSION, call->parameters[1]);
}

static void repl_post(struct call *call)
{
	run_post(call, CODE_FORM_ONCE, NULL);
}

/* --- contexts --- */

static void reply_context(struct call *call, int status, const struct code_context *context)
{
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_context(&writer, NULL, context);
	reply_json(call, status, &writer);
}

static void created(void *data, struct code_context *context, const struct error *error)
{
	struct call *call = data;
	const struct code_call *code = call->state;
	if (error)
		reply_error(call, error);
	else if (call->exchange)
		reply_context(call, code ? 201 : 200, context);
	else if (code)
		code_context_delete(context, &call->principal); /* nobody knows its id */
	call_release(call);
}

static void create_act(struct call *call, struct sandbox *sandbox)
{
	struct code_call *code = call->state;
	struct error error;
	code->spec.principal = &call->principal;
	if (code_context_create(sandbox, &code->spec, created, call_hold(call), &error) == 0)
		return;
	reply_error(call, &error);
	call_release(call);
}

static void context_post(struct call *call)
{
	struct code_call *code = code_call_new(call, CODE_FORM_OWN);
	struct shape shape = {.output_max = CODE_OUTPUT_DEFAULT};
	struct error error;
	struct field_to fields[] = {
	    {"language", FIELD_TEXT, &shape.language, false, 1, 20},
	    {"env", FIELD_OBJECT, &shape.environment},
	    {"cwd", FIELD_TEXT, &shape.cwd, false, 1, GUEST_PATH_MAX - 1},
	    {"user", FIELD_TEXT, &shape.user, false, 1, 63},
	};
	if (json_fields(call->body, fields, ARRAY_SIZE(fields), FIELDS_REST, &error) < 0 ||
	    take_shape(code, &shape, 0, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	call_ready(call, create_act);
}

/* The context of this call, or NULL after an error reply. */
static struct code_context *find(struct call *call)
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
static void list(struct call *call, bool bare)
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
	list(call, false);
}

static void sessions_get(struct call *call)
{
	list(call, true);
}

static void context_get(struct call *call)
{
	struct code_context *context = find(call);
	if (context)
		reply_context(call, 200, context);
}

static void context_delete(struct call *call)
{
	struct code_context *context = find(call);
	if (!context)
		return;
	code_context_delete(context, &call->principal);
	reply_empty(call, 204);
}

static void cell_get(struct call *call)
{
	struct code_context *context = find(call);
	const struct code_cell *cell;
	struct error error;
	uint64_t maximum = CODE_OUTPUT_DEFAULT;
	if (!context)
		return;
	uint64_t number = context->row.cells;
	if (query_uint(call, "number", 1, INT64_MAX, &number, &error) < 0 ||
	    query_uint(call, "max_output_bytes", 1, CODE_OUTPUT_MAX, &maximum, &error) < 0 ||
	    code_cell_find(context, number, &cell, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	struct code_call code = {.output_max = maximum};
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_own(&writer, &code, context, cell);
	reply_json(call, 200, &writer);
}

static void interrupt_act(struct call *call, struct sandbox *sandbox)
{
	(void)sandbox;
	struct code_context *context = find(call);
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

static int nothing_asked(struct call *call)
{
	struct error error;
	if (json_fields(call->body, NULL, 0, FIELDS_REST, &error) == 0)
		return 0;
	reply_error(call, &error);
	return -1;
}

static void interrupt_post(struct call *call)
{
	if (nothing_asked(call) == 0)
		call_ready(call, interrupt_act);
}

static void restart_act(struct call *call, struct sandbox *sandbox)
{
	struct error error;
	(void)sandbox;
	struct code_context *context = find(call);
	if (!context)
		return;
	if (code_context_restart(context, &call->principal, created, call_hold(call), &error) == 0)
		return;
	reply_error(call, &error);
	call_release(call);
}

static void restart_post(struct call *call)
{
	if (nothing_asked(call) == 0)
		call_ready(call, restart_act);
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
    {"POST", SB "/code", WRITE, ROUTE_SANDBOX | ROUTE_JSON, code_post, NULL, BODY_MAX},
    {"POST", SB "/contexts", WRITE, ROUTE_SANDBOX | ROUTE_JSON, context_post, NULL, 0},
    {"GET", SB "/contexts", READ, ROUTE_SANDBOX, contexts_get, NULL, 0},
    {"GET", CONTEXT, READ, ROUTE_SANDBOX, context_get, NULL, 0},
    {"DELETE", CONTEXT, WRITE, ROUTE_SANDBOX, context_delete, NULL, 0},
    {"POST", CONTEXT "/run", WRITE, ROUTE_SANDBOX | ROUTE_JSON, context_run, NULL, BODY_MAX},
    {"GET", CONTEXT "/cell", READ, ROUTE_SANDBOX, cell_get, "number,max_output_bytes", 0},
    {"POST", CONTEXT "/interrupt", WRITE, ROUTE_SANDBOX | ROUTE_JSON, interrupt_post, NULL, 0},
    {"POST", CONTEXT "/restart", WRITE, ROUTE_SANDBOX | ROUTE_JSON, restart_post, NULL, 0},
    {"POST", SB "/repl", WRITE, ROUTE_SANDBOX | ROUTE_JSON, repl_post, NULL, BODY_MAX},
    {"POST", SB "/repl/sessions", WRITE, ROUTE_SANDBOX | ROUTE_JSON, context_post, NULL, 0},
    {"GET", SB "/repl/sessions", READ, ROUTE_SANDBOX, sessions_get, NULL, 0},
    {"DELETE", SESSION, WRITE, ROUTE_SANDBOX, context_delete, NULL, 0},
    {"POST", SESSION "/run", WRITE, ROUTE_SANDBOX | ROUTE_JSON, session_run, NULL, BODY_MAX},
    {"GET", "/v1/repl/languages", READ, 0, languages_get, NULL, 0},
    {0},
};
