/* A command over an upgraded connection (proto/exec_stream.h): standard input under credit,
 * signals, window size; output, exit. Begun by exec_post(). The client is not trusted: every frame
 * is checked, all its data is bounded, and a client that stops reading only blocks its own
 * command. */
#include "api/exec/exec_call.h"

#include <signal.h>
#include <stdlib.h>

#include "api/sandbox/record.h"
#include "core/exec/oneshot.h"
#include "proto/codec.h"

/* --- to the client --- */

static void stream_send(struct exec_call *exec_call, enum exec_stream_type type, const void *data,
			size_t size)
{
	uint8_t header[EXEC_STREAM_HEADER];
	if (!exec_call->call->exchange)
		return;
	struct writer writer = writer_on(header, sizeof(header));
	write_u8(&writer, (uint8_t)type);
	write_u32(&writer, (uint32_t)size);
	bool room = http_stream_write(exec_call->call->exchange, header, sizeof(header));
	if (size > 0)
		room = http_stream_write(exec_call->call->exchange, data, size);
	exec_call->blocked = !room;
}

/* The connection ends, for whatever reason; with `cancel` the command ends too, unless it is
 * detached, in the name of `principal`. */
static void stream_break_off(struct exec_call *exec_call, bool cancel,
			     const struct principal *principal)
{
	struct call *call = exec_call->call;
	struct exec *exec = exec_call->follower.exec;
	exec_follower_leave(&exec_call->follower);
	if (exec && cancel && !exec_call->detach)
		exec_cancel(exec, principal);
	if (exec_call->oneshot)
		oneshot_cancel(TAKE_PTR(exec_call->oneshot), cancel ? principal : &call->principal);
	if (call->exchange) {
		http_stream_end(call->exchange);
		call_answered(call);
	}
}

static void stream_send_error(struct exec_call *exec_call, const struct error *error)
{
	DONE_BUFFER struct buffer buffer = BUFFER(EXEC_STREAM_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_error(&writer, error, exec_call->call->request_id);
	stream_send(exec_call, EXEC_STREAM_ERROR, buffer.data, buffer.size);
}

static void stream_finished(void *data, const struct left_process *processes, size_t count)
{
	struct exec_call *exec_call = data;
	struct call *call = exec_call->call;
	const struct exec *exec = exec_call->follower.exec;
	if (call->exchange && exec) {
		DONE_BUFFER struct buffer buffer = BUFFER(EXEC_STREAM_MAX);
		struct json_writer writer = json_writer_on(&buffer);
		put_object(&writer, NULL);
		put_exec_members(&writer, &exec->row);
		put_uint(&writer, "stdout_bytes", exec_call->follower.sent[0]);
		put_uint(&writer, "stderr_bytes", exec_call->follower.sent[1]);
		/* As many as surely fit into a frame. */
		put_left_running(&writer, processes, MIN(count, (size_t)64));
		put_expiry_warning(&writer, &exec->sandbox->row);
		put_object_end(&writer);
		stream_send(exec_call, EXEC_STREAM_EXIT, buffer.data, buffer.size);
		stream_break_off(exec_call, false, NULL);
	}
	call_release(call);
}

static void stream_ended(struct exec_follower *follower)
{
	call_hold(follower->call);
	exec_finish(follower->exec, stream_finished,
		    container_of(follower, struct exec_call, follower));
}

static void stream_piece(struct exec_follower *follower, enum exec_stream stream, const char *data,
			 size_t size)
{
	stream_send(container_of(follower, struct exec_call, follower),
		    stream == EXEC_STDOUT ? EXEC_STREAM_STDOUT : EXEC_STREAM_STDERR, data, size);
}

static void stream_gap(struct exec_follower *follower, enum exec_stream stream, uint64_t gap)
{
	uint8_t payload[9];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u8(&writer, (uint8_t)stream);
	write_u64(&writer, gap);
	stream_send(container_of(follower, struct exec_call, follower), EXEC_STREAM_GAP, payload,
		    sizeof(payload));
}

/* --- from the client --- */

static void stream_grant_credit(struct exec_call *exec_call, uint32_t bytes)
{
	uint8_t payload[4];
	struct writer writer = writer_on(payload, sizeof(payload));
	write_u32(&writer, bytes);
	exec_call->stdin_granted += bytes;
	stream_send(exec_call, EXEC_STREAM_STDIN_CREDIT, payload, sizeof(payload));
}

static void stream_pump_stdin(struct exec_call *exec_call)
{
	struct exec *exec = exec_call->follower.exec;
	struct error error;
	if (!exec || exec_ended(exec))
		return;
	if (stdin_lost(exec, &error)) {
		stream_send_error(exec_call, &error);
		exec_cancel(exec, NULL);
		stream_break_off(exec_call, false, NULL);
		return;
	}
	if (exec_call->stdin_left.size > 0) {
		ssize_t taken = exec_stdin(exec, exec_call->stdin_left.data,
					   exec_call->stdin_left.size, &error);
		/* Closed meanwhile: further input is discarded, as by a pipe. */
		if (taken < 0 && exec->stdin_closed)
			taken = (ssize_t)exec_call->stdin_left.size;
		/* No connection to the sandbox: repeated after the reconnect. */
		if (taken < 0)
			return;
		buffer_consume(&exec_call->stdin_left, (size_t)taken);
		if (taken > 0)
			stream_grant_credit(exec_call, (uint32_t)taken);
	}
	if (exec_call->stdin_left.size == 0 && exec_call->stdin_end &&
	    exec_stdin_close(exec, &error) == 0)
		exec_call->stdin_end = false;
}

static int stream_take_stdin(struct exec_call *exec_call, struct bytes payload)
{
	if (payload.size > exec_call->stdin_granted || !(exec_call->fields.spec.flags & EXEC_STDIN))
		return -1;
	exec_call->stdin_granted -= payload.size;
	if (buffer_append(&exec_call->stdin_left, payload.data, payload.size) < 0)
		return -1;
	stream_pump_stdin(exec_call);
	return 0;
}

/* The command continues without the client. */
static void stream_leave(struct exec_call *exec_call)
{
	struct error error;
	bool kept = !exec_call->oneshot || oneshot_leave(exec_call->oneshot, &error) == 0;
	if (kept) {
		exec_call->oneshot = NULL;
		exec_reader_leaves(exec_call->follower.exec);
	} else {
		stream_send_error(exec_call, &error);
	}
	stream_break_off(exec_call, !kept, &exec_call->call->principal);
}

/* 0, or -1: the client violates the protocol. A refusal of the domain (a signal to a command that
 * has just ended) is not the client's fault. */
static int stream_take_frame(struct exec_call *exec_call, uint8_t type, struct bytes payload)
{
	struct reader reader = reader_on(payload.data, payload.size);
	struct error error;
	int result = 0;
	switch ((enum exec_stream_type)type) {
	case EXEC_STREAM_STDIN:
		return stream_take_stdin(exec_call, payload);
	case EXEC_STREAM_STDIN_CLOSE:
		exec_call->stdin_end = exec_call->fields.spec.flags & EXEC_STDIN;
		stream_pump_stdin(exec_call);
		return payload.size == 0 ? 0 : -1;
	case EXEC_STREAM_SIGNAL: {
		uint32_t number = read_u32(&reader), scope = read_u32(&reader);
		if (reader_finish(&reader) < 0 || number < 1 || number > 64 || scope > SIGNAL_TREE)
			return -1;
		result = exec_signal(exec_call->follower.exec, &exec_call->call->principal,
				     (int)number, (enum signal_scope)scope, &error);
		break;
	}
	case EXEC_STREAM_RESIZE: {
		uint16_t rows = read_u16(&reader), columns = read_u16(&reader);
		if (reader_finish(&reader) < 0)
			return -1;
		result = exec_resize(exec_call->follower.exec, rows, columns, &error);
		break;
	}
	case EXEC_STREAM_LEAVE:
		if (payload.size > 0)
			return -1;
		stream_leave(exec_call);
		return 0;
	case EXEC_STREAM_STARTED:
	case EXEC_STREAM_STDOUT:
	case EXEC_STREAM_STDERR:
	case EXEC_STREAM_GAP:
	case EXEC_STREAM_STDIN_CREDIT:
	case EXEC_STREAM_EXIT:
	case EXEC_STREAM_ERROR:
	default:
		return -1;
	}
	(void)result;
	return 0;
}

static void stream_refuse(struct exec_call *exec_call)
{
	struct error error;
	error_set(&error, ERROR_MALFORMED, "a frame that is not of %s", EXEC_STREAM_PROTOCOL);
	stream_send_error(exec_call, &error);
	stream_break_off(exec_call, true, &exec_call->call->principal);
}

static void stream_data(struct call *call, const char *data, size_t size)
{
	struct exec_call *exec_call = call->state;
	if (!exec_call->follower.exec)
		return;
	/* Any frame may end the call. */
	call_hold(call);
	while (size > 0 && exec_call->follower.exec) {
		size_t room = exec_call->input.maximum - exec_call->input.size;
		size_t piece = MIN(size, room);
		if (buffer_append(&exec_call->input, data, piece) < 0)
			break;
		data += piece;
		size -= piece;
		size_t at = 0;
		while (exec_call->follower.exec &&
		       exec_call->input.size - at >= EXEC_STREAM_HEADER) {
			const uint8_t *frame = (const uint8_t *)exec_call->input.data + at;
			struct reader reader = reader_on(frame, EXEC_STREAM_HEADER);
			uint8_t type = read_u8(&reader);
			uint32_t length = read_u32(&reader);
			if (length > EXEC_STREAM_MAX) {
				stream_refuse(exec_call);
				break;
			}
			if (exec_call->input.size - at < EXEC_STREAM_HEADER + length)
				break;
			struct bytes payload = {frame + EXEC_STREAM_HEADER, length};
			if (stream_take_frame(exec_call, type, payload) < 0) {
				stream_refuse(exec_call);
				break;
			}
			at += EXEC_STREAM_HEADER + length;
		}
		buffer_consume(&exec_call->input, at);
	}
	call_release(call);
}

static void stream_drain(struct call *call)
{
	struct exec_call *exec_call = call->state;
	exec_call->blocked = false;
	exec_follower_pump(&exec_call->follower);
}

/* The client closed its side: it will send no signal and read no answer. */
static void stream_end(struct call *call)
{
	stream_break_off(call->state, true, NULL);
}

static void stream_gone(struct call *call)
{
	stream_break_off(call->state, true, NULL);
}

/* --- the exec --- */

static void stream_upgrade(struct exec_call *exec_call)
{
	struct call *call = exec_call->call;
	const struct sandbox *sandbox = exec_call->follower.exec->sandbox;
	DONE_BUFFER struct buffer buffer = BUFFER(EXEC_STREAM_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	exec_call->upgraded = true;
	call->stream.on_data = stream_data;
	call->stream.on_end = stream_end;
	call->stream.on_drain = stream_drain;
	http_upgrade(call->exchange, EXEC_STREAM_PROTOCOL, NULL, 0);
	put_object(&writer, NULL);
	put_exec_members(&writer, &exec_call->follower.exec->row);
	if (exec_call->oneshot)
		put_sandbox(&writer, "sandbox", &sandbox->row, sandbox);
	put_object_end(&writer);
	stream_send(exec_call, EXEC_STREAM_STARTED, buffer.data, buffer.size);
}

static void stream_running(struct exec_follower *follower)
{
	struct exec_call *exec_call = container_of(follower, struct exec_call, follower);
	if (!exec_call->upgraded)
		stream_upgrade(exec_call);
	/* Lost standard input ends the call. */
	stream_pump_stdin(exec_call);
}

static void stream_failed(struct exec_follower *follower, const struct error *error)
{
	struct exec_call *exec_call = container_of(follower, struct exec_call, follower);
	if (exec_call->upgraded)
		stream_send_error(exec_call, error);
	else
		reply_error(exec_call->call, error);
	stream_break_off(exec_call, false, NULL);
}

static const struct exec_emitter stream_emitter = {.piece_max = EXEC_STREAM_MAX,
						   .running = stream_running,
						   .piece = stream_piece,
						   .gap = stream_gap,
						   .ended = stream_ended,
						   .failed = stream_failed};

void exec_stream_begin(struct call *call, struct sandbox *sandbox)
{
	struct exec_call *exec_call = call->state;
	struct exec_fields *fields = &exec_call->fields;
	struct exec *exec;
	struct error error;
	fields->spec.principal = &call->principal;
	/* Standard input is open unless the client refused it. A detached command must not wait for
	 * a reader. */
	if (!fields->stdin_said || fields->stdin_kind == STDIN_OPEN)
		fields->spec.flags |= EXEC_STDIN;
	if (!exec_call->detach)
		fields->spec.flags |= EXEC_LOSSLESS;
	exec_call->stdin_granted = FILE_WINDOW;
	exec_call->stdin_left = BUFFER(FILE_WINDOW);
	exec_call->input = BUFFER(2 * (EXEC_STREAM_HEADER + EXEC_STREAM_MAX));
	if (exec_start(sandbox, &fields->spec, &exec, &error) < 0) {
		call_hold(call);
		reply_error(call, &error);
		stream_break_off(exec_call, false, NULL);
		call_release(call);
		return;
	}
	exec_call->follower = (struct exec_follower){.call = call,
						     .emitter = &stream_emitter,
						     .blocked = &exec_call->blocked,
						     .watcher.consumes = true};
	call->on_gone = stream_gone;
	exec_follower_begin(&exec_call->follower, exec);
}
