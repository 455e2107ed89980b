/* A piece of code as events while it runs: stdout, stderr, result, error, end. Output is pulled
 * from the exec's log by offset, as fast as the client reads; later events wait until it is sent.
 * Called by code.c; never blocks. */
#include <stdlib.h>

#include "api/code/code.h"
#include "api/exec/events.h"
#include "api/exec/record.h"
#include "edge/sse.h"

static void code_stream_emit(struct code_call *code, const char *name, const struct buffer *json)
{
	if (code->call->exchange)
		code->blocked = !sse_event(code->sse, name, json);
}

static void code_stream_send_piece(struct exec_follower *follower, enum exec_stream stream,
				   const char *data, size_t size)
{
	DONE_BUFFER struct buffer buffer = BUFFER(EVENT_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_piece_event(&writer, data, size, follower->sent[stream - 1]);
	code_stream_emit(container_of(follower, struct code_call, follower), stream_name(stream),
			 &buffer);
}

static void code_stream_send_gap(struct exec_follower *follower, enum exec_stream stream,
				 uint64_t gap)
{
	DONE_BUFFER struct buffer buffer = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_gap_event(&writer, stream, follower->sent[stream - 1], gap);
	code_stream_emit(container_of(follower, struct code_call, follower), "gap", &buffer);
}

/* The cell decides when to read and how far: `running`, `ended` and `failed` are not needed. */
static const struct exec_emitter code_emitter = {.piece_max = EVENT_PIECE_MAX,
						 .characters = true,
						 .piece = code_stream_send_piece,
						 .gap = code_stream_send_gap};

static bool code_stream_pull(struct code_call *code, enum exec_stream stream)
{
	uint64_t end =
	    code->ended ? code->end[stream - 1] : exec_total(code->follower.exec, stream);
	return !code->blocked && code->call->exchange &&
	       exec_follower_pull(&code->follower, stream, end, code->ended);
}

static void code_stream_pump(struct code_call *code)
{
	struct call *call = code->call;
	struct sandbox *sandbox = sandbox_by_id(call->core, &call->sandbox);
	struct error error;
	bool more = sandbox && id_is_set(&code->exec) &&
		    exec_find(sandbox, code->exec.text, &code->follower.exec, &error) == 0;
	while (more) {
		more = code_stream_pull(code, EXEC_STDOUT);
		more |= code_stream_pull(code, EXEC_STDERR);
	}
	if (!code->ended)
		return;
	while (!code->blocked && call->exchange && code->event_at < code->event_count) {
		struct code_event *event = &code->events[code->event_at++];
		code_stream_emit(code, event->name, &event->json);
	}
	if (call->exchange && code->event_at == code->event_count && !code->blocked) {
		sse_end(TAKE_PTR(code->sse));
		call_answered(call);
	}
}

static struct buffer *code_stream_add_event(struct code_call *code, const char *name)
{
	struct code_event *event = &code->events[code->event_count++];
	event->name = name;
	event->json = BUFFER(REPLY_MAX);
	return &event->json;
}

static void code_stream_begin(struct code_call *code, const struct code_context *context,
			      const struct code_cell *cell)
{
	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	code->exec = context->row.exec;
	code->follower = (struct exec_follower){.call = code->call,
						.emitter = &code_emitter,
						.sent = {cell->out_begin, cell->err_begin}};
	code->sse = sse_begin(code->call);
	put_object(&writer, NULL);
	put_text(&writer, "context_id", context->once ? NULL : context->row.id.text);
	put_text(&writer, "language", code_language_name(context->row.language));
	put_uint(&writer, "cell", cell->number);
	put_text(&writer, "exec_id", context->row.exec.text);
	put_object_end(&writer);
	code_stream_emit(code, "start", &buffer);
}

/* All results before `count`. */
static void code_stream_send_results(struct code_call *code, struct code_context *context,
				     const struct code_cell *cell, uint32_t count)
{
	while (code->results_sent < count && code->event_count < CODE_EVENTS_MAX) {
		struct json_writer writer = json_writer_on(code_stream_add_event(code, "result"));
		put_cell_result(&writer, context, cell, code->results_sent++);
	}
}

void code_stream_changed(struct code_call *code, struct code_context *context,
			 const struct code_cell *cell)
{
	struct call *call = call_hold(code->call);
	if (call->exchange && !code->sse && cell->state == CELL_RUNNING)
		code_stream_begin(code, context, cell);
	if (call->exchange && code->sse) {
		code_stream_send_results(code, context, cell,
					 MIN(cell->results_shown, cell_result_count(cell)));
		code_stream_pump(code);
	}
	/* Live results are sent between the output. */
	while (call->exchange && code->sse && !code->blocked && !code->ended &&
	       code->event_at < code->event_count) {
		struct code_event *event = &code->events[code->event_at++];
		code_stream_emit(code, event->name, &event->json);
		buffer_done(&event->json);
	}
	call_release(call);
}

void code_stream_done(struct code_call *code, struct code_context *context,
		      const struct code_cell *cell, const struct error *error)
{
	struct call *call = call_hold(code->call);
	if (error && !code->sse) {
		reply_error(call, error);
	} else if (call->exchange) {
		if (!code->sse)
			code_stream_begin(code, context, cell);
		code->ended = true;
		code->end[0] = cell ? cell->out_end : code->follower.sent[0];
		code->end[1] = cell ? cell->err_end : code->follower.sent[1];
		if (cell)
			code_stream_send_results(code, context, cell, cell_result_count(cell));
		if (cell && (cell->has_error || cell->context_ended)) {
			struct json_writer writer =
			    json_writer_on(code_stream_add_event(code, "error"));
			put_cell_error(&writer, NULL, context, cell);
		}
		struct json_writer writer =
		    json_writer_on(code_stream_add_event(code, error ? "error" : "end"));
		if (error) {
			put_error(&writer, error, call->request_id);
		} else {
			put_object(&writer, NULL);
			put_cell(&writer, context, cell, false);
			put_expiry_warning(&writer, &context->sandbox->row);
			put_object_end(&writer);
		}
		code_stream_pump(code);
	}
	call_release(call);
}

void code_stream_drain(struct call *call)
{
	struct code_call *code = call->state;
	code->blocked = false;
	if (!code->sse)
		return;
	sse_drained(code->sse);
	call_hold(call);
	code_stream_pump(code);
	call_release(call);
}

void code_stream_gone(struct code_call *code)
{
	sse_drop(TAKE_PTR(code->sse));
}
