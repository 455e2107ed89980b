/* A piece of code as events while it runs: stdout, stderr, result, error, end. Output is pulled
 * from the exec's log by offset, as fast as the client takes it; what comes after it waits until it
 * is out. Called by code.c; never blocks. */
#include <stdlib.h>
#include <string.h>

#include "api/code.h"
#include "api/sandbox_record.h"
#include "base/text.h"
#include "edge/sse.h"

#define PIECE (16 * KIB)

bool code_stream_wanted(struct call *call)
{
	const char *accept = http_header(call->exchange, "accept");
	return accept && strstr(accept, "text/event-stream");
}

static void emit(struct code_call *code, const char *name, const struct buffer *json)
{
	if (code->call->exchange)
		code->blocked = !sse_event(code->sse, name, json);
}

static void send_piece(struct code_call *code, enum exec_stream stream, const char *data,
		       size_t size)
{
	DONE_BUFFER struct buffer buffer = BUFFER(8 * PIECE);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text_size(&writer, "chunk", data, size);
	if (!text_is_utf8(data, size))
		put_base64(&writer, "data_base64", data, size);
	put_uint(&writer, "offset", code->sent[stream - 1]);
	put_object_end(&writer);
	emit(code, stream == EXEC_STDOUT ? "stdout" : "stderr", &buffer);
}

static void send_gap(struct code_call *code, enum exec_stream stream, uint64_t gap)
{
	DONE_BUFFER struct buffer buffer = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "stream", stream == EXEC_STDOUT ? "stdout" : "stderr");
	put_uint(&writer, "offset", code->sent[stream - 1]);
	put_uint(&writer, "bytes", gap);
	put_object_end(&writer);
	emit(code, "gap", &buffer);
}

/* One piece of one stream: true when something was sent. */
static bool pump_stream(struct code_call *code, struct exec *exec, enum exec_stream stream)
{
	static char data[PIECE]; /* one loop, one pump at a time */
	uint64_t *sent = &code->sent[stream - 1], gap = 0;
	uint64_t end = code->ended ? code->end[stream - 1] : exec_total(exec, stream);
	if (*sent >= end)
		return false;
	ssize_t size = exec_read(exec, stream, *sent, data, MIN(sizeof(data), end - *sent), &gap);
	if (gap > 0) {
		gap = MIN(gap, end - *sent);
		send_gap(code, stream, gap);
		*sent += gap;
		size = MIN(size, (ssize_t)(end - *sent));
	}
	size_t whole = size > 0 ? text_utf8_prefix(data, (size_t)size) : 0;
	/* The rest of the last character never came. */
	if (whole == 0 && size > 0 && code->ended)
		whole = (size_t)size;
	if (size < 0 && code->ended)
		*sent = end; /* nothing of it is kept */
	if (whole > 0) {
		send_piece(code, stream, data, whole);
		*sent += whole;
	}
	return whole > 0 || gap > 0;
}

static void pump(struct code_call *code)
{
	struct call *call = code->call;
	struct sandbox *sandbox = sandbox_by_id(call->api->core, &call->sandbox);
	struct exec *exec = NULL;
	struct error error;
	bool more = sandbox && id_is_set(&code->exec) &&
		    exec_find(sandbox, code->exec.text, &exec, &error) == 0;
	while (more && !code->blocked && call->exchange) {
		more = pump_stream(code, exec, EXEC_STDOUT);
		if (!code->blocked)
			more |= pump_stream(code, exec, EXEC_STDERR);
	}
	if (!code->ended)
		return;
	while (!code->blocked && call->exchange && code->event_at < code->event_count) {
		struct code_event *event = &code->events[code->event_at++];
		emit(code, event->name, &event->json);
	}
	if (call->exchange && code->event_at == code->event_count && !code->blocked) {
		sse_end(TAKE_PTR(code->sse));
		call_answered(call);
	}
}

static struct buffer *add_event(struct code_call *code, const char *name)
{
	struct code_event *event = &code->events[code->event_count++];
	event->name = name;
	event->json = BUFFER(REPLY_MAX);
	return &event->json;
}

static void begin(struct code_call *code, const struct code_context *context,
		  const struct code_cell *cell)
{
	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	code->exec = context->row.exec;
	code->sent[0] = cell->out_begin;
	code->sent[1] = cell->err_begin;
	code->sse = sse_begin(code->call);
	put_object(&writer, NULL);
	put_text(&writer, "context_id", context->once ? NULL : context->row.id.text);
	put_text(&writer, "language", code_language_name(context->row.language));
	put_uint(&writer, "cell", cell->number);
	put_text(&writer, "exec_id", context->row.exec.text);
	put_object_end(&writer);
	emit(code, "start", &buffer);
}

/* All results before `count`. */
static void send_results(struct code_call *code, struct code_context *context,
			 const struct code_cell *cell, uint32_t count)
{
	while (code->results_sent < count && code->event_count < CODE_EVENTS_MAX) {
		struct json_writer writer = json_writer_on(add_event(code, "result"));
		put_cell_result(&writer, context, cell, code->results_sent++);
	}
}

void code_stream_changed(struct code_call *code, struct code_context *context,
			 const struct code_cell *cell)
{
	struct call *call = call_hold(code->call);
	if (call->exchange && !code->sse && cell->state == CELL_RUNNING)
		begin(code, context, cell);
	if (call->exchange && code->sse) {
		send_results(code, context, cell,
			     MIN(cell->results_shown, cell_result_count(cell)));
		pump(code);
	}
	/* Live ones go between the output. */
	while (call->exchange && code->sse && !code->blocked && !code->ended &&
	       code->event_at < code->event_count) {
		struct code_event *event = &code->events[code->event_at++];
		emit(code, event->name, &event->json);
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
			begin(code, context, cell);
		code->ended = true;
		code->end[0] = cell ? cell->out_end : code->sent[0];
		code->end[1] = cell ? cell->err_end : code->sent[1];
		if (cell)
			send_results(code, context, cell, cell_result_count(cell));
		if (cell && (cell->has_error || cell->context_ended)) {
			struct json_writer writer = json_writer_on(add_event(code, "error"));
			put_cell_error(&writer, NULL, context, cell);
		}
		struct json_writer writer =
		    json_writer_on(add_event(code, error ? "error" : "end"));
		if (error) {
			put_error(&writer, error, call->request_id);
		} else {
			put_object(&writer, NULL);
			put_cell(&writer, context, cell, false);
			put_expiry_warning(&writer, &context->sandbox->row);
			put_object_end(&writer);
		}
		pump(code);
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
	pump(code);
	call_release(call);
}

void code_stream_gone(struct code_call *code)
{
	sse_drop(TAKE_PTR(code->sse));
}
