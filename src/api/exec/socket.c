/* GET .../exec/ws: many commands over one WebSocket, each with an id that the client chooses.
 *
 *     client  {"id":"a","cmd":"..."} (any field of POST .../exec)    {"id":"a","cancel":true}
 *     server  {"id":"a","stream":"stdout","data":"..."}   {"id":"a","exit":N,...}
 *             {"id":"a","error":"...",...}
 *
 * Output is pulled from each exec's log in turn, as fast as the client reads; a slow client slows
 * down its own commands and costs no memory. Its disconnect ends them all. Nothing blocks. */
#include "edge/web_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/exec/record.h"
#include "api/exec/events.h"
#include "api/exec/execs.h"
#include "base/text.h"
#include "edge/fields/exec_fields.h"

#define RUNNING_MAX 32
#define ID_MAX 64

struct multiplex {
	struct web_socket socket; /* first: see web_socket.h */
	struct call *call;
	struct list items; /* struct item; a served one is moved to the end */
	unsigned count;
	unsigned pending; /* requests that wait for the sandbox */
};

/* What the client sent. */
struct socket_message {
	struct multiplex *multiplex; /* its call is held while the message waits */
	json_t *json;
	char id[ID_MAX + 1];
	json_t *id_value, *cancel;
	struct exec_fields exec;
};
static const struct field message_fields[] = {
    {"id", FIELD_ANY_AT(struct socket_message, id_value)},
    {"cancel", FIELD_ANY_AT(struct socket_message, cancel)},
    {FIELD_ROWS_AT(struct socket_message, exec, struct exec_fields), .inner = exec_fields},
    {0},
};

/* A command under way. */
struct socket_exec {
	struct list link;
	struct multiplex *multiplex;
	struct exec_follower follower;
	char id[ID_MAX + 1];
};

static void socket_exec_free(struct socket_exec *socket_exec)
{
	exec_follower_leave(&socket_exec->follower);
	list_remove(&socket_exec->link);
	socket_exec->multiplex->count--;
	free(socket_exec);
}

static struct socket_exec *socket_exec_find(struct multiplex *multiplex, const char *id)
{
	list_each (&multiplex->items, node) {
		struct socket_exec *socket_exec = list_entry(node, struct socket_exec, link);
		if (strcmp(socket_exec->id, id) == 0)
			return socket_exec;
	}
	return NULL;
}

/* --- to the client --- */

static void multiplex_send_json(struct multiplex *multiplex, const struct json_writer *writer)
{
	if (!writer->full)
		web_socket_send(&multiplex->socket, WEBSOCKET_TEXT, writer->buffer->data,
				writer->buffer->size);
}

static void multiplex_send_error(struct multiplex *multiplex, const char *id,
				 const struct error *error)
{
	DONE_BUFFER struct buffer buffer = BUFFER(16 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	const struct error_info *info = error_info(error->kind);
	put_object(&writer, NULL);
	put_text(&writer, "id", id);
	put_text(&writer, "error", error->message);
	put_text(&writer, "code", info->code);
	put_text(&writer, "request_id", multiplex->call->request_id);
	put_bool(&writer, "retryable", info->retryable);
	put_object_end(&writer);
	multiplex_send_json(multiplex, &writer);
}

static void socket_exec_piece(struct exec_follower *follower, enum exec_stream stream,
			      const char *data, size_t size)
{
	struct socket_exec *socket_exec = container_of(follower, struct socket_exec, follower);
	DONE_BUFFER struct buffer buffer = BUFFER(EVENT_MAX);
	struct json_writer writer = json_writer_on(&buffer);
	put_object(&writer, NULL);
	put_text(&writer, "id", socket_exec->id);
	put_text(&writer, "stream", stream_name(stream));
	put_chunk(&writer, "data", data, size);
	put_object_end(&writer);
	multiplex_send_json(socket_exec->multiplex, &writer);
}

static void socket_exec_ended(struct exec_follower *follower)
{
	struct socket_exec *socket_exec = container_of(follower, struct socket_exec, follower);
	DONE_BUFFER struct buffer buffer = BUFFER(64 * KIB);
	struct json_writer writer = json_writer_on(&buffer);
	const struct exec_row *row = &follower->exec->row;
	put_object(&writer, NULL);
	put_text(&writer, "id", socket_exec->id);
	if (row->end == EXEC_END_TIMED_OUT)
		put_timed_out(&writer, row);
	put_int(&writer, "exit", exec_exit_code(row));
	put_exec_members(&writer, row);
	put_object_end(&writer);
	multiplex_send_json(socket_exec->multiplex, &writer);
	socket_exec_free(socket_exec);
}

static void socket_exec_failed(struct exec_follower *follower, const struct error *error)
{
	struct socket_exec *socket_exec = container_of(follower, struct socket_exec, follower);
	multiplex_send_error(socket_exec->multiplex, socket_exec->id, error);
	socket_exec_free(socket_exec);
}

static const struct exec_emitter item_emitter = {.piece_max = EVENT_PIECE_MAX,
						 .characters = true,
						 .piece = socket_exec_piece,
						 .ended = socket_exec_ended,
						 .failed = socket_exec_failed};

/* --- from the client --- */

static void message_free(struct socket_message *message)
{
	exec_fields_done(&message->exec);
	json_decref(message->json);
	free(message);
}

static int message_take_id(struct socket_message *message, struct error *error)
{
	const json_t *value = json_object_get(message->json, "id");
	const char *text = json_string_value(value);
	if (json_is_integer(value))
		snprintf(message->id, sizeof(message->id), "%lld",
			 (long long)json_integer_value(value));
	else if (!text || !*text || text_copy(message->id, sizeof(message->id), text) < 0)
		return error_set(error, ERROR_INVALID,
				 "field `id` must be a text of 1 to %d bytes, or a number", ID_MAX);
	return 0;
}

static int message_cancel(const struct socket_message *message, struct error *error)
{
	struct socket_exec *socket_exec = socket_exec_find(message->multiplex, message->id);
	if (!json_is_true(message->cancel) || json_object_size(message->json) > 2)
		return error_set(error, ERROR_INVALID,
				 "a cancel is {\"id\":\"...\",\"cancel\":true}");
	if (!socket_exec)
		return error_set(error, ERROR_EXEC_NOT_FOUND, "nothing runs as `%s`", message->id);
	exec_cancel(socket_exec->follower.exec, &message->multiplex->call->principal);
	return 0;
}

static int message_start_exec(struct socket_message *message, struct error *error)
{
	struct multiplex *multiplex = message->multiplex;
	struct sandbox *sandbox = sandbox_by_id(multiplex->call->core, &multiplex->call->sandbox);
	struct exec_fields *fields = &message->exec;
	struct exec *exec;
	if (!sandbox)
		return error_set(error, ERROR_SANDBOX_ENDED, "the sandbox has ended");
	if (socket_exec_find(multiplex, message->id))
		return error_set(error, ERROR_INVALID, "`%s` is still running", message->id);
	if (multiplex->count >= RUNNING_MAX)
		return error_set(error, ERROR_BUSY, "%d commands run on this connection already",
				 RUNNING_MAX);
	if (fields->background || fields->stdin_kind == STDIN_OPEN)
		return error_set(error, ERROR_INVALID,
				 "`background` and `stdin: true` are for POST .../exec");
	fields->spec.principal = &multiplex->call->principal;
	fields->spec.flags |= EXEC_LOSSLESS;
	if (exec_start(sandbox, &fields->spec, &exec, error) < 0)
		return -1;
	struct socket_exec *socket_exec = calloc(1, sizeof(*socket_exec));
	if (!socket_exec)
		abort();
	socket_exec->multiplex = multiplex;
	socket_exec->follower = (struct exec_follower){.call = multiplex->call,
						       .emitter = &item_emitter,
						       .blocked = &multiplex->socket.blocked,
						       .watcher.consumes = true};
	memcpy(socket_exec->id, message->id, sizeof(socket_exec->id));
	list_append(&multiplex->items, &socket_exec->link);
	multiplex->count++;
	exec_follower_begin(&socket_exec->follower, exec);
	if (fields->stdin_kind == STDIN_GIVEN)
		stdin_feed(exec, TAKE_PTR(fields->stdin_data), fields->stdin_size);
	return 0;
}

static void message_woken(void *data, const struct error *failed)
{
	struct socket_message *message = data;
	struct multiplex *multiplex = message->multiplex;
	struct error error;
	multiplex->pending--;
	if (!multiplex->socket.over && failed)
		multiplex_send_error(multiplex, message->id, failed);
	else if (!multiplex->socket.over && message_start_exec(message, &error) < 0)
		multiplex_send_error(multiplex, message->id, &error);
	message_free(message);
	call_release(multiplex->call);
}

/* It waits until its sandbox is awake. */
static int message_wait(struct socket_message *message, struct sandbox *sandbox,
			struct error *error)
{
	struct multiplex *multiplex = message->multiplex;
	if (multiplex->pending >= RUNNING_MAX)
		return error_set(error, ERROR_BUSY, "%d commands wait on this connection already",
				 RUNNING_MAX);
	if (sandbox_ready(sandbox, &multiplex->call->principal, true, message_woken, message,
			  error) < 0)
		return -1;
	multiplex->pending++;
	call_hold(multiplex->call);
	return 1;
}

/* 1: it waits, and is freed later. */
static int message_take(struct socket_message *message, struct error *error)
{
	struct call *call = message->multiplex->call;
	struct sandbox *sandbox = sandbox_by_id(call->core, &call->sandbox);
	if (message_take_id(message, error) < 0 ||
	    fields_parse(message->json, message_fields, FIELDS_REST, NULL, message, error) < 0)
		return -1;
	if (message->cancel)
		return message_cancel(message, error);
	if (exec_fields_check(&message->exec, FIELDS_REST, error) < 0)
		return -1;
	if (sandbox && !sandbox_may_exec(sandbox))
		return message_wait(message, sandbox, error);
	return message_start_exec(message, error);
}

static void multiplex_message(struct web_socket *socket, bool text, const char *data, size_t size)
{
	struct multiplex *multiplex = (struct multiplex *)socket;
	struct socket_message *message = calloc(1, sizeof(*message));
	struct error error;
	int result = 0;
	if (!message)
		abort();
	message->multiplex = multiplex;
	if (!text)
		result = error_set(&error, ERROR_INVALID, "a request is text: one JSON object");
	else
		result = json_parse_message(data, size, &message->json, &error);
	if (result == 0)
		result = message_take(message, &error);
	if (result < 0)
		multiplex_send_error(multiplex, message->id, &error);
	/* Each invalid message costs an answer: no more messages are read from a client that does
	 * not read them. */
	if (result < 0 && multiplex->socket.blocked)
		web_socket_pause(socket);
	if (result <= 0)
		message_free(message);
}

static void multiplex_drained(struct web_socket *socket)
{
	struct multiplex *multiplex = (struct multiplex *)socket;
	web_socket_resume(socket);
	/* The served command is moved to the end, so that one with much output does not block the
	 * others. */
	for (unsigned left = multiplex->count; left > 0 && !socket->blocked; left--) {
		struct socket_exec *socket_exec =
		    list_entry(multiplex->items.next, struct socket_exec, link);
		list_remove(&socket_exec->link);
		list_append(&multiplex->items, &socket_exec->link);
		exec_follower_pump(&socket_exec->follower);
	}
}

static void multiplex_closed(struct web_socket *socket, const struct principal *principal)
{
	struct multiplex *multiplex = (struct multiplex *)socket;
	while (!list_empty(&multiplex->items)) {
		struct socket_exec *socket_exec =
		    list_entry(multiplex->items.next, struct socket_exec, link);
		struct exec *exec = socket_exec->follower.exec;
		socket_exec_free(socket_exec);
		exec_cancel(exec, principal);
	}
}

static const struct web_socket_handlers multiplex_handlers = {multiplex_message, multiplex_drained,
							      multiplex_closed};

static void multiplex_act(struct call *call, struct sandbox *sandbox)
{
	struct multiplex *multiplex = call->state;
	(void)sandbox;
	web_socket_begin(&multiplex->socket, call, &multiplex_handlers, NULL, 0);
}

void exec_socket_get(struct call *call)
{
	struct multiplex *multiplex = calloc(1, sizeof(*multiplex));
	struct error error;
	if (!multiplex)
		abort();
	multiplex->call = call;
	list_init(&multiplex->items);
	call->state = multiplex;
	call->state_free = free;
	if (web_socket_check(call, &error) < 0)
		reply_error(call, &error);
	else
		call_ready(call, multiplex_act);
}
