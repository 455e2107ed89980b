/* A command's output while it runs: server-sent events, or lines of JSON. `POST .../exec/stream`
 * runs a command (so does `POST .../exec` with `Accept: text/event-stream`), `GET
 * .../output?follow=1` follows an existing one. Output is pulled from the exec's log by offset, as
 * fast as the client reads: a slow client slows down its own command (which is lossless unless
 * detached), and costs no memory. When a client disconnects, the command that it runs is cancelled,
 * unless it said `detach=1`.
 *
 * Every chunk is cut between characters. Bytes that are not UTF-8 come unchanged in `data_base64`,
 * beside a `chunk` that has U+FFFD in their places. */
#include "api/exec/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/exec/record.h"
#include "base/clock.h"
#include "base/text.h"
#include "edge/fields/exec_fields.h"
#include "edge/sse.h"

enum form {
	FORM_EVENTS, /* event: stdout|stderr|exit|... */
	FORM_CHUNKS, /* {stream,data,is_final,exit_code,duration_ms}, as events without a name */
	FORM_LINES,  /* the same, one per line (NDJSON) */
};

struct exec_events {
	struct exec_follower follower;
	struct call *call;
	struct exec_fields *fields; /* until the start */
	struct sse *sse;
	enum form form;
	bool begun;       /* the head was sent */
	bool blocked;     /* the connection's queue is full */
	bool owner;       /* this call began the exec: it ends with the client */
	bool input_given; /* all of it came with the request */
};

static void exec_events_free(void *state)
{
	struct exec_events *events = state;
	if (events->fields)
		exec_fields_done(events->fields);
	free(events->fields);
	free(events);
}

static void exec_events_begin(struct exec_events *events)
{
	struct call *call = events->call;
	events->begun = true;
	if (events->form == FORM_LINES)
		http_stream_begin(call->exchange, 200, "application/x-ndjson", -1,
				  &(struct http_header){"Cache-Control", "no-store"}, 1);
	else
		events->sse = sse_begin(call);
}

static void exec_events_end(struct exec_events *events)
{
	struct call *call = events->call;
	exec_follower_leave(&events->follower);
	if (!call->exchange)
		return;
	if (events->sse)
		sse_end(TAKE_PTR(events->sse));
	else
		http_stream_end(call->exchange);
	call_answered(call);
}

/* --- what is sent --- */

static void exec_events_emit(struct exec_events *events, const char *name,
			     const struct json_writer *writer)
{
	if (!events->call->exchange || writer->full)
		return;
	if (events->sse) {
		events->blocked = !sse_event(
		    events->sse, events->form == FORM_CHUNKS ? "message" : name, writer->buffer);
		return;
	}
	if (buffer_append_text(writer->buffer, "\n") == 0)
		events->blocked = !http_stream_write(events->call->exchange, writer->buffer->data,
						     writer->buffer->size);
}

const char *stream_name(enum exec_stream stream)
{
	return stream == EXEC_STDOUT ? "stdout" : "stderr";
}

void put_chunk(struct json_writer *writer, const char *key, const char *data, size_t size)
{
	put_text_size(writer, key, data, size);
	if (!text_is_utf8(data, size))
		put_base64(writer, "data_base64", data, size);
}

void put_piece_event(struct json_writer *writer, const char *data, size_t size, uint64_t offset)
{
	put_object(writer, NULL);
	put_chunk(writer, "chunk", data, size);
	put_uint(writer, "offset", offset);
	put_object_end(writer);
}

void put_gap_event(struct json_writer *writer, enum exec_stream stream, uint64_t offset,
		   uint64_t bytes)
{
	put_object(writer, NULL);
	put_text(writer, "stream", stream_name(stream));
	put_uint(writer, "offset", offset);
	put_uint(writer, "bytes", bytes);
	put_object_end(writer);
}

static void events_send_piece(struct exec_follower *follower, enum exec_stream stream,
			      const char *data, size_t size)
{
	struct exec_events *events = container_of(follower, struct exec_events, follower);
	DONE_BUFFER struct buffer buffer = BUFFER(EVENT_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	if (events->form == FORM_EVENTS) {
		put_piece_event(&writer, data, size, follower->sent[stream - 1]);
	} else {
		put_object(&writer, NULL);
		put_text(&writer, "stream", stream_name(stream));
		put_chunk(&writer, "data", data, size);
		put_bool(&writer, "is_final", false);
		put_null(&writer, "exit_code");
		put_null(&writer, "duration_ms");
		put_object_end(&writer);
	}
	exec_events_emit(events, stream_name(stream), &writer);
}

static void events_send_gap(struct exec_follower *follower, enum exec_stream stream, uint64_t gap)
{
	struct exec_events *events = container_of(follower, struct exec_events, follower);
	DONE_BUFFER struct buffer buffer = BUFFER(KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_gap_event(&writer, stream, follower->sent[stream - 1], gap);
	if (events->form == FORM_EVENTS)
		exec_events_emit(events, "gap", &writer);
}

static void events_send_start(struct exec_events *events)
{
	DONE_BUFFER struct buffer buffer = BUFFER(64 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	if (events->form != FORM_EVENTS)
		return;
	put_exec(&writer, NULL, events->follower.exec);
	exec_events_emit(events, "start", &writer);
}

static void events_send_error(struct exec_events *events, const struct error *error)
{
	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	put_error(&writer, error, events->call->request_id);
	exec_events_emit(events, "error", &writer);
}

void put_timed_out(struct json_writer *writer, const struct exec_row *row)
{
	char text[64];
	snprintf(text, sizeof(text), "command timeout after %gs", (double)row->timeout_ms / 1000);
	put_text(writer, "error", text);
	put_text(writer, "code", error_info(ERROR_TIMED_OUT)->code);
}

/* A time-out is an error with all members of an exit, so that both kinds of clients understand
 * it. */
static const char *put_last(struct exec_events *events, struct json_writer *writer,
			    const struct left_process *processes, size_t count)
{
	const struct exec *exec = events->follower.exec;
	bool timed_out = exec->row.end == EXEC_END_TIMED_OUT;
	put_object(writer, NULL);
	if (timed_out) {
		put_timed_out(writer, &exec->row);
		put_text(writer, "request_id", events->call->request_id);
		put_bool(writer, "retryable", false);
	}
	put_exec_members(writer, &exec->row);
	put_uint(writer, "stdout_bytes", exec_total(exec, EXEC_STDOUT));
	put_uint(writer, "stderr_bytes", exec_total(exec, EXEC_STDERR));
	put_left_running(writer, processes, MIN(count, (size_t)64));
	put_expiry_warning(writer, &exec->sandbox->row);
	put_object_end(writer);
	return timed_out ? "error" : "exit";
}

static void put_last_chunk(struct exec_events *events, struct json_writer *writer)
{
	const struct exec_row *row = &events->follower.exec->row;
	put_object(writer, NULL);
	put_text(writer, "stream", "stdout");
	put_text(writer, "data", "");
	put_bool(writer, "is_final", true);
	put_int(writer, "exit_code", exec_exit_code(row));
	put_number(writer, "duration_ms", (double)row->wall_ns / NSEC_PER_MSEC);
	put_text(writer, "exec_id", row->id.text);
	put_bool(writer, "timed_out", row->end == EXEC_END_TIMED_OUT);
	put_object_end(writer);
}

static void exec_events_finished(void *data, const struct left_process *processes, size_t count)
{
	struct exec_events *events = data;
	struct call *call = events->call;
	if (call->exchange && events->follower.exec) {
		DONE_BUFFER struct buffer buffer = BUFFER(64 * KIB);
		struct json_writer writer = json_writer_on(&buffer);
		const char *name = "exit";
		if (events->form == FORM_EVENTS)
			name = put_last(events, &writer, processes, count);
		else
			put_last_chunk(events, &writer);
		exec_events_emit(events, name, &writer);
		exec_events_end(events);
	}
	call_release(call);
}

/* --- the exec --- */

static void events_ended(struct exec_follower *follower)
{
	call_hold(follower->call);
	exec_finish(follower->exec, exec_events_finished,
		    container_of(follower, struct exec_events, follower));
}

static void events_running(struct exec_follower *follower)
{
	struct exec_events *events = container_of(follower, struct exec_events, follower);
	struct error error;
	if (!events->begun) {
		exec_events_begin(events);
		events_send_start(events);
	}
	if (events->owner && events->input_given && stdin_lost(follower->exec, &error)) {
		/* The feed cancels the exec; this answers its client. */
		events_send_error(events, &error);
		exec_events_end(events);
	}
}

static void events_failed(struct exec_follower *follower, const struct error *error)
{
	struct exec_events *events = container_of(follower, struct exec_events, follower);
	if (!events->begun) {
		reply_error(events->call, error);
		return;
	}
	events_send_error(events, error);
	exec_events_end(events);
}

static const struct exec_emitter events_emitter = {.piece_max = EVENT_PIECE_MAX,
						   .characters = true,
						   .running = events_running,
						   .piece = events_send_piece,
						   .gap = events_send_gap,
						   .ended = events_ended,
						   .failed = events_failed};

static void exec_events_drained(struct call *call)
{
	struct exec_events *events = call->state;
	events->blocked = false;
	if (events->sse)
		sse_drained(events->sse);
	exec_follower_pump(&events->follower);
}

static void exec_events_gone(struct call *call)
{
	struct exec_events *events = call->state;
	struct exec *exec = events->follower.exec;
	sse_drop(TAKE_PTR(events->sse));
	exec_follower_leave(&events->follower);
	if (exec && events->owner)
		exec_cancel(exec, NULL);
}

static void exec_events_watch(struct exec_events *events, struct exec *exec)
{
	struct call *call = events->call;
	call->stream.on_drain = exec_events_drained;
	call->on_gone = exec_events_gone;
	exec_follower_begin(&events->follower, exec);
}

/* --- running one --- */

static void exec_events_act(struct call *call, struct sandbox *sandbox)
{
	struct exec_events *events = call->state;
	struct exec_fields *fields = events->fields;
	struct exec *exec;
	struct error error;
	fields->spec.principal = &call->principal;
	/* A detached command must not wait for a reader. */
	if (events->owner)
		fields->spec.flags |= EXEC_LOSSLESS;
	if (exec_start(sandbox, &fields->spec, &exec, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	events->follower.watcher.consumes = events->owner;
	exec_events_watch(events, exec);
	if (fields->stdin_kind == STDIN_GIVEN)
		stdin_feed(exec, TAKE_PTR(fields->stdin_data), fields->stdin_size);
	events->input_given = fields->stdin_kind == STDIN_GIVEN;
	/* A stream may be open for hours: it keeps no more than it needs. */
	exec_fields_done(fields);
	free(TAKE_PTR(events->fields));
	json_decref(call->body);
	call->body = NULL;
}

const struct field exec_stream_query[] = {
    {"format", FIELD_TEXT_AT(struct exec_stream_query, format), .max = 15, .words = EXEC_FORMATS},
    {"detach", FIELD_BOOL_AT(struct exec_stream_query, detach)},
    {0},
};

static enum form call_events_form(struct call *call, const char *format)
{
	bool lines =
	    call_accepts(call, "application/x-ndjson") && !call_accepts(call, "text/event-stream");
	return lines                                      ? FORM_LINES
	       : format && strcmp(format, "orkestr") == 0 ? FORM_CHUNKS
							  : FORM_EVENTS;
}

static struct exec_events *exec_events_new(struct call *call)
{
	struct exec_events *events = calloc(1, sizeof(*events));
	if (!events)
		abort();
	events->call = call;
	events->follower = (struct exec_follower){
	    .call = call, .emitter = &events_emitter, .blocked = &events->blocked};
	call->state = events;
	call->state_free = exec_events_free;
	return events;
}

void exec_stream_post(struct call *call)
{
	struct exec_events *events = exec_events_new(call);
	struct exec_stream_query query = {0};
	struct error error;
	events->fields = calloc(1, sizeof(*events->fields));
	if (!events->fields)
		abort();
	int result = call_query(call, &query, &error);
	if (result == 0)
		result = call_fields(call, events->fields, &error);
	if (result == 0)
		result = exec_fields_check(events->fields, FIELDS_REST, &error);
	if (result == 0 && events->fields->background)
		result = error_set(&error, ERROR_INVALID,
				   "of a stream, `background` is the query parameter `detach=1`");
	if (result == 0 && call_idempotency_key(call))
		result = error_set(&error, ERROR_INVALID,
				   "an Idempotency-Key is not for streams: use `background`");
	if (result < 0) {
		reply_error(call, &error);
		return;
	}
	events->form = call_events_form(call, query.format);
	events->owner = !query.detach;
	call_ready(call, exec_events_act);
}

/* --- following one that is there --- */

void exec_events_follow(struct call *call, struct exec *exec, const char *format, bool out,
			bool err, uint64_t from_out, uint64_t from_err)
{
	struct exec_events *events = exec_events_new(call);
	events->form = call_events_form(call, format);
	events->follower.sent[0] = from_out;
	events->follower.sent[1] = from_err;
	/* As for a raw follower: see output.c. */
	events->follower.watcher.consumes = !exec_has_consumer(exec);
	events->follower.watcher.only = out && err ? 0 : out ? EXEC_STDOUT : EXEC_STDERR;
	exec_events_watch(events, exec);
	if (out)
		exec_watcher_consumed(&events->follower.watcher, EXEC_STDOUT, from_out);
	if (err)
		exec_watcher_consumed(&events->follower.watcher, EXEC_STDERR, from_err);
	exec_follower_changed(&events->follower);
}
