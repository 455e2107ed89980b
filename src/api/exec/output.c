/* .../execs/{exec}/output and .../stdin: raw bytes from and to a running or ended command. Output
 * is read from the exec's log by offset, as fast as the client reads; this neither wakes a sandbox
 * nor needs its init. Nothing blocks but reads from the page cache. */
#include "edge/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/exec/events.h"
#include "api/exec/execs.h"
#include "core/exec/wait.h"
#include "edge/exec_follower.h"

#define WAIT_MS_MAX 60000

/* --- output --- */

struct output_call {
	struct call *call;
	struct exec_follower follower;
	enum exec_stream stream;
	bool both;            /* both streams, as events */
	uint64_t offset, end; /* where to begin, and where to stop */
	uint64_t offset_stderr;
	uint64_t limit;
	uint32_t wait_ms;
	const char *stream_name, *format; /* of the query */
	struct exec_wait *wait;           /* while it waits for output */
	bool follow;
	bool blocked; /* the connection's queue is full */
};

static void output_finish(struct output_call *output, bool whole)
{
	struct call *call = output->call;
	exec_follower_leave(&output->follower);
	if (!call->exchange)
		return;
	if (whole)
		http_stream_end(call->exchange);
	else
		http_stream_abort(call->exchange);
	call_answered(call);
}

static struct output_call *call_output(struct exec_follower *follower)
{
	return container_of(follower, struct output_call, follower);
}

static void output_piece(struct exec_follower *follower, enum exec_stream stream UNUSED,
			 const char *data, size_t size)
{
	struct output_call *output = call_output(follower);
	if (follower->exec)
		output->blocked = !http_stream_write(output->call->exchange, data, size);
}

/* A hole in the middle ends the answer: the client asks on from there and is told of it in that
 * answer's head. */
static void output_gap(struct exec_follower *follower, enum exec_stream stream UNUSED,
		       uint64_t bytes UNUSED)
{
	output_finish(call_output(follower), call_output(follower)->follow);
}

static void output_ended(struct exec_follower *follower)
{
	struct output_call *output = call_output(follower);
	uint64_t total = exec_total(follower->exec, output->stream);
	output_finish(output, follower->sent[output->stream - 1] >= MIN(output->end, total));
}

static void output_failed(struct exec_follower *follower, const struct error *error UNUSED)
{
	output_finish(call_output(follower), call_output(follower)->follow);
}

static void output_unreadable(struct exec_follower *follower)
{
	output_finish(call_output(follower), false);
}

static const struct exec_emitter output_emitter = {
    .piece_max = FILE_CHUNK_MAX,
    .piece = output_piece,
    .gap = output_gap,
    .ended = output_ended,
    .failed = output_failed,
    .unreadable = output_unreadable,
};

static void output_pump(struct output_call *output)
{
	struct call *call = call_hold(output->call);
	exec_follower_pump(&output->follower);
	/* What should be there and cannot be read will not come. */
	if (!output->follow && output->follower.exec && !output->blocked)
		output_finish(output, false);
	call_release(call);
}

static void output_drain(struct call *call)
{
	struct output_call *output = call->state;
	output->blocked = false;
	output_pump(output);
}

static void output_gone(struct call *call)
{
	struct output_call *output = call->state;
	exec_follower_leave(&output->follower);
}

const struct field exec_output_query[] = {
    {"stream", FIELD_TEXT_AT(struct output_call, stream_name), FIELD_WORDS_TOLD, .max = 7,
     .words = "stdout,stderr,both"},
    {"format", FIELD_TEXT_AT(struct output_call, format), .max = 15, .words = EXEC_FORMATS},
    {"from", FIELD_UINT_AT(struct output_call, offset)},
    {"from_stderr", FIELD_UINT_AT(struct output_call, offset_stderr)},
    {"limit", FIELD_UINT_AT(struct output_call, limit), .min = 1},
    {"wait_ms", FIELD_UINT_AT(struct output_call, wait_ms), .max = WAIT_MS_MAX},
    {"follow", FIELD_BOOL_AT(struct output_call, follow)},
    {0},
};

static int output_parse(struct call *call, struct output_call *output, bool events,
			struct error *error)
{
	if (call_query(call, output, error) < 0)
		return -1;
	const char *stream = output->stream_name;
	output->both = events && (!stream || strcmp(stream, "both") == 0);
	if (!stream || output->both || strcmp(stream, "stdout") == 0)
		output->stream = EXEC_STDOUT;
	else if (strcmp(stream, "stderr") == 0)
		output->stream = EXEC_STDERR;
	else
		return error_set(error, ERROR_INVALID,
				 "query parameter `stream` must be stdout or stderr, or of events "
				 "(Accept: text/event-stream with follow=1) both");
	return 0;
}

/* Finds the first kept byte, and sends the head of the answer. */
static void output_begin(struct output_call *output, struct exec *exec)
{
	struct call *call = output->call;
	uint64_t total = exec_total(exec, output->stream), gap = 0, limit = output->limit;
	uint64_t head = exec->row.head, tail = exec->row.tail;
	char byte, texts[4][24];
	struct error error;
	if (output->offset < total &&
	    exec_read(exec, output->stream, output->offset, &byte, 1, &gap) < 0) {
		error_set(&error, ERROR_INTERNAL, "the output log cannot be read");
		reply_error(call, &error);
		return;
	}
	output->offset += gap;
	output->end = limit < UINT64_MAX - output->offset ? output->offset + limit : UINT64_MAX;
	if (!output->follow) {
		uint64_t kept = total > head + tail && output->offset < head ? head : total;
		output->end = MAX(MIN(output->end, kept), output->offset);
	}
	snprintf(texts[0], sizeof(texts[0]), "%llu", (unsigned long long)output->offset);
	snprintf(texts[1], sizeof(texts[1]), "%llu", (unsigned long long)gap);
	snprintf(texts[2], sizeof(texts[2]), "%llu", (unsigned long long)total);
	snprintf(texts[3], sizeof(texts[3]), "%llu", (unsigned long long)output->end);
	const struct http_header headers[] = {{"X-Offset", texts[0]},
					      {"X-Gap", texts[1]},
					      {"X-Total", texts[2]},
					      {"X-Next-Offset", texts[3]}};
	http_stream_begin(call->exchange, 200, "application/octet-stream",
			  output->follow ? -1 : (int64_t)(output->end - output->offset), headers,
			  output->follow ? 3 : 4);
	/* A lossless command in the background waits for its followers; one with its own stream
	 * waits for that stream only, and nobody else can slow it down. */
	struct exec_follower *follower = &output->follower;
	*follower = (struct exec_follower){
	    .call = call,
	    .emitter = &output_emitter,
	    .blocked = &output->blocked,
	    .end = &output->end,
	    .watcher = {.consumes = output->follow && !exec_has_consumer(exec),
			.only = output->stream},
	};
	follower->sent[output->stream - 1] = output->offset;
	call->stream.on_drain = output_drain;
	call->on_gone = output_gone;
	exec_follower_begin(follower, exec);
	exec_watcher_consumed(&follower->watcher, output->stream, output->offset);
	output_pump(output);
}

/* --- waiting for some --- */

/* There is output, it has ended, or the time is over: answers with the available output. */
static void wait_over(void *data, struct exec *exec, const struct error *error)
{
	struct output_call *output = data;
	output->wait = NULL;
	if (error)
		reply_error(output->call, error);
	else
		output_begin(output, exec);
}

static void wait_gone(struct call *call)
{
	struct output_call *output = call->state;
	if (output->wait)
		exec_wait_cancel(TAKE_PTR(output->wait));
}

static void wait_begin(struct output_call *output, struct exec *exec)
{
	bool out = output->stream == EXEC_STDOUT;
	struct error error;
	output->call->on_gone = wait_gone;
	if (exec_wait_output(exec, out ? output->offset : UINT64_MAX,
			     out ? UINT64_MAX : output->offset, output->wait_ms, wait_over, output,
			     &output->wait, &error) < 0) {
		output->wait = NULL;
		reply_error(output->call, &error);
	}
}

static void events_begin(struct call *call, struct exec *exec, struct output_call *output)
{
	bool err = output->both || output->stream == EXEC_STDERR;
	bool out = output->both || output->stream == EXEC_STDOUT;
	uint64_t from_out = output->offset;
	uint64_t from_err = output->both ? output->offset_stderr : output->offset;
	const char *format = output->format;
	call->state = NULL;
	free(output);
	exec_events_follow(call, exec, format, out, err, from_out, from_err);
}

void exec_output_get(struct call *call)
{
	struct error error;
	struct exec *exec;
	struct output_call *output = calloc(1, sizeof(*output));
	bool events = call_wants_events(call);
	if (!output)
		abort();
	output->call = call;
	output->limit = UINT64_MAX;
	call->state = output;
	call->state_free = free;
	struct sandbox *sandbox = call_sandbox(call);
	if (!sandbox)
		return;
	if (output_parse(call, output, events, &error) < 0 ||
	    exec_find(sandbox, call->parameters[1], &exec, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (events && output->follow)
		events_begin(call, exec, output);
	else if (output->wait_ms > 0 && !output->follow && !exec_ended(exec) &&
		 exec_total(exec, output->stream) <= output->offset)
		wait_begin(output, exec);
	else
		output_begin(output, exec);
}

/* --- standard input --- */

#define STDIN_LEFT_MAX (1 * MIB) /* larger than any piece of a body */

struct stdin_call {
	struct call *call;
	struct exec_watcher watcher;
	struct exec *exec;
	struct buffer left; /* received and not yet taken */
	uint64_t taken;
	bool whole; /* the body has ended */
	bool close;
};

const struct field exec_stdin_query[] = {{"close", FIELD_BOOL_AT(struct stdin_call, close)}, {0}};

static void input_free(void *state)
{
	struct stdin_call *input = state;
	buffer_done(&input->left);
	free(input);
}

static void input_leave(struct stdin_call *input)
{
	if (input->exec)
		exec_unwatch(&input->watcher);
	input->exec = NULL;
}

static void input_fail(struct stdin_call *input, const struct error *error)
{
	input_leave(input);
	reply_error(input->call, error);
}

static void input_done(struct stdin_call *input)
{
	struct error error;
	if (input->close && exec_stdin_close(input->exec, &error) < 0) {
		input_fail(input, &error);
		return;
	}
	input_leave(input);
	struct buffer buffer = BUFFER(REPLY_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_uint(&writer, "written", input->taken);
	put_bool(&writer, "closed", input->close);
	put_object_end(&writer);
	reply_json(input->call, 200, &writer);
}

static void input_pump(struct stdin_call *input)
{
	struct error error;
	if (input->left.size > 0) {
		ssize_t taken = exec_stdin(input->exec, input->left.data, input->left.size, &error);
		if (taken < 0) {
			input_fail(input, &error);
			return;
		}
		buffer_consume(&input->left, (size_t)taken);
		input->taken += (uint64_t)taken;
	}
	if (input->left.size > 0)
		http_body_pause(input->call->exchange);
	else if (input->whole)
		input_done(input);
	else
		http_body_resume(input->call->exchange);
}

static void input_data(struct call *call, const char *data, size_t size)
{
	struct stdin_call *input = call->state;
	struct error error;
	if (!input->exec)
		return;
	if (buffer_append(&input->left, data, size) < 0) {
		error_set(&error, ERROR_INTERNAL, "a body came faster than it was asked for");
		input_fail(input, &error);
		return;
	}
	input_pump(input);
}

static void input_end(struct call *call)
{
	struct stdin_call *input = call->state;
	input->whole = true;
	if (input->exec)
		input_pump(input);
}

static void input_changed(struct exec_watcher *watcher, struct exec *exec)
{
	struct stdin_call *input = container_of(watcher, struct stdin_call, watcher);
	struct error error;
	if (exec_ended(exec)) {
		error_set(&error, ERROR_CONFLICT, "the command ended after it took %llu bytes",
			  (unsigned long long)input->taken);
		input_fail(input, &error);
	} else if (input->left.size > 0) {
		input_pump(input);
	}
}

static void input_forgotten(struct exec_watcher *watcher)
{
	struct stdin_call *input = container_of(watcher, struct stdin_call, watcher);
	struct error error;
	input->exec = NULL;
	core_forgotten_error(input->call->core, &input->call->sandbox, &error);
	reply_error(input->call, &error);
}

static void input_gone(struct call *call)
{
	input_leave(call->state);
}

static void stdin_act(struct call *call, struct sandbox *sandbox)
{
	struct stdin_call *input = call->state;
	struct exec *exec;
	struct error error;
	if (exec_find(sandbox, call->parameters[1], &exec, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	if (exec_ended(exec)) {
		error_set(&error, ERROR_CONFLICT, "the command has ended");
		reply_error(call, &error);
		return;
	}
	if (!(exec->row.flags & EXEC_STDIN)) {
		error_set(&error, ERROR_INVALID,
			  "the command was not started with `\"stdin\": true`");
		reply_error(call, &error);
		return;
	}
	input->exec = exec;
	input->watcher.changed = input_changed;
	input->watcher.forgotten = input_forgotten;
	call->on_gone = input_gone;
	call->stream.on_data = input_data;
	call->stream.on_end = input_end;
	exec_watch(exec, &input->watcher);
	http_body_read(call->exchange, UINT64_MAX);
}

void exec_stdin_post(struct call *call)
{
	struct error error;
	struct stdin_call *input = calloc(1, sizeof(*input));
	if (!input)
		abort();
	input->call = call;
	input->left = BUFFER(STDIN_LEFT_MAX);
	call->state = input;
	call->state_free = input_free;
	if (call_query(call, input, &error) < 0) {
		reply_error(call, &error);
		return;
	}
	call_ready(call, stdin_act);
}
